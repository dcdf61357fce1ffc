"""Files that are whole or not at all, and temporary folders: a later process removes those of a killed one."""

import contextlib
import os
import platform
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import psutil

# Names of temporary folders begin with them; drafts lie beside the files that they become, and are hidden.
PREFIX = "fsd-"
DRAFTS = ".fsd-"


@contextlib.contextmanager
def temporary_folder(parent: Path | None = None) -> Iterator[Path]:
    """A temporary folder of this process, a hidden one in a `parent`; those that ended processes left are removed."""
    prefix = DRAFTS
    if parent is None:
        prefix = PREFIX
        parent = Path(tempfile.gettempdir())
    # A process id says something on its own host alone, and in its namespace: containers may share name and folder.
    namespace = Path("/proc/self/ns/pid").resolve().name.strip("pid:[]")
    ours = f"{prefix}{platform.node()}.{namespace}."
    for folder in parent.glob(f"{ours}*-*"):
        pid = folder.name.removeprefix(ours).partition("-")[0]
        if pid.isdecimal() and not psutil.pid_exists(int(pid)):
            shutil.rmtree(folder, ignore_errors=True)
    with tempfile.TemporaryDirectory(prefix=f"{ours}{os.getpid()}-", dir=parent, ignore_cleanup_errors=True) as name:
        yield Path(name)


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Where to write the file or folder of that path, which it becomes, with its old mode, if the block ends well."""
    with temporary_folder(path.parent) as folder:
        draft = folder / path.name
        yield draft
        if draft.is_file():
            # Without it a power cut may leave an empty file under the name, since only the rename is stored.
            with draft.open("rb") as written:
                os.fsync(written)
            if path.exists():
                shutil.copymode(path, draft)
        draft.replace(path)


def write_whole(path: Path, content: bytes) -> None:
    """Write a file so that no reader ever sees a part of it."""
    with replacing(path) as draft:
        draft.write_bytes(content)


@contextlib.contextmanager
def own_temporary_files() -> Iterator[None]:
    """Let this process and its libraries put their temporary files in a folder of its own, which is then removed."""
    previous = tempfile.tempdir
    with temporary_folder() as folder:
        # Also libraries ask this variable; one of the environment would be read once, too early.
        tempfile.tempdir = str(folder)
        try:
            yield
        finally:
            tempfile.tempdir = previous
