"""`-h` fits a screen and has the flags that matter; `fsd completion` knows every command, flag and value."""

import contextlib
import re
import runpy
import subprocess
import sys

import pytest

from pipelines import completion
from pipelines.common import cli
from pipelines.common.commands import COMMANDS
from pipelines.common.short_help import MATTERING

pytestmark = pytest.mark.filterwarnings("ignore:.*found in sys.modules:RuntimeWarning")


def printed(line: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> str:
    """What a command line prints."""
    name, *arguments = line.split()
    module, _ = COMMANDS[name]
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setattr(sys, "argv", [f"fsd {name}", *arguments])
    with contextlib.suppress(SystemExit):
        runpy.run_module(module, run_name="__main__")
    return capsys.readouterr().out


@pytest.mark.parametrize("command", MATTERING)
def test_the_short_help_fits_one_screen(command, monkeypatch, capsys) -> None:
    help_text = printed(f"{command} -h", monkeypatch, capsys)
    lines = help_text.splitlines()
    assert lines[0] == f"usage: fsd {command} [OPTIONS]"
    assert "Examples:" in lines
    assert len(lines) + sum(len(line) > 80 for line in lines) <= 24
    # No clause is cut after "(default" or within brackets, but by dots.
    for line in lines[:-1]:
        assert line.count("(") == line.count(")") or line.endswith("…"), line
        assert not line.endswith("Default"), line
    assert re.fullmatch(r"--help lists all \d+ flags\.", lines[-1])
    # A name that the command lacks would be left out without a word.
    assert sum(line.startswith("  ") and line[2] != " " for line in lines) == len(MATTERING[command].split())


def test_the_list_of_commands_fits_a_narrow_terminal() -> None:
    column = len("  contamination  ")
    assert max(column + len(about) for _, about in COMMANDS.values()) <= 80


def test_all_flags_are_listed_by_the_long_help_alone(monkeypatch, capsys) -> None:
    assert "--weight-decay" in printed("run --help", monkeypatch, capsys)
    assert "--weight-decay" not in printed("run -h", monkeypatch, capsys)


def test_every_flag_is_told_with_its_values(monkeypatch, capsys) -> None:
    words = printed(f"run {cli.FLAGS}", monkeypatch, capsys).splitlines()
    assert {"--split grouped paper", "--bits 4 8", "--data", "--dry-run"} < set(words)
    assert printed(f"canary {cli.FLAGS}", monkeypatch, capsys).split() == ["make", "test", "demo"]


@pytest.fixture
def described(monkeypatch):
    """Two commands in place of all, as each takes its time."""
    commands = {"run": ("r", {"--split": ["grouped", "paper"], "--data": []}), "canary": ("c's", {})}
    commands["canary make"] = ("", {"--kind": ["digits"]})
    monkeypatch.setattr(completion, "described", lambda: commands)


@pytest.mark.parametrize(
    ("typed", "completed"),
    [
        ("fsd r", "run"),
        ("fsd run --spl", "--split"),
        ("fsd run --split ", "grouped paper"),
        ("fsd canary m", "make"),
        ("fsd canary make --kind d", "digits"),
        ("fsd run fi", ""),
    ],
)
def test_bash_completes(described, typed, completed, capsys) -> None:
    completion.run(completion.CompletionConfig("bash"))
    words = typed.split(" ")
    array = " ".join(f'"{word}"' for word in words)
    script = (
        f"{capsys.readouterr().out}\nCOMP_WORDS=({array}) COMP_CWORD={len(words) - 1}; _fsd; echo ${{COMPREPLY[@]}}"
    )
    answer = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=True)
    assert answer.stdout.strip() == completed
    assert not answer.stderr


def test_the_scripts_of_the_other_shells(described, capsys) -> None:
    completion.run(completion.CompletionConfig("zsh"))
    assert "bashcompinit" in capsys.readouterr().out
    completion.run(completion.CompletionConfig("fish"))
    script = capsys.readouterr().out
    assert "complete -c fsd -n '__fish_seen_subcommand_from run' -l split -x -a 'grouped paper'\n" in script
    assert "-f -a canary -d 'c\\'s'" in script
