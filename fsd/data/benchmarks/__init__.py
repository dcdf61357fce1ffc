"""The published benchmarks, one file each, found by file name; a name that begins with _ is no benchmark.

A benchmark is asked for by its name, or by name:part, as in `wikimia:64` or `mimir:arxiv/ngram_13_0.8`. Its file
says where it comes from and defines `load(part)`; what each constant means is said at `Source`. Label 1 is a
member of the pretraining data everywhere.
"""

import importlib
import pkgutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, Protocol

from fsd.data.documents import Document
from fsd.errors import UsageError


class Loaded(NamedTuple):
    """What the file of a benchmark gives: the texts, where they are from, and which version it was."""

    documents: list[Document]
    source: str
    revision: str


class Source(Protocol):
    """What the file of a benchmark defines.

    Attributes:
        DATASET: id on the hub, owner/name; "" for a benchmark that is given as local files.
        REVISION: the commit that is loaded; None, where none is known to be right, is the newest.
        COLUMNS: what a document is made of → its column.
        GROUP: what the texts of one group share; "" where rows do not say, so that only near-duplicates make groups.
        LABELS: what label 1 and label 0 mean.
        PARTS: what may follow the colon, as far as it is known.
    """

    DATASET: str
    REVISION: str | None
    COLUMNS: Mapping[str, str]
    GROUP: str
    LABELS: str
    PARTS: tuple[str, ...]

    @staticmethod
    def load(part: str) -> Loaded:
        """The texts of a part; "" is the whole benchmark, where it can be loaded whole."""


@dataclass(frozen=True)
class Benchmark:
    """A benchmark that has been loaded.

    Attributes:
        name: as it was asked for.
        documents: its labelled texts.
        source: id on the hub, or the local files.
        revision: the commit that was loaded, also where none was asked for; of local files, the hash of their bytes.
    """

    name: str
    documents: tuple[Document, ...]
    source: str
    revision: str


def names() -> tuple[str, ...]:
    """All benchmarks, by the names of their files."""
    return tuple(sorted(m.name for m in pkgutil.iter_modules(__path__) if not m.name.startswith("_")))


def is_name(entry: str) -> bool:
    """Whether an entry of --data means a benchmark: it is no file, and its name before the colon is known."""
    return entry.partition(":")[0] in names() and not Path(entry).exists()


def source(name: str) -> Source:
    """The file of a benchmark: where it comes from, and its parts.

    Raises:
        UsageError: for a name that does not exist.
    """
    if name not in names():
        raise UsageError(f"benchmark must be one of {', '.join(names())}; got {name!r}")
    module: Source = importlib.import_module(f"{__name__}.{name}")  # type: ignore[assignment] # checked by a test
    return module


def load(entry: str) -> Benchmark:
    """The benchmark of that name, or the part of it after a colon.

    Raises:
        UsageError: for a name or part that does not exist, or a benchmark that cannot be had.
    """
    name, colon, part = entry.partition(":")
    module = source(name)
    if colon and not part:
        raise UsageError(f"benchmark {name} must be followed by a part after the colon; {parts(module)}; got {entry!r}")
    loaded = module.load(part)
    return Benchmark(entry, tuple(loaded.documents), loaded.source, loaded.revision)


def parts(module: Source) -> str:
    """The known parts of a benchmark, for a message."""
    return f"its parts are {', '.join(module.PARTS)}" if module.PARTS else "it has no parts"
