"""Work that needs nothing of what the main process does meanwhile, in a process beside it."""

import contextlib
import gc
import os
import select
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack, contextmanager
from functools import partial
from importlib import import_module
from multiprocessing.connection import Connection, Pipe
from threading import Thread
from typing import Any, Self, TypeVar, cast

T = TypeVar("T")
# New objects after which Python looks for cycles among them, and how many such rounds come before it looks further.
COLLECTIONS = (50_000, 20, 50)
# The same while libraries are imported, which make about that many objects that stay.
STARTING = 1_000_000
# Milliseconds after which the end of the main process is noticed.
PATIENCE = 1000


class Assistant(AbstractContextManager["Assistant"]):
    """A process beside this one, from entering to leaving: it does one piece of work after the other.

    It reads `modules` first, which work will need. What cannot be done there is done here, when the result is asked
    for: a process that cannot start, fails or is killed costs time alone, and an error is raised as without it. With
    one core, or not `apart`, there is none.
    """

    def __init__(self, modules: Sequence[str] = (), *, apart: bool = True) -> None:
        self.modules = modules
        self.apart = apart
        self._stack = ExitStack()
        self._connection: Connection | None = None

    def __enter__(self) -> Self:
        """Start the process."""
        if self.apart and _cores() > 1:
            # Too many processes, open files or little memory.
            with contextlib.suppress(Exception):
                # One thread, so that what is begun first is done first.
                self._waiting = ThreadPoolExecutor(1)
                self._connection = self._stack.enter_context(_process())
                self.begin(_import, self.modules)
        return self

    def __exit__(self, *_: object) -> None:
        """End the process, whatever it does."""
        if self._connection:
            self._waiting.shutdown(wait=False, cancel_futures=True)
        self._stack.close()
        self._connection = None

    def begin(self, work: Callable[..., T], *arguments: Any, apart: bool = True) -> Callable[[], T]:
        """Begin a call there, if it may be `apart`; gives what waits for the result."""
        in_this_process = partial(work, *arguments)
        if self._connection is None or not apart:
            return in_this_process
        try:
            begun = self._waiting.submit(_done, self._connection, in_this_process)
        except RuntimeError:  # no thread can start
            return in_this_process

        def result() -> T:
            # Also what cannot be sent is done here.
            with contextlib.suppress(Exception):
                return cast("T", begun.result())
            return in_this_process()

        return result


def collect_rarely(*, starting: bool = False) -> None:
    """Look for garbage rarely, and not among what is there: libraries make objects that stay, and looking takes long.

    Even more rarely while a command is `starting`, and imports them.
    """
    gc.freeze()
    if starting:
        gc.set_threshold(STARTING)
    else:
        gc.set_threshold(*COLLECTIONS)


def _done(connection: Connection, work: Callable[[], object]) -> object:
    """The result of work that the other process does."""
    # Sending waits until the process reads.
    connection.send(work)
    succeeded, result = connection.recv()
    if not succeeded:
        raise RuntimeError("the work failed there")
    return result


def _import(modules: Sequence[str]) -> None:
    for module in modules:
        import_module(module)


@contextmanager
def _process() -> Iterator[Connection]:
    """A process that does work, and the connection to it."""
    ours, theirs = Pipe()
    with ours:
        with theirs:
            process = _start(theirs.fileno())
        try:
            # The folder of the command, which is removed with what is in it, however the process ends.
            ours.send(tempfile.gettempdir())
            yield ours
        finally:
            process.kill()
            process.wait()


def _start(descriptor: int) -> "subprocess.Popen[bytes]":
    """A new process that does what comes through this end of a pipe."""
    # Not by multiprocessing, which runs the user's script again in the new process. Ctrl-C reaches the main process
    # alone, since this one is no part of the terminal's session. Screen and results are the main one's.
    # It imports from where this one does: the working folder, which -P leaves out, may hold somebody else's modules.
    path = list(map(str, sys.path))
    code = f"import sys; sys.path[:] = {path!r}; from fsd.beside import serve; serve({descriptor})"
    command = [sys.executable, "-P", "-c", code]
    nothing = subprocess.DEVNULL
    return subprocess.Popen(
        command, pass_fds=[descriptor], stdin=nothing, stdout=nothing, stderr=nothing, start_new_session=True
    )


def serve(descriptor: int) -> None:
    """Do the work that comes from the main process, one piece after the other, and send whether and what it gave."""
    collect_rarely()
    main = Connection(descriptor)
    Thread(target=_end_with, args=(descriptor,), daemon=True).start()
    tempfile.tempdir = main.recv()
    while True:
        try:
            work = main.recv()
            # What cannot be sent back fails before the first byte of it is written.
            main.send((True, work()))
        except Exception:
            main.send((False, None))


def _end_with(descriptor: int) -> None:
    """End this process when the main one has gone: killed, it ends nothing itself."""
    parent = os.getppid()
    hung_up = select.poll()
    hung_up.register(descriptor, select.POLLHUP)
    # A process that the main one has forked keeps its end of the connection open.
    while not hung_up.poll(PATIENCE) and os.getppid() == parent:
        pass
    os._exit(1)


def _cores() -> int:
    """Cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
