"""How often the verdict on a corpus is wrong, and how often it finds one: python -m benchmarks.corpus_fpr --help.

A model whose members are known is fine-tuned on a part of the non-members, as in pipelines.fsd; the other
texts are scored once. Then the remaining non-members are split at random, many times, into a "suspect" and a "known"
half: every p-value at or below a level is a false positive. Splits by field instead of at random show what a shift of
topic does, with the blind classifier and without it. For power, a number of members take the place of the suspect half.
The intervals are Clopper and Pearson's over the splits; the splits share their texts, so they are a little too narrow.
"""

import json
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import numpy as np
import tyro

from fsd.config import AdapterConfig, FSDConfig, ModelConfig
from fsd.data.documents import Document
from fsd.data.readers import read_files
from fsd.evaluation.audit import blind
from fsd.evaluation.calibration import observed_rate
from fsd.evaluation.dataset_inference import DatasetVerdict, dataset_verdict
from fsd.models import language_model
from fsd.models.finetuning import finetune
from fsd.scoring.deviation import evaluate, usable
from fsd.scoring.scorers import build_scorers, view_inputs
from fsd.token_stats import IntArray, Scores
from pipelines.common import detection

LEVELS = (0.01, 0.05, 0.10)
Kind = Literal["random", "field", "uncontrolled", "power"]
Draw = Callable[[np.random.Generator], tuple[IntArray, IntArray]]


@dataclass(frozen=True)
class Settings:
    """What to measure on."""

    model: str = "embedded"
    """embedded, a folder or a hub id."""
    data: str = "fsd/data/embedded/corpus.jsonl"
    """Labelled texts, with a column that names their field."""
    field: str = "field"
    """Column by which the texts are split for the shift."""
    splits: int = 200
    """Random splits of each kind."""
    unseen: float = 0.3
    """Share of the non-members to fine-tune on."""
    sizes: tuple[int, ...] = (10, 25, 50, 100)
    """Sizes of the suspect corpus for the power."""
    permutations: int = 999
    """Of the test."""
    seed: int = 0
    """Of the fine-tuning and the splits."""
    kinds: tuple[Kind, ...] = ("random", "field", "uncontrolled", "power")
    """What to measure: splits at random, by field, by field without the blind classifier, members as suspect."""
    scores: str | None = None
    """File to keep the scores in; read if it exists."""


def score(settings: Settings) -> tuple[list[Document], Scores]:
    """The texts that were not trained on, and their FSD by every detector of a pass or two."""
    documents = read_files([settings.data], {"group": settings.field}, labelled=True)
    rng = np.random.default_rng(settings.seed)
    outside = [document for document in documents if not document.member]
    chosen = set(rng.choice(len(outside), round(settings.unseen * len(outside)), replace=False).tolist())
    unseen = [document for at, document in enumerate(outside) if at in chosen]
    rest = [d for d in documents if d.member] + [d for at, d in enumerate(outside) if at not in chosen]
    kept = Path(settings.scores) if settings.scores else None
    if kept and kept.exists():
        return rest, {name: np.array(column) for name, column in json.loads(kept.read_text()).items()}
    config = replace(FSDConfig(), model=ModelConfig(model=settings.model))
    model = language_model.load(settings.model)
    finetune(model, [d.text for d in unseen], AdapterConfig(), seed=settings.seed, log=lambda *_: None)
    scorers = build_scorers(model, config.model)
    material = view_inputs(config.model, [d.text for d in unseen], shots=4, seed=settings.seed)
    texts = [document.text for document in rest]
    detectors = detection.load_detectors(config.detection)
    cheap = [d for d in detectors if not {"neighbours", "primed"} & set(d.views)]
    scores = evaluate(texts, usable(cheap, texts, scorers, material)[0], scorers, material).fsd
    if kept:
        kept.write_text(json.dumps({name: column.tolist() for name, column in scores.items()}))
    return rest, scores


def verdicts(
    documents: Sequence[Document], scores: Scores, draw: Draw, settings: Settings, *, controlled: bool = True
) -> Iterator[DatasetVerdict]:
    rng = np.random.default_rng(settings.seed)
    for turn in range(settings.splits):
        suspect, known = draw(rng)
        texts = [documents[at].text for at in (*suspect, *known)]
        sides = [at < len(suspect) for at in range(len(texts))]
        yield dataset_verdict(
            {name: column[suspect] for name, column in scores.items()},
            {name: column[known] for name, column in scores.items()},
            blind=blind(texts, sides, seed=turn, resamples=200) if controlled else None,
            permutations=settings.permutations,
            seed=turn,
        )


def report(name: str, found: Sequence[DatasetVerdict]) -> None:
    given = [verdict.p for verdict in found if verdict.p is not None]
    cells = [f"{len(found) - len(given)} of {len(found)}"]
    for level in LEVELS:
        share = observed_rate(np.array([verdict.p is not None and verdict.p <= level for verdict in found]))
        cells.append(f"{share.value:.3f} [{share.low:.3f}, {share.high:.3f}]")
    among = observed_rate(np.array(given) <= LEVELS[1]) if given else None
    cells.append(f"{among.value:.3f} [{among.low:.3f}, {among.high:.3f}]" if among else "–")
    print(f"| {name} | " + " | ".join(cells) + " |", flush=True)


def main(settings: Settings) -> None:
    begun = time.perf_counter()
    documents, scores = score(settings)
    member = np.array([bool(document.member) for document in documents])
    inside, outside = np.flatnonzero(member), np.flatnonzero(~member)
    print(f"{outside.size} non-members, {inside.size} members, detectors {', '.join(scores)}")
    print("\n| splits | no verdict | p ≤ .01 | p ≤ .05 | p ≤ .10 | p ≤ .05 among verdicts |\n|---|---|---|---|---|---|")

    def at_random(rng: np.random.Generator) -> tuple[IntArray, IntArray]:
        order = rng.permutation(outside)
        return order[: order.size // 2], order[order.size // 2 :]

    def by_field(rng: np.random.Generator) -> tuple[IntArray, IntArray]:
        fields = np.array([documents[at].group.split(".")[0] for at in outside])
        names = rng.permutation(np.unique(fields))
        cut = int(np.searchsorted(np.cumsum([(fields == name).sum() for name in names]), outside.size / 2)) + 1
        first = np.isin(fields, names[: min(cut, len(names) - 1)])
        return outside[first], outside[~first]

    if "random" in settings.kinds:
        report("non-members, at random", list(verdicts(documents, scores, at_random, settings)))
    if "field" in settings.kinds:
        report("non-members, by field", list(verdicts(documents, scores, by_field, settings)))
    if "uncontrolled" in settings.kinds:
        found = list(verdicts(documents, scores, by_field, settings, controlled=False))
        report("non-members, by field, blind classifier off", found)
    for size in settings.sizes if "power" in settings.kinds else ():

        def against(rng: np.random.Generator, size: int = size) -> tuple[IntArray, IntArray]:
            return rng.choice(inside, size, replace=False), rng.permutation(outside)[: outside.size // 2]

        report(f"{size} members", list(verdicts(documents, scores, against, settings)))
    print(f"\n{time.perf_counter() - begun:.0f} s")


if __name__ == "__main__":
    main(tyro.cli(Settings, description=__doc__))
