"""The domains, one file each, found by file name; a name that begins with _ is no domain.

A domain may offer two functions:

- `benchmark(*, limit=None)`: labelled documents of a published benchmark, label 1 = member;
- `nonmembers(*, after, limit)`: texts of the domain first published after a date, by the source's own word.
"""

import importlib
import pkgutil
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date
from itertools import islice
from types import ModuleType

from fsd.documents import Document
from fsd.errors import UsageError

OFFERS = ("benchmark", "nonmembers")


@dataclass(frozen=True)
class Domain:
    """A domain's file, by its name."""

    name: str
    module: ModuleType

    @property
    def offers(self) -> tuple[str, ...]:
        """What the file defines of `OFFERS`."""
        return tuple(offer for offer in OFFERS if hasattr(self.module, offer))

    def benchmark(self, *, limit: int | None = None) -> Iterator[Document]:
        """Labelled documents of the domain's benchmark, the first `limit` of them if that is given.

        Raises:
            UsageError: if the domain has no benchmark, `limit` is below 1, or it cannot be loaded.
        """
        self._check("benchmark", limit)
        return islice(self.module.benchmark(limit=limit), limit)

    def nonmembers(self, *, after: date, limit: int) -> Iterator[Document]:
        """At most `limit` documents first published after a date, that day not included.

        Raises:
            UsageError: if the domain has no collector, `limit` is below 1, or the source cannot be reached.
        """
        self._check("nonmembers", limit)
        return islice(self.module.nonmembers(after=after, limit=limit), limit)

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
