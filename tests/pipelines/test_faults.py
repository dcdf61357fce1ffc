"""The main job when its disk is full or its MLflow server dies: results are shown, and nothing is computed twice."""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest
from mlflow.store.artifact import local_artifact_repo

from fsd.errors import StorageError
from fsd.models import finetuning
from fsd.scoring.model_scorer import ModelScorer
from fsd.tracking.runs import Run
from pipelines.fsd import prepare


@pytest.fixture
def work(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """A word for every step of training and every forward pass of scoring."""
    done: list[str] = []
    forward, trainer = ModelScorer._forward, finetuning._trainer

    def scoring(self, *args):
        done.append("score")
        return forward(self, *args)

    def training(*args):
        made = trainer(*args)
        compute = made.compute_loss
        made.compute_loss = lambda *a, **k: (done.append("train"), compute(*a, **k))[1]
        return made

    monkeypatch.setattr(ModelScorer, "_forward", scoring)
    monkeypatch.setattr(finetuning, "_trainer", training)
    return done


def full_disk(*_, **__):
    raise OSError(28, "No space left on device")


@pytest.mark.slow
def test_on_a_full_disk_the_table_is_shown_and_a_second_run_computes_nothing(job, work, capsys, monkeypatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(local_artifact_repo, "shutil_copytree_without_file_permissions", full_disk)
        with pytest.raises(StorageError, match="the run could not be stored: No space left on device"):
            prepare(job).run()
    assert "FSD AUC" in capsys.readouterr().out
    work.clear()
    prepare(job).run()
    assert work == []


@pytest.fixture
def server(tmp_path: Path) -> Iterator[tuple[str, subprocess.Popen[bytes]]]:
    """An MLflow server on the loopback interface, with its address."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "mlflow", "server", "--backend-store-uri", f"sqlite:///{tmp_path}/server.db"]
    command += ["--artifacts-destination", str(tmp_path / "files"), "--port", str(port), "--workers", "1"]
    environment = {**os.environ, "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"}
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    process = subprocess.Popen(command, env=environment, start_new_session=True, **quiet)
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                break
        time.sleep(0.2)
    yield f"http://127.0.0.1:{port}", process
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


@pytest.mark.slow
def test_when_the_server_dies_in_training_nothing_is_computed_twice(job, work, server, capsys, monkeypatch) -> None:
    log = Run.log_curves
    address, process = server
    killed = []

    def kill_at_the_third_step(self, steps):
        if 3 in steps and not killed:
            os.killpg(process.pid, signal.SIGKILL)
            killed.append(time.monotonic())
        log(self, steps)
        if 3 in steps:
            killed.append(time.monotonic())

    job = replace(job, training=replace(job.training, epochs=2))
    monkeypatch.setattr(Run, "log_curves", kill_at_the_third_step)
    with monkeypatch.context() as patch:
        patch.setenv("MLFLOW_TRACKING_URI", address)
        with pytest.raises(StorageError, match=r"the run could not be stored: http.* does not answer"):
            prepare(job).run()
    assert killed[1] - killed[0] < 60
    output = capsys.readouterr()
    assert "FSD AUC" in output.out
    assert output.err.count("does not answer; the job goes on without it") == 1
    work.clear()
    prepare(job).run()
    assert work == []
    (scores,) = Path().glob("mlruns/**/scores.parquet")
    assert len(pd.read_parquet(scores))


@pytest.mark.slow
def test_a_killed_job_is_continued_to_the_same_numbers(tmp_path: Path, root: Path) -> None:
    options = ["--commands", "run", "--signals", "KILL", "--moments", "training step 7"]
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.kills", *options],
        cwd=root,
        env={**os.environ, "PYTHONPATH": str(root), "TMPDIR": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("| equal | nothing |") == 1
