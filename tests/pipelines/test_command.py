"""The command line: quick help, one line for a user's mistake, flat flags."""

import os
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import pytest

from fsd.errors import UsageError
from pipelines._command import command

PIPELINES = sorted(path.stem for path in (Path(__file__).parents[2] / "pipelines").glob("[a-z]*.py"))


def run(*arguments: str, cwd: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", *arguments],
        capture_output=True,
        text=True,
        cwd=cwd,
        env={**os.environ, **environment},
        timeout=120,
        check=False,
    )


@pytest.mark.parametrize("name", PIPELINES)
def test_help_is_there(name: str, root: Path) -> None:
    answer = run(f"pipelines.{name}", "--help", cwd=root)

    assert answer.returncode == 0, answer.stderr
    assert answer.stdout.startswith("usage:")


def test_help_comes_in_half_a_second(root: Path) -> None:
    seconds = []
    for _ in range(5):
        begun = time.process_time()
        children = os.times()
        run("pipelines.fsd", "--help", cwd=root)
        after = os.times()
        seconds.append(after.children_user + after.children_system - children.children_user - children.children_system)
        assert time.process_time() - begun < 5

    assert min(seconds) < 0.5


@pytest.mark.parametrize(
    ("flags", "told"),
    [
        (["--domain", "poems"], "domain must be one of"),
        (["--detectors", "loss,magic"], "detector must be one of"),
        (["--settings", "surp.q=3"], "setting of surp must be one of entropy, k"),
        (["--settings", "surp.k=much"], "must be of the type of its default"),
        (["--data", "nowhere.jsonl"], "nowhere.jsonl"),
        (["--unseen", "1.5"], "unseen must be a share"),
        (["--model", "./nowhere"], "there is no folder ./nowhere"),
        (["--adapter", "models:/none@champion"], "models:/none@champion"),
        (["--device", "abacus"], "device must be"),
        (["--domain", "wikipedia"], "--data FILE"),
        (["--batch-size", "0"], "batch-size must be greater than 0"),
        (["--target-modules", "nothing"], "target-modules must be"),
    ],
)
def test_a_mistake_ends_with_one_line_and_exit_2(flags: list[str], told: str, tmp_path: Path) -> None:
    answer = run("pipelines.fsd", *flags, "--placebo", "none", cwd=tmp_path)

    assert answer.returncode == 2, answer.stderr
    assert told in answer.stderr
    assert answer.stderr.count("\n") == 1
    assert "Traceback" not in answer.stderr


@pytest.mark.parametrize(
    ("lines", "told"),
    [
        (['{"text": "a b", "label": 1}', '{"text": "a b", '], "data.jsonl:2"),
        (['{"text": "a b", "label": 2}'], "label"),
        (['{"text": "a b", "label": 1}', '{"text": "c d", "label": 1}'], "both classes"),
        (['{"text": " ", "label": 1}'], "data.jsonl:1"),
        (['{"words": "a b", "label": 1}'], "--columns"),
    ],
)
def test_a_bad_file_is_named_with_its_line(lines: list[str], told: str, tmp_path: Path) -> None:
    (tmp_path / "data.jsonl").write_text("\n".join(lines) + "\n")

    answer = run("pipelines.fsd", "--data", "data.jsonl", cwd=tmp_path)

    assert answer.returncode == 2, answer.stderr
    assert told in answer.stderr
    assert answer.stderr.count("\n") == 1
    assert not (tmp_path / "mlruns").exists()


@dataclass(frozen=True)
class Config:
    size: int = 1
    """How many."""


def test_a_usage_error_is_exit_2(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def main(config: Config) -> None:
        raise UsageError(f"size must be 2; got {config.size}")

    monkeypatch.setattr(sys, "argv", ["x", "--size", "3"])
    with pytest.raises(SystemExit) as ended:
        command(Config, main, "x")

    assert ended.value.code == 2
    assert capsys.readouterr().err == "error: size must be 2; got 3\n"


def test_an_interruption_is_exit_130(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def main(config: Config) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(sys, "argv", ["x"])
    with pytest.raises(SystemExit) as ended:
        command(Config, main, "x")

    assert ended.value.code == 130
    assert capsys.readouterr().err == "interrupted\n"
