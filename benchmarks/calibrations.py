"""Does one calibration after another keep its rate? python -m benchmarks.calibrations --help.

A target is the embedded twin, trained further on texts of three sources. `fsd run` is repeated on texts of one of them,
each time with another seed, so that texts are divided anew and the adapter is trained anew. Every registered version
then judges the same unread texts, of that source and period, which entered no run, and as many members.

"called" is the share of honest texts that are called members at the promised rate, over the calibrations that give
verdicts; "without checks" is the share with p at most the rate, over all calibrations and all honest texts, and "by
the texts of the test" the same without the second p-value, by all held-out ones. "refused" counts the calibrations
whose own validation texts contradict the rate, and requests that were refused as not exchangeable. "above .10" counts
calibrations of which more than a tenth of the honest texts are called.
"""

import json
import os
import random
import sys
from collections.abc import Iterator, Sequence
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from itertools import chain, pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import tyro
from numpy.typing import NDArray

import detectors
from benchmarks.verdict_mixtures.targets import BACKGROUND, DOCSTRINGS, sources
from extensions.study.docstrings import docstring_paragraphs
from fsd.config import AdapterConfig, DataConfig, DetectorConfig, FSDConfig, ModelConfig, Recipe
from fsd.data.corpus import Corpus
from fsd.data.documents import Document
from fsd.data.readers import read_files
from fsd.errors import UsageError
from fsd.models import language_model
from fsd.models.pretraining import continue_pretraining
from fsd.scores import ScoreColumns, rows_of
from fsd.scoring.model import open_model
from fsd.verdicts.calibration import TOLERANCE, calibrate
from fsd.verdicts.domain_check import Reference
from fsd.verdicts.verdicts import MEMBER, OUT_OF_DOMAIN, Rules
from pipelines.detect.classifier import MembershipClassifier
from pipelines.fsd import prepare

Rows = NDArray[np.int_]
READS = ("abstracts", "articles", "docstrings")
SHORTEST, LONGEST = 60, 180
"""Words of a further abstract: about as many as those of the package have."""
HIGH = 0.1
REFERENCE = "embedded-twin"


@dataclass(frozen=True)
class Settings:
    """Target, texts and runs."""

    folder: str = "build/calibrations"
    """Folder of targets, runs and results; runs that are there already are not repeated."""
    abstracts: tuple[str, ...] = ()
    """JSONL files of further abstracts (column text), as ArxivMIA has them: a title stands before "Abstract:"."""
    calibrated: tuple[str, ...] = READS
    """Sources on which runs are made; the target reads all three."""
    runs: int = 40
    """Runs on each source."""
    targets: int = 1
    """Targets, among which the runs are divided; each has other members, texts for its runs and texts to judge."""
    read: int = 130
    """Texts of a source that a target reads."""
    copies: int = 3
    """Number of times that it reads each of them."""
    aside: int = 40
    """Members that enter no run."""
    nonmembers: int = 215
    """Unread texts of a run, drawn anew for each run."""
    honest: int = 270
    """Unread texts that enter no run, at most."""
    docstrings: int = 1500
    """Docstrings to choose from."""
    detectors: str = "loss,min_k_pp,unread_z,wbc"
    """Detectors of the runs."""
    redrawn: int = 0
    """Further calibrations by the base scores of each target's texts alone, divided anew, without runs."""
    fpr: float = 0.05
    """Promised false-positive rate."""
    seed: int = 0
    """Random seed of the targets."""


@dataclass(frozen=True)
class Side:
    """Texts of a source: members for runs and aside, unread ones to draw from and to judge."""

    members: list[str]
    aside: list[str]
    unread: list[str]
    honest: list[str]


def texts_of(settings: Settings) -> dict[str, list[str]]:
    """Source → texts, one of each family."""
    texts = sources(wanted=READS[:2])
    for document in read_files(settings.abstracts) if settings.abstracts else ():
        abstract = document.text.partition("Abstract:")[2].strip() or document.text
        if SHORTEST <= len(abstract.split()) <= LONGEST:
            texts["abstracts"].append(abstract)
    texts["docstrings"] = docstring_paragraphs(limit=settings.docstrings + BACKGROUND, seed=0)[BACKGROUND:]
    return {name: Corpus(map(Document, found)).one_per_family().texts for name, found in texts.items()}


def divided(texts: dict[str, list[str]], number: int, settings: Settings) -> dict[str, Side]:
    """Source → its texts for one target."""
    sides = {}
    for name, found in texts.items():
        mixed = random.Random(f"{settings.seed} {number} {name}").sample(found, len(found))
        members, unread = mixed[: settings.read], mixed[settings.read :]
        kept = min(settings.honest, len(unread) - settings.nonmembers)
        if kept < 1:
            raise UsageError(f"{name} must have more texts than a target reads and a run takes; got {len(found)}")
        aside = members[: settings.aside]
        sides[name] = Side(members[settings.aside :], aside, unread[kept:], unread[:kept])
    return sides


