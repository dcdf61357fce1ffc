"""Workers of Ray that die, hang, break or never start: the output is that of one process, to the byte."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from subprocess import PIPE

import psutil
import pytest

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(900),
    pytest.mark.skipif(find_spec("ray") is None, reason="Ray is not installed: pip install 'fsd[ray]'"),
]
ROWS, SHARD = 60, 6
FAULTY = Path(__file__).with_name("faulty_shards.py")


@pytest.fixture(scope="module")
def line(tmp_path_factory) -> str:
    """The command without its output and engine."""
    from fsd.data import embedded

    file = tmp_path_factory.mktemp("texts") / "texts.jsonl"
    texts = [document.text for document in embedded.corpus()][:ROWS]
    file.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts), encoding="utf-8")
    return f"score --data {file} --device cpu --detectors loss,min_k --shard-rows {SHARD}"


@pytest.fixture(scope="module")
def whole(line, run_command, tmp_path_factory) -> dict[str, bytes]:
    folder = tmp_path_factory.mktemp("whole") / "out"
    run_command(f"{line} --out {folder}")
    return content(folder)


def content(folder: Path) -> dict[str, bytes]:
    # A killed process leaves the folder of the file that it was writing, which the next command removes.
    return {file.name: file.read_bytes() for file in sorted(folder.iterdir()) if file.is_file()}


@pytest.fixture
def start(line, root, tmp_path) -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Start the command with two workers, which fail as the names of files say."""
    (tmp_path / "faults").mkdir()
    started = []

    def begin(*faults: str, always: str = "", options: str = "") -> subprocess.Popen[str]:
        for name in faults:
            (tmp_path / "faults" / name).write_text("always" if name == always else "")
        words = f"{line} --out {tmp_path / 'out'} --engine ray --actors 2 {options}".split()
        env = {**os.environ, "PYTHONPATH": f"{root}:{FAULTY.parent}", "FAULTS": str(tmp_path / "faults")}
        process = subprocess.Popen(
            [sys.executable, str(FAULTY), *words], cwd=tmp_path, env=env, stdout=PIPE, stderr=PIPE, text=True
        )
        started.append(process)
        return process

    yield begin
    for process in started:
        process.kill()
        process.communicate()


def ended(process: subprocess.Popen[str]) -> tuple[int, str]:
    printed, errors = process.communicate(timeout=600)
    assert "(raylet)" not in printed  # which would be part of --json
    return process.returncode, errors


def test_workers_that_are_killed_or_exit_once_cost_nothing(start, whole, tmp_path) -> None:
    faults = ["kill-0", "kill-1", "late_kill-13", "exit-25", "sysexit-37"]
    code, errors = ended(start(*faults))
    assert code == 0, errors
    assert not list((tmp_path / "faults").iterdir())
    assert content(tmp_path / "out") == whole


def test_a_shard_that_always_fails_is_named(start, whole, tmp_path) -> None:
    code, errors = ended(start("raise-13", always="raise-13"))
    assert code == 1, errors
    assert errors.splitlines()[-1].startswith("error: 1 of 10 shards could not be computed: 000002.parquet (")
    assert "texts.jsonl:13-18): the scorer broke; to continue: fsd score" in errors.splitlines()[-1]
    assert content(tmp_path / "out") == {name: file for name, file in whole.items() if name != "000002.parquet"}


def test_a_model_that_fails_to_load_is_one_line(start, tmp_path) -> None:
    code, errors = ended(start("refuse-0", always="refuse-0"))
    assert (code, errors.splitlines()[-1]) == (2, "error: the model must be on this machine; it is not")
    assert not list((tmp_path / "out").iterdir())


def test_a_driver_that_is_killed_leaves_no_worker_and_is_continued(start, whole, tmp_path) -> None:
    driver = start()
    while len(list((tmp_path / "out").glob("*.parquet"))) < 3:
        assert driver.poll() is None, driver.communicate()
        time.sleep(0.05)
    workers = psutil.Process(driver.pid).children(recursive=True)
    os.kill(driver.pid, signal.SIGKILL)
    _, alive = psutil.wait_procs(workers, timeout=240)  # the models at once, Ray's own agents after a while
    assert not alive
    before = {name: (tmp_path / "out" / name).stat().st_mtime_ns for name in content(tmp_path / "out")}
    code, errors = ended(start())
    assert code == 0, errors
    assert content(tmp_path / "out") == whole
    assert all((tmp_path / "out" / name).stat().st_mtime_ns == when for name, when in before.items())


def test_workers_listen_on_the_loopback_interface(start, tmp_path) -> None:
    driver = start("hang-1")
    processes: list[psutil.Process] = []
    while (tmp_path / "faults" / "hang-1").exists():
        assert driver.poll() is None, driver.communicate()
        time.sleep(0.05)
        processes = psutil.Process(driver.pid).children(recursive=True)
    listening = {
        connection.laddr.ip.removeprefix("::ffff:")
        for process in processes
        for connection in process.net_connections("tcp")
        if connection.status == psutil.CONN_LISTEN
    }
    assert listening == {"127.0.0.1"}


def test_a_cluster_that_does_not_answer_is_one_line(tmp_path, line, run_command, capsys) -> None:
    with pytest.raises(SystemExit) as end:
        run_command(f"{line} --out {tmp_path / 'out'} --engine ray --address 127.0.0.1:1")
    assert end.value.code == 2
    message = "address must be of a Ray cluster that answers; 127.0.0.1:1: [Errno 111] Connection refused"
    assert capsys.readouterr().err.splitlines()[-1] == f"error: {message}"


def test_without_ray_the_extra_is_named(monkeypatch, tmp_path, line, run_command, capsys) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(SystemExit) as end:
        run_command(f"{line} --out {tmp_path / 'out'} --engine ray")
    assert end.value.code == 2
    assert "pip install 'fsd[ray]'" in capsys.readouterr().err
