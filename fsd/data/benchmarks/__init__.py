"""Published benchmarks, one per file, discovered by file name.

A benchmark is named by its file, with an optional part after a colon, e.g. `wikimia:64` or
`mimir:arxiv/ngram_13_0.8`. The file defines the constants of `Source` and `load(part)`. Label 1 is a member of the
pretraining data in all of them.
"""

import importlib
import pkgutil
from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

from fsd.data.documents import Benchmark
from fsd.errors import UsageError


class Source(Protocol):
    """Interface of a benchmark's file.

    Attributes:
        DATASET: id on the hub, owner/name; "" for a benchmark of local files.
        REVISION: commit on the hub; None for the newest.
        COLUMNS: column of each field of a document; see `fsd.data.readers.NAMES`.
        GROUP: what the texts of one group share; "" if rows have no group and only near-duplicates are grouped.
        LABELS: meaning of label 1 and label 0.
        PARTS: known parts.
    """

    DATASET: str
    REVISION: str | None
    COLUMNS: Mapping[str, str]
    GROUP: str
    LABELS: str
    PARTS: tuple[str, ...]

    @staticmethod
    def load(part: str) -> Benchmark:
        """The texts of a part; "" is the whole benchmark, if it can be loaded whole."""


def names() -> tuple[str, ...]:
    """Names of all benchmarks, in alphabetical order."""
    return tuple(sorted(module.name for module in pkgutil.iter_modules(__path__)))


def is_name(entry: str) -> bool:
    """Whether an entry of --data names a benchmark: it is not a file, and the name before the colon is known."""
    return entry.partition(":")[0] in names() and not Path(entry).exists()


def source(name: str) -> Source:
    """The module of a benchmark.

    Raises:
        UsageError: for an unknown name.
    """
    if name not in names():
        raise UsageError(f"benchmark must be one of {', '.join(names())}; got {name!r}")
    module: Source = importlib.import_module(f"{__name__}.{name}")  # type: ignore[assignment] # checked by a test
    return module


def load(entry: str) -> Benchmark:
    """Load a benchmark, or the part named after the colon.

    Raises:
        UsageError: for an unknown name or part, or a benchmark that is not available.
    """
    name, colon, part = entry.partition(":")
    module = source(name)
    if colon and not part:
        parts = f"its parts are {', '.join(module.PARTS)}" if module.PARTS else "it has no parts"
        raise UsageError(f"benchmark {name} must be followed by a part after the colon; {parts}; got {entry!r}")
    return module.load(part)
