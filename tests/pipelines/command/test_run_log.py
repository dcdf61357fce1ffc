"""What the report and MLflow state about a run is true of that run."""

import contextlib
import json
import re
from dataclasses import replace
from functools import cache, partial
from types import SimpleNamespace

import numpy as np
import pytest
import yaml

import detectors
from fsd.config import AdapterConfig, DataConfig, DetectorConfig, FSDConfig, ModelConfig
from fsd.data.corpus import Split
from fsd.data.documents import Document
from fsd.evaluation.answer import Answer
from fsd.evaluation.results import compute_results
from fsd.models.language_model import BaseIdentity
from fsd.reporting.report import Picture, page
from fsd.scores import Score
from fsd.scoring.deviation import ScoreTable
from fsd.statistics.intervals import Estimate
from fsd.text_audit.audit import audit
from fsd.tracking.registry import COMPARED, DIGESTS
from fsd.verdicts.calibration import NonMembers
from pipelines.experiment import registration
from pipelines.experiment import report as main_report
from pipelines.experiment.adapter_files import SETUP
from pipelines.experiment.experiment import Experiment
from pipelines.experiment.pictures import pictures

IDENTITY = BaseIdentity("tiny", "", "abc")
SOURCES = {"embedded corpus": "sha256:123"}
CONFIG = FSDConfig(
    data=DataConfig(),
    model=ModelConfig(model="tiny"),
    training=AdapterConfig(),
    detection=DetectorConfig(detectors="loss"),
)
EXPERIMENT = Experiment(CONFIG, [detectors.load("loss")], sources=SOURCES)


@cache
def _results(validation):
    texts = [
        Document(f"{i} " + " ".join(f"w{i}x{k}" for k in range(12)), bool(i % 2), None, f"g{i}", "test")
        for i in range(44)
    ]
    parts = Split(*map(tuple, (texts[:4], texts[4 : 4 + validation], texts[4 + validation :])))
    scores = np.random.default_rng(0).normal(size=(2, 40))
    columns = {"base": scores[0], "tuned": scores[1], "fsd": scores[0] - scores[1]}
    scored = ScoreTable({Score("loss", state): column for state, column in columns.items()})
    return compute_results(
        parts,
        scored,
        None,
        [SimpleNamespace(name="loss", needs_labels=False, settings_in=lambda _: {})],
        seed=0,
        audited=partial(audit, parts, repeats=1),
    )


@pytest.fixture(scope="module")
def results():
    return _results(validation=16)


def test_mlflow_names_the_texts_that_were_read(results, monkeypatch):
    logged = {}
    run = SimpleNamespace(
        log_dataset=lambda name, texts, *, labels, source, context: logged.update({context: (name, source)}),
        storing=contextlib.nullcontext,
        **dict.fromkeys(("log", "log_metrics", "log_params"), lambda *args: None),
        conclude=lambda *args: None,
    )
    monkeypatch.setattr(registration, "save_adapter", lambda model, folder: None)
    monkeypatch.setattr(registration, "register", lambda *args, **more: None)
    config = replace(CONFIG, data=replace(CONFIG.data, unseen="later.jsonl"))
    experiment = Experiment(config, [detectors.load("loss")], sources=SOURCES)
    opened = SimpleNamespace(language_model=SimpleNamespace(identity=IDENTITY, adapted=False))
    registration.track(run, results, experiment, opened)
    domain, corpus = CONFIG.data.domain, "embedded corpus"
    assert logged == {
        "unseen": (f"{domain}-unseen", "later.jsonl"),
        "validation": (f"{domain}-validation", corpus),
        "test": (f"{domain}-test", corpus),
    }


def test_the_main_process_makes_no_collective_call_while_it_stores_a_model(results, monkeypatch):
    monkeypatch.setattr("fsd.distributed.from_main", lambda make: pytest.fail("the other processes have ended"))
    config = replace(CONFIG, detection=replace(CONFIG.detection, settings_from="models:/fsd-arxiv@champion"))
    files = registration.model_files(
        Answer(results), Experiment(config, [detectors.load("loss"), detectors.load("min_k", k=0.3)])
    )
    assert json.loads(files[SETUP])["detectors"] == {"loss": {}}  # min_k has no scores


def test_the_method_is_described_in_sentences(results):
    for adapter, sentence in (
        (None, "The model “tiny” was fine-tuned briefly on 4 texts that the model cannot have seen."),
        ("models:/a/1", "The model “tiny” was combined with the adapter models:/a/1, fine-tuned on 4 texts that the "),
    ):
        text = main_report.method(results, replace(CONFIG, adapter=adapter), IDENTITY)
        assert text.startswith(sentence)
        assert "chosen on 16 validation texts; no test text was used to choose anything" in text
    text = main_report.method(_results(validation=0), CONFIG, IDENTITY)
    assert "no test text was used" not in text
    assert "the score of the findings, “loss base score”, were chosen on the test texts themselves" in text


