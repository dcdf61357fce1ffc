"""Labels that do not hold for a model, which is younger than the non-members: no verdict and no champion."""

import json
import shutil
from dataclasses import replace

import pytest

from fsd import tracking
from fsd.data import benchmarks
from fsd.data.documents import Benchmark, Document
from fsd.errors import UsageError
from pipelines.detect.classifier import MembershipClassifier
from pipelines.experiment import experiment

DOUBT = "the labels do not hold: young may have read texts up to 2024-11-30, and "


@pytest.fixture
def young(tiny, tmp_path, monkeypatch, make_rows):
    """The tiny model, named SmolLM2 in its configuration, and a file of dated texts, in the working folder."""
    monkeypatch.chdir(tmp_path)
    folder = shutil.copytree(tiny, tmp_path / "young")
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"_name_or_path": "HuggingFaceTB/SmolLM2-135M"}))
    (tmp_path / "data.jsonl").write_text("".join(json.dumps(row) + "\n" for row in make_rows(60, seed=0)))
    return folder


@pytest.mark.slow
def test_a_run_says_so_first_and_its_adapter_judges_nothing(young, run_command):
    line = "run --data data.jsonl --model young --device cpu --detectors loss,zlib --epochs 1 --placebo none"
    told = json.loads(run_command(f"{line} --audit-repeats 1 --json"))
    assert told["notes"][0] == f"{DOUBT}30 of 30 dated non-members are not later"
    assert told["headline"].startswith("Was it in the training data? No answer: ")
    assert told["tables"]["results"]
    assert told["registered"]["aliases"] == []
    (run,) = tracking.find_runs("fsd-arxiv", {})
    assert run.metrics["auc/loss.base"]
    with pytest.raises(UsageError, match=f"adapter must come from a benchmark that can show membership; {DOUBT}"):
        MembershipClassifier("models:/fsd-arxiv/1")


def test_wikimia_by_its_declaration(young, job, monkeypatch, make_rows):
    rows = [Document(row["text"], bool(row["label"])) for row in make_rows(40, seed=1)]
    monkeypatch.setitem(benchmarks.READERS, "hub", lambda *_: Benchmark(rows, "swj0419/WikiMIA", "0" * 40))
    config = replace(job, data=replace(job.data, data=("wikimia:64",)), model=replace(job.model, model="young"))
    found = experiment.read(config).fetched().labels
    assert not found.hold
    assert found.doubt == f"{DOUBT}the non-members begin on 2023-01-01"
    older = replace(config, data=replace(config.data, cutoff="2022-12-31"))
    assert experiment.read(older).fetched().labels.hold


def test_other_commands_say_so_first(young, run_command, make_rows, tmp_path):
    (tmp_path / "known.jsonl").write_text(
        "".join(json.dumps({**row, "label": 0}) + "\n" for row in make_rows(30, seed=5))
    )
    (tmp_path / "asked.jsonl").write_text(
        "".join(json.dumps({"text": row["text"]}) + "\n" for row in make_rows(20, seed=6))
    )
    for line in (
        "score --data data.jsonl --model young --device cpu --detectors loss --out scores.csv",
        "contamination asked.jsonl --known known.jsonl --model young --device cpu --orders 1 --sets 2",
    ):
        told = json.loads(run_command(f"{line} --json"))
        assert told["notes"][0].startswith(DOUBT)
    assert [row["name"] for row in told["tables"]["results"]] == ["exchangeability"]
    study = "study fsd-t3 --data data.jsonl --model young --dry-run --json"
    assert any(note.startswith(DOUBT) for note in json.loads(run_command(study))["notes"])
    told = json.loads(run_command(f"{study} --cutoff 2024-12-31"))  # all non-members become contemporaries
    assert not any(note.startswith(DOUBT) for note in told["notes"])
