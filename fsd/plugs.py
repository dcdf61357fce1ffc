"""Where extensions meet the method: commands, rows, models, ways to compute, and what stands around an answer.

An extension is a package with an entry point of the group `fsd.extensions`, whose object is a `Plug`. It may be part of
this project or anybody's own: its `pyproject.toml` then has

    [project.entry-points."fsd.extensions"]
    mine = "my_package:PLUG"
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib.metadata import entry_points
from operator import attrgetter
from pkgutil import resolve_name
from types import MappingProxyType
from typing import Any, NamedTuple, Protocol

from fsd.errors import UsageError
from fsd.token_stats import Prompts, TokenStats


class Evidence(NamedTuple):
    """What is to be known of an answer that is evidence, for conditions, protocols and bundles."""

    numbers: Mapping[str, str] = MappingProxyType({})
    """Name of a number of the answer → what it is; none where the answer is no evidence."""
    inputs: tuple[str, ...] = ()
    """The settings that name files; none of a command that asks no model."""
    tests: str = ""
    """What is tested."""
    level: str = ""
    """The setting that is the level of the tests; intervals are of 95 %, where there is none."""


class Command(NamedTuple):
    """A command of `fsd`: the question that it belongs to in the help, the module that runs it, and what it does."""

    question: str
    module: str
    about: str
    evidence: Evidence = Evidence()


@dataclass(frozen=True)
class Plug:
    """What an extension adds: its commands by name, and functions as `module:name`, imported when first called."""

    commands: Mapping[str, Command] = field(default_factory=dict)
    row: str = ""
    """`(row, value, origin_url, columns)` → the chat of a row, or None: see `chat_in` of extensions/chats/rows.py."""
    entry: str = ""
    """Entry of --data → its rows, as a function of `contexts`, or None: see extensions/tasks/harness.py."""
    before: str = ""
    """`(command, settings, asked)`, before the model is asked; a UsageError refuses: see extensions/bundle/hooks.py."""
    files: str = ""
    """`(command, settings)` → further files of the run by name; settings, and what is asked of it, are by flag."""
    after: str = ""
    """`(command, numbers, asked)` → why an answer fails, upon which the command ends with exit status 1.

    It is called at the start too, without numbers, so that it refuses what no answer can meet.
    """
    compute: str = ""
    """Work of a command, a `RowWork` of pipelines/command/workers.py → the job that does it in parts, or None."""
    weights: str = ""
    """Name of a model → the `WeightsFile` that it stands for, or None: see fsd/net/hub.py."""
    service: str = ""
    """`(config, api, tokens, chat)` → the scorers of a model behind a service by name, or None: see `service_scorers`.

    Each has a `key`, which its answers are kept by, and tells the `cost` of prompts; `replies` is asked by messages.
    """
    reader: str = ""
    """`(tokenizer, name of the model, template or None)` → what reads chats as the model does: see `ReadsChats`."""


@cache
def plugs() -> tuple[Plug, ...]:
    """Every extension that is installed, by the name of its entry point."""
    # In one order everywhere: the first that knows what a row or a name is, decides.
    entries = sorted(entry_points(group="fsd.extensions"), key=attrgetter("name"))
    return tuple(entry.load() for entry in entries)


@cache
def filled(socket: str) -> tuple[Callable[..., Any], ...]:
    """What the extensions put into a socket, a field of `Plug`."""
    # Imported here and not before: `fsd --help` needs none of their libraries.
    names = [getattr(plug, socket) for plug in plugs()]
    return tuple(resolve_name(name) for name in names if name)


def first(socket: str, *arguments: Any) -> Any:
    """What the first extension makes of this that knows what it is; None if none does."""
    for function in filled(socket):
        value = function(*arguments)
        if value is not None:
            return value
    return None


def needed(socket: str, *arguments: Any) -> Any:
    """The same, of which there must be some."""
    value = first(socket, *arguments)
    # As where an extension was left out of an installation.
    if value is None:
        raise UsageError(f"an extension must fill the socket {socket} here; none that is installed does")
    return value


class Question(NamedTuple):
    """A question: its origin, its answers as prompts, and its marking.

    `mark` turns the statistics of the prompts into 1 for a right answer, 0 for a wrong one, NaN where it cannot tell.
    """

    origin_url: str
    prompts: Prompts
    mark: Callable[[Sequence[TokenStats]], float]


class Entry(Protocol):
    """What an extension makes of an entry of --data that is no file, such as a task of an evaluation harness."""

    @property
    def split_of(self) -> str:
        """The entry whose training split this one is; "" if it is none."""

    @property
    def training_split(self) -> str:
        """The entry of the training split; "" for none."""

    def rows(self, *, contexts: bool = False) -> Iterator[tuple[str, Mapping[str, str]]]:
        """Each question and its answer as a text, after its origin; with `contexts` the answer after the question."""

    def questions(self) -> list[Question]:
        """The questions that can be marked."""


def entry_of(place: object) -> Entry | None:
    """What an extension makes of an entry; None for a file."""
    entry: Entry | None = first("entry", str(place))
    return entry
