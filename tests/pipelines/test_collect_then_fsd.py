"""What every domain collects, from services that speak their formats, can be divided, trained on and scored."""

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
from fsd.text_audit.audit import leaks
from pipelines import fsd
from pipelines.collect import Collect
from pipelines.collect import job as collect
from pipelines.experiment import inputs

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
    monkeypatch.setattr("fsd.text_audit.audit.REPEATS", 1)
    monkeypatch.setattr("fsd.collection.engine.Clock", lambda: fake_time.clock)
    return tmp_path


@pytest.mark.parametrize(
    "domain", ["books", *(pytest.param(name, marks=pytest.mark.slow) for name in domains.names() if name != "books")]
)
def test_what_a_domain_collects_is_divided_without_a_leak(domain, here, published):
    options = published(domain)
    order = Collect(domain, 30, before=str(BEFORE), after=str(AFTER), out=Path("b.jsonl"), options=options)
    collect.prepare(order).run()
    collected = read_files(["b.jsonl"], labelled=True)
    assert [sum(text.member is side for text in collected) for side in (True, False)] == [30, 30]
    assert {text.member for text in collected if text.date > AFTER} == {False}
    assert {text.member for text in collected if text.date < BEFORE} == {True}
    data = DataConfig(domain=domain, data=("b.jsonl",))
    split, _ = inputs.split_texts(inputs.load_texts(data, ModelConfig()).documents, data, 42)
    assert leaks(split).groups == 0
    parts = {text.text: name for name, texts in split._asdict().items() for text in texts}
    assert parts.keys() == {text.text for text in collected}
    places = {(text.group, parts[text.text]) for text in collected}
    assert {part for _, part in places} == {"unseen", "validation", "test"}
    assert len(places) == len({text.group for text in collected}) >= 20


@pytest.mark.slow
def test_the_main_job_fine_tunes_on_what_was_collected_for_it(here, tiny, published):
    order = {"domain": "stackexchange", "after": str(AFTER), "options": published("stackexchange")}
    collect.prepare(Collect(limit=15, before=str(BEFORE), out=Path("b.jsonl"), **order)).run()
    collect.prepare(Collect(limit=12, benchmark_of=("b.jsonl",), out=Path("fresh.jsonl"), **order)).run()
    fresh, benchmark = read_files(["fresh.jsonl"]), read_files(["b.jsonl"])
    assert json.loads(Path("fresh.manifest.json").read_text())["dropped"] == {"in the benchmark": 15}
    config = FSDConfig(
        audit_repeats=1,
        data=DataConfig(domain="stackexchange", data=("b.jsonl",), unseen="fresh.jsonl"),
        model=ModelConfig(model=str(tiny), device="cpu"),
        training=AdapterConfig(epochs=1),
        detection=DetectorConfig(detectors="loss,zlib"),
        placebo="none",
    )
    fsd.prepare(config).run()
    done = tracking.find_runs("fsd-stackexchange")[0]
    scores = pd.read_parquet(tracking.fetch_artifact(done.id, "scores.parquet"))
    assert scores[["loss.fsd", "zlib.fsd"]].notna().all(axis=None)
    unseen = read_files([tracking.fetch_artifact(done.id, "unseen.jsonl")])
    assert sorted(text.text for text in unseen) == sorted(text.text for text in fresh)
    assert sorted(scores["text"]) == sorted(text.text for text in benchmark)
