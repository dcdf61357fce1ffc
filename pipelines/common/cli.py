"""Command-line handling shared by all pipelines."""

import contextlib
import io
import os
import re
import signal
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass
from itertools import pairwise
from typing import Any, NoReturn, TypeVar, cast, get_origin

from fsd import distributed
from fsd.errors import UsageError

Config = TypeVar("Config")
MAIN_FIRST = 10.0
"""Seconds that a failing process leaves the main one to report the same error, upon which the launcher ends both."""
CAUSE_FIRST = 2.0
"""Seconds that the main process leaves the launcher to end it, if it failed because another process is gone."""


def command(
    config: type[Config], main: Callable[[Config], object], description: str, *, parallel: bool = False
) -> None:
    """Read the command line into `config` and run `main` with it.

    A user's mistake ends with exit code 2 and one line on stderr, an interruption with 130; any other error is a bug
    and keeps its traceback. In a multi-process job an error is printed by one process only: by the main one if it
    occurs there too, else by the process that failed, with its rank.

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
        if several:
            _end_with_the_launcher()
            distributed.join()
        main(settings)
        distributed.leave()
    except UsageError as error:
        _exit(f"error: {error}", 2)
    except KeyboardInterrupt:
        _exit("interrupted", 130)
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


def _end_with_the_launcher() -> None:
    """On the launcher's signals, clean up in the main process (cache, tracked run), and end the others at once."""
    if distributed.is_main_process():
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    else:
        signal.signal(signal.SIGINT, signal.SIG_DFL)


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


def parse(config: type[Config], description: str) -> Config:
    """Read the command line into `config`.

    Raises:
        UsageError: for an unknown option or an impossible value, in one line.
    """
    import tyro

    _refuse_empty(config, sys.argv[1:])
    messages = io.StringIO()
    with contextlib.ExitStack() as stack:
        stack.enter_context(contextlib.redirect_stderr(messages))
        if not distributed.is_main_process():
            stack.enter_context(contextlib.redirect_stdout(messages))  # the text of --help
        try:
            return tyro.cli(
                config,
                prog=_program(),
                description=description,
                config=(tyro.conf.OmitArgPrefixes, tyro.conf.AvoidSubcommands),
            )
        except SystemExit as end:
            if end.code:
                raise UsageError(_in_one_line(messages.getvalue())) from None
            raise


def _refuse_empty(config: type[Any], arguments: Sequence[str]) -> None:
    """Refuse a list flag without values, as `--data $FILES` gives if FILES is not set: it must not mean the default."""
    lists = {f"--{name.replace('_', '-')}" for name in _list_fields(config)}
    for flag, following in pairwise([*arguments, "--"]):
        if flag.replace("_", "-") in lists and following.startswith("--"):
            raise UsageError(f"{flag.removeprefix('--')} must be followed by at least one value; got none")


def _list_fields(config: type[Any]) -> Iterator[str]:
    for entry in fields(config):
        if is_dataclass(entry.type):
            yield from _list_fields(cast("type[Any]", entry.type))
        elif get_origin(entry.type) is tuple:
            yield entry.name


def _in_one_line(box: str) -> str:
    """Reduce tyro's framed error message to one line, without its closing hint at --help."""
    rows = [row.strip("│|+╭╮╰╯─ ") for row in box.splitlines()[1:]]
    text = " ".join(row for row in rows if row.strip("-"))
    text = re.sub(r"Missing from \S+", "required:", text)
    return re.sub(r"\s*For full helptext.*", "", text) + "; --help lists all flags"
