import os
import shutil
import sqlite3
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest

from fsd import tracking
from fsd.errors import UsageError
from fsd.tracking import store
from fsd.tracking.store import load_mlflow


def locations(folder):
    with sqlite3.connect(folder / "mlruns" / "mlflow.db") as db:
        return [
            value
            for table, column in (
                ("experiments", "artifact_location"),
                ("runs", "artifact_uri"),
                ("logged_models", "artifact_location"),
                ("model_versions", "storage_location"),
                ("model_versions", "source"),
            )
            for (value,) in db.execute(f"select {column} from {table}")
        ]


def test_importing_it_does_not_import_mlflow_or_pandas():
    program = "import sys, fsd.tracking; print([m for m in ('mlflow', 'pandas', 'filelock') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_the_default_store_is_in_the_working_folder_and_leaves_the_environment_unchanged(bare):
    store = tracking.open_store()
    assert store.uri == f"sqlite:///{bare}/mlruns/mlflow.db"
    assert (bare / "mlruns" / "mlflow.db").is_file()
    assert "MLFLOW_TRACKING_URI" not in os.environ
    assert "mlruns/0" in locations(bare)


@pytest.mark.slow
def test_first_use_prints_and_warns_nothing(bare):
    program = "from fsd import tracking\nwith tracking.run('fsd-x', 'a') as r: r.log_metrics({'auc/loss.base': .5})"
    done = subprocess.run([sys.executable, "-W", "error", "-c", program], capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.mark.slow
def test_several_processes_may_create_the_store_at_once(bare):
    program = (
        "from fsd import tracking\n"
        "with tracking.run('fsd-x', 'a') as run: run.log_metrics({'auc/loss.base': .5}, step=1)"
    )
    running = [subprocess.Popen([sys.executable, "-c", program], stderr=subprocess.PIPE) for _ in range(3)]
    errors = [process.communicate(timeout=100)[1] for process in running]
    assert [process.returncode for process in running] == [0] * 3, errors
    assert len(tracking.find_runs("fsd-x")) == 3


def test_an_interrupted_creation_leaves_nothing_behind(bare, monkeypatch):
    class Interrupted:
        def __init__(self, tracking_uri):
            Path(tracking_uri.removeprefix("sqlite:///")).write_text("half a database")
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(store, "_create", store._create.__wrapped__)
        patch.setattr(load_mlflow(), "MlflowClient", Interrupted)
        with pytest.raises(KeyboardInterrupt):
            tracking.open_store()
    assert [p.name for p in (bare / "mlruns").iterdir()] == [".lock"]


def test_a_store_of_the_users_is_used_unchanged(bare, monkeypatch):
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{bare}/theirs.db")
    store = tracking.open_store()
    assert store.root is None
    assert os.environ["MLFLOW_TRACKING_URI"] == store.uri == f"sqlite:///{bare}/theirs.db"
    with tracking.run("fsd-x", "a") as run:
        run.log_text("a.txt", "theirs")
    assert tracking.fetch_artifact(run.id, "a.txt").read_text() == "theirs"
    assert not (bare / "mlruns" / "mlflow.db").exists()


@pytest.mark.parametrize("uri", ["sqlite:///mlruns/mlflow.db", "sqlite:///{}/mlruns/../mlruns/mlflow.db"])
def test_the_default_store_is_recognised_by_other_paths(here, monkeypatch, uri):
    monkeypatch.setenv("MLFLOW_TRACKING_URI", uri.format(here))
    assert tracking.open_store() == tracking.Store(f"sqlite:///{here}/mlruns/mlflow.db", here)


def test_the_default_store_of_another_folder_is_refused(here, monkeypatch, tmp_path):
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{here}/mlruns/mlflow.db")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError, match=f"used from {tmp_path}: run in {here}$"):
        tracking.open_store()


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda f: (f / "mlruns").write_text("a file"), "mlruns must be a folder that can be written; .*file exists"),
        (lambda f: (f / "mlruns/mlflow.db").mkdir(parents=True), "must be an MLflow database; .*unable to open"),
    ],
)
def test_a_store_that_cannot_be_written_is_an_error(bare, spoil, message):
    spoil(bare)
    with pytest.raises(UsageError, match=message) as caught:
        tracking.open_store()
    assert "\n" not in str(caught.value)


