"""Results that take seconds, kept in the cache as JSON: the next run on the same texts asks for them again."""

import json
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import TypeVar

import xxhash

from fsd.errors import UsageError
from fsd.files import from_json
from fsd.scoring.cache import SQLiteStore
from fsd.token_stats import Prompt

T = TypeVar("T")
# Code, and texts that come with it.
FILES = (".py", ".jsonl")
LIBRARIES = ("numpy", "pandas", "scipy", "scikit-learn")


def remembered(
    compute: Callable[[], T], kind: type[T], store: SQLiteStore | None, depends: Callable[[], Sequence[object]]
) -> T:
    """What `compute` gives, from the store if the same is there already.

    `kind` is its type, which pydantic must know; `depends` gives all that the result follows from, beside the code.
    """
    if store is None:
        return compute()
    from pydantic import TypeAdapter

    cause = Prompt(json.dumps(depends(), default=str))
    key = _key(kind.__name__)
    stored = store.load(key, [cause])
    # A result of another form is computed again.
    with suppress(KeyError, UsageError):
        return from_json(kind, stored[cause], "")
    result = compute()
    # JSON lacks half of a surrogate pair, which a text may hold, and infinity: only what comes back as it was is kept.
    with suppress(ValueError, UsageError):
        content = TypeAdapter(kind).dump_json(result).decode()
        if from_json(kind, content, "") == result:
            store.save(key, [(cause, content)])
    return result


@cache
def _key(kind: str) -> str:
    """Hash of the code, as it is at this moment, and of the libraries by which a result comes about."""
    # Unicode's tables and the manual, of which the domain check reads prose, are Python's.
    names = [kind, sys.version, *map(version, LIBRARIES)]
    hashed = xxhash.xxh3_128(json.dumps(names).encode())
    package = Path(__file__).parents[1]
    for file in sorted(package.rglob("*")):
        if file.suffix in FILES:
            hashed.update(file.read_bytes())
    return hashed.hexdigest()
