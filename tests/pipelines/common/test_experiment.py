"""The placebo: which control model it is, what it can compute, and how it is trained."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from fsd.config import AdapterConfig, DataConfig, DetectorConfig, FSDConfig, ModelConfig
from fsd.data import embedded
from fsd.data.documents import Document
from fsd.data.splitting import Split
from fsd.errors import UsageError
from pipelines.common import datasets, detection, experiment
from pipelines.fsd import prepare

OWN = [Document(f"a text of my own, number {n}", member=n % 2 == 0) for n in range(4)]
CORPUS = list(embedded.corpus())[:4]


@pytest.mark.parametrize(
    ("model", "documents", "control"),
    [
        ("embedded", CORPUS, "embedded-twin"),
        ("lab/target", CORPUS, "embedded-twin"),
        ("lab/target", [*OWN, CORPUS[0]], "embedded-twin"),
        ("lab/target", OWN, "embedded"),
        ("embedded", OWN, None),
        ("embedded-twin", OWN, None),
        ("embedded-twin", CORPUS, None),
    ],
)
def test_the_control_model_was_trained_on_none_of_the_texts(model, documents, control) -> None:
    assert experiment.placebo_model(FSDConfig(model=ModelConfig(model=model)), documents) == control


WIKIPEDIA = list(embedded.corpus("wikipedia"))[:4]


@pytest.mark.parametrize(
    ("model", "documents", "control", "reference", "seen"),
    [
        ("embedded-wikipedia", WIKIPEDIA, "embedded-twin", "embedded", True),
        ("embedded-wikipedia", CORPUS, None, None, False),
        ("embedded", WIKIPEDIA, None, None, False),
        ("embedded", CORPUS, "embedded-twin", "embedded-wikipedia", True),
        ("embedded-wikipedia-contemporary-twin", WIKIPEDIA, "embedded-twin", "embedded", True),
    ],
)
def test_each_embedded_target_has_read_its_own_corpus(model, documents, control, reference, seen) -> None:
    config = FSDConfig(model=ModelConfig(model=model))

    assert experiment.never_saw(config, documents) != seen
    assert experiment.placebo_model(config, documents) == control
    if control:
        assert experiment.control_reference(config, control, documents) == reference


def test_a_given_reference_model_serves_the_control_too() -> None:
    config = FSDConfig(model=ModelConfig(model="lab/target", reference_model="lab/small"), placebo="lab/control")

    assert experiment.control_reference(config, "lab/control", OWN) == "lab/small"
    assert experiment.control_reference(config, "lab/small", OWN) is None


def test_the_twin_never_saw_the_embedded_corpus() -> None:
    assert experiment.never_saw(FSDConfig(model=ModelConfig(model="embedded-twin")), CORPUS)
    assert not experiment.never_saw(FSDConfig(model=ModelConfig(model="embedded")), CORPUS)
    assert not experiment.never_saw(FSDConfig(model=ModelConfig(model="lab/target")), OWN)


@pytest.fixture
def job(tiny: Path, tmp_path: Path, make_rows: Callable, monkeypatch: pytest.MonkeyPatch) -> FSDConfig:
    monkeypatch.chdir(tmp_path)
    Path("data.jsonl").write_text("".join(json.dumps(row) + "\n" for row in make_rows(40, seed=3)))
    return FSDConfig(
        data=DataConfig(data=("data.jsonl",)),
        model=ModelConfig(model=str(tiny), device="cpu", cache="none"),
        training=AdapterConfig(batch_size=4, epochs=1, rank=4),
        detection=DetectorConfig(detectors="loss"),
        placebo=str(tiny),
    )


def plan(job: FSDConfig) -> tuple[experiment.Placebo | None, list[str]]:
    documents = datasets.load_texts(job.data, job.model).documents
    split, _ = datasets.split_texts(documents, job.data, job.seed)
    return experiment.plan_placebo(job, split, detection.load_detectors(job.detection))


def test_the_control_that_is_trained_and_scored_is_that_model(job, monkeypatch) -> None:
    loaded = []
    monkeypatch.setattr(experiment, "load_model", lambda config: loaded.append(config.model.model))
    monkeypatch.setattr(experiment, "prepare", lambda *_: SimpleNamespace(scorers={"tuned": None}, score=lambda: None))
    monkeypatch.setattr(experiment, "train_adapter", lambda *_, **__: None)

    placebo, _ = plan(replace(job, model=replace(job.model, model="embedded"), placebo="embedded-twin"))

    assert placebo is not None
    assert placebo.deviation(Split((), (), ())) == ("embedded-twin", None)
    assert loaded == ["embedded-twin"]


def test_a_control_that_can_compute_no_detector_is_left_out_with_a_remark(job, tiny) -> None:
    model = replace(job.model, reference_model=str(tiny))
    job = replace(job, model=model, detection=DetectorConfig(detectors="reference"))

    placebo, remarks = plan(job)

    assert placebo is None
    assert remarks == ["no placebo: the control model can compute none of these detectors"]
    prepare(job).run()  # fine-tuned, scored and then failed in the stage "placebo"


def test_a_control_computes_the_detectors_that_it_can(job, tiny) -> None:
    model = replace(job.model, reference_model=str(tiny))
    placebo, remarks = plan(replace(job, model=model, detection=DetectorConfig(detectors="reference,loss,recall")))

    assert placebo is not None
    assert [detector.name for detector in placebo.detectors] == ["loss"]
    assert remarks == []


def test_a_control_that_does_not_exist_is_refused_before_training(job, monkeypatch) -> None:
    monkeypatch.setattr(experiment, "train_adapter", lambda *_: pytest.fail("an adapter was trained"))

    with pytest.raises(UsageError, match="nowhere"):
        prepare(replace(job, placebo="./nowhere")).run()


def test_with_a_reused_adapter_the_control_is_trained_as_that_adapter_was(job, monkeypatch) -> None:
    prepare(replace(job, placebo="none")).run()
    reuse = replace(job, adapter="models:/fsd-arxiv@champion", training=AdapterConfig())
    trained = []
    monkeypatch.setattr(experiment, "finetune", lambda *arguments, **_: trained.append(arguments[2]))
    monkeypatch.setattr(experiment.ScoringJob, "score", lambda _: None)

    placebo, _ = plan(reuse)
    assert placebo is not None
    placebo.deviation(Split((), (), ())._replace(unseen=tuple(OWN), test=tuple(OWN)))

    assert trained == [job.training]
