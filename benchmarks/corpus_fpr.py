"""False-positive rate and power of the verdict on a corpus: python -m benchmarks.corpus_fpr --help.

A model with known members is fine-tuned on some of the non-members, as by pipelines.fsd, and the other texts are scored
once. The remaining non-members are then split many times at random into a "suspect" and a "known" half: every p-value
at or below a level is a false positive. Splits by field instead of at random measure the effect of a shift in topic,
with and without the blind classifier. To measure power, members take the place of the suspect half. Intervals are
Clopper-Pearson over the splits; they are slightly too narrow, since the splits share their texts.
"""

import json
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import tyro

from fsd.config import AdapterConfig, DetectorConfig, ModelConfig
from fsd.data.documents import Document
from fsd.data.readers import read_files
from fsd.models.finetuning import finetune
from fsd.scores import FSD, of_state
from fsd.scoring.model import open_model
from fsd.scoring.scorers import STATES
from fsd.statistics.intervals import observed_rate
from fsd.text_audit.audit import blind
from fsd.token_stats import IntArray, Scores
from fsd.verdicts.dataset_inference import DatasetVerdict, dataset_verdict
from pipelines.experiment.detector_settings import cheap, load_detectors

LEVELS = (0.01, 0.05, 0.10)
Kind = Literal["random", "field", "uncontrolled", "power"]
Draw = Callable[[np.random.Generator], tuple[IntArray, IntArray]]


@dataclass(frozen=True)
class Settings:
    """Model, texts and kinds of splits."""

    model: str = "embedded"
    """embedded, a model folder or a hub id."""
    data: str = "fsd/data/embedded/corpus.jsonl"
    """Labelled texts with a column for their field."""
    field: str = "field"
    """Column that texts are split by to shift the topic."""
    splits: int = 200
    """Number of random splits of each kind."""
    unseen: float = 0.3
    """Share of the non-members used for fine-tuning."""
    sizes: tuple[int, ...] = (10, 25, 50, 100)
    """Sizes of the suspect corpus at which power is measured."""
    permutations: int = 999
    """Number of permutations of the test."""
    seed: int = 0
    """Random seed for fine-tuning and splits."""
    kinds: tuple[Kind, ...] = ("random", "field", "uncontrolled", "power")
    """Splits at random, by field, by field without the blind classifier (uncontrolled); members as suspects (power)."""
    scores: str | None = None
    """JSON file to save the scores to, or to load them from if it exists."""


def score(settings: Settings) -> tuple[list[Document], Scores]:
    """The texts that are not used for fine-tuning, and their FSD by all detectors that need few forward passes."""
    documents = read_files([settings.data], {"group": settings.field}, labelled=True)
    rng = np.random.default_rng(settings.seed)
    outside = [document for document in documents if not document.member]
    drawn = set(rng.choice(len(outside), round(settings.unseen * len(outside)), replace=False).tolist())
    unseen = [document for i, document in enumerate(outside) if i in drawn]
    rest = [d for d in documents if d.member] + [d for i, d in enumerate(outside) if i not in drawn]
    file = Path(settings.scores) if settings.scores else None
    if file and file.exists():
        return rest, {name: np.array(column) for name, column in json.loads(file.read_text()).items()}
    config, training = ModelConfig(model=settings.model), AdapterConfig()
    model = open_model(config, states=STATES, seed=settings.seed)
    few = cheap(load_detectors(DetectorConfig()))
    texts, unseen_texts = [d.text for d in rest], [d.text for d in unseen]
    plan = model.plan(few, texts, model.inputs(unseen_texts, shots=4), strict=False)
    finetune(model.language_model, unseen_texts, training, seed=settings.seed, log=lambda _: None)
    scores = of_state(plan.score().columns, FSD)
    if file:
        file.write_text(json.dumps({name: column.tolist() for name, column in scores.items()}))
    return rest, scores


def verdicts(
    documents: Sequence[Document], scores: Scores, draw: Draw, settings: Settings, *, controlled: bool = True
) -> Iterator[DatasetVerdict]:
    rng = np.random.default_rng(settings.seed)
    for i in range(settings.splits):
        suspect, known = draw(rng)
        texts = [documents[index].text for index in (*suspect, *known)]
        sides = [position < len(suspect) for position in range(len(texts))]
        yield dataset_verdict(
            {name: column[suspect] for name, column in scores.items()},
            {name: column[known] for name, column in scores.items()},
            blind=blind(texts, sides, seed=i) if controlled else None,
            permutations=settings.permutations,
            seed=i,
        )


def report(name: str, outcomes: Sequence[DatasetVerdict]) -> None:
    p_values = [verdict.p for verdict in outcomes if verdict.p is not None]
    cells = [f"{len(outcomes) - len(p_values)} of {len(outcomes)}"]
    for level in LEVELS:
        share = observed_rate(np.array([verdict.p is not None and verdict.p <= level for verdict in outcomes]))
        cells.append(f"{share.value:.3f} [{share.low:.3f}, {share.high:.3f}]")
    share_given = observed_rate(np.array(p_values) <= LEVELS[1]) if p_values else None
    cells.append(f"{share_given.value:.3f} [{share_given.low:.3f}, {share_given.high:.3f}]" if share_given else "–")
    print(f"| {name} | " + " | ".join(cells) + " |", flush=True)


def main(settings: Settings) -> None:
    start = time.perf_counter()
    documents, scores = score(settings)
    member = np.array([bool(document.member) for document in documents])
    inside, outside = np.flatnonzero(member), np.flatnonzero(~member)
    print(f"{outside.size} non-members, {inside.size} members, detectors {', '.join(scores)}")
    print("\n| splits | no verdict | p ≤ .01 | p ≤ .05 | p ≤ .10 | p ≤ .05 among verdicts |\n|---|---|---|---|---|---|")

    def at_random(rng: np.random.Generator) -> tuple[IntArray, IntArray]:
        order = rng.permutation(outside)
        return order[: order.size // 2], order[order.size // 2 :]

    def by_field(rng: np.random.Generator) -> tuple[IntArray, IntArray]:
        fields = np.array([documents[index].group.split(".")[0] for index in outside])
        names = rng.permutation(np.unique(fields))
        cut = int(np.searchsorted(np.cumsum([(fields == name).sum() for name in names]), outside.size / 2)) + 1
        first = np.isin(fields, names[: min(cut, len(names) - 1)])
        return outside[first], outside[~first]

    if "random" in settings.kinds:
        report("non-members, at random", list(verdicts(documents, scores, at_random, settings)))
    if "field" in settings.kinds:
        report("non-members, by field", list(verdicts(documents, scores, by_field, settings)))
    if "uncontrolled" in settings.kinds:
        outcomes = list(verdicts(documents, scores, by_field, settings, controlled=False))
        report("non-members, by field, blind classifier off", outcomes)
    for size in settings.sizes if "power" in settings.kinds else ():

        def against(rng: np.random.Generator, size: int = size) -> tuple[IntArray, IntArray]:
            return rng.choice(inside, size, replace=False), rng.permutation(outside)[: outside.size // 2]

        report(f"{size} members", list(verdicts(documents, scores, against, settings)))
    print(f"\n{time.perf_counter() - start:.0f} s")


if __name__ == "__main__":
    main(tyro.cli(Settings, description=__doc__))
