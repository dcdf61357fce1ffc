"""The domains, one file each, found by file name; a name that begins with _ is no domain.

A domain may offer:

- `benchmark(*, limit=None)`: labelled documents of a published benchmark, label 1 = member;
- `texts(window, journal, *, ...)`: dated texts of its source, with the source's own options; of it
  `fsd.collection.source.sides` makes
- `nonmembers(*, after, limit, ...)`: texts first published after a date, by the source's own word, and
- `members(*, before, limit, ...)`: texts first published before one.

Beside `texts` stand `LANGUAGE`, the language of the texts ("" for any), and `FIRST`, the first day of the source.
"""

import importlib
import pkgutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import date
from itertools import islice
from types import ModuleType
from typing import Any

from fsd.collection import options as _options
from fsd.collection.source import Journal, Window
from fsd.data.documents import Document
from fsd.errors import UsageError

OFFERS = ("benchmark", "nonmembers", "members")


@dataclass(frozen=True)
class Domain:
    """A domain's file, by its name."""

    name: str
    module: ModuleType

    @property
    def offers(self) -> tuple[str, ...]:
        """What the file defines of `OFFERS`."""
        return tuple(offer for offer in OFFERS if hasattr(self.module, offer))

    @property
    def first(self) -> date:
        """The first day of the source."""
        return getattr(self.module, "FIRST", date.min)

    @property
    def language(self) -> str:
        """Language of the texts where nothing else is asked for; "" for any."""
        return getattr(self.module, "LANGUAGE", "")

    def benchmark(self, *, limit: int | None = None) -> Iterator[Document]:
        """Labelled documents of the domain's benchmark, the first `limit` of them if that is given.

        Raises:
            UsageError: if the domain has no benchmark, `limit` is below 1, or it cannot be loaded.
        """
        self._check("benchmark", limit)
        return islice(self.module.benchmark(limit=limit), limit)

    def nonmembers(self, *, after: date, limit: int, **options: Any) -> Iterator[Document]:
        """At most `limit` documents first published after a date, that day not included.

        Raises:
            UsageError: if the domain has no collector, `limit` is below 1, or the source cannot be reached.
        """
        self._check("nonmembers", limit)
        return islice(self.module.nonmembers(after=after, limit=limit, **options), limit)

    def members(self, *, before: date, limit: int, **options: Any) -> Iterator[Document]:
        """At most `limit` documents first published before a date, that day not included.

        Raises:
            UsageError: if the domain has no collector, `limit` is below 1, or the source cannot be reached.
        """
        self._check("members", limit)
        return islice(self.module.members(before=before, limit=limit, **options), limit)

    def texts(self, window: Window, journal: Journal, **options: Any) -> Iterator[Document]:
        """Dated texts of the source, see `fsd.collection.source.Texts`.

        Raises:
            UsageError: if the domain has no collector or the source cannot be reached.
        """
        self._check("nonmembers", None)
        found: Iterator[Document] = self.module.texts(window, journal, **options)
        return found

    def parse_options(self, entries: Sequence[str], language: str = "") -> dict[str, Any]:
        """The source's own options out of `name=value`, and the language if the source wants to know it.

        Raises:
            UsageError: for an option that the source does not have, or a value it cannot be.
        """
        self._check("nonmembers", None)
        wanted = "language" in _options.options(self.module.texts)
        asked = [f"language={language}"] if wanted and language else []
        return _options.parse(self.name, self.module.texts, [*asked, *entries])

    def _check(self, offer: str, limit: int | None) -> None:
        if offer not in self.offers:
            offers = " and ".join(self.offers) or "nothing"
            raise UsageError(f"domain must be one that offers {offer}; {self.name} offers {offers}")
        if limit is not None and limit < 1:
            raise UsageError(f"limit must be at least 1; got {limit}")


def names() -> tuple[str, ...]:
    """All domains, by the names of their files."""
    return tuple(sorted(m.name for m in pkgutil.iter_modules(__path__) if not m.name.startswith("_")))


def load(name: str) -> Domain:
    """The domain of that name.

    Raises:
        UsageError: for a name that does not exist.
    """
    if name not in names():
        raise UsageError(f"domain must be one of {', '.join(names())}; got {name!r}")
    return Domain(name, importlib.import_module(f"{__name__}.{name}"))
