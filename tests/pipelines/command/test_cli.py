"""The command line: quick help, flat flags, one line for a user's mistake, one report from several processes."""

import contextlib
import errno
import io
import os
import re
import runpy
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from operator import attrgetter
from pathlib import Path
from typing import Any

import pytest

from extensions.study.grid import StudyConfig
from fsd.config import FSDConfig
from fsd.errors import StorageError, UsageError
from pipelines.__main__ import main
from pipelines.collect import Collect
from pipelines.command.cli import command, command_name, read
from pipelines.command.commands import commands
from pipelines.detect.__main__ import DetectConfig

pytestmark = pytest.mark.filterwarnings("ignore:.*found in sys.modules:RuntimeWarning")  # runpy of what is imported
FOLDER = Path(__file__).parents[3] / "pipelines"
PIPELINES = sorted(
    [
        *(path.stem for path in FOLDER.glob("[a-z]*.py") if path.stem != "api"),
        *(path.parent.name for path in FOLDER.glob("*/__main__.py")),
    ]
)


@pytest.mark.parametrize("name", PIPELINES)
def test_every_pipeline_has_a_help(name, monkeypatch, capsys) -> None:
    monkeypatch.setattr(sys, "argv", [name, "--help"])
    with contextlib.suppress(SystemExit):
        runpy.run_module(f"pipelines.{name}", run_name="__main__")
    shown = capsys.readouterr().out
    assert "\n\nusage:" in shown
    assert not re.search(r"default:\s*(''|None)?\)", shown)  # an empty default says nothing


@pytest.mark.parametrize("flag", ["--help", "-h"])
def test_a_command_of_fsd_has_the_help_of_its_module(flag: str, monkeypatch, capsys) -> None:
    monkeypatch.setattr(sys.modules["__main__"], "__file__", None, raising=False)  # which is put back
    monkeypatch.setattr(sys, "argv", ["fsd", "compare", flag])
    with pytest.raises(SystemExit):
        main()
    assert "Output file of the table" in capsys.readouterr().out


def test_the_list_of_commands_fits_a_narrow_terminal() -> None:
    column = len("  contamination  ")
    assert max(column + len(known.about) for known in commands().values()) <= 80


def test_help_loads_no_large_library(root: Path) -> None:
    command = [sys.executable, "-X", "importtime", "-m", "pipelines.fsd", "--help"]
    answer = subprocess.run(command, capture_output=True, text=True, cwd=root, check=True)
    loaded = {line.rpartition("|")[2].strip() for line in answer.stderr.splitlines()}
    assert "tyro" in loaded
    large = "torch transformers mlflow pandas sklearn scipy matplotlib optuna rich"
    assert not loaded & set(large.split())


def test_a_command_has_one_name_however_it_is_started(monkeypatch: pytest.MonkeyPatch) -> None:
    for typed, name in (
        ("fsd run", "run"),
        ("python -m pipelines.fsd", "run"),
        ("python -m extensions.adapter_audit", "adapter-audit"),
        ("fsd canary test", "canary test"),
    ):
        monkeypatch.setattr(sys, "argv", [typed])
        assert command_name() == name


@dataclass(frozen=True)
class Words:
    words: tuple[str, ...] = ()
    """Any."""


TO_CONTINUE = "to continue: fsd x --words 'a b' postgresql://me:***@host/x"
FULL = OSError(errno.ENOSPC, "No space left on device", "cache")
FULL_MEMORY = "DefaultCPUAllocator: can't allocate memory"
FEWER = "take fewer or shorter texts, a smaller model, or fewer --max-batch-tokens"
GONE = FileNotFoundError(errno.ENOENT, "No such file or directory", "texts.jsonl")


