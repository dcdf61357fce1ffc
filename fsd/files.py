"""Files that somebody else may have made: regular ones of a bounded size, text in UTF-8, JSON of a known form, CSV."""

import csv
import hashlib
import os
import stat
from collections.abc import Hashable, Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, TypeVar, cast

from fsd.errors import UsageError

LARGEST = 2**32
"""Bytes beyond which a file, or the content of a compressed one, is not read."""
SMALL = 2**24
"""Bytes beyond which a file of settings or checksums is not read."""
CHECKSUMS = "SHA256SUMS"
"""File with the checksums of others in its folder, in the format of `sha256sum --check`."""
JSON = dict[str, Any]
"""A JSON object."""
T = TypeVar("T")


def check_regular(path: str | Path, must: str, *, largest: int = LARGEST) -> None:
    """Refuse what is no regular file, since a pipe or a device may have no end, and files above `largest` bytes.

    The error begins with `must`, which says what must hold.
    """
    try:
        status = os.stat(path)  # noqa: PTH116 - a name may be too long for pathlib
    except OSError as error:
        raise UsageError(f"{must}; {(error.strerror or str(error)).lower()}") from error
    if stat.S_ISDIR(status.st_mode):
        raise UsageError(f"{must}; is a directory")
    if not stat.S_ISREG(status.st_mode):
        raise UsageError(f"{must}; it is no regular file")
    if status.st_size > largest:
        raise UsageError(f"{must}; it has {status.st_size:,} bytes, more than {largest:,}")


def named_below(folder: str | Path, endings: Iterable[str]) -> list[Path]:
    """The files below a folder with one of the endings, in any case, in order; of the names of one file the first.

    Those that are hidden, such as the copies that editors and notebooks keep, are left out.
    """

    def refuse(error: OSError) -> None:
        raise UsageError(f"a folder must be one that can be read; {error.filename}: {error.strerror}") from error

    entries = []
    # Linked folders too: data sets are often linked to where they are used.
    for place, folders, files in os.walk(folder, onerror=refuse, followlinks=True):
        folders[:] = [name for name in folders if not name.startswith(".")]
        entries += [Path(place, name) for name in files if not name.startswith(".")]
    wanted = tuple(endings)
    names: dict[str, Path] = {}
    for entry in sorted(entries):
        if entry.name.lower().endswith(wanted):
            names.setdefault(os.path.realpath(entry), entry)
    return list(names.values())


def read_bytes(path: str | Path, must: str, *, largest: int = LARGEST) -> bytes:
    """The content of a file, see `check_regular`."""
    check_regular(path, must, largest=largest)
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise UsageError(f"{must}; {(error.strerror or str(error)).lower()}") from error


def read_text(path: str | Path, must: str = "", *, largest: int = LARGEST) -> str:
    r"""The text of a file in UTF-8, with or without a byte order mark; lines end in \n, whatever they end in there."""
    must = must or f"{path} must be a readable text file in UTF-8"
    try:
        text = read_bytes(path, must, largest=largest).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        # As documents of Word and books in EPUB are, which are packed.
        raise UsageError(f"{must}; it is not: save it as plain text in UTF-8") from error
    # Valid UTF-8, but of no text.
    if "\0" in text:
        raise UsageError(f"{must}; it has NUL bytes, as UTF-16 has")
    # Not splitlines, which also breaks lines at characters that stand within texts.
    return text.replace("\r\n", "\n").replace("\r", "\n")


def read_json(kind: type[T], path: str | Path, what: str, *, largest: int = LARGEST) -> T:
    """A JSON file as a dataclass or another type that pydantic knows; a UsageError names the file and the field."""
    must = f"{path} must be {what}"
    return from_json(kind, read_bytes(path, must, largest=largest), must)


def from_json(kind: type[T], content: str | bytes, must: str) -> T:
    """JSON as a value of a type, without conversions such as of "1" to 1."""
    from pydantic import ValidationError

    try:
        # A type can be hashed, which its own type does not say.
        return cast(T, _adapter(cast(Hashable, kind)).validate_json(content, strict=True))
    except ValidationError as error:
        raise UsageError(f"{must}; {reason_of(error.errors())}") from error


@cache
def _adapter(kind: Hashable) -> Any:
    """What reads JSON as a type: it takes a thousand times as long to be made as to read a row."""
    from pydantic import TypeAdapter

    return TypeAdapter(cast(Any, kind))


def reason_of(errors: Sequence[Any]) -> str:
    """The first of pydantic's errors in words; one of the version explains all others."""
    error = next((entry for entry in errors if entry["loc"] == ("version",)), errors[0])
    place = ".".join(map(str, error["loc"]))
    reason: str = error["msg"].removeprefix("Value error, ")
    # Those of our own checks are sentences already.
    if error["type"] == "value_error":
        return f"{place}: {reason}".removeprefix(": ")
    reason = f"{place or 'content'}: {reason[0].lower()}{reason[1:]}"
    # Of what is missing, or no JSON, pydantic quotes the whole around it.
    if error["type"] in ("missing", "json_invalid"):
        return reason
    return f"{reason}; got {error['input']!r:.60}"


def csv_text(frame: Any) -> str:
    """A data frame as CSV, without its index; a carriage return in a cell ends no row of any reader."""
    text: str = frame.to_csv(index=False)
    # Until Python 3.13 the writer quotes a cell with a line feed alone.
    if "\r" in text:
        text = frame.to_csv(index=False, quoting=csv.QUOTE_NONNUMERIC)
    return text


def checksum_lines(contents: Mapping[str, bytes]) -> str:
    """The lines of `CHECKSUMS` for files: name → content."""
    return "".join(f"{hashlib.sha256(content).hexdigest()}  {name}\n" for name, content in contents.items())


def checksums(folder: Path) -> dict[str, str] | None:
    """Name → SHA-256 hash, as in the `CHECKSUMS` of a folder; None if it has none."""
    path = folder / CHECKSUMS
    if not path.exists():
        return None
    hashes = {}
    for line in read_text(path, largest=SMALL).split("\n"):
        parts = line.split(maxsplit=1)
        if len(parts) == 2:
            hashes[parts[1]] = parts[0]
    return hashes


def digest(*paths: str | Path) -> str:
    """The SHA-256 hash of files, one after the other, in hexadecimal digits."""
    total = hashlib.sha256()
    for path in paths:
        check_regular(path, f"{path} must be a file that can be read")
        with Path(path).open("rb") as stream:
            # It goes on with the hash that it is given.
            hashlib.file_digest(stream, lambda: total)
    return total.hexdigest()
