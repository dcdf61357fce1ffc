"""Reading the command line, and the configuration file that it names, into a dataclass of settings."""

import contextlib
import inspect
import io
import math
import os
import re
import shlex
import shutil
import sys
import textwrap
from collections.abc import Sequence
from dataclasses import field, fields, make_dataclass
from itertools import pairwise
from typing import Annotated, Any, NamedTuple, TextIO, TypeVar, get_args, get_origin

from fsd import distributed
from fsd.config import flags, settings_of
from fsd.errors import UsageError, without_credentials
from pipelines.common.invocation import Invocation

Config = TypeVar("Config")
SEEDS = 2**32
"""Number of seeds; NumPy takes no others."""
DESCRIPTION = "(description)"
"""Stands for the description in the text of tyro, which would not wrap it."""
HINT = "; --help lists all flags"
WIDEST = 100
"""Columns of the descriptions in --help, if the terminal has as many."""


def program() -> str:
    """The command as the user typed it: `fsd run`, or `python -m pipelines.fsd`."""
    spec = getattr(sys.modules["__main__"], "__spec__", None)
    if sys.argv[0].startswith(("fsd ", "python -m ")) or spec is None:
        return sys.argv[0]
    return f"python -m {spec.name.removesuffix('.__main__')}"


def command_name() -> str:
    """The command without its program: `run` for `fsd run` and for `python -m pipelines.fsd`."""
    name = re.sub(r"^(fsd |(python -m )?pipelines\.)", "", program()).replace("_", "-")
    return "run" if name == "fsd" else name


def command_line() -> str:
    """The whole command as the user typed it, without the credentials of URLs."""
    return without_credentials(f"{program()} {shlex.join(sys.argv[1:])}")


def parse(config: type[Config], description: str) -> Config:
    """The settings of the command line, see `read`."""
    settings: Config = read(config, description).settings
    return settings


class Read(NamedTuple):
    """A command line: the settings, a `Config`, and how the command is run."""

    settings: Any
    invocation: Invocation


def read(config: type[Any], description: str) -> Read:
    """Read the command line, and the configuration file that it names, into `config`."""
    whole = make_dataclass(
        config.__name__,
        [("run", Invocation, field(default_factory=Invocation))],
        bases=(config,),
        frozen=True,
        namespace={"__doc__": config.__doc__},
    )
    given = _joined(whole, sys.argv[1:])
    _refuse_empty(whole, given)
    file = _last_value("--config", given)
    read = by_tyro(whole, given, description) if file is None else _with_file(whole, given, file, description)
    settings = config(**{entry.name: getattr(read, entry.name) for entry in fields(config)})
    _check_values(settings)
    _check_values(read.run)
    read.run.check()
    return Read(settings, read.run)


def _with_file(config: type[Any], given: Sequence[str], file: str, description: str) -> Any:
    """The arguments, and the settings of a configuration file that they leave out; its mistakes name the file."""
    from pipelines.common.config_file import expanded

    try:
        return by_tyro(config, expanded(config, file, command_name(), given), description)
    except UsageError as error:
        flag = re.search(r"--([\w-]+)|^([\w-]+)", str(error))
        named = flag and f"--{flag[1] or flag[2]}" in {argument.partition("=")[0] for argument in given}
        if named or file in str(error):
            raise
        raise UsageError(f"{str(error).removesuffix(HINT)} (in {file})") from None


def by_tyro(config: type[Any], arguments: Sequence[str], description: str) -> Any:
    """The arguments as a `config`."""
    import tyro

    if os.environ.get("NO_COLOR"):  # https://no-color.org; tyro itself does not look at it
        tyro._experimental_options["ansi_codes"] = False
    messages, help_text = io.StringIO(), _Help(sys.stdout)
    with contextlib.redirect_stderr(messages), contextlib.redirect_stdout(help_text):
        try:
            return tyro.cli(
                config,
                args=arguments,
                prog=program(),
                description=DESCRIPTION,
                config=(tyro.conf.OmitArgPrefixes, tyro.conf.AvoidSubcommands),
            )
        except SystemExit as end:
            failed = bool(end.code)
    if failed:
        raise UsageError(_in_one_line(messages.getvalue()))
    if distributed.is_main_process():
        print(help_text.getvalue().replace(DESCRIPTION, wrapped(description)), end="")
    raise SystemExit