def test_no_write_access_is_an_error(bare, monkeypatch):
    (bare / "mlruns").mkdir()
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    with pytest.raises(UsageError, match=r"no write access to mlruns\): run in another folder or set MLFLOW"):
        tracking.open_store()


def test_a_file_that_is_no_database_is_an_error(bare):
    (bare / "mlruns").mkdir()
    (bare / "mlruns" / "mlflow.db").write_text("no database " * 100)
    with pytest.raises(UsageError, match=r"must be an MLflow database.*mlflow\.db is not") as caught:
        tracking.open_store()
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("uri", ["http://127.0.0.1:9", "./mlruns", "nonsense://x"])
def test_a_wrong_address_fails_at_once(bare, monkeypatch, uri):
    monkeypatch.setenv("MLFLOW_TRACKING_URI", uri)
    with pytest.raises(UsageError, match="must be an MLflow database or server that answers") as caught:
        tracking.open_store()
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("uri", ["http://u:hunter2@127.0.0.1:9", "postgresql://u:hunter2@127.0.0.1:9/x"])
def test_the_password_of_an_address_is_not_shown(bare, monkeypatch, capfd, uri):
    monkeypatch.setenv("MLFLOW_TRACKING_URI", uri)
    with pytest.raises(UsageError, match=r"must be an MLflow database or server that answers; .*127\.0") as caught:
        tracking.open_store()
    assert "hunter2" not in str(caught.value)
    assert "hunter2" not in "".join(capfd.readouterr())


def test_a_deleted_experiment_is_an_error(here):
    store = tracking.open_store()
    number = store.experiment_id("fsd-x")
    store.client.delete_experiment(number)
    with pytest.raises(UsageError, match=f"restore --experiment-id {number}"), tracking.run("fsd-x", "a"):
        pass


def test_a_moved_store_finds_its_artifacts(here, adapter, code, monkeypatch, tmp_path):
    with tracking.run("fsd-arxiv", "first") as run:
        run.log_text("summary.csv", "a,b")
        tracking.register(run, "fsd-arxiv", adapter, code, validation_score=0.7, files={"calibration.json": "0.5"})
    assert not [value for value in locations(here) if str(here) in value]
    there = tmp_path / "moved"
    shutil.copytree(here, there)
    for gone in (here, adapter, code.parent / "serving.py"):
        shutil.rmtree(gone) if gone.is_dir() else gone.unlink()
    monkeypatch.chdir(there)

    assert tracking.fetch_artifact(run.id, "summary.csv").read_text() == "a,b"
    for uri in ("models:/fsd-arxiv@champion", "models:/fsd-arxiv/1", f"runs:/{run.id}"):
        assert (tracking.fetch_adapter(uri) / "adapter_model.safetensors").read_bytes() == b"weights"
    mlflow = load_mlflow()
    model = mlflow.pyfunc.load_model("models:/fsd-arxiv@champion")
    assert list(model.predict(pd.DataFrame({"text": ["abc"]})).score) == [3.5]
    with tracking.run("fsd-arxiv", "second") as second:
        second.log_text("note.txt", "new")
    assert [p.read_text() for p in there.glob(f"mlruns/*/{second.id}/artifacts/note.txt")] == ["new"]
    assert not here.exists()


def test_locations_of_another_folder_with_the_same_prefix_are_kept(here):
    store = tracking.open_store()
    other = f"{here}-2/mlruns/7"
    store.client.create_experiment("other", artifact_location=other)
    store.relativise()
    assert other in locations(here)
    assert "mlruns/0" in locations(here)
