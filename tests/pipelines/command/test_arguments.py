"""Command lines: messages and help that do not depend on the terminal, except for where their lines end."""

import sys
from dataclasses import dataclass
from typing import Literal

import pytest

from fsd.errors import UsageError
from pipelines.command.cli import read

TEXT = """A summary of the command in one sentence.

A paragraph that is longer than a narrow terminal, and has a second sentence. It is
wrapped anew.

Examples:
    fsd run --domain arxiv --model ./a-folder-with-a-rather-long-name
"""


@dataclass(frozen=True)
class Settings:
    """Settings of a command."""

    scale: Literal["small", "full"] = "small"
    """How much."""
    seed: int = 0
    """Random seed."""
    exposures: tuple[int, ...] = (1, 2)
    """How often."""


def test_messages_are_the_same_in_every_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    for arguments, message in (
        ("--scale x", "invalid choice 'x' for argument '--scale'. Expected one of ('small', 'full')"),
        ("--seed x", "seed must be a whole number; got 'x'"),
        ("--exposures 1 x", "exposures must be a number; got '1', 'x'"),
        ("--nonsense", "Unrecognized options: --nonsense"),
        ("--nonsense ./a", "Unrecognized options: --nonsense, ./a"),
    ):
        for columns in (40, 80, 100):
            monkeypatch.setenv("COLUMNS", str(columns))
            monkeypatch.setattr(sys, "argv", ["fsd tool", *arguments.split()])
            with pytest.raises(UsageError) as error:
                read(Settings, TEXT)[0]
            assert str(error.value) == f"{message}; --help lists all flags"


def test_the_description_fits_the_terminal(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys, "argv", ["fsd tool", "--help"])
    example = "    fsd run --domain arxiv --model ./a-folder-with-a-rather-long-name"
    for columns in (40, 200):
        monkeypatch.setenv("COLUMNS", str(columns))
        with pytest.raises(SystemExit) as end:
            read(Settings, TEXT)[0]
        assert not end.value.code
        summary, *lines = capsys.readouterr().out.splitlines()
        assert "usage: fsd tool [-h] [OPTIONS]" in lines
        assert summary.startswith("A summary of the command")
        assert example in lines
        assert all(len(line) <= columns for line in lines if line != example)
        assert any(line.startswith("A paragraph") for line in lines)
