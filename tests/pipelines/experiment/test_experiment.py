"""The placebo: which control model it is, what it can compute, and how it is trained; rows of token ids."""

import sys
from dataclasses import replace
from datetime import date
from types import SimpleNamespace

import pytest

import detectors
from fsd.config import DetectorConfig, FSDConfig, ModelConfig
from fsd.data import benchmarks, embedded
from fsd.data.corpus import Split
from fsd.data.documents import Benchmark, Document
from fsd.errors import UsageError
from fsd.models.language_model import load_tokenizer, start_token, token_ids
from fsd.text_audit import audit
from fsd.token_stats import written
from pipelines.experiment import control, detector_settings, experiment, inputs
from pipelines.experiment.experiment import Experiment

OWN = [Document(f"a text of my own, number {n}", member=n % 2 == 0) for n in range(4)]
CORPUS = list(embedded.corpus())[:4]
WIKIPEDIA = list(embedded.corpus("wikipedia"))[:4]


@pytest.mark.parametrize(
    ("model", "documents", "name", "reference", "never_saw"),
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
def test_the_control_model_was_trained_on_none_of_the_texts(model, documents, name, reference, never_saw) -> None:
    config = FSDConfig(model=ModelConfig(model=model))
    assert control.never_saw(config, documents) == never_saw
    assert control.control_model(config, documents) == name
    if name and reference:
        assert control.control_reference(config, name, documents) == reference


@pytest.mark.parametrize(
    "change",
    [
        lambda text: " ".join(text.split()[:64]),
        lambda text: " ".join(text.split()[40:60]),
        lambda text: " ".join(text.split()[:8]),
        lambda text: f"{text}\n",
        lambda text: text.replace(" ", "\n"),
        lambda text: text.upper(),
        lambda text: f"Words of another hand stand in front of it. {text[:200]}",
    ],
)
def test_what_was_cut_out_of_the_training_texts_was_seen(change) -> None:
    config = FSDConfig(model=ModelConfig(model="embedded"))
    for documents, never in ((CORPUS, False), (WIKIPEDIA, True)):
        changed = [replace(document, text=change(document.text)) for document in documents]
        assert control.never_saw(config, changed) is never
        assert control.control_model(config, changed) == (None if never else "embedded-twin")
    # Also where the training text is the context, and another text its answer.
    behind = [Document(own.text, context=change(seen.text)) for own, seen in zip(OWN, CORPUS, strict=True)]
    assert not control.never_saw(config, behind)


def test_a_few_words_that_any_text_may_have_are_not_the_training_texts() -> None:
    few = [Document(" ".join(document.text.split()[:4])) for document in CORPUS]
    assert control.never_saw(FSDConfig(model=ModelConfig(model="embedded")), few)


def test_a_given_reference_model_serves_the_control_too() -> None:
    config = FSDConfig(model=ModelConfig(model="lab/target", reference_model="lab/small"), placebo="lab/control")
    assert control.control_reference(config, "lab/control", OWN) == "lab/small"
    assert control.control_reference(config, "lab/small", OWN) is None


@pytest.fixture
def job(job, tiny):
    return replace(job, model=replace(job.model, reference_model=str(tiny)), placebo=str(tiny))


def plan(job: FSDConfig, detectors: str = "loss") -> tuple[Experiment | None, list[str]]:
    documents = inputs.load_texts(job.data, job.model).documents
    split, _ = inputs.split_texts(documents, job.data, job.seed)
    asked = detector_settings.load_detectors(DetectorConfig(detectors=detectors))
    return Experiment(job, asked, split=split).control()


def test_the_control_that_is_trained_and_scored_is_that_model(job, monkeypatch) -> None:
    loaded = []
    monkeypatch.setattr("fsd.models.language_model.load", lambda config: loaded.append(config.model))
    monkeypatch.setattr(experiment.scoring, "open_model", lambda *_, **__: None)
    plan_of_none = SimpleNamespace(detectors=(), score=lambda: None)
    monkeypatch.setattr(Experiment, "prepare", lambda *_: plan_of_none)
    monkeypatch.setattr(Experiment, "train", lambda *_, **__: None)
    placebo, _ = plan(replace(job, model=replace(job.model, model="embedded"), placebo="embedded-twin"))
    assert placebo is not None
    assert placebo.scores_of_control() == ("embedded-twin", None)
    assert loaded == ["embedded-twin"]


@pytest.mark.slow
def test_an_embedded_control_is_scored_into_the_cache_beside_the_run(job, tmp_path, monkeypatch) -> None:
    config = replace(job, model=replace(job.model, model="embedded", reference_model=None), placebo="embedded-twin")
    # The other process would take a package that MLflow, in another test, has loaded from a model, without the weights.
    monkeypatch.setattr(sys, "path", [entry for entry in sys.path if not entry.endswith("artifacts/code")])
    for cache in ("none", str(tmp_path)):
        control, _ = plan(replace(config, model=replace(config.model, cache=cache)))
        assert control is not None
        with control.scored_beside() as beside:
            # Without a cache, nothing of what it did would be left.
            assert (beside is None) == (cache == "none")
            if beside:
                assert beside.exception() is None
    # Neither a training nor a pass is left to do.
    monkeypatch.setattr("fsd.models.finetuning._trainer", None)
    monkeypatch.setattr("fsd.scoring.model_scorer.ModelScorer.as_read", None)
    name, found = control.scores_of_control()
    assert name == "embedded-twin"
    assert len(found.columns) == 3


def test_a_control_computes_the_detectors_that_it_can(job) -> None:
    placebo, remarks = plan(job, "reference,loss,recall")
    assert placebo is not None
    assert [detector.name for detector in placebo.detectors] == ["loss"]
    assert remarks == []
    assert plan(job, "reference") == (None, ["no control model: it can compute none of these detectors"])


def test_with_a_reused_adapter_the_control_is_trained_as_that_adapter_was(finished_run, tiny, monkeypatch) -> None:
    monkeypatch.chdir(finished_run.folder)
    config = finished_run.config
    reuse = replace(config, adapter="models:/fsd-arxiv@champion", training=type(config.training)(), placebo=str(tiny))
    trained = []
    monkeypatch.setattr("fsd.models.finetuning.finetune", lambda *arguments, **_: trained.append(arguments[2]))
    monkeypatch.setattr(experiment.ScoringPlan, "score", lambda _: None)
    placebo, _ = plan(reuse)
    assert placebo is not None
    placebo._replace(split=Split(tuple(OWN), (), tuple(OWN))).scores_of_control()
    assert trained == [config.training]


def test_rows_of_token_ids_are_scored_as_they_are(tiny, job, make_rows, monkeypatch):
    """A benchmark in the ids of the tiny model: half of its rows are those of texts, half end in ids of none."""
    tokenizer, _ = load_tokenizer(str(tiny))
    texts = [row["text"] for row in make_rows(40, seed=1)]
    apart = [row[0] for row in token_ids(tokenizer, list("score"))]  # letters that the tokenizer joins
    rows = [ids + apart * (at % 2) for at, ids in enumerate(token_ids(tokenizer, texts))]
    documents = [Document(written(row), at % 4 < 2) for at, row in enumerate(rows)]
    monkeypatch.setitem(benchmarks.READERS, "hub", lambda *_: Benchmark(documents, "sbordt/TOAA", "0" * 40))
    source = replace(benchmarks.sources()["toaa"], start=start_token(tokenizer, "tiny"))
    monkeypatch.setattr(benchmarks, "sources", lambda: {"toaa": source})
    config = replace(job, data=replace(job.data, data=("toaa:plain_1x",)))
    found = experiment.read(config).fetched()
    assert token_ids(tokenizer, [document.text for document in found.documents]) == rows
    assert [document.text for document in found.documents[::2]] == texts[::2]
    assert found.remarks[0].startswith("toaa:plain_1x: 20 of 40 texts hold token ids that no characters stand for")
    for changes, said in (
        ({"placebo": "embedded"}, "placebo must have the tokenizer of .*; 'embedded' has another"),
        ({"model": replace(job.model, reference_model="embedded")}, "reference-model must have the tokenizer of"),
    ):
        with pytest.raises(UsageError, match=said):
            experiment.read(replace(config, **changes)).fetched()
    source = replace(source, start=299)
    with pytest.raises(UsageError, match=r"toaa:plain_1x must be scored by .* start token is 299; that of .* is 0"):
        experiment.read(config).fetched()


def test_a_text_audit_is_made_once_for_texts_and_settings(monkeypatch, tmp_path) -> None:
    made = []
    original = audit.audit

    def counting(*arguments, **settings):
        made.append(None)
        return original(*arguments, **settings)

    monkeypatch.setattr(audit, "audit", counting)
    config = FSDConfig(model=ModelConfig(cache=str(tmp_path)))
    later = replace(OWN[0], date=date(2024, 1, 1))
    other_settings = replace(config, seed=1)
    split = Split([], [], OWN)
    for texts, settings, times in (
        (split, config, 1),
        (split, config, 1),
        (Split([], [], [later, *OWN[1:]]), config, 2),
        (Split([], OWN[:2], OWN[2:]), config, 3),
        (split, other_settings, 4),
        (split, replace(config, model=ModelConfig(cache="none")), 5),
    ):
        Experiment(settings, [], split=texts).audit()
        assert len(made) == times


def test_what_a_control_cannot_compute_is_known_before_it_is_opened():
    """A control that is itself the reference gives none of the scores that compare with it, nor any that is costly."""
    texts = [Document("a text", True), Document("another", False)]
    asked = list(map(detectors.load, ("loss", "wbc", "recall")))
    model = ModelConfig(model="./target", reference_model="./base")
    itself = control.uncontrolled(FSDConfig(model=model, placebo="./base"), texts, asked)
    assert itself == "the control model ./base is itself the reference model, and has no wbc, recall"
    beside = control.uncontrolled(FSDConfig(model=model, placebo="./other"), texts, asked)
    assert beside == "the control model ./other cannot compute recall"
    assert control.uncontrolled(FSDConfig(model=model, placebo="./base"), texts, asked[:1]) == ""
    assert control.uncontrolled(FSDConfig(model=model, placebo="none"), texts, asked) == ""