def trained(sides: dict[str, Side], number: int, settings: Settings) -> str:
    """The folder of a target."""
    folder = Path(settings.folder) / f"target-{number}"
    if not folder.exists():
        config = ModelConfig(model=REFERENCE, device="cpu", dtype="float32", cache="none")
        model = language_model.load(config)
        read = [text for side in sides.values() for text in side.members + side.aside]
        background = docstring_paragraphs(limit=DOCSTRINGS + BACKGROUND, seed=0)[:BACKGROUND]
        recipe = Recipe(seed=settings.seed + number)
        continue_pretraining(model, read * settings.copies + background, recipe, bar_shown=False)
        model.model.save_pretrained(folder)
        model.tokenizer.save_pretrained(folder)
    return str(folder)


def configured(target: str, settings: Settings) -> ModelConfig:
    """A target beside the model that it continues."""
    cache = str(Path(settings.folder) / "cache")
    return ModelConfig(model=target, reference_model=REFERENCE, device="cpu", cache=cache)


def registered(target: str, side: Side, name: str, seed: int, settings: Settings) -> str:
    """`fsd run` with a seed, and the version that it registers."""
    import mlflow

    folder = Path(settings.folder)
    unread = random.Random(seed).sample(side.unread, settings.nonmembers)
    rows = [{"text": text, "label": 1} for text in side.members] + [{"text": text, "label": 0} for text in unread]
    file = folder / f"{name}.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    config = FSDConfig(
        data=DataConfig(data=(str(file),)),
        model=configured(target, settings),
        training=AdapterConfig(epochs=1),
        detection=DetectorConfig(detectors=settings.detectors),
        placebo="none",
        seed=seed,
        audit_repeats=1,
    )
    with (folder / f"{name}.log").open("w") as log, redirect_stdout(log), redirect_stderr(log):
        prepare(config).run()
    versions = mlflow.MlflowClient().search_model_versions("name = 'fsd-arxiv'")
    return f"models:/fsd-arxiv/{max(int(version.version) for version in versions)}"


def judged(version: str, side: Side, settings: Settings) -> dict[str, Any]:
    """What a version says of the texts that entered no run."""
    try:
        classifier = MembershipClassifier(version, cache=str(Path(settings.folder) / "cache"))
    except UsageError as error:
        return {"refused": str(error)}
    calibration = classifier.calibration
    row: dict[str, Any] = {
        "score": str(calibration.score),
        "calibrating": calibration.n_families,
        "validating": len(calibration.validation.scores),
        "refused": calibration.contradiction(settings.fpr),
    }
    for name, texts in {"honest": side.honest, "members": side.aside}.items():
        verdicts = classifier.classify([Document(text) for text in texts], Rules(settings.fpr))
        table = verdicts.table
        scores = classifier.scores(texts).columns[calibration.score]
        row |= {
            name: len(texts),
            f"{name}_outside": int((table["verdict"] == OUT_OF_DOMAIN).sum()),
            f"{name}_judged": int(table["p_value"].notna().sum()),
            f"{name}_called": int((table["verdict"] == MEMBER).sum()),
            f"{name}_unchecked": _share(calibration.p_values(scores), settings.fpr),
            f"{name}_by_test": _share(calibration.test.p_values(scores), settings.fpr),
            f"{name}_reason": verdicts.bases[0].reason,
            f"{name}_scores": scores.tolist(),
        }
    row |= {"test_scores": calibration.test.scores, "validation_scores": calibration.validation.scores}
    return row


def _share(p_values: Any, fpr: float) -> float:
    return float(np.mean(p_values <= fpr + TOLERANCE))


def rows(settings: Settings) -> Iterator[dict[str, Any]]:
    """A row for each run."""
    folder = Path(settings.folder)
    texts = texts_of(settings)
    for number in range(settings.targets):
        sides = divided(texts, number, settings)
        target = trained(sides, number, settings)
        for source in settings.calibrated:
            for seed in range(1 + number, 1 + settings.runs, settings.targets):
                name = f"{source}-{number}-{seed}"
                file = folder / f"{name}.json"
                if not file.exists():
                    version = registered(target, sides[source], name, seed, settings)
                    row = {"source": source, "target": number, "seed": seed, "version": version}
                    file.write_text(json.dumps(row | judged(version, sides[source], settings)), encoding="utf-8")
                yield json.loads(file.read_text(encoding="utf-8"))


def redrawn(settings: Settings) -> pd.DataFrame:
    """A row for each calibration by base scores: the score that was chosen, and shares called without checks."""
    texts = texts_of(settings)
    found = []
    for number in range(settings.targets):
        sides = divided(texts, number, settings)
        target = trained(sides, number, settings)
        for source in settings.calibrated:
            side = sides[source]
            # what a text that was not read scores is learned from texts that calibrate nothing
            size = settings.nonmembers - _held_out(settings)
            unseen, unread = side.unread[:size], side.unread[size:]
            parts = [side.members, unread, side.honest, side.aside]
            model = open_model(configured(target, settings), states=("base",))
            chosen = [detectors.load(name) for name in settings.detectors.split(",")]
            plan = model.plan(chosen, list(chain.from_iterable(parts)), model.inputs(unseen), strict=True)
            columns = plan.score().columns
            bounds = np.cumsum([0, *map(len, parts)])
            rows = [np.arange(begin, end) for begin, end in pairwise(bounds)]
            for draw in range(settings.redrawn):
                row = _redrawn(columns, rows, np.random.default_rng(draw), settings)
                found.append({"source": source, "target": number, **row})
    return pd.DataFrame(found)


