"""What a source of dated texts is told, and what it tells its caller.

A domain's file has one function, `texts(window, journal, *, ...)`, which gives the texts of the source that were
first published within a window, the day nearest to the cutoff first: the nearer the two sides of a benchmark lie
in time, the less they differ in anything but membership. `sides` makes `nonmembers` and `members` of it.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from datetime import date as Date  # noqa: N812 - the same name as in fsd.data.documents
from datetime import timedelta
from itertools import islice
from typing import Any, Protocol

from fsd.data.documents import Document
from fsd.errors import UsageError
from fsd.net.http import Clock


@dataclass(frozen=True)
class Window:
    """Days of first publication that are wanted: after one day, before another, both excluded; None is no bound."""

    after: Date | None = None
    before: Date | None = None

    def __contains__(self, day: Date) -> bool:
        return (self.after is None or day > self.after) and (self.before is None or day < self.before)

    @property
    def newest_first(self) -> bool:
        """Whether the day nearest to the cutoff is the last one: so it is for members."""
        return self.after is None

    def first(self, default: Date) -> Date:
        """The first day that is wanted; `default` where nothing bounds it."""
        return default if self.after is None else self.after + timedelta(days=1)

    def last(self, default: Date) -> Date:
        """The last day that is wanted; `default` where nothing bounds it."""
        return default if self.before is None else self.before - timedelta(days=1)


@dataclass
class Journal:
    """Where a source goes on after a break.

    A source reads `cursor` once, when it starts, and calls `save` when every text before that cursor was given.
    A generator comes back from `yield` only when the text was taken, so nothing is lost and nothing comes twice.

    Attributes:
        cursor: what was saved last, as JSON can hold it; None at the first start.
        dropped: reason → number of texts that the source did not give, see `drop`.
        clock: for waiting.
    """

    cursor: Any = None
    dropped: Counter[str] = field(default_factory=Counter)
    clock: Clock = field(default_factory=Clock)

    def save(self, cursor: Any) -> None:
        """Everything before this cursor was given."""
        self.cursor = cursor

    def drop(self, reason: str) -> None:
        """Count a text that the source itself leaves out."""
        self.dropped[reason] += 1


Texts = Callable[..., Iterator[Document]]
"""`texts(window, journal, *, ...)` of a domain's file: texts of the source, dated by the source, without a label.

Texts without a date or outside the window may come as well; it is for the caller to drop and to count them.
"""


class NonMembers(Protocol):
    """Texts too young to be members."""

    def __call__(self, *, after: Date, limit: int, **options: Any) -> Iterator[Document]:
        """At most `limit` texts, first published after that day."""


class Members(Protocol):
    """Texts old enough to be members."""

    def __call__(self, *, before: Date, limit: int, **options: Any) -> Iterator[Document]:
        """At most `limit` texts, first published before that day."""


def sides(texts: Texts) -> tuple[NonMembers, Members]:
    """`nonmembers` and `members` of a source."""

    def nonmembers(*, after: Date, limit: int, **options: Any) -> Iterator[Document]:
        """Texts first published after a date, that day excluded, the oldest first; options as for `texts`."""
        return _labelled(texts, Window(after=after), limit, options, member=False)

    def members(*, before: Date, limit: int, **options: Any) -> Iterator[Document]:
        """Texts first published before a date, that day excluded, the newest first; options as for `texts`.

        That they are members is for the user to know: a date makes it possible, not certain.
        """
        return _labelled(texts, Window(before=before), limit, options, member=True)

    return nonmembers, members


def _labelled(texts: Texts, window: Window, limit: int, options: dict[str, Any], *, member: bool) -> Iterator[Document]:
    if limit < 1:
        raise UsageError(f"limit must be at least 1; got {limit}")
    dated = (text for text in texts(window, Journal(), **options) if text.date is not None and text.date in window)
    return (replace(text, member=member) for text in islice(dated, limit))
