"""The placebo: which control model it is, what it can compute, and how it is trained."""

from dataclasses import replace
from types import SimpleNamespace

import pytest

from fsd.config import DetectorConfig, FSDConfig, ModelConfig
from fsd.data import embedded
from fsd.data.documents import Document
from fsd.data.splitting import Split
from pipelines.common import experiment

OWN = [Document(f"a text of my own, number {n}", member=n % 2 == 0) for n in range(4)]
CORPUS = list(embedded.corpus())[:4]
WIKIPEDIA = list(embedded.corpus("wikipedia"))[:4]


@pytest.mark.parametrize(
    ("model", "documents", "control", "reference", "never_saw"),
    [
        ("embedded", CORPUS, "embedded-twin", "embedded-wikipedia", False),
        ("embedded", WIKIPEDIA, None, None, True),
        ("embedded", OWN, None, None, True),
        ("embedded-twin", OWN, None, None, True),
        ("embedded-twin", CORPUS, None, None, True),
        ("embedded-wikipedia", WIKIPEDIA, "embedded-twin", "embedded", False),
        ("embedded-wikipedia", CORPUS, None, None, True),
        ("embedded-wikipedia-contemporary-twin", WIKIPEDIA, "embedded-twin", "embedded", False),
        ("lab/target", CORPUS, "embedded-twin", None, False),
        ("lab/target", [*OWN, CORPUS[0]], "embedded-twin", None, False),
        ("lab/target", OWN, "embedded", None, False),
    ],
)
def test_the_control_model_was_trained_on_none_of_the_texts(model, documents, control, reference, never_saw) -> None:
    config = FSDConfig(model=ModelConfig(model=model))

    assert experiment.never_saw(config, documents) == never_saw
    assert experiment.placebo_model(config, documents) == control
    if control and reference:
        assert experiment.control_reference(config, control, documents) == reference


def test_a_given_reference_model_serves_the_control_too() -> None:
    config = FSDConfig(model=ModelConfig(model="lab/target", reference_model="lab/small"), placebo="lab/control")

    assert experiment.control_reference(config, "lab/control", OWN) == "lab/small"
    assert experiment.control_reference(config, "lab/small", OWN) is None


@pytest.fixture
def job(job, tiny):
    return replace(job, model=replace(job.model, reference_model=str(tiny)), placebo=str(tiny))


def plan(job: FSDConfig, detectors: str = "loss") -> tuple[experiment.Placebo | None, list[str]]:
    documents = experiment.load_texts(job.data, job.model).documents
    split, _ = experiment.split_texts(documents, job.data, job.seed)
    return experiment.plan_placebo(job, split, experiment.load_detectors(DetectorConfig(detectors=detectors)))


def test_the_control_that_is_trained_and_scored_is_that_model(job, monkeypatch) -> None:
    loaded = []
    monkeypatch.setattr(experiment, "load_model", lambda config: loaded.append(config.model.model))
    monkeypatch.setattr(experiment, "prepare", lambda *_: SimpleNamespace(scorers={"tuned": None}, score=lambda: None))
    monkeypatch.setattr(experiment, "train_adapter", lambda *_, **__: None)

    placebo, _ = plan(replace(job, model=replace(job.model, model="embedded"), placebo="embedded-twin"))

    assert placebo is not None
    assert placebo.deviation(Split((Document("unseen"),), (), ())) == ("embedded-twin", None)
    assert loaded == ["embedded-twin"]


def test_a_control_computes_the_detectors_that_it_can(job) -> None:
    placebo, remarks = plan(job, "reference,loss,recall")
    assert placebo is not None
    assert [detector.name for detector in placebo.detectors] == ["loss"]
    assert remarks == []
    assert plan(job, "reference") == (
        None,
        ["no placebo: the control model can compute none of these detectors"],
    )


def test_with_a_reused_adapter_the_control_is_trained_as_that_adapter_was(finished_run, tiny, monkeypatch) -> None:
    monkeypatch.chdir(finished_run.folder)
    config = finished_run.config
    reuse = replace(config, adapter="models:/fsd-arxiv@champion", training=type(config.training)(), placebo=str(tiny))
    trained = []
    monkeypatch.setattr("fsd.models.finetuning.finetune", lambda *arguments, **_: trained.append(arguments[2]))
    monkeypatch.setattr(experiment.ScoringJob, "score", lambda _: None)

    placebo, _ = plan(reuse)
    assert placebo is not None
    placebo.deviation(Split((), (), ())._replace(unseen=tuple(OWN), test=tuple(OWN)))

    assert trained == [config.training]
