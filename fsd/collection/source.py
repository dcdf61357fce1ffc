"""Interface between the collector and a domain: a window of dates goes in, documents and a resume cursor come out.

Documents come the day nearest to the cutoff first: the closer the members and non-members of a benchmark lie in time,
the less they differ in anything but membership. CONTRIBUTING.md has an example.
"""

from collections import Counter
from dataclasses import dataclass, field
from datetime import date as Date  # noqa: N812 - the same name as in fsd.data.documents
from datetime import timedelta
from typing import Any

from fsd.net.http import Clock


@dataclass(frozen=True)
class Window:
    """Range of days of first publication: after one day, before another, both exclusive; None is no bound."""

    after: Date | None = None
    before: Date | None = None

    def __contains__(self, day: Date) -> bool:
        if self.after and day <= self.after:
            return False
        return self.before is None or day < self.before

    @property
    def bounds(self) -> dict[str, Date | None]:
        """Both bounds by name."""
        return {"after": self.after, "before": self.before}

    def __str__(self) -> str:
        return " and ".join(f"{name} {day}" for name, day in self.bounds.items() if day)

    @property
    def newest_first(self) -> bool:
        """True if texts are wanted newest first: those up to a cutoff, members and contemporaries."""
        return self.before is not None

    def first(self, default: Date) -> Date:
        """The first day of the window; `default` if it has no lower bound."""
        if self.after:
            return self.after + timedelta(days=1)
        return default

    def last(self, default: Date) -> Date:
        """The last day of the window; `default` if it has no upper bound."""
        if self.before:
            return self.before - timedelta(days=1)
        return default


@dataclass
class Journal:
    """Where a source resumes, and the number of texts that it has left out by reason.

    A source reads `cursor`, a JSON value that is None at the first start, once, and calls `save` after it has yielded
    every text before that cursor. A generator resumes from `yield` only once the text has been stored.
    """

    cursor: Any = None
    dropped: Counter[str] = field(default_factory=Counter)
    clock: Clock = field(default_factory=Clock)

    def save(self, cursor: Any) -> None:
        """Save the cursor after all texts before it have been yielded."""
        self.cursor = cursor

    def drop(self, reason: str) -> None:
        """Count a text that the source leaves out."""
        self.dropped[reason] += 1