def test_the_report_has_every_figure_and_table(results):
    report = main_report.report(Answer(results), EXPERIMENT, IDENTITY, pictures(results))
    shown = page(report)
    assert {picture.name for picture in report.pictures} == {"headline.png", "roc.png", "scores.png", "reliability.png"}
    assert shown.count("<figure>") == 4
    assert '<tr class="best"><th scope="row">loss</th>' in shown
    assert "How to repeat this" in shown
    assert "embedded corpus sha256:123" in shown


def test_nothing_is_said_to_be_found_of_texts_that_the_model_never_read(results):
    for never_saw in (False, True):
        control = replace(results, never_saw=never_saw)
        notes = main_report.report(Answer(control), EXPERIMENT, IDENTITY, [Picture(b"", "")]).notes
        assert any(note.startswith("power: of the ") for note in notes) is not never_saw


def test_the_rate_of_verdicts_is_one_that_detect_takes(results):
    """Twelve non-members allow no rate below 1/13; where the texts alone explain a result, detect refuses every one."""

    def rate(auc):
        audit = replace(results.audit, blind=replace(results.audit.blind, auc=auc))
        return Answer(replace(results, audit=audit)).rate

    assert rate(None) == 0.077
    assert results.calibration.threshold_at(rate(None))
    assert rate(Estimate(0.99, 0.98, 1.0)) is None
    assert Answer(_results(validation=0)).rate is None


@pytest.mark.parametrize(
    ("sizes", "rate"), [((12, 12, 12), 0.077), ((12, 30, 4), 0.077), ((25, 25), 0.05), ((5, 5), None)]
)
def test_the_rate_of_verdicts_is_one_that_every_source_allows(results, sizes, rate):
    """Twelve non-members of a source allow no rate below 1/13; of less than ten no verdicts are given."""
    sources = [name for name, size in zip("abc", sizes, strict=False) for _ in range(size)]
    calibration = results.calibration
    scores = tuple(map(float, range(len(sources))))
    test = NonMembers(scores, tuple(range(len(sources))), tuple(sources))
    of_sources = replace(calibration, test=test, validation=NonMembers((), (), ()))
    audit = replace(results.audit, blind=replace(results.audit.blind, auc=None))
    judged = replace(results, audit=audit, calibration=of_sources)
    assert Answer(judged).rate == rate


def test_versions_are_comparable_on_the_same_texts_base_and_judging_alone(results):
    def judged(parts=results.parts, division="split grouped, seed 7", identity=IDENTITY):
        tags = registration.judged_on(parts, division, identity)
        return tags["judged_on"], json.loads(tags[DIGESTS])

    words, same = judged()
    assert re.fullmatch(r"\d+ validation and \d+ test texts; split grouped, seed 7, by the best .* state", words)
    assert tuple(same) == COMPARED
    assert all(same.values())
    assert judged(_results(validation=16).parts)[1] == same
    for (_, other), entry in (
        (judged(_results(validation=18).parts), "benchmark"),
        (judged(division="split grouped, seed 8"), "judging"),
        (judged(identity=replace(IDENTITY, fingerprint="def")), "base_fingerprint"),
    ):
        assert {name for name in COMPARED if other[name] != same[name]} == {entry}


def test_params_are_the_settings_in_effect():
    params = registration.params(EXPERIMENT, None)
    assert (params["validation"], params["data"], params["detectors"]) == (0.2, ["embedded corpus"], ["loss"])
    assert (params["placebo"], params["reference_model"]) == ("none", None)
    chosen = {method: registration.training_params(AdapterConfig(method=method)) for method in ("lora", "ia3")}
    assert chosen["lora"].keys() - chosen["ia3"].keys() == {"rank", "alpha", "dropout"}
    assert "target_modules" not in chosen["lora"]  # auto: those that were adapted are known after the training


def test_the_card_says_what_the_adapter_is_found_and_must_not_be_used_for(results):
    text = registration.card("fsd-arxiv", Answer(results), EXPERIMENT, IDENTITY)
    start = yaml.safe_load(text.split("---")[1])
    assert (start["base_model"], start["library_name"]) == ("tiny", "peft")
    assert main_report.sentences.headline(Answer(results)) in text
    for needed in (
        "AutoPeftModelForCausalLM",
        "| Unseen | 4 texts, digest",
        "| loss |",
        "## Limits",
        "## Not to be used",
    ):
        assert needed in text
