import contextlib
import errno
import json
import math
import os
import shutil
import subprocess
import sys
import time
from functools import partial
from hashlib import sha256

import pandas as pd
import pytest

from fsd import tracking
from fsd.errors import StorageError, UsageError
from fsd.tracking import runs
from fsd.tracking.runs import close_ended_runs
from fsd.tracking.store import Store, load_mlflow


def test_params_metrics_and_tags_are_logged(here):
    params = {"adapter": {"rank": 16, "targets": ("a", "b")}, "seed": 42}
    with tracking.run("fsd-x", "lora", params=params, tags={"domain": "x"}) as run:
        run.log_params({"detectors": {"min_k": {"k": 0.2}}, "long": "x" * 7000})
        run.log_metrics({"auc/loss.base": 0.5, "auc/zlib.base": math.nan, "auc/surp.base": math.inf})
        for step, loss in enumerate((3.0, 2.0)):
            run.log_metrics({"train/loss": loss}, step=step)
    (record,) = tracking.find_runs("fsd-x")
    assert (record.id, record.name, record.status, record.parent) == (run.id, "lora", "FINISHED", None)
    long = record.params["long"]
    assert (len(long), long[-2:]) == (6000, "x…")
    assert {k: v for k, v in record.params.items() if k != "long"} == {
        "adapter.rank": "16",
        "adapter.targets": "a, b",
        "seed": "42",
        "detectors.min_k.k": "0.2",
    }
    assert record.metrics == {"auc/loss.base": 0.5, "train/loss": 2.0}
    assert record.tags["domain"] == "x"
    curve = run.store.client.get_metric_history(run.id, "train/loss")
    assert [(point.step, point.value) for point in curve] == [(0, 3.0), (1, 2.0)]


def test_no_credential_is_kept(here, monkeypatch):
    """Not even those of the git remote, which MLflow records by itself."""
    from mlflow.tracking.context import git_context

    url = "https://user:hunter2@example.org/a.git"
    git = {"mlflow.source.git.commit": "0" * 40, "mlflow.source.git.repoURL": url}
    monkeypatch.setattr(git_context.GitRunContext, "_git_info", git)
    storage = "postgresql://user:hunter2@localhost:1/x"
    try:
        with tracking.run("fsd-x", "a", params={"storage": storage}, tags={"t": url}) as run:
            run.log_params({"urls": [url, storage]})
            run.log_dataset("x", ["text"], source=url, context="test")
            raise ValueError(f"got {storage}")
    except ValueError:
        pass
    data = run.store.client.get_run(run.id)
    assert "https://***@example.org/a.git" in data.data.tags["t"]
    assert data.data.tags["mlflow.source.git.repoURL"] == "https://***@example.org/a.git"
    assert data.data.tags["error"].endswith("got postgresql://user:***@localhost:1/x")
    assert "hunter2" not in str(data.to_dictionary())
    assert "hunter2" not in str(data.inputs.to_dictionary())
    assert [record.id for record in tracking.find_runs("fsd-x", {"t": url}, status="FAILED")] == [run.id]


def test_more_metrics_and_params_than_one_request_takes(here):
    with tracking.run("fsd-x", "a") as run:
        run.log_metrics({f"a/{i}": i for i in range(1001)})
        run.log_params({f"p{i}": i for i in range(101)})
    (record,) = tracking.find_runs("fsd-x")
    assert len(record.metrics) == 1001
    assert len(record.params) == 101


@pytest.mark.parametrize("name", ["tpr@5fpr", "min_k++", "auc%", "", "/auc", "a//b", "a/../b", "..", "a" * 251])
def test_a_name_that_mlflow_refuses_is_an_error(here, name):
    with tracking.run("fsd-x", "a") as run, pytest.raises(UsageError, match="must be 1 to 250 letters"):
        run.log_metrics({name: 0.5})


