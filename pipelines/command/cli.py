"""The command line, the configuration file that it names, and how a command ends."""

import argparse
import atexit
import contextlib
import errno
import gc
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
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import Field, fields, make_dataclass
from difflib import get_close_matches
from importlib import import_module
from itertools import chain
from pathlib import Path
from typing import Annotated, Any, NoReturn, TextIO, TypeVar, get_args, get_origin

from tyro.conf import Positional

from fsd import distributed
from fsd.config import flags, groups_of, settings_of
from fsd.errors import (
    CheckFailed,
    StorageError,
    UsageError,
    disk_failure,
    memory_failure,
    one_of,
    quoted,
    without_credentials,
)
from fsd.files import read_text
from fsd.leftovers import own_temporary_files
from fsd.plugs import filled
from pipelines.command.context import USUAL, Invocation, context, invocation_of, running, stage
from pipelines.command.deliver import VERSION, failures, show
from pipelines.command.job import Job

Config = TypeVar("Config")
# Flag, without its hyphens, to the field of the configuration.
Settings = Mapping[str, Field[Any]]
# NumPy takes no other seeds.
SEEDS = 2**32
# Stands for the description in the text of tyro, which would not wrap it.
DESCRIPTION = "(description)"
HINT = "; --help lists all flags"
# New objects after which Python looks for cycles among them, and how many such rounds come before it looks further.
COLLECTIONS = (50_000, 20, 50)
# The same while libraries are imported, which make about that many objects that stay.
STARTING = 1_000_000
# Columns of the descriptions in --help: longer lines are hard to read.
WIDEST = 100
# YAML is read slowly, and a file of settings has no more than a page.
LARGEST_CONFIG = 2**20
# Seconds that a failing process leaves the main one to report the same error, upon which the launcher ends both.
MAIN_FIRST = 10.0
# Seconds that the main process leaves the launcher to end it, if it failed because another process is gone.
CAUSE_FIRST = 2.0
# Errors of a path at which something else is, such as a folder in place of a lock file.
_NO_FILE = (errno.EISDIR, errno.ENOTDIR, errno.EACCES, errno.EPERM, errno.ENOENT)


def command(
    config: type[Config],
    prepare: Callable[[Config], Job],
    description: str | None,
    *,
    parallel: bool = False,
    stages: Mapping[str, str] = USUAL,
) -> None:
    """Read the command line into `config`, prepare the job, and run it, or print it with --dry-run.

    The `stages` are those that the terminal shows; the preparation is the first, `data`.

    A user's mistake ends with exit code 2 and one line on stderr, results that cannot be stored with 1 and one line,
    SIGINT (Ctrl-C), SIGTERM and SIGHUP with 128 + signal; any other error is a bug and keeps its traceback. In a
    multi-process job an error is printed by one process only: by the main one if it occurs there too, else by the
    process that failed, with its rank.
    """
    # Before torch starts its threads: spinning ones stall two processes on the same cores.
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    _collect_rarely(STARTING)
    # The last collection would take as long.
    atexit.register(gc.freeze)
    several = distributed.num_processes() > 1
    _print_in_any_encoding()
    with _ends(several), _system_errors():
        distributed.check_environment()
        if several and not parallel:
            raise UsageError(f"this pipeline must run as one process; got {distributed.num_processes()}")
        settings, invocation = read(config, description or "")
        with running(command_name(), invocation, stages), _interruptible(), _temporary_files():
            with stage("data"):
                if several:
                    distributed.join()
                job = prepare(settings)
                for before in filled("before"):
                    before(command_name(), flags(settings), flags(invocation))
                # One check for both: a dry run accepts nothing that the command refuses.
                job.check()
                if invocation.dry_run and distributed.is_main_process():
                    plan = job.plan()
            # After the stage, whose line on the terminal ends before.
            if not invocation.dry_run:
                _collect_rarely(*COLLECTIONS)
                job.work()
            elif distributed.is_main_process():
                show(plan)
            distributed.leave()
            if not invocation.dry_run and distributed.is_main_process():
                reasons = failures(command_name(), context().numbers, invocation)
                if reasons:
                    raise CheckFailed("; ".join(reasons))


def _collect_rarely(*thresholds: int) -> None:
    """Look for garbage rarely, and not among what is there: libraries make objects that stay, and looking is slow."""
    gc.freeze()
    gc.set_threshold(*thresholds)


