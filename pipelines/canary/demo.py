"""Canaries on the embedded model, which reads some of them in front of you: about a minute, offline.

`python -m pipelines.canary demo` publishes canaries 1, 4 and 16 times with abstracts written for this project, trains
the embedded model on what was published, and tests it. The model before this training, which read none, is the control.

Examples:
    fsd canary demo
"""

import copy
import json
import tempfile
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from pipelines.common.job import Job

DOCUMENTS, VARIANTS, LENGTH, REPETITIONS, ALPHA = 30, 100, 6, (1, 4, 16), 0.05


@dataclass(frozen=True)
class DemoConfig:
    """Seed of the demonstration."""

    seed: int = 42
    """Random seed for the documents, the canaries and the training."""


def prepare(config: DemoConfig) -> Job:
    """Nothing to check: the demonstration is always the same."""
    return Job(partial(run, config), {"documents": f"{DOCUMENTS} embedded abstracts"})


def run(config: DemoConfig) -> None:
    """Make canaries, train on the published ones, and test the model that read them and the one that did not."""
    import pandas as pd

    from fsd.config import DetectorConfig, ModelConfig, Recipe
    from fsd.data.embedded import corpus
    from fsd.data.readers import read_rows
    from fsd.models import language_model
    from fsd.models.pretraining import continue_pretraining
    from fsd.reporting.report import Column, Report, Section, Table
    from fsd.scoring.scorers import build_scorers
    from pipelines.canary import files, make, rank, scoring
    from pipelines.common import outcome
    from pipelines.common.detection import load_detectors

    abstracts = [document.text for document in corpus() if not document.member]
    with tempfile.TemporaryDirectory(prefix="fsd-canary-") as scratch:
        data, folder = Path(scratch) / "abstracts.jsonl", Path(scratch) / "canaries"
        data.write_text("".join(json.dumps({"text": text}) + "\n" for text in abstracts[:DOCUMENTS]))
        words = Path(scratch) / "words.jsonl"
        words.write_text("".join(json.dumps({"text": text}) + "\n" for text in abstracts))
        canaries = make.make(
            make.MakeConfig(
                (str(data),), str(folder), variants=VARIANTS, length=LENGTH, words=(str(words),), alpha=1 / VARIANTS,
                repetitions=REPETITIONS, seed=f"demonstration {config.seed}",
            )
        )  # fmt: skip
        copies = sum(entry.repetitions for entry in canaries.sealed.documents)
        print(f"made {len(canaries.sealed.documents)} canaries, published {copies} times in all in the training texts")
        published = [row["text"] for _, row in read_rows([folder / files.PUBLISHED])]
        settings = ModelConfig(cache="none")
        model = language_model.load(settings)
        recipe = Recipe(batch_size=4, learning_rate=3e-3, seed=config.seed)
        trained = replace(model, model=copy.deepcopy(model.model))
        continue_pretraining(trained, published, recipe)
        detectors = load_detectors(DetectorConfig(detectors="loss"))
        parts = []
        for name, each in (("trained on them", trained), ("control, not trained on them", model)):
            scorers = build_scorers(each, settings)
            table = scoring.score(canaries, detectors, scorers, seed=config.seed)
            parts.append(scoring.rank_tests(table, ["loss"], alpha=ALPHA, seed=config.seed).assign(model=name))
    notes = [
        "p of single documents is the rank of the published variant among all; found: p ≤ .05, by chance .05",
        "which variant is published was drawn at random, so the p-values are exact for any model",
    ]
    columns = [Column("model", "model"), *rank.columns()[1:-1]]
    title = "canaries on the embedded model, detector loss"
    shown = Table(pd.concat(parts), columns, title=title, name="results", kept=(0, 1, 5, 4))
    outcome.show(Report(findings=notes, sections=[Section("", tables=[shown])]))