class _Help(io.StringIO):
    """What tyro prints for --help: in the colours and characters of stdout, which is None if it is closed."""

    def __init__(self, stdout: TextIO | None) -> None:
        super().__init__()
        self._stdout = stdout

    @property
    def encoding(self) -> str:  # type: ignore[override]
        return self._stdout.encoding if self._stdout else "utf-8"

    def isatty(self) -> bool:
        return self._stdout is not None and self._stdout.isatty()


def wrapped(text: str, indent: str = "", hanging: str = "") -> str:
    """A docstring for the terminal: paragraphs wrapped, indented lines of examples as they are."""
    width = min(shutil.get_terminal_size().columns, WIDEST)
    filler = textwrap.TextWrapper(width, initial_indent=indent, subsequent_indent=indent + hanging)
    paragraphs: list[str] = []
    for paragraph in inspect.cleandoc(text).split("\n\n"):
        plain, *examples = re.split(r"\n(?= )", paragraph)
        paragraphs.append("\n".join([filler.fill(plain), *examples]))
    return "\n\n".join(paragraphs)


def _last_value(flag: str, arguments: Sequence[str]) -> str | None:
    """The value of a flag that takes one; None if it is not given, or without a value, which tyro reports."""
    value = None
    for argument, following in pairwise([*arguments, "--"]):
        name, equals, given = argument.partition("=")
        if name == flag and (equals or not following.startswith("--")):
            value = given if equals else following
    return value


def _check_values(config: Any) -> None:
    """Refuse what no flag can mean: a seed that no generator takes, numbers that are not finite, blanks for a name."""
    defaults = {entry.name: entry.default for entry in settings_of(type(config))}
    for name, value in flags(config).items():
        flag = name.replace("_", "-")
        if name == "seed" and isinstance(value, int) and not 0 <= value < SEEDS:  # of canaries it is a text
            raise UsageError(f"seed must be at least 0 and below 2**32 ({SEEDS}); got {value}")
        if isinstance(value, float) and not math.isfinite(value):
            raise UsageError(f"{flag} must be a finite number; got {value}")
        if isinstance(value, str) and not value.strip() and defaults[name] != value:
            raise UsageError(f"{flag} must not be blank; got {value!r}")


def check_name(flag: str, name: str) -> None:
    """Check that a name can be part of the names of experiments and studies."""
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


def _refuse_empty(config: type[Any], arguments: Sequence[str]) -> None:
    """Refuse a list flag without values, as `--data $FILES` gives if FILES is not set: it must not mean the default."""
    lists = _list_flags(config)
    for flag, following in pairwise([*arguments, "--"]):
        if flag.replace("_", "-") in lists and following.startswith("--"):
            raise UsageError(f"{flag.removeprefix('--')} must be followed by at least one value; got none")


def _list_flags(config: type[Any]) -> set[str]:
    return {f"--{entry.name.replace('_', '-')}" for entry in settings_of(config) if _is_list(entry.type)}


def _is_list(kind: Any) -> bool:
    kind = get_args(kind)[0] if get_origin(kind) is Annotated else kind
    return get_origin(kind) is tuple


def _in_one_line(box: str) -> str:
    """Reduce tyro's framed error message to one line, without its closing hint at --help."""
    rows = [row.strip("│|+╭╮╰╯─ ") for row in box.splitlines()[1:]]
    text = " ".join(row for row in rows if row.strip("-"))
    text = re.sub(r"\s+(?=[.,:)\]](\s|$))", "", text)  # tyro breaks lines before them too
    text = re.sub(r"Missing from .*?:", "required:", text)
    text = re.sub(r"\s*(For full|Argument) helptext.*", "", text)
    number = re.fullmatch(r"Error parsing --(\S+): (.*?(?:10: |float: |from \[))('.*?').*", text)
    if number:
        kind = "a whole number" if re.search(r"\bint\b", number[2], re.I) else "a number"
        text = f"{number[1]} must be {kind}; got {number[3]}"
    several = re.fullmatch(r"Error parsing --(\S+): Could not find valid parse for arguments: \[(.*)\]", text)
    if several:
        text = f"{several[1]} must be numbers; got {several[2]}"
    choice = re.fullmatch(r"invalid choice (.*) for argument '--(\S+)'. Expected one of \((.*)\)\.?", text)
    if choice:
        allowed = [name.strip("' ") for name in choice[3].split(",")]
        text = f"{choice[2]} must be one of {', '.join(name for name in allowed if name != 'None')}; got {choice[1]}"
    return f"{text}{HINT}"
