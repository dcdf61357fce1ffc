"""The main job when its disk is full or its MLflow server dies: results are shown, and nothing is computed twice."""

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest

from fsd.config import AdapterConfig, DataConfig, DetectorConfig, FSDConfig, ModelConfig
from fsd.errors import StorageError
from fsd.models import finetuning
from fsd.scoring.model_scorer import ModelScorer
from fsd.tracking.runs import Run
from pipelines.fsd import prepare


@pytest.fixture
def job(tiny: Path, tmp_path: Path, make_rows: Callable, monkeypatch: pytest.MonkeyPatch) -> FSDConfig:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(finetuning, "SECONDS", 0)
    Path("data.jsonl").write_text("".join(json.dumps(row) + "\n" for row in make_rows(40, seed=3)))
    return FSDConfig(
        audit_repeats=1,
        data=DataConfig(data=("data.jsonl",)),
        model=ModelConfig(model=str(tiny), device="cpu", cache="cache"),
        training=AdapterConfig(batch_size=4, epochs=2),
        detection=DetectorConfig(detectors="loss"),
        placebo="none",
    )


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


def test_on_a_full_disk_the_table_is_shown_and_a_second_run_computes_nothing(job, work, capsys, monkeypatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(shutil, "copyfileobj", full_disk)  # by which MLflow copies artifacts
        with pytest.raises(StorageError, match="the run could not be stored: No space left on device"):
            prepare(job).run()
    assert "FSD AUC" in capsys.readouterr().out
    assert list(Path("cache").glob("training/*/checkpoint-*"))
    work.clear()
    prepare(job).run()
    assert work == []
    assert list(Path("cache").glob("training/*/checkpoint-*")) == []


@pytest.fixture
def server(tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    """An MLflow server on the loopback interface."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    store = [
        "--backend-store-uri",
        f"sqlite:///{tmp_path}/server.db",
        "--artifacts-destination",
        str(tmp_path / "files"),
    ]
    options = ["--host", "127.0.0.1", "--port", str(port), "--workers", "1"]
    environment = {**os.environ, "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"}
    process = subprocess.Popen(
        [sys.executable, "-m", "mlflow", "server", *store, *options],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env=environment,
        start_new_session=True,
    )
    process.uri = f"http://127.0.0.1:{port}"  # type: ignore[attr-defined]
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                break
        time.sleep(0.2)
    yield process
    os.killpg(process.pid, signal.SIGKILL) if process.poll() is None else None
    process.wait()


@pytest.mark.slow
def test_when_the_server_dies_in_training_nothing_is_computed_twice(job, work, server, capsys, monkeypatch) -> None:
    log = Run.log_metrics
    killed = []

    def kill_at_the_third_step(self, values, step=None):
        if step == 3 and not killed:
            os.killpg(server.pid, signal.SIGKILL)
            killed.append(time.monotonic())
        log(self, values, step)
        if step == 3:
            killed.append(time.monotonic())

    monkeypatch.setattr(Run, "log_metrics", kill_at_the_third_step)
    with monkeypatch.context() as patch:
        patch.setenv("MLFLOW_TRACKING_URI", server.uri)
        with pytest.raises(StorageError, match=r"the run could not be stored: http.* does not answer"):
            prepare(job).run()
    assert killed[1] - killed[0] < 60
    output = capsys.readouterr()
    assert "FSD AUC" in output.out
    assert output.err.count("does not answer; the job goes on without it") == 1
    work.clear()
    prepare(replace(job)).run()
    assert work == []
    (scores,) = Path().glob("mlruns/**/scores.parquet")
    assert len(pd.read_parquet(scores))


@pytest.mark.slow
def test_a_killed_job_is_continued_to_the_same_numbers(tmp_path: Path, root: Path) -> None:
    moments = ["second epoch saved"]
    command = [
        sys.executable,
        "-m",
        "benchmarks.kills",
        "--commands",
        "fsd",
        "--signals",
        "KILL",
        "--moments",
        *moments,
    ]
    environment = {**os.environ, "PYTHONPATH": str(root), "TMPDIR": str(tmp_path)}
    done = subprocess.run(command, cwd=root, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("| equal | nothing |") == len(moments)
