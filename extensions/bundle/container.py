"""Bundles on disk: a folder, or a zip file that is unpacked into one."""

import shutil
import tempfile
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path

from extensions.bundle.manifest import MANIFEST, UNLISTED
from fsd.api import UsageError, named_below
from fsd.api import digest_of_files as digest

LARGEST = 2**32
"""Bytes beyond which a file of a zip file is not unpacked."""


def unpacked(place: str) -> Path:
    """The folder of a bundle, which may be somebody else's; a zip file is unpacked into a temporary one."""
    path = Path(place)
    if path.is_file():
        folder = _extracted(path)
    elif path.is_dir():
        folder = path
    else:
        raise UsageError(f"a bundle must be a folder or a zip file that fsd bundle made; there is no {place}")
    if not (folder / MANIFEST).is_file():
        raise UsageError(f"a bundle must hold {MANIFEST}; {place} has none")
    return folder


def _extracted(path: Path) -> Path:
    try:
        with zipfile.ZipFile(path) as archive:
            entries = archive.infolist()
            # Of two entries of one name, another program may take the other one.
            if len(set(archive.namelist())) < len(entries):
                raise UsageError(f"a bundle must hold each file once; {path} holds one twice")
            for entry in entries:
                if entry.file_size > LARGEST:
                    raise UsageError(
                        f"files of a bundle must have at most {LARGEST:,} bytes; {entry.filename} has more"
                    )
            # The command removes its temporary files. No name leads out of the folder: parts such as .. are dropped.
            folder = Path(tempfile.mkdtemp())
            archive.extractall(folder)
    except (zipfile.BadZipFile, OSError, EOFError, zlib.error) as error:
        raise UsageError(f"a bundle must be a folder or a zip file; {path} is neither ({error})") from error
    return folder


def hashes(folder: Path) -> dict[str, str]:
    """Path → hash of every file, "" for what is no regular one; without the manifest and its signatures."""
    present = {}
    for path in folder.rglob("*"):
        name = path.relative_to(folder).as_posix()
        # A link may lead out of the bundle, and a pipe has no end.
        if path.is_symlink() or not (path.is_file() or path.is_dir()):
            present[name] = ""
        elif path.is_file() and name not in UNLISTED:
            present[name] = digest(path)
    return present


def files_in(folder: Path) -> Iterator[tuple[str, Path]]:
    """Name below a folder, and path, of each of its files, in order."""
    for path in named_below(folder, [""]):
        yield path.relative_to(folder).as_posix(), path


def copy(source: Path, copied: Path) -> None:
    """Copy a file, with the folders above it."""
    copied.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(source, copied)


def pack(folder: Path, out: Path) -> None:
    """Write the files of a folder as a zip file; the same files give the same bytes."""
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, file in files_in(folder):
            # A fixed date: that of the copies says nothing.
            entry = zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0))
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.external_attr = 0o644 << 16
            archive.writestr(entry, file.read_bytes())
