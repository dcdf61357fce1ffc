"""A command line with everything around it, and what its end is held against."""

import shlex
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

Check = Callable[[Path], str]
"""Folder → what is wrong with an answer; "" if nothing is."""


def nothing(_: Path) -> str:
    """No check of the answer."""
    return ""


def no_answer(_: Path) -> str:
    """No answer can be right."""
    return "answered what has no answer"


class Case(NamedTuple):
    """A command line, with variables of the environment."""

    command: str
    words: list[str]
    environment: Mapping[str, str] = {}
    circumstance: str = ""
    kind: str = ""
    """Scene that it is drawn from; empty for what the types of the flags give."""
    is_new: bool = False
    """Whether it begins as a new interpreter, which reads its environment; others are forked."""
    twice: bool = False
    """Whether it runs beside itself."""
    wrong: Check = nothing
    """What is wrong with the answer, if it gives one."""

    def __str__(self) -> str:
        marks = [self.kind, self.circumstance, "new" * self.is_new, "twice" * self.twice]
        shown = [f"({mark})" for mark in marks if mark]
        shown += [f"{name}={shlex.quote(value)}" for name, value in self.environment.items()]
        return " ".join([*shown, "fsd", self.command, *map(shlex.quote, self.words)])
