"""Entries of --data that are no files, such as the tasks of an evaluation harness: extensions read them."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple, Protocol

from fsd.plugs import first
from fsd.token_stats import Prompts, TokenStats


class Question(NamedTuple):
    """A question: its origin, its answers as prompts, and its marking.

    `mark` turns the statistics of the prompts into 1 for a right answer, 0 for a wrong one, NaN where it cannot tell.
    """

    origin_url: str
    prompts: Prompts
    mark: Callable[[Sequence[TokenStats]], float]


class Entry(Protocol):
    """What an extension makes of an entry."""

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
    made: Entry | None = first("entry", str(place))
    return made