def _print_in_any_encoding() -> None:
    """Print a question mark for what the encoding of stdout lacks, such as the sign • in Latin-1."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")


def deferred(module: str) -> Callable[[Any], Job]:
    """The `prepare` of a module that is imported once the settings are read: --help does not wait for its libraries."""
    return lambda settings: import_module(module).prepare(settings)


def subcommands(choices: Mapping[str, tuple[type[Any], str]], description: str | None) -> None:
    """Run the subcommand that the first argument names: its settings, and the module of its `prepare`."""
    name = sys.argv[1] if len(sys.argv) > 1 else "--help"
    usage = program()
    if name in ("-h", "--help"):
        print(f"usage: {usage} {{{','.join(choices)}}} [OPTIONS]\n\n{wrapped(description or '')}\n")
        for choice, (config, _) in choices.items():
            summary = (config.__doc__ or "").splitlines()[0]
            print(wrapped(f"{choice:<8} {summary}", "  ", " " * 9))
        print(f"\n`{usage} {next(iter(choices))} --help` lists the options of a subcommand.")
        return
    if name not in choices:
        _exit(f"error: {one_of('subcommand', choices, name)}", 2)
    sys.argv = [f"{usage} {name}", *sys.argv[2:]]
    config, module = choices[name]
    command(config, deferred(module), config.__doc__)


@contextlib.contextmanager
def _ends(several: bool) -> Iterator[None]:
    """End the program as `command` says, if the block raises."""
    try:
        yield
    except UsageError as error:
        _exit(f"error: {error}", 2)
    except StorageError as error:
        _exit(f"error: {error}; to continue: {command_line()}", 1)
    except CheckFailed as error:
        _exit(f"failed: {error}", 1)
    except KeyboardInterrupt as interruption:
        # Python's own, of Ctrl-C, has no arguments; ours has the signal.
        number = interruption.args[0] if interruption.args else signal.SIGINT
        message = "interrupted" if number == signal.SIGINT else f"ended by {number.name}"
        _exit(message, 128 + number)
    except BrokenPipeError:
        # The reader of our output, `head` for example, has closed it; what is buffered would raise again at the end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(141)
    except Exception:
        if not several:
            raise
        if distributed.is_main_process():
            time.sleep(CAUSE_FIRST)
        _exit(traceback.format_exc().rstrip(), 1)


@contextlib.contextmanager
def _system_errors() -> Iterator[None]:
    """Make errors of memory, disk and paths that no system takes one line; commands look at paths first."""
    try:
        yield
    except (UsageError, StorageError, KeyboardInterrupt, BrokenPipeError):
        raise
    except Exception as error:
        in_words = _of_machine(error) or _of_path(error)
        if in_words is None:
            raise
        raise in_words from error


def _of_machine(error: Exception) -> UsageError | StorageError | None:
    """An error of memory, disk or database in words; None for others."""
    shortage = memory_failure(error)
    if shortage:
        return UsageError(
            f"the memory must suffice; it does not ({shortage}): take fewer or shorter texts, a smaller model, or "
            "fewer --max-batch-tokens"
        )
    reason = disk_failure(error)
    if reason:
        return StorageError(f"{getattr(error, 'filename', None) or 'a file'} cannot be written: {reason}")
    return None


def _of_path(error: Exception) -> UsageError | None:
    """An error of what stands at a path, in words; None for others."""
    if isinstance(error, OSError) and error.filename and error.errno in _NO_FILE:
        return UsageError(f"a file must be one that this user may open; {error.filename}: {error.strerror}")
    return None


@contextlib.contextmanager
def _interruptible() -> Iterator[None]:
    """Let SIGTERM and SIGHUP interrupt the block as Ctrl-C does; of several processes the main one alone cleans up."""
    if not distributed.is_main_process():
        # Without a traceback: the launcher ends this process as soon as the main one has gone.
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        yield
        return
    # Under nohup SIGHUP is ignored, and stays so. Windows has none.
    available = [getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name)]
    numbers = [number for number in available if signal.getsignal(number) == signal.SIG_DFL]

    def handle(handler: Any) -> None:
        for number in numbers:
            signal.signal(number, handler)

    def interrupt(number: int, _: object) -> NoReturn:
        handle(signal.SIG_IGN)  # the same signal again would interrupt the cleaning up
        raise KeyboardInterrupt(signal.Signals(number))

    handle(interrupt)
    try:
        yield
    finally:
        handle(signal.SIG_DFL)


@contextlib.contextmanager
def _temporary_files() -> Iterator[None]:
    """Keep all temporary files of the command in one folder, which is removed at its end."""
    with contextlib.ExitStack() as stack:
        try:
            stack.enter_context(own_temporary_files())
        except OSError as error:
            folder = os.environ.get("TMPDIR", "/tmp")
            reason = (error.strerror or str(error)).lower()
            raise UsageError(f"TMPDIR must be a folder that can be written; {folder} cannot ({reason})") from error
        yield


def _exit(message: str, code: int) -> NoReturn:
    if not distributed.is_main_process():
        time.sleep(MAIN_FIRST)
        message += f" (in process {distributed.process_index()} of {distributed.num_processes()})"
    print(message, file=sys.stderr, flush=True)
    if distributed.num_processes() > 1:
        sys.stdout.flush()
        # A collective call in a thread of the process group would hold the interpreter.
        os._exit(code)
    sys.exit(code)


def program() -> str:
    """The command as the user typed it: `fsd run`, or `python -m pipelines.fsd`."""
    # `fsd NAME` runs the module under that name; `python -m NAME` leaves the path of the file instead.
    spec = getattr(sys.modules["__main__"], "__spec__", None)
    if sys.argv[0].startswith(("fsd ", "python -m ")) or spec is None:
        return sys.argv[0]
    return f"python -m {spec.name.removesuffix('.__main__')}"


def command_name() -> str:
    """The command without its program: `run` for `fsd run` and for `python -m pipelines.fsd`."""
    # a command may be in a group of its own, as extensions.canary is
    name = re.sub(r"^(fsd |(python -m )?pipelines\.(evidence\.|research\.)?)", "", program()).replace("_", "-")
    return "run" if name == "fsd" else name


def command_line() -> str:
    """The whole command as the user typed it, without the credentials of URLs."""
    return without_credentials(f"{program()} {shlex.join(sys.argv[1:])}")


def parse(config: type[Config], description: str) -> Config:
    """The settings of the command line, see `read`."""
    return read(config, description)[0]


def read(config: type[Config], description: str) -> tuple[Config, Invocation]:
    """The settings, and how the command is run, from the command line and the configuration file that it names."""
    kind = invocation_of(command_name())
    run = ("run", kind, kind())
    whole = make_dataclass(config.__name__, [run], bases=(config,), frozen=True, namespace={"__doc__": config.__doc__})
    settings = {setting.name.replace("_", "-"): setting for setting in settings_of(whole)}
    arguments = _joined([f"--{name}" for name, setting in settings.items() if _is_list(setting)], sys.argv[1:])
    finder = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    finder.add_argument("--config", nargs="?")
    file = finder.parse_known_args(arguments)[0].config
    if file is not None:
        arguments = _with_file(settings, set(groups_of(whole)), file, arguments)
    try:
        parsed = _by_tyro(whole, arguments, description)
    except UsageError as error:
        if file is None:
            raise
        raise UsageError(f"{str(error).removesuffix(HINT)} (with the settings of {file})") from None
    _check_values(parsed)
    parsed.run.check()
    # Before anything is read: a condition that no answer can meet.
    failures(command_name(), {}, parsed.run)
    values = {entry.name: getattr(parsed, entry.name) for entry in fields(config)}  # type: ignore[arg-type]
    return config(**values), parsed.run


def _is_list(setting: Field[Any]) -> bool:
    kind = setting.type
    if get_origin(kind) is Annotated:
        kind = get_args(kind)[0]
    return get_origin(kind) is tuple


def _joined(list_flags: Collection[str], arguments: Sequence[str]) -> list[str]:
    """The arguments with all values of a list flag at its first place; without any (an unset $FILES) it is refused."""
    current: list[str] = []
    parts = [current]
    values = {}
    for argument in arguments:
        name, equals, value = argument.partition("=")
        flag = name.replace("_", "-")
        if flag in list_flags:
            if flag not in values:
                values[flag] = [flag]
                parts.append(values[flag])
            current = values[flag]
            if equals:
                current.append(value)
        elif argument.startswith("--"):
            current = [argument]
            parts.append(current)
        else:
            current.append(argument)
    for flag in list_flags:
        if values.get(flag) == [flag]:
            raise UsageError(f"{flag.removeprefix('--')} must be followed by at least one value; got none")
    return list(chain.from_iterable(parts))


def _with_file(settings: Settings, groups: Collection[str], file: str, arguments: Sequence[str]) -> list[str]:
    """The arguments, with the settings of a file as further flags where the arguments do not give them."""
    # Flags, so that a value is refused in the same words wherever it stands. pydantic would take `true` for 1 and let a
    # misspelt name pass, and it refuses a file without a setting that a flag still gives.
    entries = _entries(file)
    for key, expected in (("version", VERSION), ("command", command_name())):
        value = entries.pop(key, expected)
        if value != expected:
            raise UsageError(f"config must be of {key} {expected}; {file} is of {quoted(value)}")
    typed = {argument.partition("=")[0].replace("_", "-").replace("--no-", "--") for argument in arguments}
    has_positional = bool(arguments) and not arguments[0].startswith("-")
    positional = []
    further = []
    for name, value in _flat(settings, groups, entries, set()):
        setting = settings.get(name)
        if name.removeprefix("no-") not in settings:
            raise UsageError(_unknown_key(name, settings, file))
        if setting and Positional in getattr(setting.type, "__metadata__", ()):
            if not has_positional:
                positional.extend(_values(value))
        elif f"--{name}" in typed:
            continue
        elif setting and value is None and setting.default is None:
            # No flag can say "none", which is the default.
            continue
        else:
            further.extend(_as_flag(name, value, is_list=setting is not None and _is_list(setting)))
    # Positional arguments would be taken for values of a list flag before them.
    return [*positional, *arguments, *further]


def _unknown_key(name: str, settings: Settings, file: str) -> str:
    """The message for a key that is no flag, with the nearest flag."""
    nearest = get_close_matches(name, settings, 1)
    hint = f", did you mean {nearest[0]}?" if nearest else HINT
    return f"config must have names of flags as its keys; {file} has {quoted(name)}{hint}"


def _as_flag(name: str, value: Any, *, is_list: bool) -> list[str]:
    if value is True:
        return [f"--{name}"]
    if value is False:
        # These are of `Invocation`, and have no opposite.
        return [] if name in ("dry-run", "json") else [f"--no-{name}"]
    values = _values(value)
    if is_list or isinstance(value, list):
        return [f"--{name}", *values]
    # In one piece, as a value may begin with a minus sign.
    return [f"--{name}={values[0]}"]


def _values(value: Any) -> list[str]:
    if isinstance(value, list):
        return list(map(str, value))
    # No value is a blank one, which the flag itself refuses.
    if value is None:
        return [""]
    return [str(value)]


def _flat(
    settings: Settings, groups: Collection[str], entries: Mapping[Any, Any], seen: set[str]
) -> Iterator[tuple[str, Any]]:
    """Name and value of each flag; a table is a group of flags, or the entries NAME=VALUE of a list flag."""
    for key, value in entries.items():
        name = str(key).replace("_", "-")
        takes_pairs = name in settings and "=VALUE" in str(settings[name].type)
        if isinstance(value, dict) and not takes_pairs:
            yield from _flat(settings, groups, value, seen)
            continue
        # The same flag may stand at the top and in its group.
        if name in seen:
            raise UsageError(f"config must give a flag once; {quoted(key)} stands twice")
        seen.add(name)
        if isinstance(value, dict):
            value = [f"{entry}={entry_value}" for entry, entry_value in value.items()]
        elif name in groups and name not in settings:
            raise UsageError(f"config must give {name} as a table of flags; got {quoted(value)}")
        yield name, value


def _entries(file: str) -> dict[str, Any]:
    import yaml

    class Loader(yaml.SafeLoader):  # type: ignore[misc]  # yaml has no types
        # YAML itself keeps the last of several values of a key, without a word.
        def construct_mapping(self, node: Any, deep: bool = False) -> Any:
            keys = [key.value for key, _ in node.value]
            if len(set(keys)) < len(keys):
                raise ValueError(f"a key must stand once; got {', '.join(keys)}")
            return super().construct_mapping(node, deep)

    path = Path(file).expanduser()
    kind = {".yaml": "YAML", ".yml": "YAML", ".toml": "TOML"}.get(path.suffix.lower())
    if kind is None:
        raise UsageError(f"config must be a file that ends in .yaml, .yml, .toml; got {file}")
    text = read_text(path, f"config {file} must be a text file in UTF-8 that can be read", largest=LARGEST_CONFIG)
    try:
        entries = tomllib.loads(text) if kind == "TOML" else yaml.load(text, Loader)
    # TypeError: a key that is a list; RecursionError: many brackets within each other.
    except (ValueError, TypeError, RecursionError, yaml.YAMLError) as error:
        reason = " ".join(str(error).split())[:200]
        raise UsageError(f"config must be valid {kind}; {file}: {reason}") from error
    if not isinstance(entries, dict) or "config" in entries:
        raise UsageError(f"config must map flags to values, and name no other file; {file} does not")
    return entries


def _by_tyro(config: type[Any], arguments: Sequence[str], description: str) -> Any:
    import tyro

    # https://no-color.org; tyro itself does not look at it.
    if os.environ.get("NO_COLOR"):
        tyro._experimental_options["ansi_codes"] = False
    messages = io.StringIO()
    help_text = _Help(sys.stdout)
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
            if end.code:
                raise UsageError(_in_one_line(messages.getvalue())) from None
    if distributed.is_main_process():
        print(help_text.getvalue().replace(DESCRIPTION, wrapped(description)), end="")
    raise SystemExit


class _Help(io.StringIO):
    """What tyro prints for --help: in the colours and characters of stdout, which is None if it is closed."""

    def __init__(self, stdout: TextIO | None) -> None:
        super().__init__()
        self.isatty = stdout.isatty if stdout else super().isatty  # type: ignore[method-assign]
        self._encoding = stdout.encoding if stdout else "utf-8"

    encoding = property(lambda self: self._encoding)


def _in_one_line(box: str) -> str:
    """The error in tyro's box, which is drawn for people, as the one line of a message."""
    rows = [row.strip("│|+╭╮╰╯─ ") for row in box.splitlines()[1:]]
    text = " ".join(row for row in rows if row.strip("-"))
    text = re.sub(r"\s+(?=[.,:)\]](\s|$))", "", text)  # tyro breaks lines before them too
    text = re.sub(r"Missing from .*?:", "required:", text)
    text = re.sub(r"\s*(For full|Argument) helptext.*", "", text)
    wrong = re.match(r"Error parsing --(\S+): [^']*?\[?('.*?')(\]|$)", text)
    if wrong:
        # tyro names the type only somewhere in its message; of a list it quotes all values.
        kind = "a whole number" if re.search(r"\bint\b", text, re.I) else "a number"
        text = f"{wrong[1]} must be {kind}; got {wrong[2]}"
    choice = re.fullmatch(r"invalid choice (.*) for argument '--(\S+)'. Expected one of \((.*)\)\.?", text)
    if choice:
        names = [name.strip("' ") for name in choice[3].split(",")]
        allowed = ", ".join(name for name in names if name != "None")
        text = f"{choice[2]} must be one of {allowed}; got {choice[1]}"
    return f"{text}{HINT}"


