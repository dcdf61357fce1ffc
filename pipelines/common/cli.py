"""What every pipeline's command line has in common."""

import contextlib
import io
import os
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import fields, is_dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, NoReturn, TypeVar, cast, get_origin

from fsd import distributed as processes
from fsd.errors import UsageError

Config = TypeVar("Config")


def command(
    config: type[Config], main: Callable[[Config], object], description: str, *, parallel: bool = False
) -> None:
    """Read the command line into `config` and run `main` with it.

    A user's mistake ends with exit code 2 and one line on stderr, an interruption with 130; anything else is a
    fault of ours and keeps its traceback. Of several processes only the main one prints, and an error in one of
    them ends them all.

    Args:
        config: a dataclass of all settings.
        main: does the work.
        description: shown by --help.
        parallel: whether torchrun may start it in several processes.
    """
    # Before torch starts its threads: spinning ones stall two processes on the same cores.
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    team = None
    try:
        if processes.size() > 1:
            if not parallel:
                raise UsageError(f"this pipeline must run as one process; got {processes.size()}")
            team = processes.team()
        main(_read(config, description, team))
    except UsageError as error:
        _end(f"error: {error}", 2, team)
    except KeyboardInterrupt:
        _end("interrupted", 130, team)
    except BrokenPipeError:  # whoever read our output, `head` say, has had enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(141)
    except BaseException:
        if team and team.failed:  # what breaks because another process has ended
            team.leave()
        raise
    if team:
        team.close()


def _read(config: type[Config], description: str, team: "processes.Team | None") -> Config:
    import tyro

    with contextlib.ExitStack() as stack:
        if team and not team.main:
            nowhere = stack.enter_context(Path(os.devnull).open("w"))
            stack.enter_context(contextlib.redirect_stderr(nowhere))
            stack.enter_context(contextlib.redirect_stdout(nowhere))
        _refuse_empty(config, sys.argv[1:])
        told = stack.enter_context(contextlib.redirect_stderr(io.StringIO()))
        try:
            return tyro.cli(
                config, description=description, config=(tyro.conf.OmitArgPrefixes, tyro.conf.AvoidSubcommands)
            )
        except SystemExit as left:
            if team and left.code:
                team.leave()
            if left.code:
                raise UsageError(_in_one_line(told.getvalue())) from None
            raise


def _refuse_empty(config: type[Any], arguments: Sequence[str]) -> None:
    """A list without an entry, as `--data $FILES` gives where FILES is not set, is a mistake and no default."""
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
    """What a framed message of the command-line library says, without its frame and its last part, on one line."""
    rows = [row.strip("│|+╭╮╰╯─ ") for row in box.splitlines()[1:]]
    text = " ".join(row for row in rows if row.strip("-"))
    text = re.sub(r"Missing from \S+", "required:", text)
    return re.sub(r"\s*For full helptext.*", "", text) + "; --help lists all flags"


def _end(line: str, code: int, team: "processes.Team | None") -> NoReturn:
    if team and team.failed:
        team.leave()
    if team:
        team.fail(line, code)
    if processes.is_main():
        print(line, file=sys.stderr)
    sys.exit(code)
