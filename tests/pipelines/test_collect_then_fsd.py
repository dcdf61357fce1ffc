"""The main job runs on what each collector gives: collected from a service that speaks its format, then asked about."""

import csv
import importlib.util
import json
import random
from datetime import date, timedelta
from pathlib import Path

import pandas as pd
import pytest

from fsd import tracking
from fsd.collection import domains
from fsd.config import AdapterConfig, DataConfig, DetectorConfig, FSDConfig, ModelConfig
from fsd.data.readers import read_files
from pipelines import collect, fsd

pytestmark = pytest.mark.slow

SERVICES = Path(__file__).parents[1] / "fsd" / "collection" / "domains"
COMMON = ["the", "of", "and", "to", "in", "is", "that", "for", "it", "was", "on", "with", "as", "by", "at", "from"]
HAN = "的一是在不了有和人这中大为上个国我以要他时来用们生到作地于出就分对成会可主发年动同工也能下过子说"
BEFORE, AFTER = date(2022, 1, 1), date(2024, 1, 1)
DAYS = [BEFORE - timedelta(days=n) for n in range(30, 0, -1)] + [AFTER + timedelta(days=n) for n in range(1, 31)]


def fakes(name):
    """A file of the collectors' own tests, with what stands for a service there."""
    spec = importlib.util.spec_from_file_location(f"fakes_{name}", SERVICES / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


services = fakes("conftest")
service, reply, fake_time = services.service, services.reply, services.fake_time


def prose(seed, count=40):
    rng = random.Random(seed)
    return " ".join(rng.choice(COMMON) if rng.random() < 0.4 else f"w{rng.randrange(10**6)}" for _ in range(count))


papers = fakes("test_arxiv")
archive = papers.archive


@pytest.fixture
def arxiv(archive):
    archive([papers.entry(f"{n:04}", str(day), abstract=prose(n)) for n, day in enumerate(DAYS)])
    return ()


articles = fakes("test_wikipedia")
wiki = articles.wiki


@pytest.fixture
def wikipedia(wiki):
    pages = {
        n: articles.page(n, str(day), category=f"{day.year} floods", extract=prose(n)) for n, day in enumerate(DAYS, 1)
    }
    return (f"mirror={wiki(pages).url}",)


novels = fakes("test_books")
library = novels.library


@pytest.fixture
def books(library):
    rows = [novels.book(n, str(day)) for n, day in enumerate(DAYS)]
    files = {novels.path(n): novels.file_of(prose(n, 120).split()) for n in range(len(DAYS))}
    return (f"mirror={library(rows, files).url}", "words=40")


questions = fakes("test_stackexchange")
site = questions.site


@pytest.fixture
def stackexchange(site):
    asked = [questions.question(n, day, body=f"<p>{prose(n)}</p>") for n, day in enumerate(DAYS)]
    return (f"mirror={site(asked).url}",)


@pytest.fixture
def patents(tmp_path):
    pytest.importorskip("jieba", exc_type=ImportError)
    rng = random.Random(0)
    with (tmp_path / "dump.csv").open("w", encoding="utf-8", newline="") as file:
        table = csv.writer(file)
        table.writerow(["publication_number", "priority_date", "text"])
        for n, day in enumerate(DAYS):
            table.writerow([f"CN{n:09}A", day, "".join(rng.choices(HAN, k=200))])
    return (f"path={tmp_path / 'dump.csv'}", "words=60")


@pytest.fixture
def local(tmp_path):
    folder = tmp_path / "texts"
    folder.mkdir()
    for n, day in enumerate(DAYS):
        (folder / f"{day} minutes {n}.txt").write_text(prose(n))
    return (f"path={folder}",)


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    return f"sqlite:///{tmp_path_factory.mktemp('store')}/mlflow.db"


@pytest.fixture
def here(tmp_path, monkeypatch, store, fake_time):
    """A folder to work in, and collectors that need not wait between two requests."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", store)
    monkeypatch.setattr("fsd.collection.engine.Clock", lambda: fake_time.clock)
    return tmp_path


@pytest.fixture
def ask(tiny):
    """Runs the main job on the tiny model; gives its run, its scores and the texts that it was fine-tuned on."""

    def run(domain, data, unseen=0.3):
        fsd.main(
            FSDConfig(
                data=DataConfig(domain=domain, data=(data,), unseen=unseen),
                model=ModelConfig(model=str(tiny), device="cpu"),
                training=AdapterConfig(epochs=1),
                detection=DetectorConfig(detectors="loss,zlib"),
                placebo="none",
            )
        )
        done = tracking.find_runs(f"fsd-{domain}")[0]
        scores = pd.read_parquet(tracking.fetch_artifact(done.id, "scores.parquet"))
        return done, scores, read_files([tracking.fetch_artifact(done.id, "unseen.jsonl")])

    return run


@pytest.mark.parametrize("domain", domains.names())
def test_the_main_job_runs_on_what_a_collector_gives(domain, here, ask, request):
    options = request.getfixturevalue(domain)
    collect.main(
        collect.Collect(domain, 30, before=str(BEFORE), after=str(AFTER), out=Path("b.jsonl"), options=options)
    )
    collected = read_files(["b.jsonl"], labelled=True)
    assert [sum(text.member is side for text in collected) for side in (True, False)] == [30, 30]
    assert {text.member for text in collected if text.date > AFTER} == {False}
    assert {text.member for text in collected if text.date < BEFORE} == {True}

    done, scores, unseen = ask(domain, "b.jsonl")

    assert done.status == "FINISHED"
    assert done.metrics["audit/leaked_groups"] == 0
    assert scores[["loss.fsd", "zlib.fsd"]].notna().all(axis=None)
    parts = dict(zip(scores["text"], scores["split"], strict=True)) | {text.text: "unseen" for text in unseen}
    assert parts.keys() == {text.text for text in collected}
    assert {text.group for text in unseen} <= {text.group for text in collected}
    places = {(text.group, parts[text.text]) for text in collected}
    assert {part for _, part in places} == {"unseen", "validation", "test"}
    assert len(places) == len({text.group for text in collected}) == (20 if domain == "books" else 60)


def test_the_main_job_fine_tunes_on_what_was_collected_for_it(here, ask, stackexchange):
    order = {"domain": "stackexchange", "after": str(AFTER), "options": stackexchange}
    collect.main(collect.Collect(limit=15, before=str(BEFORE), out=Path("b.jsonl"), **order))
    collect.main(collect.Collect(limit=12, benchmark_of=("b.jsonl",), out=Path("fresh.jsonl"), **order))
    fresh, benchmark = read_files(["fresh.jsonl"]), read_files(["b.jsonl"])
    manifest = json.loads(Path("fresh.manifest.json").read_text())
    assert manifest["dropped"] == {"in the benchmark": 15}

    done, scores, unseen = ask("stackexchange", "b.jsonl", unseen="fresh.jsonl")

    assert done.status == "FINISHED"
    assert sorted(text.text for text in unseen) == sorted(text.text for text in fresh)
    assert sorted(scores["text"]) == sorted(text.text for text in benchmark)
