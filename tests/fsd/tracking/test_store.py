import os
import shutil
import sqlite3
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pandas as pd
import pytest

from fsd import tracking
from fsd.errors import UsageError
from fsd.tracking import store
from fsd.tracking.store import load_mlflow

PROGRAM = """
import os, sys
from fsd import tracking
for os.environ['MLFLOW_TRACKING_URI'] in sys.argv[1:]:
    with tracking.run('fsd-x', 'a') as run: run.log_curves({1: {'auc/loss.base': .5}})
"""


def said_by_programs(stores, *environments):
    """What programs that run at once print, each of which uses all the stores."""
    options = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    command = [sys.executable, "-W", "error", "-c", PROGRAM, *stores]
    running = [subprocess.Popen(command, env={**os.environ, **changes}, **options) for changes in environments]
    said = [process.communicate(timeout=200)[0] for process in running]
    assert [process.returncode for process in running] == [0] * len(running), said
    return said


def refused(message):
    """Opening the store is refused in one line that does not show the password."""
    with pytest.raises(UsageError, match=message) as caught:
        tracking.open_store()
    assert "\n" not in str(caught.value)
    assert "hunter2" not in str(caught.value)


@pytest.mark.slow
def test_four_commands_at_once_create_a_store_and_say_nothing(here, monkeypatch):
    stores = ["sqlite:///m.db", ""]
    assert said_by_programs(stores, {}, {}, {}, {}) == [""] * 4
    for uri in stores:
        monkeypatch.setenv("MLFLOW_TRACKING_URI", uri)
        assert len(tracking.find_runs("fsd-x")) == 4


def test_an_interrupted_creation_leaves_nothing_behind(here, monkeypatch):
    def interrupted(tracking_uri):
        Path(tracking_uri.removeprefix("sqlite:///")).write_text("half a database")
        raise KeyboardInterrupt

    monkeypatch.setattr(store, "_create", lambda database: interrupted(f"sqlite:///{database}"))
    with pytest.raises(KeyboardInterrupt):
        tracking.open_store()
    assert [p.name for p in (here / "mlruns").iterdir()] == [".mlflow.db.lock"]


def test_a_store_of_the_users_is_used_unchanged(here, monkeypatch):
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{here}/theirs.db")
    assert tracking.open_store().root is None
    assert os.environ["MLFLOW_TRACKING_URI"] == f"sqlite:///{here}/theirs.db"
    with tracking.run("fsd-x", "a") as run:
        run.log("a.txt", "theirs")
    assert tracking.fetch_artifact(run.id, "a.txt").read_text() == "theirs"
    assert not (here / "mlruns" / "mlflow.db").exists()


def test_the_default_store_is_recognised_by_other_paths_but_not_from_other_folders(here, monkeypatch, tmp_path):
    expected = tracking.open_store()
    assert (expected.uri, expected.root) == (f"sqlite:///{here}/mlruns/mlflow.db", here)
    assert "MLFLOW_TRACKING_URI" not in os.environ
    expected.experiment_id("fsd-x")
    for uri in ("sqlite:///mlruns/mlflow.db", f"sqlite:///{here}/mlruns/../mlruns/mlflow.db"):
        monkeypatch.setenv("MLFLOW_TRACKING_URI", uri)
        assert tracking.open_store() == expected
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{here}/mlruns/mlflow.db")
    monkeypatch.chdir(tmp_path)
    refused(f"used from {tmp_path}: run in {here}$")


def test_a_store_that_cannot_be_written_is_an_error(here, monkeypatch):
    monkeypatch.setattr(os, "access", lambda path, mode: path != here)
    refused("store must be one that can be written; .* cannot: run in another folder or set MLFLOW")