def test_artifacts_are_written_under_their_names(here, tmp_path):
    table = pd.DataFrame({"text": ["ä"], "loss.base": [0.25]})
    (tmp_path / "own.txt").write_text("own")
    with tracking.run("fsd-x", "a") as run:
        run.log_bytes("roc.png", b"\x89PNG")
        run.log_json("card.json", {"ä": 1})
        run.log_text("notes/one.txt", "ä")
        run.log_file(tmp_path / "own.txt")
        for name in ("scores.parquet", "summary.csv"):
            run.log_table(name, table)
        with pytest.raises(UsageError, match=r"must be named \*\.parquet, \*\.csv or \*\.json"):
            run.log_table("scores.xlsx", table)
    get = partial(tracking.fetch_artifact, run.id)
    assert get("roc.png").read_bytes() == b"\x89PNG"
    assert json.loads(get("card.json").read_text()) == {"ä": 1}
    assert get("notes/one.txt").read_text() == "ä"
    assert get("own.txt").read_text() == "own"
    pd.testing.assert_frame_equal(pd.read_parquet(get("scores.parquet")), table)
    pd.testing.assert_frame_equal(pd.read_csv(get("summary.csv")), table)
    with pytest.raises(UsageError, match=r"must hold 'roc\.svg'; it holds card\.json, notes, own\.txt"):
        get("roc.svg")


def test_a_dataset_is_logged_by_its_digest(here):
    with tracking.run("fsd-x", "a") as run:
        digest = run.log_dataset("arxiv", ["a", "b"], source="data.jsonl", context="unseen")
        other = run.log_dataset("arxiv", ["ab"], source="data.jsonl", context="test")
    by_hand = sha256(sha256(b"a").digest() + sha256(b"b").digest()).hexdigest()[:32]
    assert digest == by_hand != other
    inputs = run.store.client.get_run(run.id).inputs.dataset_inputs
    assert {(i.dataset.name, i.dataset.digest, i.tags[0].value) for i in inputs} == {
        ("arxiv", digest, "unseen"),
        ("arxiv", other, "test"),
    }


@pytest.mark.parametrize(
    ("error", "status"), [(KeyboardInterrupt, "KILLED"), (UsageError, "FAILED"), (SystemExit, "FAILED")]
)
def test_the_status_of_an_interrupted_or_failed_run(here, error, status):
    with pytest.raises(error), tracking.run("fsd-x", "a") as run:
        raise error("no luck")
    assert tracking.find_runs("fsd-x") == []
    (record,) = tracking.find_runs("fsd-x", status=status)
    assert record.id == run.id
    assert record.tags.get("error") == ("UsageError: no luck" if error is UsageError else None)
    assert load_mlflow().active_run() is None


def test_runs_are_found_by_tags_and_have_their_parent(here):
    with tracking.run("fsd-x", "study") as study:
        for seed in range(3):
            with tracking.run("fsd-x", f"trial {seed}", tags={"cell": f"it's {seed}"}, parent=study):
                pass
    assert {r.parent for r in tracking.find_runs("fsd-x") if r.name != "study"} == {study.id}
    assert [r.name for r in tracking.find_runs("fsd-x", {"cell": "it's 1"})] == ["trial 1"]
    assert tracking.find_runs("fsd-x", {"cell": "it"}) == []
    assert tracking.find_runs("fsd-unknown") == []
    with pytest.raises(UsageError, match="both kinds of quotes"):
        tracking.find_runs("fsd-x", {"cell": "'\""})


def test_labels_and_many_files_are_part_of_a_data_set(here):
    files = ", ".join(f"texts-of-the-year-{year}-{'x' * 30}.jsonl" for year in range(300))
    with tracking.run("fsd-x", "a") as run:
        digests = {
            run.log_dataset("x", ["a", "b"], labels=labels, source=files, context="test")
            for labels in ((), (True, False), (False, True), (None, None))
        }
    assert len(digests) == 3