def _held_out(settings: Settings) -> int:
    """Unread texts of a run that its adapter is not trained on."""
    return round(0.7 * settings.nonmembers)


def _redrawn(
    columns: ScoreColumns, rows: Sequence[Rows], rng: np.random.Generator, settings: Settings
) -> dict[str, Any]:
    """Texts divided as `fsd run` does: 30 % of the unread ones are unseen; of the others as many choose as there."""
    members, unread, honest, aside = rows
    held = rng.permutation(unread)[: _held_out(settings)]
    read = rng.permutation(members)
    choosing = [*read[: round(0.2 * read.size)], *held[: round(0.285 * held.size)]]
    drawn = np.concatenate([read, held])
    is_test = ~np.isin(drawn, choosing)
    calibration = calibrate(
        np.isin(drawn, members), rows_of(columns, drawn), reference=Reference(("",), (0,), ("",), {}), is_test=is_test
    )
    column = columns[calibration.score]
    return {
        "score": str(calibration.score),
        "refused": bool(calibration.contradiction(settings.fpr)),
        "called": _share(calibration.p_values(column[honest]), settings.fpr),
        "by the texts of the test": _share(calibration.test.p_values(column[honest]), settings.fpr),
        "by those of validation": _share(calibration.validation.p_values(column[honest]), settings.fpr),
        "members": _share(calibration.p_values(column[aside]), settings.fpr),
    }


def summary(table: pd.DataFrame) -> dict[str, Any]:
    """One line: the calibrations of a source."""
    works = table[table["score"].notna()]
    refused = (table["refused"] != "").sum()
    inexchangeable = ((works["refused"] == "") & (works["honest_judged"] == 0)).sum()
    given = works[works["honest_judged"] > 0]
    called = given["honest_called"] / given["honest"]
    return {
        "runs": len(table),
        "refused": f"{refused}, {inexchangeable}",
        "honest": f"{works['honest'].iloc[0]:.0f}",
        "called": f"{called.mean():.3f}",
        "highest": f"{called.max():.3f}",
        "above .10": str((called > HIGH).sum()),
        "without checks": _spread(works["honest_unchecked"]),
        "by the texts of the test": _spread(works["honest_by_test"]),
        "members called": f"{(given['members_called'] / given['members']).mean():.2f}",
        "scores": ", ".join(f"{name} {count}" for name, count in works["score"].value_counts().items()),
    }


def again(table: pd.DataFrame) -> dict[str, Any]:
    """One line: the calibrations by base scores of a source."""
    given = table[~table["refused"]]
    return {
        "calibrations": len(table),
        "refused": int(table["refused"].sum()),
        "called": _spread(given["called"]),
        "with the refused": _spread(table["called"]),
        "by the texts of the test": _spread(table["by the texts of the test"]),
        "by those of validation": _spread(table["by those of validation"]),
        "members called": f"{given['members'].mean():.2f}",
        "scores": ", ".join(f"{name} {count}" for name, count in table["score"].value_counts().items()),
    }


def _spread(rates: "pd.Series[float]") -> str:
    return f"{rates.mean():.3f}, {(rates > HIGH).mean():.3f} above .10"


def markdown(lines: Sequence[tuple[str, dict[str, Any]]]) -> str:
    """A table of lines with the same columns."""
    names = list(lines[0][1])
    table = [["calibrated on", *names], ["---"] * (len(names) + 1)]
    table += [[title, *map(str, line.values())] for title, line in lines]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in table)


def main(settings: Settings) -> None:
    """Run, judge and print."""
    folder = Path(settings.folder).absolute()
    folder.mkdir(parents=True, exist_ok=True)
    os.environ.setdefault("MLFLOW_TRACKING_URI", f"sqlite:///{folder}/mlflow.db")
    found = []
    for row in rows(settings):
        found.append(row)
        print(row["source"], row["target"], row["seed"], row.get("score"), row["refused"], file=sys.stderr)
    table = pd.DataFrame(found)
    kept = [name for name in map(str, table) if not name.endswith("scores")]
    table[kept].to_csv(folder / "runs.tsv", sep="\t", index=False)
    lines = [(str(source), summary(group)) for source, group in table.groupby("source", sort=False)]
    print(markdown(lines))
    if settings.redrawn:
        print(f"\n{settings.redrawn} calibrations of each target by base scores alone:\n")
        print(
            markdown([(str(source), again(group)) for source, group in redrawn(settings).groupby("source", sort=False)])
        )


if __name__ == "__main__":
    main(tyro.cli(Settings, description=__doc__))
