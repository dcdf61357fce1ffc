"""`-h` fits a screen and has the flags that matter."""

import contextlib
import re
import runpy
import sys

import pytest

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