def wrapped(text: str, indent: str = "", hanging: str = "") -> str:
    """A docstring for the terminal: paragraphs wrapped, indented lines of examples as they are."""
    width = min(shutil.get_terminal_size().columns, WIDEST)
    filler = textwrap.TextWrapper(width, initial_indent=indent, subsequent_indent=indent + hanging)
    paragraphs = []
    for paragraph in inspect.cleandoc(text).split("\n\n"):
        # Indented lines are commands, which a line break would make useless.
        plain, *examples = re.split(r"\n(?= )", paragraph)
        paragraphs.append("\n".join([filler.fill(plain), *examples]))
    return "\n\n".join(paragraphs)


def _check_values(config: Any) -> None:
    """Refuse what no flag can mean: a seed that no generator takes, numbers that are not finite, blanks for a name."""
    defaults = {entry.name: entry.default for entry in settings_of(type(config))}
    for name, value in flags(config).items():
        flag = name.replace("_", "-")
        # The seed of canaries is a text.
        if name == "seed" and isinstance(value, int) and not 0 <= value < SEEDS:
            raise UsageError(f"seed must be at least 0 and below 2**32 ({SEEDS}); got {value}")
        if isinstance(value, float) and not math.isfinite(value):
            raise UsageError(f"{flag} must be a finite number; got {value}")
        if isinstance(value, str) and not value.strip() and defaults[name] != value:
            raise UsageError(f"{flag} must not be blank; got {value!r}")
