"""The command line, the configuration file that it names, and how a command ends."""

import contextlib
import difflib
import errno
import inspect
import io
import math
import os
import re
import shlex
import shutil
import signal
import sys
import textwrap
import time
import tomllib
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import Field, field, fields, is_dataclass, make_dataclass
from importlib import import_module
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any, NamedTuple, NoReturn, TextIO, TypeVar, cast, get_args, get_origin

from tyro.conf import FlagCreatePairsOff, Positional

from fsd import distributed
from fsd.config import flags, settings_of
from fsd.errors import StorageError, UsageError, without_credentials
from fsd.leftovers import own_temporary_files
from pipelines.common.job import VERSION, Invocation, Job, running, show

Config = TypeVar("Config")
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

    plan = job.plan()

    def text() -> None:
        print_facts(plan.facts)
        print_table([], [], plan.findings)

    show(plan, text=text)


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


_SUFFIXES = (".yaml", ".yml", ".toml")


def expanded(config: type[Any], file: str, command: str, given: Sequence[str]) -> list[str]:
    """The arguments of the command line with those of a file, but for flags that are given."""
    entries = _parse(file)
    version, intended = entries.pop("version", VERSION), entries.pop("command", command)
    if version != VERSION or isinstance(version, bool):
        raise UsageError(f"config must be of version {VERSION}; {file} is of version {version!r}")
    if intended != command:
        raise UsageError(f"config must be of the command {command}; {file} is of {intended!r}")
    names = {argument.partition("=")[0].replace("_", "-").replace("--no-", "--") for argument in given}
    known = {entry.name: entry for entry in settings_of(config)}
    groups = {entry.name for entry in _groups(config)}
    first, last = [], []
    for name, value in _flat(groups, entries):
        if name not in known or name == "config":
            near = difflib.get_close_matches(name, known.keys() - {"config"}, n=1, cutoff=0.0)[0].replace("_", "-")
            raise UsageError(f"keys must be flags of the command; got {name[:60]!r}, nearest is {near} (in {file})")
        kind = known[name].type
        if Positional in _markers(kind):
            first += [] if given[:1] and not given[0].startswith("-") else _arguments("", kind, value)
        elif f"--{name.replace('_', '-')}" not in names and not (value is None and known[name].default is None):
            last += _arguments(name, kind, value)
    return [*first, *given, *last]


def _groups(config: type[Any]) -> Iterator[Field[Any]]:
    for entry in fields(config):
        if is_dataclass(entry.type):
            yield entry
            yield from _groups(cast("type[Any]", entry.type))


def _flat(groups: set[str], entries: Mapping[Any, Any]) -> Iterator[tuple[str, Any]]:
    """Name of a setting → value, from entries and tables of entries that are named after groups."""
    seen: set[str] = set()
    for key, value in entries.items():
        name = str(key).replace("-", "_")
        if name in seen:
            raise UsageError(f"a flag must stand once; {key!r} stands twice")
        seen.add(name)
        if isinstance(value, dict) and name in groups:
            yield from _flat(groups, value)
        else:
            yield name, value


def _parse(file: str) -> dict[str, Any]:
    """The entries of a file."""
    path = Path(file).expanduser()
    if path.suffix.lower() not in _SUFFIXES:
        raise UsageError(f"config must be a file that ends in {', '.join(_SUFFIXES)}; got {file}")
    try:
        text = path.read_bytes().decode()
    except UnicodeDecodeError as error:
        raise UsageError(f"config must be encoded in UTF-8; {file} is not") from error
    except OSError as error:
        raise UsageError(f"config must be a file that can be read; {file}: {error.strerror or error}") from error
    try:
        entries = tomllib.loads(text) if path.suffix.lower() == ".toml" else _yaml(text)
    except (ValueError, RecursionError) as error:
        kind = "TOML" if path.suffix.lower() == ".toml" else "YAML"
        raise UsageError(f"config must be valid {kind}; {file}: {' '.join(str(error).split())[:200]}") from error
    if not isinstance(entries, dict):
        raise UsageError(f"config must map flags to values; {file} holds {_kind(entries)}")
    return entries


def _yaml(text: str) -> Any:
    """A YAML document; a key that stands twice in a mapping is an error, as it is in TOML."""
    import yaml

    def mapping(loader: Any, node: Any) -> dict[Any, Any]:
        keys = [loader.construct_object(key) for key, _ in node.value]
        twice = next((key for at, key in enumerate(keys) if key in keys[:at]), None)
        if twice is not None:
            raise ValueError(f"key {twice!r} stands twice")
        return cast("dict[Any, Any]", loader.construct_mapping(node, deep=True))

    class Loader(yaml.SafeLoader):  # type: ignore[misc]  # yaml has no types
        """Without a change to the class that others use."""

    Loader.add_constructor(yaml.resolver.BaseResolver.DEFAULT_MAPPING_TAG, mapping)
    try:
        return yaml.load(text, Loader)
    except (yaml.YAMLError, TypeError) as error:  # TypeError: a key that is a list
        raise ValueError(str(error)) from error


def _markers(kind: Any) -> tuple[Any, ...]:
    return kind.__metadata__ if get_origin(kind) is Annotated else ()


def _arguments(name: str, kind: Any, value: Any) -> list[str]:
    """A value of the file as it stands on the command line; without a name as positional arguments."""
    flag = name.replace("_", "-")
    bare = get_args(kind)[0] if get_origin(kind) is Annotated else kind
    if bare is bool:
        if not isinstance(value, bool):
            raise UsageError(f"{flag} must be true or false; got {value!r}")
        return [f"--{flag}"] if value else [] if FlagCreatePairsOff in _markers(kind) else [f"--no-{flag}"]
    if get_origin(bare) is tuple:
        if isinstance(value, dict):
            value = [f"{key}={entry}" for key, entry in value.items()]
        listed = value if isinstance(value, list) else [value]
        if any(isinstance(entry, dict | list) for entry in listed):
            raise UsageError(f"{flag} must be a list of single values; got {str(value)[:60]}")
        return [*([f"--{flag}"] if flag else []), *map(str, listed)]
    if isinstance(value, dict | list) or value is None:
        raise UsageError(f"{flag} must be one value; got {_kind(value)}")
    if isinstance(value, bool) and bare is not str:
        raise UsageError(f"{flag} must not be true or false; got {str(value).lower()}")
    return [f"--{flag}={value}" if flag else str(value)]


def _kind(value: Any) -> str:
    names = {dict: "a table", list: "a list", type(None): "nothing", str: "a text"}
    return names.get(type(value), str(value)[:60])


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