def test_a_wrong_address_fails_at_once_and_shows_no_password(here, monkeypatch, capfd, service, reply):
    begun = time.monotonic()
    older = service(lambda *_: reply(b"no such endpoint", 404)).url.replace("http://", "http://u:hunter2@")
    others = [service(lambda *_: b"<html>").url]
    nowhere = [f"{scheme}://u:hunter2@127.0.0.1:9/x" for scheme in ("http", "postgresql")]
    others += ["./mlruns", "nonsense://x", "http://[::1"]
    for uri, reason in ((older, "404"), *((uri, "") for uri in (*others, *nowhere))):
        monkeypatch.setenv("MLFLOW_TRACKING_URI", uri)
        refused(f"must be a database or server of MLflow 3 or later that answers; .*{reason}")
    monkeypatch.setitem(sys.modules, "psycopg", None)
    refused(r"psycopg[^\n]*: pip install 'fsd\[postgres\]'\)$")
    assert "hunter2" not in "".join(capfd.readouterr())
    assert time.monotonic() - begun < 20


def test_a_deleted_experiment_is_an_error(here):
    opened = tracking.open_store()
    number = opened.experiment_id("fsd-x")
    opened.client.delete_experiment(number)
    with pytest.raises(UsageError, match=f"restore --experiment-id {number}"), tracking.run("fsd-x", "a"):
        pass


def test_a_moved_store_finds_its_artifacts(here, adapter, code, monkeypatch, tmp_path):
    with tracking.run("fsd-arxiv", "first") as run:
        run.log("summary.csv", "a,b")
        tracking.register(run, "fsd-arxiv", adapter, code, validation_score=0.7, files={"calibration.json": "0.5"})
    with sqlite3.connect(here / "mlruns" / "mlflow.db") as database:
        assert str(here) not in "\n".join(database.iterdump())
    there = tmp_path / "moved"
    shutil.copytree(here, there)
    for gone in (here, adapter):
        shutil.rmtree(gone)
    monkeypatch.chdir(there)

    assert tracking.fetch_artifact(run.id, "summary.csv").read_text() == "a,b"
    for uri in ("models:/fsd-arxiv@champion", "models:/fsd-arxiv/1", f"runs:/{run.id}"):
        assert (tracking.fetch_adapter(uri) / "adapter_model.safetensors").read_bytes() == b"weights"
    mlflow = load_mlflow()
    model = mlflow.pyfunc.load_model("models:/fsd-arxiv@champion")
    assert list(model.predict(pd.DataFrame({"text": ["a", "abc"]})).score) == [1.5, 3.5]
    assert "fsd" not in Path(mlflow.pyfunc.get_model_dependencies("models:/fsd-arxiv@champion")).read_text()
    with tracking.run("fsd-arxiv", "second") as second:
        second.log("note.txt", "new")
    assert [p.read_text() for p in there.glob(f"mlruns/*/{second.id}/artifacts/note.txt")] == ["new"]
    assert not here.exists()


@pytest.mark.slow
def test_a_database_server_serves_two_commands_at_once_and_other_folders(
    here, postgres, monkeypatch, tmp_path, register, adapter, code
):
    url = postgres("shared")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", url)
    # The first command creates tables and experiment: that two do so at the same moment, MLflow itself cannot.
    said_by_programs([url], {"TMPDIR": str(here)})
    said_by_programs([url], {"TMPDIR": str(here)}, {"TMPDIR": str(tmp_path)})
    assert len(tracking.find_runs("fsd-x")) == 3
    register(adapter, code, 0.7, method="lora")
    monkeypatch.chdir(tmp_path)
    fetched = tracking.fetch_adapter("models:/fsd-arxiv@champion")
    assert (fetched / "adapter_model.safetensors").read_bytes() == b"weights"


@pytest.mark.slow
def test_many_processes_open_a_new_tuning_database(postgres):
    from fsd.tuning.optuna_study import open_storage

    url = postgres("trials")
    with ThreadPoolExecutor(4) as pool:
        assert len(list(pool.map(lambda _: open_storage(url), range(4)))) == 4


def test_a_check_and_an_address_make_no_store(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{tmp_path}/store.db")
    tracking.check_store()
    for uri, message in (("models:/a@b", "registered model; there are none"), ("runs:/a", "there is no store")):
        with pytest.raises(UsageError, match=message):
            tracking.fetch_adapter(uri)
    assert list(tmp_path.iterdir()) == []
