"""The reference model that is fine-tuned on unseen texts: on which of them, once, and the same for later verdicts."""

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

import detectors
from fsd import tracking
from fsd.config import DetectorConfig, FSDConfig
from fsd.data.corpus import Corpus, Split
from fsd.data.documents import Document
from fsd.data.fields import document
from fsd.errors import UsageError
from fsd.models import finetuning
from fsd.scoring.model import outline
from fsd.token_stats import texts_of
from pipelines.detect.classifier import MembershipClassifier
from pipelines.experiment import experiment
from pipelines.experiment.adapter_files import REFERENCE
from pipelines.experiment.inputs import texts_to_adapt
from pipelines.fsd import prepare
from tests.rows import write

ASKED = "wbc,adapted_wbc,unread_z,summed_unread_z"


def unseen(count: int, families: int) -> Corpus:
    return Corpus(Document(f"text number {row}", False, group=f"g{row % families}") for row in range(count))


@pytest.mark.parametrize(
    ("texts", "families", "some"), [(39, 39, False), (80, 39, False), (40, 40, True), (88, 44, True), (300, 150, True)]
)
def test_half_of_forty_families_or_more_are_learned_and_64_texts_at_most(texts, families, some):
    given = unseen(texts, families)
    learned = texts_to_adapt(given, 42)
    assert bool(learned) == some
    groups = {document.group for document in learned}
    # Both copies of a family are on one side.
    assert groups.isdisjoint(document.group for document in given if document not in learned)
    assert len(learned) == (min(texts // 2, 64) if some else 0)
    assert list(learned) == list(texts_to_adapt(given, 42))


def test_no_text_both_trains_the_reference_and_calibrates(tiny, other):
    """The leak that would make every text look unlike an unread one."""
    config = FSDConfig(detection=DetectorConfig(detectors=ASKED))
    config = replace(config, model=replace(config.model, model=str(tiny), reference_model=str(other), cache="none"))
    known = unseen(90, 90)
    asked = [detectors.load(name) for name in ASKED.split(",")]
    run = experiment.Experiment(config, asked, split=Split(known, (), unseen(4, 4)))
    inputs = run._given(outline(config.model))
    learned = set(texts_of(inputs.adapting))
    calibrating = {prompts[0].text for prompts in inputs.adapted_unread.prompts}
    assert learned.isdisjoint(calibrating)
    assert learned | calibrating == set(known.texts)
    # The plain reference has read none of them.
    assert len(inputs.unread.prompts) == 90
    assert not run._replace(detectors=asked[:1]).adapting


def test_chats_are_learned_by_the_template_by_which_they_are_scored(monkeypatch):
    """And without a reference, as with `--detectors all` on a model that has none, nothing is trained."""
    turns = [{"role": "user", "content": "What?"}, {"role": "assistant", "content": "That, number 1."}]
    chats = Corpus(
        document(
            {"messages": [*turns, {"role": "assistant", "content": f"And {row}."}]}, {}, f"row {row}", answers=True
        )
        for row in range(40)
    )
    run = experiment.Experiment(FSDConfig(), [detectors.load("adapted_wbc")], split=Split(chats, (), ()))
    trained = []
    monkeypatch.setattr(experiment.Experiment, "_finetune", lambda self, model, *rest: trained.append(model))
    reference = SimpleNamespace(template=None, adapted=False)
    target = SimpleNamespace(chats=SimpleNamespace(template="the target's"))
    model = SimpleNamespace(reference=None, load_reference=lambda: reference, language_model=target)
    run.adapt_reference(model)
    assert trained == []
    model.reference = "a reference"
    run.adapt_reference(model)
    assert trained == [reference]
    assert reference.template == "the target's"


def test_no_reference_is_trained_for_detectors_that_are_left_out(monkeypatch):
    computed = [detectors.load("loss")]
    run = experiment.Experiment(
        FSDConfig(), [detectors.load("adapted_wbc"), *computed], split=Split(unseen(40, 40), (), ())
    )
    asked = []
    monkeypatch.setattr(experiment.scoring, "open_model", lambda *_, **__: None)
    plan = SimpleNamespace(detectors=computed, score=lambda: None)
    monkeypatch.setattr(experiment.Experiment, "prepare", lambda *_: plan)
    monkeypatch.setattr(experiment.Experiment, "train", lambda self, *_: asked.append(self.adapting))
    assert run.adapting
    run.measure(None, None)
    assert list(map(bool, asked)) == [False]


@pytest.mark.slow
def test_verdicts_are_given_by_the_reference_of_the_run(job, other, make_rows, monkeypatch):
    write(Path("data.jsonl"), make_rows(320, seed=3))
    trained = []
    finetune = finetuning.finetune

    def counting(model, texts, *arguments, **options):
        trained.append(len(texts))
        finetune(model, texts, *arguments, **options)

    monkeypatch.setattr(finetuning, "finetune", counting)
    config = replace(
        job, model=replace(job.model, reference_model=str(other)), detection=DetectorConfig(detectors="summed_unread_z")
    )
    made = prepare(config)
    assert any("fine-tuned as well, in 6 more steps: once on 24 of the unseen texts" in note for note in made.notes)
    made.run()
    assert trained == [48, 24]
    (run,) = tracking.find_runs("fsd-arxiv", {})
    version = MembershipClassifier("models:/fsd-arxiv/1", device="cpu", cache="none")
    assert {file.name for file in (version.adapter / REFERENCE).iterdir()} >= {"adapter_config.json", "SHA256SUMS"}
    scores = pd.read_parquet(tracking.fetch_artifact(run.id, "scores.parquet"))
    rows = scores[scores["split"] == "test"]
    score = str(version.calibration.score)
    again = version.scores(rows["text"].tolist()).columns[version.calibration.score]
    np.testing.assert_allclose(again, rows[score], atol=1e-4)
    # A weight of the reference's adapter that somebody has changed.
    weights = version.adapter / REFERENCE / "adapter_model.safetensors"
    weights.chmod(0o644)
    weights.write_bytes(weights.read_bytes()[:-4] + b"\0\0\0\1")
    with pytest.raises(UsageError, match="must be as it was saved"):
        MembershipClassifier(str(version.adapter), device="cpu", cache="none").scores(["a text"])
