"""What a killed process leaves behind: files whole or not at all, and temporary folders that a later one removes.

A killed training leaves checkpoints for its rerun, which `fsd.models.finetuning` knows.
"""

import contextlib
import os
import shutil
import socket
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path

# Names of temporary folders begin with them; drafts lie beside the files that they become, and are hidden.
PREFIX = "fsd-"
DRAFTS = ".fsd-"


def host() -> str:
    """Name of this host and of the namespace of its process ids, within which a process id is unique."""
    try:
        namespace = str(Path("/proc/self/ns/pid").readlink()).strip("pid:[]")
    except OSError:  # not Linux
        namespace = "0"
    return f"{socket.gethostname()}-{namespace}"


def this_process() -> str:
    """Identity of this process: host, process id and start time. A process id alone is used again after a while."""
    return f"{host()}-{os.getpid()}-{_started(os.getpid())}"


def has_ended(process: str) -> bool:
    """Whether a process, given by its identity, has ended; False if it is of another host, where this is unknown."""
    name, _, rest = process.rpartition("-")
    name, _, pid = name.rpartition("-")
    return name == host() and pid.isdecimal() and _started(int(pid)) != rest


def _started(pid: int) -> str:
    """Start time of a running process in clock ticks since boot, "0" where unknown; "" if there is none."""
    # Not by psutil, which adds the time of the boot: that moves with the clock, and running processes would seem ended.
    if not Path("/proc/self/stat").exists():  # not Linux
        return "0"
    try:
        # After the name of the command, which may contain anything; field 22 of proc(5).
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]
    except PermissionError:  # it runs under another user
        return "0"
    except OSError:
        return ""


@contextlib.contextmanager
def temporary_folder(parent: Path | None = None, prefix: str = PREFIX) -> Iterator[Path]:
    """A temporary folder that is named after this process; those that ended processes left in `parent` are removed."""
    parent = parent or Path(tempfile.gettempdir())
    for folder in parent.glob(f"{prefix}{host()}-*"):
        if has_ended(folder.name.removeprefix(prefix).rpartition("-")[0]):
            shutil.rmtree(folder, ignore_errors=True)
    with tempfile.TemporaryDirectory(
        prefix=f"{prefix}{this_process()}-", dir=parent, ignore_cleanup_errors=True
    ) as name:
        yield Path(name)


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Where to write the file or folder of that path, which it becomes, with its old mode, if the block ends well."""
    with temporary_folder(path.parent, DRAFTS) as folder:
        draft = folder / path.name
        yield draft
        if draft.is_file():
            # Without it a power cut may leave an empty file under the name, since only the rename is stored.
            with draft.open("rb") as written:
                os.fsync(written)
            if path.exists():
                draft.chmod(stat.S_IMODE(path.stat().st_mode))
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
