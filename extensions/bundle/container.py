"""Bundles on disk: a folder or a zip file."""

import hashlib
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from extensions.bundle.manifest import MANIFEST, UNLISTED
from fsd.errors import UsageError
from fsd.files import LARGEST, entries_below


class Bundle:
    """A bundle to be read, which may be somebody else's: nothing of it is written anywhere before it is verified."""

    def __init__(self, place: str) -> None:
        path = Path(place)
        self.place = place
        self._root: Any = path
        if path.is_file():
            self._root = zipfile.Path(_archive(path))
        elif not path.is_dir():
            raise UsageError(f"a bundle must be a folder or a zip file that fsd bundle made; there is no {place}")
        if not (self._root / MANIFEST).is_file():
            raise UsageError(f"a bundle must hold {MANIFEST}; {place} has none")

    def read(self, path: str) -> bytes | None:
        """The content of a file; None if there is none."""
        file = self._root / path
        return bytes(file.read_bytes()) if file.is_file() else None

    def files(self) -> dict[str, str]:
        """Path → hash of every file, without the manifest and its signatures."""
        present = {}
        for path, file in _walk(self._root, ""):
            if path not in UNLISTED:
                present[path] = _hash(file)
        return present

    def copy(self, paths: list[str], folder: Path) -> None:
        """Copy files that were verified."""
        for path in paths:
            copied = folder / path
            copied.parent.mkdir(parents=True, exist_ok=True)
            copied.write_bytes((self._root / path).read_bytes())


def _archive(path: Path) -> zipfile.ZipFile:
    try:
        archive = zipfile.ZipFile(path)
    except (zipfile.BadZipFile, OSError) as error:
        raise UsageError(f"a bundle must be a folder or a zip file; {path} is neither ({error})") from error
    names = archive.namelist()
    # Of two entries of one name, another program may take the other one.
    if len(set(names)) < len(names):
        raise UsageError(f"a bundle must hold each file once; {path} holds one twice")
    for entry in archive.infolist():
        if entry.file_size > LARGEST:
            raise UsageError(f"files of a bundle must have at most {LARGEST:,} bytes; {entry.filename} has more")
    return archive


def _walk(folder: Any, prefix: str) -> Iterator[tuple[str, Any]]:
    for file in folder.iterdir():
        path = f"{prefix}{file.name}"
        link = isinstance(file, Path) and file.is_symlink()
        if file.is_dir() and not link:
            yield from _walk(file, f"{path}/")
        else:
            yield path, file


def _hash(file: Any) -> str:
    """The hash of a file, "" for what is no regular file."""
    # A link may lead out of the bundle, and a pipe has no end.
    if not file.is_file() or (isinstance(file, Path) and file.is_symlink()):
        return ""
    try:
        with file.open("rb") as stream:
            return hashlib.file_digest(stream, "sha256").hexdigest()
    except (zipfile.BadZipFile, OSError, EOFError) as error:
        raise UsageError(f"files of a bundle must be readable; {file}: {error}") from error


def files_in(folder: Path) -> Iterator[tuple[str, Path]]:
    """Name below a folder, and path, of each of its files, in order."""
    for path in entries_below(folder):
        if path.is_file():
            yield path.relative_to(folder).as_posix(), path


def pack(folder: Path, out: Path) -> None:
    """Write the files of a folder as a zip file; the same files give the same bytes."""
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, file in files_in(folder):
            # A fixed date: that of the copies says nothing.
            entry = zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0))
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.external_attr = 0o644 << 16
            archive.writestr(entry, file.read_bytes())
