"""Local files of benchmarks that are not on the hub."""

import hashlib
from collections.abc import Iterable
from pathlib import Path

from fsd.errors import UsageError


def paths(part: str, names: tuple[str, ...], benchmark: str) -> list[Path]:
    """The files named after the colon, separated by commas.

    Args:
        part: the text after the colon.
        names: what each file is, for messages.
        benchmark: name of the benchmark, for messages.

    Raises:
        UsageError: for another number of files, or a file that does not exist.
    """
    pieces = [piece.strip() for piece in part.split(",") if piece.strip()]
    if len(pieces) != len(names):
        raise UsageError(f"benchmark {benchmark} must be given as {benchmark}:{','.join(names)}; got {part!r}")
    files = [Path(piece).expanduser() for piece in pieces]
    missing = [file for file in files if not file.is_file()]
    if missing:
        raise UsageError(f"benchmark {benchmark} must be given files that exist; there is no {missing[0]}")
    return files


def digest(files: Iterable[Path]) -> str:
    """SHA-256 of the concatenated files: the version of a benchmark without a commit."""
    sha = hashlib.sha256()
    for file in files:
        sha.update(file.read_bytes())
    return f"sha256:{sha.hexdigest()}"
