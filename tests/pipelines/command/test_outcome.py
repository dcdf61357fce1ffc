"""The end of a command: one JSON document or tables, where everything is, and a configuration that can be run again."""

import json
import sys
from dataclasses import dataclass
from pathlib import Path

import pandas as pd
import pytest

from fsd import tracking
from fsd.evaluation.findings import as_findings
from fsd.reporting.report import Column, Report, Section, Table
from fsd.tracking import Version
from pipelines.command.cli import command, read
from pipelines.command.deliver import deliver, show, tracked_run
from pipelines.command.job import Job


@dataclass(frozen=True)
class Config:
    size: int = 1
    """How many."""
    data: tuple[str, ...] = ()
    """Files."""


def prepare(config: Config) -> Job:
    return Job(lambda: work(config), {"texts": "none"})


def work(config: Config) -> None:
    print("a library prints this")
    table = pd.DataFrame({"detector": ["loss"], "value": [0.75], "low": [float("nan")]})
    columns = [Column("detector", "detector"), Column("AUC", lambda row: f"{row.value:.2f}")]
    sections = [Section("Results", tables=[Table(table, columns, name="results")])]
    found = Report(
        "Page",
        "Which?",
        as_findings(["loss is best", "a note"]),
        sections,
        score="loss .75",
        files={"scores": "out.csv"},
    )
    with tracked_run(config, "fsd-x", "by default", tags={"task": "test"}) as run:
        deliver(found, run)


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def call(*flags: str) -> None:
        monkeypatch.chdir(tmp_path)
        monkeypatch.setattr(sys, "argv", ["fsd run", *flags])
        command(Config, prepare, "")

    return call


def test_json_is_all_that_goes_to_stdout(run, capsys):
    run("--json", "--size", "3", "--name", "mine", "--tags", "team=lab", "round=2")
    shown = capsys.readouterr()
    document = json.loads(shown.out)
    (stored,) = tracking.find_runs("fsd-x", {"team": "lab", "round": "2", "task": "test"})
    assert shown.err == "a library prints this\n[4/4] recording: figures, report\n"
    assert list(document) == ["format", "command", "headline", "tables", "notes", "files", "run", "registered"]
    assert (document["format"], document["command"], document["headline"]) == (1, "run", "loss is best")
    assert document["tables"]["results"] == [{"detector": "loss", "value": 0.75, "low": None}]
    assert document["files"] == {"scores": "out.csv"}
    assert document["run"]["id"] == stored.id
    assert document["run"]["page"] == ""  # no server has it
    assert Path(document["run"]["report"]).with_name("config.yaml").is_file()
    assert document["registered"] is None
    assert stored.name == "mine"


def test_the_page_of_a_run_is_named_where_a_server_has_it(run, capsys, monkeypatch):
    monkeypatch.setattr(tracking.store.Store, "is_server", True)
    monkeypatch.setattr(tracking.store.Store, "server", "https://mlflow.example")
    run("--json")
    place = json.loads(capsys.readouterr().out)["run"]
    assert place["page"].startswith(f"https://mlflow.example/#/experiments/1/runs/{place['id']}?")


def test_the_end_of_a_run_names_run_page_and_report_and_its_configuration_runs_again(run, capsys, monkeypatch):
    run("--size", "3", "--data", "a b", "c")
    shown = capsys.readouterr().out.splitlines()
    (stored,) = tracking.find_runs("fsd-x")
    file = tracking.fetch_artifact(stored.id, "config.yaml")
    assert shown[:2] == ["a library prints this", "loss is best"]
    assert "loss       0.75" in shown
    assert shown[-6:-4] == ["• a note", ""]
    assert [line.split("  ")[0].strip() for line in shown[-4:]] == ["scores", "run", "report", "next"]
    assert shown[-3].endswith(stored.id)
    assert stored.name == "by default · loss .75"
    monkeypatch.setattr(sys, "argv", ["fsd run", "--config", str(file)])
    assert read(Config, "")[0] == Config(3, ("a b", "c"))


def test_a_pipeline_that_is_called_as_a_function_has_no_command(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    prepare(Config()).run()
    assert "command" not in tracking.fetch_artifact(tracking.find_runs("fsd-x")[0].id, "config.yaml").read_text()
    assert "loss is best" in capsys.readouterr().out


def test_verdicts_are_offered_where_the_version_can_give_them(capsys, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["fsd run"])
    version = Version("fsd-x", 1, "run", {}, ())
    offered = "fsd detect FILE --adapter models:/fsd-x/1"
    # Without the smallest rate that is possible, the command would be refused.
    for rate, line in ((0.05, f"{offered}\n"), (0.112, f"{offered} --fpr 0.112\n"), (None, "")):
        report = Report(headline="x", rate=rate)
        command(Config, lambda _, report=report: Job(lambda: show(report, None, version), {}), "")
        out = capsys.readouterr().out
        assert line in out
        assert (offered in out) is bool(rate)


def test_the_next_command_repeats_no_password(capsys: pytest.CaptureFixture[str]) -> None:
    command = "fsd score a.jsonl --revision 'mysql+pymysql://127.0.0.1:1/db?passwd=s3cr3t'"
    show(Report(headline="done", next=[command]))
    shown = "".join(capsys.readouterr().out.split())
    assert "passwd=***'" in shown
    assert "s3cr3t" not in shown
