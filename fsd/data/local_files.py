"""Benchmarks that are given as local files, because no hub dataset holds them."""

import hashlib
from collections.abc import Iterable
from pathlib import Path

from fsd.errors import UsageError


def paths(part: str, wanted: tuple[str, ...], name: str) -> list[Path]:
    """The files named after the colon, separated by commas.

    Raises:
        UsageError: if there are not as many as wanted, or one does not exist.
    """
    given = [piece.strip() for piece in part.split(",") if piece.strip()]
    if len(given) != len(wanted):
        raise UsageError(f"benchmark {name} must be given as {name}:{','.join(wanted)}; got {part!r}")
    found = [Path(piece).expanduser() for piece in given]
    missing = [path for path in found if not path.is_file()]
    if missing:
        raise UsageError(f"benchmark {name} must be given files that exist; there is no {missing[0]}")
    return found


def content(files: Iterable[Path]) -> str:
    """SHA-256 of the files' bytes, one after the other: the version of a benchmark that has no commit."""
    digest = hashlib.sha256()
    for file in files:
        with file.open("rb") as stream:
            while block := stream.read(2**20):
                digest.update(block)
    return f"sha256:{digest.hexdigest()}"
