"""Command-line handling shared by all pipelines."""

import contextlib
import errno
import os
import re
import signal
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib import import_module
from typing import Any, NoReturn

from fsd import distributed
from fsd.errors import StorageError, UsageError
from fsd.leftovers import own_temporary_files
from pipelines.common.arguments import (
    Config,
    check_name,
    command_line,
    command_name,
    parse,
    program,
    read,
    running,
    wrapped,
)
from pipelines.common.job import Job

__all__ = ["check_name", "command", "deferred", "parse", "subcommands"]

SHOWN = 120
"""Characters of a path in a message."""
MAIN_FIRST = 10.0
"""Seconds that a failing process leaves the main one to report the same error, upon which the launcher ends both."""
_NOT_STORED = (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EFBIG)
"""Errors of a disk that is full or cannot be written."""
CAUSE_FIRST = 2.0
"""Seconds that the main process leaves the launcher to end it, if it failed because another process is gone."""


def command(
    config: type[Config], prepare: Callable[[Config], Job], description: str, *, parallel: bool = False
) -> None:
    """Read the command line into `config`, prepare the job, and run it, or print it with --dry-run.

    A user's mistake ends with exit code 2 and one line on stderr, results that cannot be stored with 1 and one line,
    SIGINT (Ctrl-C), SIGTERM and SIGHUP with 128 + signal; any other error is a bug and keeps its traceback. In a
    multi-process job an error is printed by one process only: by the main one if it occurs there too, else by the
    process that failed, with its rank.
    """
    # Before torch starts its threads: spinning ones stall two processes on the same cores.
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    several = distributed.num_processes() > 1
    with _ends(several):
        if several and not parallel:
            raise UsageError(f"this pipeline must run as one process; got {distributed.num_processes()}")
        settings, invocation = read(config, description)
        with (
            running(command_name(), invocation),
            _interruptible(),
            _temporary_files(),
            _full_disks(),
            _impossible_paths(),
        ):
            if several:
                distributed.join()
            job = prepare(settings)
            if not invocation.dry_run:
                job.run()
            elif distributed.is_main_process():
                _print_plan(job)
            distributed.leave()


def deferred(module: str) -> Callable[[Any], Job]:
    """The `prepare` of a module that is imported once the settings are read: --help does not wait for its libraries."""
    return lambda settings: import_module(module).prepare(settings)


@contextlib.contextmanager
def _ends(several: bool) -> Iterator[None]:
    """End the program as `command` says, if the block raises."""
    try:
        yield
    except UsageError as error:
        _exit(f"error: {error}", 2)
    except StorageError as error:
        _exit(f"error: {error}; to continue: {error.command or command_line()}", 1)
    except KeyboardInterrupt as interruption:
        number = interruption.args[0] if interruption.args else signal.SIGINT
        _exit("interrupted" if number == signal.SIGINT else f"ended by {number.name}", 128 + number)
    except BrokenPipeError:  # the reader of our output, `head` for example, has closed it
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(141)
    except Exception:
        if not several:
            raise
        if distributed.is_main_process():
            time.sleep(CAUSE_FIRST)
        _exit(traceback.format_exc().rstrip(), 1)


def _print_plan(job: Job) -> None:
    from fsd.reporting.report import print_facts, print_table
    from pipelines.common import outcome

    plan = job.plan()

    def text() -> None:
        print_facts(plan.facts)
        print_table([], [], plan.findings)

    outcome.show(plan, text=text)


def subcommands(
    choices: Mapping[str, tuple[type[Any], Callable[[Any], Job], str]], description: str, arguments: Sequence[str]
) -> None:
    """Run the subcommand that the first argument names; `choices` are the arguments of `command` by name."""
    name = arguments[0] if arguments else "--help"
    usage = program()
    if name in ("-h", "--help"):
        print(f"usage: {usage} {{{','.join(choices)}}} [OPTIONS]\n\n{wrapped(description)}\n")
        for choice, (_, _, text) in choices.items():
            print(wrapped(f"{choice:<8} {text.strip().splitlines()[0]}", "  ", " " * 9))
        print(f"\n`{usage} {next(iter(choices))} --help` lists the options of a subcommand.")
        return
    if name not in choices:
        _exit(f"error: subcommand must be one of {', '.join(choices)}; got {name!r}", 2)
    sys.argv = [f"{usage} {name}", *arguments[1:]]
    command(*choices[name])


@contextlib.contextmanager
def _interruptible() -> Iterator[None]:
    """Let SIGTERM and SIGHUP, which schedulers and closed terminals send, interrupt the block as Ctrl-C does.

    In a multi-process job only the main process has anything to clean up (cache, tracked run); the others end at once.
    """
    if not distributed.is_main_process():
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        yield
        return
    numbers = [n for n in (signal.SIGTERM, signal.SIGHUP) if signal.getsignal(n) == signal.SIG_DFL]  # not under nohup

    def interrupt(number: int, _: object) -> NoReturn:
        for each in numbers:  # the same signal again would interrupt the cleaning up
            signal.signal(each, signal.SIG_IGN)
        raise KeyboardInterrupt(signal.Signals(number))

    for each in numbers:
        signal.signal(each, interrupt)
    try:
        yield
    finally:
        for each in numbers:
            signal.signal(each, signal.SIG_DFL)


@contextlib.contextmanager
def _temporary_files() -> Iterator[None]:
    """Keep all temporary files of the command in one folder, which is removed at its end."""
    with contextlib.ExitStack() as stack:
        try:
            stack.enter_context(own_temporary_files())
        except OSError as error:
            raise UsageError(
                f"TMPDIR must be a folder that can be written; {os.environ.get('TMPDIR', '/tmp')} cannot "
                f"({(error.strerror or str(error)).lower()})"
            ) from error
        yield


@contextlib.contextmanager
def _full_disks() -> Iterator[None]:
    """Turn an error of a disk that is full or cannot be written, wherever it occurs, into one that has no traceback."""
    try:
        yield
    except OSError as error:
        if error.errno not in _NOT_STORED:
            raise
        raise StorageError(f"{error.filename or 'a file'} cannot be written: {error.strerror}") from error


@contextlib.contextmanager
def _impossible_paths() -> Iterator[None]:
    """Report a path that the system refuses whatever the disk holds as the user's mistake.

    Whatever looks at such a path first fails, and every command looks at its paths before it does anything else.
    """
    try:
        yield
    except OSError as error:
        if error.errno == errno.ENAMETOOLONG:
            raise UsageError(f"names must have at most 255 bytes; got {_shortened(error.filename)}") from error
        if error.errno == errno.ELOOP:
            raise UsageError(f"a path must not be a loop of links; got {_shortened(error.filename)}") from error
        raise
    except RuntimeError as error:
        path = re.fullmatch(r"Symlink loop from '(.*)'", str(error))  # of pathlib, before Python 3.13
        if path:
            raise UsageError(f"a path must not be a loop of links; got {_shortened(path[1])}") from error
        raise


def _shortened(path: object) -> str:
    text = str(path)
    return text if len(text) <= SHOWN else f"{text[:SHOWN]}…"


def _exit(message: str, code: int) -> NoReturn:
    """Print the message once in the whole job and exit."""
    if not distributed.is_main_process():
        time.sleep(MAIN_FIRST)
        message += f" (in process {distributed.process_index()} of {distributed.num_processes()})"
    print(message, file=sys.stderr, flush=True)
    if distributed.num_processes() > 1:
        sys.stdout.flush()
        os._exit(code)  # a collective call in a thread of the process group would hold the interpreter
    sys.exit(code)
