"""Work that needs nothing of what the main process does meanwhile, in a process beside it."""

import contextlib
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from multiprocessing.connection import Connection, Pipe, wait
from threading import Thread
from typing import Any, TypeVar, cast

T = TypeVar("T")
Beside = AbstractContextManager[Callable[[], T]]
"""A block during which something is done beside it, and what waits for the result."""


@contextmanager
def beside(work: Callable[..., T], *arguments: Any, apart: bool = True) -> Iterator[Callable[[], T]]:
    """Begin a call in a process of its own, which ends with the block; gives what waits for the result.

    What cannot be done there is done here, when the result is asked for: a process that cannot start, fails or is
    killed costs time alone, and an error is raised as without it. With one core, or not `apart`, there is none.
    """
    in_this_process = partial(work, *arguments)
    with contextlib.ExitStack() as stack:
        started = None
        if apart and _cores() > 1:
            # Too many processes, open files or little memory, or arguments that cannot be sent.
            with contextlib.suppress(Exception):
                started = stack.enter_context(_process(in_this_process))

        def result() -> T:
            if started:
                with contextlib.suppress(Exception):
                    return cast("T", started.recv())
            return in_this_process()

        yield result


@contextmanager
def _process(work: Callable[[], object]) -> Iterator[Connection]:
    """A process that does the work, and where its result comes."""
    ours, theirs = Pipe()
    with ours:
        with theirs:
            process = _start(theirs.fileno())
        try:
            # Sending waits until the process has imported what it is sent.
            Thread(target=_send, args=(ours, process, work), daemon=True).start()
            yield ours
        finally:
            process.kill()
            process.wait()


def _start(descriptor: int) -> "subprocess.Popen[bytes]":
    """A new process that does what comes through this end of a pipe."""
    # Not by multiprocessing, which runs the user's script again in the new process. Ctrl-C reaches the main process
    # alone, since this one is no part of the terminal's session. Screen and results are the main one's.
    command = [sys.executable, "-c", f"from fsd.beside import serve; serve({descriptor})"]
    nothing = subprocess.DEVNULL
    return subprocess.Popen(
        command,
        pass_fds=[descriptor],
        stdin=nothing,
        stdout=nothing,
        stderr=nothing,
        start_new_session=True,
    )


def _send(connection: Connection, process: "subprocess.Popen[bytes]", work: Callable[[], object]) -> None:
    """Send the work; what cannot be sent ends the process, so that nobody waits for it."""
    try:
        connection.send(sys.path)
        # The folder of the command, which is removed with what is in it, however the process ends.
        connection.send((tempfile.gettempdir(), work))
    except Exception:
        process.kill()


def serve(descriptor: int) -> None:
    """Do the work that comes from the main process, and send the result; nothing if it fails."""
    main = Connection(descriptor)
    with contextlib.suppress(Exception):
        sys.path[:] = main.recv()
        tempfile.tempdir, work = main.recv()
        Thread(target=_end_with, args=(main,), daemon=True).start()
        main.send(work())


def _end_with(main: Connection) -> None:
    """End this process when the main one has gone: killed, it ends nothing itself."""
    # Nothing more is sent, so that only the end of the main process is read.
    wait([main])
    os._exit(1)


def _cores() -> int:
    """Cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