@pytest.mark.parametrize(
    ("error", "code", "message"),
    [
        (UsageError("size must be 2; got 3"), 2, "error: size must be 2; got 3"),
        (StorageError("the table cannot be stored"), 1, f"error: the table cannot be stored; {TO_CONTINUE}"),
        (FULL, 1, f"error: cache cannot be written: No space left on device; {TO_CONTINUE}"),
        (MemoryError("no 8 GiB"), 2, f"error: the memory must suffice; it does not (no 8 GiB): {FEWER}"),
        (RuntimeError(FULL_MEMORY), 2, f"error: the memory must suffice; it does not ({FULL_MEMORY}): {FEWER}"),
        (GONE, 2, "error: a file must be one that this user may open; texts.jsonl: No such file or directory"),
        (KeyboardInterrupt(), 130, "interrupted"),
    ],
)
def test_an_expected_end_is_one_line_and_an_exit_code(error, code, message, monkeypatch, capsys) -> None:
    def failing(config: Words) -> None:
        raise error

    monkeypatch.setattr(sys, "argv", ["fsd x", "--words", "a b", "postgresql://me:secret@host/x"])
    with pytest.raises(SystemExit) as ended:
        command(Words, failing, "x")
    assert ended.value.code == code
    assert capsys.readouterr().err == f"{message}\n"


def test_a_list_flag_may_be_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    cases: list[tuple[Any, str, dict[str, object]]] = [
        (FSDConfig, "--data a b --seed 3 --data c --epochs 2", {"data.data": ("a", "b", "c"), "seed": 3}),
        (FSDConfig, "--data=a --epochs 2 --data=b c", {"data.data": ("a", "b", "c"), "training.epochs": 2}),
        (FSDConfig, "--settings a.k=3 --settings b.k=0.1", {"detection.settings": ("a.k=3", "b.k=0.1")}),
        (Collect, "--domain x --limit 1 --options a=1 b=2 --options c=3", {"options": ("a=1", "b=2", "c=3")}),
        (DetectConfig, "f g --adapter a --known k --known l", {"files": ("f", "g"), "known": ("k", "l")}),
        (StudyConfig, "fsd-t1 --model a --model b", {"study": "fsd-t1", "model": ("a", "b")}),
    ]
    for config, arguments, expected in cases:
        monkeypatch.setattr(sys, "argv", ["fsd", *arguments.split()])
        got = read(config, "")[0]
        assert {name: attrgetter(name)(got) for name in expected} == expected
    monkeypatch.setattr(sys, "argv", ["fsd", "--domain", "x", "--limit", "1", "--options"])
    with pytest.raises(UsageError, match="options must be followed by at least one value; got none"):
        read(Collect, "")[0]


def test_a_flag_that_the_file_has_too_may_be_given(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "c.yaml").write_text("dry-run: true\njson: true\ntraining: {epochs: 5}\n")
    for given, epochs in (("--dry-run --json --epochs 7", 7), ("", 5)):
        monkeypatch.setattr(sys, "argv", ["fsd", "--config", str(tmp_path / "c.yaml"), *given.split()])
        config, invocation = read(FSDConfig, "")
        assert (config.training.epochs, invocation.dry_run, invocation.json) == (epochs, True, True)


WAITING_JOB = """
import tempfile, time
from dataclasses import dataclass
from pathlib import Path
from pipelines.__main__ import main
from pipelines.command.cli import command
from pipelines.command.job import Job

@dataclass(frozen=True)
class Config:
    "No settings."

def main(_):
    try:
        tempfile.mkdtemp()
        print("ready", flush=True)
        time.sleep(60)
    finally:
        Path("cleaned").touch()

command(Config, lambda _: Job(lambda: main(_), {}), "")
"""


