"""The main job runs on what every domain collects, from services that speak their formats."""

import importlib.util
import json
from datetime import date, timedelta
from pathlib import Path

import pandas as pd
import pytest

from fsd import tracking
from fsd.collection import domains
from fsd.config import AdapterConfig, DataConfig, DetectorConfig, FSDConfig, ModelConfig
from fsd.data.readers import read_files
from pipelines import fsd
from pipelines.collect import Collect
from pipelines.collect import job as collect

pytestmark = pytest.mark.slow

BEFORE, AFTER = date(2022, 1, 1), date(2024, 1, 1)
DAYS = [BEFORE - timedelta(days=n) for n in range(30, 0, -1)] + [AFTER + timedelta(days=n) for n in range(1, 31)]


@pytest.fixture
def published(root, tmp_path, service, prose):
    """Publishes a text for each day by the function `publish` of a domain's own tests; gives the options."""

    def publish(domain):
        file = root / "tests" / "fsd" / "collection" / "domains" / f"test_{domain}.py"
        spec = importlib.util.spec_from_file_location(f"published_{domain}", file)
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        (tmp_path / "source").mkdir()
        return module.publish([(day, prose(n, 120)) for n, day in enumerate(DAYS)], service, tmp_path / "source")

    return publish


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    return f"sqlite:///{tmp_path_factory.mktemp('store')}/mlflow.db"


@pytest.fixture
def here(tmp_path, monkeypatch, store, fake_time):
    """An empty working folder, a store, and a clock whose waits take no time."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", store)
    monkeypatch.setattr("fsd.collection.engine.Clock", lambda: fake_time.clock)
    return tmp_path


@pytest.fixture
def run_fsd(tiny):
    """Runs the main job on the tiny model; gives its run, its scores and the texts of the fine-tuning."""

    def run(domain, data, unseen=0.3):
        fsd.prepare(
            FSDConfig(
                audit_repeats=1,
                data=DataConfig(domain=domain, data=(data,), unseen=unseen),
                model=ModelConfig(model=str(tiny), device="cpu"),
                training=AdapterConfig(epochs=1),
                detection=DetectorConfig(detectors="loss,zlib"),
                placebo="none",
            )
        ).run()
        done = tracking.find_runs(f"fsd-{domain}")[0]
        scores = pd.read_parquet(tracking.fetch_artifact(done.id, "scores.parquet"))
        return done, scores, read_files([tracking.fetch_artifact(done.id, "unseen.jsonl")])

    return run


@pytest.mark.parametrize("domain", domains.names())
def test_the_main_job_runs_on_what_a_domain_collects(domain, here, run_fsd, published):
    options = published(domain)
    collect.prepare(
        Collect(domain, 30, before=str(BEFORE), after=str(AFTER), out=Path("b.jsonl"), options=options)
    ).run()
    collected = read_files(["b.jsonl"], labelled=True)
    assert [sum(text.member is side for text in collected) for side in (True, False)] == [30, 30]
    assert {text.member for text in collected if text.date > AFTER} == {False}
    assert {text.member for text in collected if text.date < BEFORE} == {True}
    done, scores, unseen = run_fsd(domain, "b.jsonl")
    assert done.metrics["audit/leaked_groups"] == 0
    assert scores[["loss.fsd", "zlib.fsd"]].notna().all(axis=None)
    parts = dict(zip(scores["text"], scores["split"], strict=True)) | {text.text: "unseen" for text in unseen}
    assert parts.keys() == {text.text for text in collected}
    assert {text.group for text in unseen} <= {text.group for text in collected}
    places = {(text.group, parts[text.text]) for text in collected}
    assert {part for _, part in places} == {"unseen", "validation", "test"}
    assert len(places) == len({text.group for text in collected}) >= 20


def test_the_main_job_fine_tunes_on_what_was_collected_for_it(here, run_fsd, published):
    order = {"domain": "stackexchange", "after": str(AFTER), "options": published("stackexchange")}
    collect.prepare(Collect(limit=15, before=str(BEFORE), out=Path("b.jsonl"), **order)).run()
    collect.prepare(Collect(limit=12, benchmark_of=("b.jsonl",), out=Path("fresh.jsonl"), **order)).run()
    fresh, benchmark = read_files(["fresh.jsonl"]), read_files(["b.jsonl"])
    manifest = json.loads(Path("fresh.manifest.json").read_text())
    assert manifest["dropped"] == {"in the benchmark": 15}
    _, scores, unseen = run_fsd("stackexchange", "b.jsonl", unseen="fresh.jsonl")
    assert sorted(text.text for text in unseen) == sorted(text.text for text in fresh)
    assert sorted(scores["text"]) == sorted(text.text for text in benchmark)
