"""What a killed process leaves behind: which process made it, and temporary folders that a later process removes."""

import contextlib
import os
import shutil
import socket
import tempfile
from collections.abc import Iterator
from pathlib import Path

PREFIX = "fsd-"


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
    prefix, _, rest = process.removeprefix(host()).rpartition("-")
    pid = prefix.removeprefix("-")
    if not process.startswith(f"{host()}-") or not pid.isdecimal():
        return False
    return _started(int(pid)) != rest


def _started(pid: int) -> str | None:
    """Start time of a running process in clock ticks since boot, "0" where unknown; None if there is none."""
    if Path("/proc/self/stat").exists():
        try:
            # after the name of the command, which may contain anything
            state, *numbers = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            return None
        return None if state == "Z" else numbers[18]
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return None
    except PermissionError:  # it runs under another user
        pass
    return "0"


@contextlib.contextmanager
def temporary_folder(parent: Path | None = None, prefix: str = PREFIX) -> Iterator[Path]:
    """A temporary folder that is named after this process; those that ended processes left are removed.

    Args:
        parent: folder to create it in; the system's folder for temporary files by default.
        prefix: beginning of the name.
    """
    parent = parent or Path(tempfile.gettempdir())
    for folder in parent.glob(f"{prefix}{host()}-*"):
        if has_ended(folder.name.removeprefix(prefix).rpartition("-")[0]):
            shutil.rmtree(folder, ignore_errors=True)
    own = f"{prefix}{this_process()}-"
    with tempfile.TemporaryDirectory(prefix=own, dir=parent, ignore_cleanup_errors=True) as name:
        yield Path(name)


@contextlib.contextmanager
def own_temporary_files() -> Iterator[None]:
    """Let this process and its libraries put their temporary files in a folder of its own, which is then removed.

    Raises:
        OSError: if there is no folder for temporary files that can be written.
    """
    previous = tempfile.tempdir
    with temporary_folder() as folder:
        tempfile.tempdir = str(folder)
        try:
            yield
        finally:
            tempfile.tempdir = previous