@pytest.fixture
def waiting(tmp_path: Path, root: Path, default_signals: None) -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Starts a command that waits, with `tmp_path/temporary` as its folder for temporary files."""
    (tmp_path / "temporary").mkdir()
    jobs = []

    def start(*prefix: str) -> subprocess.Popen[str]:
        environment = {**os.environ, "PYTHONPATH": str(root), "TMPDIR": str(tmp_path / "temporary")}
        arguments = [*prefix, sys.executable, "-c", WAITING_JOB]
        job = subprocess.Popen(
            arguments, cwd=tmp_path, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        jobs.append(job)
        assert job.stdout
        assert job.stdout.readline() == "ready\n"
        return job

    yield start
    for job in jobs:
        job.kill()
        job.communicate()


@pytest.mark.parametrize(("number", "message"), [(signal.SIGINT, "interrupted"), (signal.SIGHUP, "ended by SIGHUP")])
def test_a_signal_cleans_up_and_ends_with_its_own_code(number, message, waiting, tmp_path) -> None:
    job = waiting()
    job.send_signal(number)
    _, errors = job.communicate(timeout=30)
    assert job.returncode == 128 + number
    assert errors == f"{message}\n"
    assert (tmp_path / "cleaned").exists()
    assert list((tmp_path / "temporary").iterdir()) == []


def test_what_a_killed_command_leaves_is_removed_by_the_next(waiting: Callable, tmp_path: Path) -> None:
    killed = waiting()
    killed.kill()
    killed.wait()
    (left,) = (tmp_path / "temporary").iterdir()
    waiting()
    assert not left.exists()


def test_a_hangup_is_ignored_under_nohup(waiting: Callable) -> None:
    job = waiting("nohup")
    job.send_signal(signal.SIGHUP)
    with pytest.raises(subprocess.TimeoutExpired):
        job.wait(timeout=0.5)


def test_a_terminal_without_unicode_gets_what_it_can_show(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("größe.txt").write_text("Zwölf Boxkämpfer jagen Viktor quer über den großen Sylter Deich")
    monkeypatch.setattr(sys, "argv", ["fsd", "overlap", "größe.txt", "größe.txt", "--n", "3"])
    printed = io.BytesIO()
    for name in ("stdout", "stderr"):
        monkeypatch.setattr(sys, name, io.TextIOWrapper(printed, encoding="ascii", write_through=True))
    main()
    assert b"gr??e.txt" in printed.getvalue()


def test_a_closed_pipe_is_no_error(root: Path) -> None:
    shell = f"{sys.executable} -m pipelines.tune --help | head -1"
    answer = subprocess.run(shell, shell=True, capture_output=True, text=True, cwd=root, timeout=60, check=False)
    assert answer.stdout.startswith("Choose settings")
    assert answer.stderr == ""


FAILING_JOB = """
import sys, time
from dataclasses import dataclass
from fsd import distributed
from fsd.errors import UsageError
from pipelines.__main__ import main
from pipelines.command.cli import command
from pipelines.command.job import Job

case = sys.argv.pop()

@dataclass(frozen=True)
class Config:
    "No settings."

def main(_):
    if case in (str(distributed.process_index()), "both"):
        raise UsageError("a process must be able to go on; it is not")
    if case == f"bug in {distributed.process_index()}":
        raise ZeroDivisionError
    distributed.gather(None)

command(Config, lambda _: Job(lambda: main(_), {}), "", parallel=case != "refused")
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("case", "report"),
    [
        ("0", "error: a process must be able to go on; it is not"),
        ("1", "error: a process must be able to go on; it is not (in process 1 of 2)"),
        ("both", "error: a process must be able to go on; it is not"),
        ("bug in 0", "ZeroDivisionError"),
        ("bug in 1", "ZeroDivisionError (in process 1 of 2)"),
        ("refused", "error: this pipeline must run as one process; got 2"),
    ],
)
def test_an_error_in_any_process_is_reported_once_and_ends_all(tmp_path, torchrun, case, report) -> None:
    (tmp_path / "job.py").write_text(FAILING_JOB)
    job = torchrun("job.py", case, cwd=tmp_path)
    reports = [line for line in job.stderr.splitlines() if line.startswith(report.split(maxsplit=1)[0])]
    assert reports == [report], job.stderr
    assert job.stderr.count("Traceback (most recent call last)\n  File") <= case.startswith("bug")
    codes = set(re.findall(r"exitcode  : (-?\d+) ", job.stderr))
    code = "1" if case.startswith("bug") else "2"
    assert code in codes, job.stderr
    assert codes <= {code, str(-signal.SIGTERM), str(128 + signal.SIGTERM)}, (
        job.stderr
    )  # the launcher's end of the rest


class Held:
    """What a failed call holds, which no memory is left beside."""

    freed = False

    def __del__(self) -> None:
        Held.freed = True
