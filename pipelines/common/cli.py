"""Command-line handling shared by all pipelines."""

import contextlib
import errno
import io
import math
import os
import re
import shlex
import signal
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import Field, fields, is_dataclass
from itertools import pairwise
from typing import Annotated, Any, NoReturn, TypeVar, cast, get_args, get_origin

from fsd import distributed
from fsd.config import flags
from fsd.errors import StorageError, UsageError, without_credentials
from fsd.leftovers import own_temporary_files

Config = TypeVar("Config")
SEEDS = 2**32
"""Number of seeds; NumPy takes no others."""
SHOWN = 120
"""Characters of a path in a message."""
MAIN_FIRST = 10.0
"""Seconds that a failing process leaves the main one to report the same error, upon which the launcher ends both."""
_NOT_STORED = (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EFBIG)
"""Errors of a disk that is full or cannot be written."""
CAUSE_FIRST = 2.0
"""Seconds that the main process leaves the launcher to end it, if it failed because another process is gone."""


def command(
    config: type[Config], main: Callable[[Config], object], description: str, *, parallel: bool = False
) -> None:
    """Read the command line into `config` and run `main` with it.

    A user's mistake ends with exit code 2 and one line on stderr, results that cannot be stored with 1 and one line,
    SIGINT (Ctrl-C), SIGTERM and SIGHUP with 128 + signal; any other error is a bug and keeps its traceback. In a
    multi-process job an error is printed by one process only: by the main one if it occurs there too, else by the
    process that failed, with its rank.

    Args:
        config: a dataclass of all settings.
        main: does the work.
        description: shown by --help.
        parallel: whether the pipeline may run in several processes.
    """
    # Before torch starts its threads: spinning ones stall two processes on the same cores.
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    several = distributed.num_processes() > 1
    try:
        if several and not parallel:
            raise UsageError(f"this pipeline must run as one process; got {distributed.num_processes()}")
        settings = parse(config, description)
        with _interruptible(), _temporary_files(), _full_disks(), _impossible_paths():
            if several:
                distributed.join()
            main(settings)
            distributed.leave()
    except UsageError as error:
        _exit(f"error: {error}", 2)
    except StorageError as error:
        _exit(f"error: {error}; to continue: {_command_line()}", 1)
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


def subcommands(
    choices: Mapping[str, tuple[type[Any], Callable[[Any], object], str]], description: str, arguments: Sequence[str]
) -> None:
    """Run the subcommand that the first argument names.

    Args:
        choices: name → configuration, function and description, as for `command`.
        description: shown by --help.
        arguments: the command line without the program.
    """
    name = arguments[0] if arguments else "--help"
    program = _program()
    if name in ("-h", "--help"):
        print(f"usage: {program} {{{','.join(choices)}}} [OPTIONS]\n\n{description.strip()}\n")
        for choice, (_, _, text) in choices.items():
            print(f"  {choice:<8} {text.strip().splitlines()[0]}")
        print(f"\n`{program} {next(iter(choices))} --help` lists the options of a subcommand.")
        return
    if name not in choices:
        _exit(f"error: subcommand must be one of {', '.join(choices)}; got {name!r}", 2)
    sys.argv = [f"{program} {name}", *arguments[1:]]
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

    Raises:
        UsageError: for a name that is too long, or a loop of links.
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


def _program() -> str:
    """The command as the user typed it: `fsd run`, or `python -m pipelines.fsd`."""
    spec = getattr(sys.modules["__main__"], "__spec__", None)
    if sys.argv[0].startswith(("fsd ", "python -m ")) or spec is None:
        return sys.argv[0]
    return f"python -m {spec.name.removesuffix('.__main__')}"


def _command_line() -> str:
    """The whole command as the user typed it, without the credentials of URLs."""
    return without_credentials(f"{_program()} {shlex.join(sys.argv[1:])}")


def parse(config: type[Config], description: str) -> Config:
    """Read the command line into `config`.

    Raises:
        UsageError: for an unknown option or an impossible value, in one line.
    """
    import tyro

    arguments = _joined(config, sys.argv[1:])
    _refuse_empty(config, arguments)
    messages = io.StringIO()
    with contextlib.ExitStack() as stack:
        stack.enter_context(contextlib.redirect_stderr(messages))
        if not distributed.is_main_process():
            stack.enter_context(contextlib.redirect_stdout(messages))  # the text of --help
        try:
            settings = tyro.cli(
                config,
                args=arguments,
                prog=_program(),
                description=description,
                config=(tyro.conf.OmitArgPrefixes, tyro.conf.AvoidSubcommands),
            )
        except SystemExit as end:
            if end.code:
                raise UsageError(_in_one_line(messages.getvalue())) from None
            raise
    _check_values(settings)
    return settings


