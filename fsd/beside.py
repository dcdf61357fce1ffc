"""Work that needs nothing of what the main process does meanwhile, in a process beside it."""

import contextlib
import os
import signal
import tempfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from multiprocessing import get_context, parent_process
from multiprocessing.connection import Connection, wait
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
    # A forked process might wait for a lock of a thread that it does not have.
    spawn = get_context("spawn")
    receiver, sender = spawn.Pipe(duplex=False)
    with receiver:
        # The folder of the command, which is removed with what is in it, however the process ends.
        process = spawn.Process(target=_answer, args=(work, sender, tempfile.gettempdir()), daemon=True)
        # Closed here, so that the end of the process is the end of what comes from it.
        with sender:
            process.start()
        try:
            yield receiver
        finally:
            process.kill()
            process.join()


def _answer(work: Callable[[], object], sender: Connection, temporary: str) -> None:
    """Send the result of the work; nothing if it fails."""
    Thread(target=_end_with_parent, daemon=True).start()
    # A terminal sends Ctrl-C to all its processes; this one is ended by the main one, which cleans up.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    tempfile.tempdir = temporary
    # Screen and results belong to the main process.
    silence = os.open(os.devnull, os.O_WRONLY)
    for number in (1, 2):
        os.dup2(silence, number)
    with contextlib.suppress(Exception):
        sender.send(work())


def _end_with_parent() -> None:
    """End this process when the main one has gone: killed, it ends nothing itself."""
    parent = parent_process()
    if parent:
        wait([parent.sentinel])
        os._exit(1)


def _cores() -> int:
    """Cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