PROCESS = """
import os, signal, sys
from fsd import tracking
with tracking.run("fsd-x", "killed") as run:
    with tracking.run("fsd-x", "within", parent=run):
        os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.slow
def test_runs_of_a_killed_process_are_closed_by_the_next_and_no_others(here, root):
    environment = {**os.environ, "PYTHONPATH": str(root)}
    subprocess.run([sys.executable, "-c", PROCESS], env=environment, check=False)
    assert {r.name for r in tracking.find_runs("fsd-x", status="RUNNING")} == {"killed", "within"}
    with tracking.run("fsd-elsewhere", "of another host") as other:
        other.set_tags({"process": "elsewhere-1-1-1"})
        close_ended_runs(other.store)
        assert [r.id for r in tracking.find_runs("fsd-elsewhere", status="RUNNING")] == [other.id]
    killed = tracking.find_runs("fsd-x", status="KILLED")
    assert {r.name for r in killed} == {"killed", "within"}
    assert {r.tags["error"] for r in killed} == {"its process ended without closing the run"}


def test_a_run_closes_those_of_killed_processes(here, monkeypatch):
    closed = []
    monkeypatch.setattr(runs, "close_ended_runs", closed.append)
    with tracking.run("fsd-x", "a") as run, tracking.run("fsd-x", "within", parent=run):
        assert len(closed) == 1


@contextlib.contextmanager
def run_with_losses():
    """An open run; yields what could not be stored as `raised.value` after its end."""
    with pytest.raises(StorageError) as raised:  # noqa: SIM117 - the error is raised at the end of the run
        with tracking.run("fsd-x", "a") as run:
            yield run, raised


def full_disk(*_, **__):
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_a_full_disk_does_not_end_the_computation(here, monkeypatch):
    computed = []
    with run_with_losses() as (run, raised):
        monkeypatch.setattr(shutil, "copyfileobj", full_disk)
        run.log_bytes("roc.png", b"1")
        run.log_text("notes/report.html", "2")
        run.log_metrics({"auc": 0.5})
        computed.append(True)
    assert computed
    assert str(raised.value) == ("not everything could be stored: roc.png, notes/report.html (No space left on device)")
    (record,) = tracking.find_runs("fsd-x", status="FAILED")
    assert record.metrics == {"auc": 0.5}
    assert "roc.png" in record.tags["error"]


class DyingServer:
    """A store behind an MLflow client that answers until `dead` is set."""

    def __init__(self):
        self.dead, self.calls = False, 0


@pytest.fixture
def server(here, monkeypatch):
    """The store of the folder, as if it were behind a server; requests fail as soon as `server.dead` is set."""
    from mlflow.exceptions import MlflowException

    fake = DyingServer()
    client = load_mlflow().MlflowClient

    def failing(name):
        original = getattr(client, name)

        def call(*arguments, **settings):
            fake.calls += fake.dead
            if fake.dead:
                raise MlflowException("API request to http://user:secret@x failed with exception refused")
            return original(*arguments, **settings)

        monkeypatch.setattr(client, name, call)

    for name in ("log_batch", "log_artifact", "log_inputs", "set_terminated"):
        failing(name)
    monkeypatch.setattr(Store, "is_file", False)
    monkeypatch.setattr(Store, "address", "http://x")
    return fake


def test_a_server_that_is_gone_is_asked_once_and_named_once(server, capsys):
    with run_with_losses() as (run, raised):
        server.dead = True
        for step in range(3):
            run.log_metrics({"train/loss": 1.0}, step)
        run.log_text("report.html", "r")
        with tracking.run("fsd-x", "within", parent=run) as within:
            within.log_metrics({"auc": 1.0})
        assert server.calls == 1
    assert server.calls == 2  # the end of the run
    assert capsys.readouterr().err == "tracking: http://x does not answer; the job goes on without it\n"
    assert str(raised.value).startswith("not everything could be stored: metrics, report.html")
    assert "secret" not in str(raised.value)
    assert load_mlflow().active_run() is None


def test_a_run_without_a_store_does_not_begin(server):
    server.dead = True
    with pytest.raises(StorageError), tracking.run("fsd-x", "a"):
        pytest.fail("the block was entered")


def test_the_load_of_the_machine_is_recorded_on_request(here, monkeypatch):
    monkeypatch.setenv("MLFLOW_ENABLE_SYSTEM_METRICS_LOGGING", "true")
    monkeypatch.setenv("MLFLOW_SYSTEM_METRICS_SAMPLING_INTERVAL", "0.1")
    with tracking.run("fsd-x", "a"):
        time.sleep(0.5)

    assert tracking.find_runs("fsd-x")[0].metrics["system/system_memory_usage_percentage"] > 0
