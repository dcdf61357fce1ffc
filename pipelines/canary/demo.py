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
from pathlib import Path

DOCUMENTS, VARIANTS, LENGTH, REPETITIONS, ALPHA = 30, 100, 6, (1, 4, 16), 0.05


@dataclass(frozen=True)
class DemoConfig:
    """Seed of the demonstration."""

    seed: int = 42
    """Random seed for the documents, the canaries and the training."""


def main(config: DemoConfig) -> None:
    """Make canaries, train on the published ones, and test the model that read them and the one that did not."""
    from fsd.config import DetectorConfig, ModelConfig, Recipe
    from fsd.data.embedded import corpus
    from fsd.data.readers import read_rows
    from fsd.models import language_model
    from fsd.models.pretraining import continue_pretraining
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
        readers = {"control, did not": model, "read them": replace(model, model=copy.deepcopy(model.model))}
        continue_pretraining(readers["read them"], published, recipe)
        detectors = load_detectors(DetectorConfig(detectors="loss"))
        lines = []
        for name in reversed(readers):
            scorers = build_scorers(readers[name], settings)
            table = scoring.score(canaries, detectors, scorers, seed=config.seed)
            results = {"loss": scoring.levels(table, "loss", alpha=ALPHA, seed=config.seed)}
            lines += [[name, *row[1:-1]] for row in rank.rows(results)]
    notes = [
        "p of single documents is the rank of the published variant among all; found: p ≤ .05, by chance .05",
        "which variant is published was drawn at random, so the p-values are exact for any model",
    ]
    title = "canaries on the embedded model, detector loss"
    outcome.show_table(title, ["model", *rank.HEADINGS[1:-1]], lines, notes)
