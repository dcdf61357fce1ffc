"""The demonstration: a model that was trained on published canaries, and the same model before."""

import copy
import json
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from fsd.config import DetectorConfig, ModelConfig, Recipe
from fsd.data.embedded import corpus
from fsd.data.readers import read_rows
from fsd.models import language_model
from fsd.models.pretraining import continue_pretraining
from fsd.reporting.report import For, Report, Section, p_value
from fsd.scoring.model import build_scorers
from pipelines.canary import DemoConfig, MakeConfig, files, make, rank
from pipelines.common.experiment import load_detectors
from pipelines.common.job import Job, show, stage

DOCUMENTS, ALPHA = 30, 0.05
SCHEME: dict[str, Any] = {"variants": 100, "length": 6, "alpha": 0.01, "repetitions": (1, 4, 16)}


def prepare(config: DemoConfig) -> Job:
    """Nothing to check: the demonstration is always the same."""
    return Job(partial(run, config), {"documents": f"{DOCUMENTS} embedded abstracts"})


def made(
    documents: Sequence[str], words_of: Sequence[str], seed: str, **scheme: Any
) -> tuple[files.Canaries, list[str]]:
    """Canaries of documents, of the words of some texts, and what is published."""
    with tempfile.TemporaryDirectory(prefix="fsd-canary-") as scratch:
        data, words, folder = (Path(scratch) / name for name in ("documents.jsonl", "words.jsonl", "canaries"))
        for path, texts in ((data, documents), (words, words_of)):
            path.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
        settings = MakeConfig((str(data),), str(folder), words=(str(words),), seed=seed, **scheme)
        canaries = files.write(folder, *make.draw(settings))
        return canaries, [row["text"] for _, row in read_rows([folder / files.PUBLISHED])]


def run(config: DemoConfig) -> None:
    """Make canaries, train on the published ones, and test the model that was trained on them and the one before."""
    with stage("model"):
        abstracts = [document.text for document in corpus() if not document.member]
        canaries, published = made(abstracts[:DOCUMENTS], abstracts, f"demonstration {config.seed}", **SCHEME)
        model = language_model.load(ModelConfig(cache="none"))
        trained = replace(model, model=copy.deepcopy(model.model))
        continue_pretraining(trained, published, Recipe(batch_size=4, learning_rate=3e-3, seed=config.seed))
    with stage("scoring"):
        detectors = load_detectors(DetectorConfig(detectors="loss"))
        tested = {}
        for name, each in (("trained", trained), ("control", model)):
            table = rank.score(canaries, detectors, build_scorers(each, ModelConfig(cache="none")), seed=config.seed)
            tested[name] = rank.rank_tests(table, ["loss"], alpha=ALPHA, seed=config.seed)
    p, control = (p_value(float(rows["p"][rows["repetitions"] == 0].item())) for rows in tested.values())
    notes = [
        f"all documents together: p {p} by the model that was trained on them, {control} by the one before",
        For("p of single documents is the rank of the published variant among all; found: p ≤ .05, by chance .05"),
        For("which variant is published was drawn at random, so the p-values are exact for any model"),
    ]
    title = "canaries on the embedded model, detector loss"
    shown = rank.by_model(tested, title=title, name="results", kept=(0, 1, 5, 4, 2), source="--json")
    use = ["fsd canary make --data FILE --out canaries"]
    show(Report(findings=notes, sections=[Section("", tables=[shown])], next=use))