def _check_values(config: Any) -> None:
    """Refuse what no flag can mean: a seed that no generator takes, numbers that are not finite, blanks for a name."""
    defaults = {entry.name: entry.default for entry in _fields(type(config))}
    for name, value in flags(config).items():
        flag = name.replace("_", "-")
        if name == "seed" and isinstance(value, int) and not 0 <= value < SEEDS:  # of canaries it is a text
            raise UsageError(f"seed must be at least 0 and below 2**32 ({SEEDS}); got {value}")
        if isinstance(value, float) and not math.isfinite(value):
            raise UsageError(f"{flag} must be a finite number; got {value}")
        if isinstance(value, str) and not value.strip() and defaults[name] != value:
            raise UsageError(f"{flag} must not be blank; got {value!r}")


def check_name(flag: str, name: str) -> None:
    """Check that a name can be part of the names of experiments and studies.

    Raises:
        UsageError: for a name that is empty, longer than 100 characters, or has other characters than letters, digits,
            `_`, `-` and `.`.
    """
    if not re.fullmatch(r"[\w.-]{1,100}", name) or set(name) == {"."}:
        shown = name if len(name) <= 60 else name[:57] + "..."
        raise UsageError(f"{flag} must be 1 to 100 letters, digits, _, - and .; got {shown!r}")


def _joined(config: type[Any], arguments: Sequence[str]) -> list[str]:
    """The arguments with the values of a repeated list flag at its first place: `--data A --data B` is `--data A B`."""
    lists = _list_flags(config)
    joined: list[list[str]] = [[]]
    first: dict[str, list[str]] = {}
    for argument in arguments:
        flag, equals, value = argument.partition("=")
        flag = flag.replace("_", "-")
        if flag not in lists:
            joined.append([argument]) if argument.startswith("--") else joined[-1].append(argument)
            continue
        values = [value] if equals else []
        if flag in first:
            joined.append(first[flag])
            first[flag] += values
        else:
            first[flag] = [flag, *values]
            joined.append(first[flag])
    kept = {id(part): part for part in joined}  # in order, each part once
    return [argument for part in kept.values() for argument in part]


def _fields(config: type[Any]) -> Iterator[Field[Any]]:
    """The fields of a configuration and of its groups."""
    for entry in fields(config):
        if is_dataclass(entry.type):
            yield from _fields(cast("type[Any]", entry.type))
        else:
            yield entry


def _refuse_empty(config: type[Any], arguments: Sequence[str]) -> None:
    """Refuse a list flag without values, as `--data $FILES` gives if FILES is not set: it must not mean the default."""
    lists = _list_flags(config)
    for flag, following in pairwise([*arguments, "--"]):
        if flag.replace("_", "-") in lists and following.startswith("--"):
            raise UsageError(f"{flag.removeprefix('--')} must be followed by at least one value; got none")


def _list_flags(config: type[Any]) -> set[str]:
    return {f"--{entry.name.replace('_', '-')}" for entry in _fields(config) if _is_list(entry.type)}


def _is_list(kind: Any) -> bool:
    kind = get_args(kind)[0] if get_origin(kind) is Annotated else kind
    return get_origin(kind) is tuple


def _in_one_line(box: str) -> str:
    """Reduce tyro's framed error message to one line, without its closing hint at --help."""
    rows = [row.strip("│|+╭╮╰╯─ ") for row in box.splitlines()[1:]]
    text = " ".join(row for row in rows if row.strip("-"))
    text = re.sub(r"Missing from \S+", "required:", text)
    text = re.sub(r"\s*(For full|Argument) helptext.*", "", text)
    number = re.fullmatch(r"Error parsing --(\S+): (.*?(?:10: |float: |from \[))('.*?').*", text)
    if number:
        kind = "a whole number" if re.search(r"\bint\b", number[2], re.I) else "a number"
        text = f"{number[1]} must be {kind}; got {number[3]}"
    choice = re.fullmatch(r"invalid choice (.*) for argument '--(\S+)'. Expected one of \((.*)\)\.?", text)
    if choice:
        allowed = [name.strip("' ") for name in choice[3].split(",")]
        text = f"{choice[2]} must be one of {', '.join(name for name in allowed if name != 'None')}; got {choice[1]}"
    return f"{text}; --help lists all flags"
