"""Every pipeline loads its models as it was asked to: where, in which dtype, and rounded to how many bits."""

from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from fsd.config import DetectorConfig, FSDConfig, ModelConfig, ScoreConfig, TuneConfig
from fsd.models import language_model
from fsd.scoring import scorers
from fsd.scoring.model import open_model
from fsd.token_stats import Prompt
from pipelines import fsd
from pipelines.common import detector_settings, experiment, inputs, registration
from pipelines.detect.classifier import MembershipClassifier
from pipelines.research.study import catalogue
from pipelines.research.study.grid import StudyConfig, plan
from pipelines.score import job as score
from pipelines.tune import tuning as tune
from pipelines.tune.job import study_setup

ASKED = {"device": "spread", "dtype": "bfloat16", "bits": 4}


class Loaded(Exception):  # noqa: N818 - the end of the test, not an error
    pass


@pytest.fixture
def loaded(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """What models are asked for; none is loaded."""
    calls: list[dict[str, Any]] = []

    def load(config: ModelConfig, **changes: Any) -> None:
        config = replace(config, **changes)
        calls.append({name: getattr(config, name) for name in ("model", *ASKED)})
        raise Loaded

    monkeypatch.setattr(language_model, "load", load)
    # The check before the work refuses four bits where bitsandbytes is not installed.
    monkeypatch.setattr(language_model, "quantization_options", lambda *_: {})
    return calls


@pytest.fixture
def job(job: FSDConfig, other: Path) -> FSDConfig:
    model = replace(job.model, reference_model=str(other), **ASKED)
    return replace(job, model=model, detection=DetectorConfig(detectors="min_k"))


def test_the_main_job_and_its_placebo(job: FSDConfig, tiny: Path, loaded: list[dict[str, Any]]) -> None:
    with pytest.raises(Loaded):
        fsd.prepare(job).run()
    placebo, _ = experiment.plan_control(replace(job, placebo=str(tiny)), *_parts(job))
    with pytest.raises(Loaded):
        placebo.score(_parts(job)[0])
    assert loaded == [{"model": str(tiny), **ASKED}] * 2


def _parts(job: FSDConfig) -> tuple[Any, Any]:
    documents = inputs.load_texts(job.data, job.model).documents
    return inputs.split_texts(documents, job.data, job.seed)[0], detector_settings.load_detectors(job.detection)


def test_other_commands(job: FSDConfig, tiny: Path, loaded: list[dict[str, Any]]) -> None:
    study_name, study = catalogue.load("fsd-t6")
    cell = plan(study_name, study, StudyConfig(study_name, model=(str(tiny),), **ASKED))[0]
    for begin in (
        lambda: tune.prepare(TuneConfig(base_run=job, tune="detectors", folds=2)).run(),
        lambda: tune.prepare(TuneConfig(base_run=job, tune="adapter", folds=2)).run(),
        lambda: score.prepare(ScoreConfig(data=("data.jsonl",), out="scores.csv", model=job.model)).run(),
        lambda: open_model(cell.config.model),
        lambda: list(scorers.reference_scorer(str(tiny), job.model, None)([])),
    ):
        loaded.clear()
        with pytest.raises(Loaded):
            begin()
        assert loaded == [{"model": str(tiny), **ASKED}]


def test_what_was_asked_for_is_recorded_and_a_study_of_rounded_weights_is_another_one(job: FSDConfig) -> None:
    parts, _ = _parts(job)
    four, plain = (
        study_setup(TuneConfig(base_run=replace(job, model=replace(job.model, bits=bits))), parts, "")
        for bits in (4, None)
    )
    assert four == {**plain, "bits": 4}
    recorded = registration.params(job, [], [], None)
    assert {name: recorded[name] for name in ASKED} == ASKED


def test_the_classifier_runs_as_the_run_did_except_for_the_device(finished_run, tiny, loaded, monkeypatch) -> None:
    monkeypatch.chdir(finished_run.folder)
    with pytest.raises(Loaded):
        MembershipClassifier("models:/fsd-arxiv@champion", device="spread", bits=8)
    assert loaded == [{"model": str(tiny), "device": "spread", "dtype": "float32", "bits": 8}]


@pytest.mark.slow
@pytest.mark.skipif(find_spec("bitsandbytes") is None, reason="bitsandbytes is not installed")
@pytest.mark.parametrize("bits", [8, 4])
def test_the_main_job_on_rounded_weights(job: FSDConfig, bits: Any) -> None:
    tables = []
    for asked in (bits, None, bits):
        how = replace(job.model, device="cpu", dtype="auto", bits=asked, cache="kept")
        fsd.prepare(replace(job, model=how)).run()
        newest = max(Path().glob("mlruns/**/scores.parquet"), key=lambda file: file.stat().st_mtime)
        tables.append(pd.read_parquet(newest))
    assert (tables[0]["min_k.base"] != tables[1]["min_k.base"]).all()  # the cache gives none to the other
    assert (tables[0]["min_k.tuned"] != tables[1]["min_k.tuned"]).all()
    pd.testing.assert_frame_equal(tables[0], tables[2])


def test_statistics_of_a_reference_model_are_kept_under_its_own_weights(tiny, other, passes, tmp_path) -> None:
    loaded = language_model.load(str(tiny), device="cpu")
    for reference, expected in ((str(other), 1), (str(other), 0), (str(tiny), 1)):
        config = ModelConfig(model=str(tiny), reference_model=reference, cache=str(tmp_path / "kept"), device="cpu")
        passes.clear()
        list(open_model(config, local=loaded).scorers["reference"]([Prompt("a member")]))
        assert len(passes) == expected
