"""Published benchmarks, one per file, discovered by file name.

A benchmark is named by its file, with an optional part after a colon, e.g. `wikimia:64` or
`mimir:arxiv/ngram_13_0.8`. The file defines the constants of `Source` and `load(part)`. Label 1 is a member of the
pretraining data in all of them.
"""

import importlib
import os
import pkgutil
from collections.abc import Mapping
from typing import Protocol

from fsd.data.documents import Benchmark
from fsd.data.near_duplicates import drop_contradictions
from fsd.errors import UsageError

BOTH_LABELS = "copies labelled both 1 and 0"
"""Reason for which texts are left out."""


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
    return entry.partition(":")[0] in names() and not os.path.exists(entry)  # noqa: PTH110 - a name may be too long


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

    Rows without a text or a label of 0 or 1 are left out, and so are all copies of a text that is labelled both; their
    numbers are part of the result.

    Raises:
        UsageError: for an unknown name or part, or a benchmark that is not available or has no valid row.
    """
    name, colon, part = entry.partition(":")
    module = source(name)
    if colon and not part:
        parts = f"its parts are {', '.join(module.PARTS)}" if module.PARTS else "it has no parts"
        raise UsageError(f"benchmark {name} must be followed by a part after the colon; {parts}; got {entry!r}")
    loaded = module.load(part)
    documents, contradicted = drop_contradictions(loaded.documents)
    left_out = {**loaded.left_out, **({BOTH_LABELS: contradicted} if contradicted else {})}
    if not documents:
        reasons = ", ".join(f"{count} {reason}" for reason, count in left_out.items()) or "no rows"
        raise UsageError(f"benchmark {entry} must have texts labelled 0 or 1; it has none: {reasons}")
    return loaded._replace(documents=documents, left_out=left_out)
