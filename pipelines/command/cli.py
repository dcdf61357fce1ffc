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
import shutil
import signal
import sys
import textwrap
import time
import tomllib
import traceback
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import Field, make_dataclass
from functools import partial
from importlib import import_module
from itertools import chain, takewhile
from pathlib import Path
from typing import Annotated, Any, NoReturn, TypeVar, get_args, get_origin

from tyro.conf import Positional, arg

from fsd import distributed
from fsd.config import flags, groups_of, settings_of
from fsd.errors import CheckFailed, StorageError, UsageError, disk_failure, memory_failure, quoted, refusing
from fsd.files import read_text
from fsd.leftovers import own_temporary_files
from fsd.plugs import filled
from pipelines.command.commands import commands, evidences
from pipelines.command.context import USUAL, EvidenceInvocation, Invocation, context, running, stage, typed_line
from pipelines.command.deliver import VERSION, as_far_as_read, failures, show
from pipelines.command.job import Job

Config = TypeVar("Config")
# Flag, without its hyphens, to the field of the configuration.
Settings = Mapping[str, Field[Any]]
# NumPy takes no other seeds.
SEEDS = 2**32
# New objects after which Python looks for cycles among them, and how many such rounds come before it looks further.
COLLECTIONS = (50_000, 20, 50)
# Columns of the descriptions in --help: longer lines are hard to read.
WIDEST = 100
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
    # Libraries make many objects that stay, and looking for garbage among them is slow.
    gc.set_threshold(*COLLECTIONS)
    # So would the last look be, at the end of Python.
    atexit.register(gc.freeze)
    if isinstance(sys.stdout, io.TextIOWrapper):
        # A question mark for what its encoding lacks, such as the sign • in Latin-1.
        sys.stdout.reconfigure(errors="replace")
    several = distributed.num_processes() > 1
    with _ends(several):
        if several and not parallel:
            raise UsageError(f"this pipeline must run as one process; got {distributed.num_processes()}")
        settings, invocation = read(config, description or "")
        _let_interrupt()
        with running(command_name(), invocation, stages), own_temporary_files():
            with stage("data"):
                if several:
                    distributed.join()
                job = prepare(settings)
                for hook in filled("before"):
                    # It may hash large weights for minutes: all processes share its answer.
                    distributed.from_main(partial(hook, command_name(), flags(settings), flags(invocation)))
                # One check for both: a dry run accepts nothing that the command refuses.
                job.check()
                # Shown after the stage, whose line on the terminal ends before.
                plan = job.plan() if invocation.dry_run else None
            if plan is None:
                job.work()
            elif distributed.is_main_process():
                show(plan)
            distributed.leave()
            if plan is None and distributed.is_main_process():
                reasons = failures(command_name(), context().numbers, invocation)
                if reasons:
                    raise CheckFailed("; ".join(reasons))


def deferred(module: str) -> Callable[[Any], Job]:
    """The `prepare` of a module that is imported once the settings are read: --help does not wait for its libraries."""
    return lambda settings: import_module(module).prepare(settings)


@contextlib.contextmanager
def _ends(several: bool) -> Iterator[None]:
    """End the program as `command` says, if the block raises."""
    try:
        yield
    except KeyboardInterrupt as interruption:
        # Python's own, of Ctrl-C, has no arguments; ours has the signal.
        number = interruption.args[0] if interruption.args else signal.SIGINT
        message = "interrupted" if number == signal.SIGINT else f"ended by {number.name}"
        _exit(message, 128 + number)
    except Exception as raised:
        error = _in_words(raised)
        if isinstance(error, UsageError):
            _exit(f"error: {error}", 2)
        if isinstance(error, StorageError):
            _exit(f"error: {error}; to continue: {typed_line(command_name())}", 1)
        if isinstance(error, CheckFailed):
            _exit(f"failed: {error}", 1)
        if not several:
            raise
        if distributed.is_main_process():
            # The launcher's signal is then to end it without a word.
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            time.sleep(CAUSE_FIRST)
        _exit(traceback.format_exc().rstrip(), 1)


def _in_words(error: Exception) -> Exception:
    """An error of memory, disk or a path that a user can mend, in words; others as they are."""
    if isinstance(error, UsageError | StorageError):
        return error
    shortage = memory_failure(error)
    if shortage:
        return UsageError(
            f"the memory must suffice; it does not ({shortage}): take fewer or shorter texts, a smaller model, or "
            "fewer --max-batch-tokens"
        )
    reason = disk_failure(error)
    if reason:
        return StorageError(f"{getattr(error, 'filename', None) or 'a file'} cannot be written: {reason}")
    if isinstance(error, OSError) and error.filename and error.errno in _NO_FILE:
        return UsageError(f"a file must be one that this user may open; {error.filename}: {error.strerror}")
    return error


def _let_interrupt() -> None:
    """Let SIGTERM and SIGHUP interrupt as Ctrl-C does; of several processes the main one alone cleans up."""
    if not distributed.is_main_process():
        # Without a traceback: the launcher ends this process as soon as the main one has gone.
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        return

    def interrupt(number: int, _: object) -> NoReturn:
        signal.signal(number, signal.SIG_IGN)  # the same signal again would interrupt the cleaning up
        raise KeyboardInterrupt(signal.Signals(number))

    for name in ("SIGTERM", "SIGHUP"):
        # Windows has no SIGHUP; under nohup it is ignored, and stays so.
        number = getattr(signal, name, None)
        if number and signal.getsignal(number) == signal.SIG_DFL:
            signal.signal(number, interrupt)


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
    typed = program().removeprefix("fsd ").removeprefix("python -m ")
    for name, entry in commands().items():
        if entry.module == typed:
            return name
    return typed


def read(config: type[Config], description: str) -> tuple[Config, Invocation]:
    """The settings, and how the command is run, from the command line and the configuration file that it names."""
    # Without what decides conditions they would be passed over without a word.
    is_evidence = command_name() in evidences() and filled("after")
    kind = EvidenceInvocation if is_evidence else Invocation
    settings = {}
    for setting in chain(settings_of(config), settings_of(kind)):
        settings[setting.name.replace("_", "-")] = setting
    # By the name "", the groups of the help are called as those of the configuration.
    parts: list[tuple[str, Any]] = [("command", Annotated[config, arg(name="")]), ("run", kind)]
    whole = make_dataclass(config.__name__, parts, frozen=True)
    arguments = _joined([f"--{name}" for name, setting in settings.items() if _is_list(setting)], sys.argv[1:])
    finder = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    finder.add_argument("--config", nargs="?")
    file = finder.parse_known_args(arguments)[0].config
    if file:
        arguments = _with_file(settings, {"run", *groups_of(config)}, file, arguments)
    parsed = _by_tyro(whole, arguments, description)
    _check_values(parsed.command)
    _check_values(parsed.run)
    parsed.run.check()
    # Before anything is read: a condition that no answer can meet.
    failures(command_name(), {}, parsed.run)
    return parsed.command, parsed.run


def _is_list(setting: Field[Any]) -> bool:
    kind = setting.type
    if get_origin(kind) is Annotated:
        kind = get_args(kind)[0]
    return get_origin(kind) is tuple


def _joined(list_flags: Collection[str], arguments: Sequence[str]) -> list[str]:
    """The arguments with all values of a list flag at its first place; without any (an unset $FILES) it is refused."""
    current: list[str] = []
    parts = {"": current}
    for argument in arguments:
        name, equals, value = argument.partition("=")
        flag = name.replace("_", "-")
        if flag in list_flags:
            current = parts.setdefault(flag, [flag])
            if equals:
                current.append(value)
        elif argument.startswith("--"):
            # Of equal flags the last one counts, as in tyro.
            current = parts[argument] = [argument]
        else:
            current.append(argument)
    for flag in list_flags:
        if parts.get(flag) == [flag]:
            raise UsageError(f"{flag.removeprefix('--')} must be followed by at least one value; got none")
    return list(chain.from_iterable(parts.values()))


def _with_file(settings: Settings, groups: Collection[str], file: str, arguments: Sequence[str]) -> list[str]:
    """The arguments, with the settings of a file as further flags where the arguments do not give them."""
    # Flags, so that a value is refused in the same words wherever it stands. pydantic would take `true` for 1, and it
    # refuses a file without a setting that a flag still gives.
    entries = _entries(file)
    for key, expected in (("version", VERSION), ("command", command_name())):
        value = entries.pop(key, expected)
        if value != expected:
            raise UsageError(f"config must be of {key} {expected}; {file} is of {quoted(value)}")
    positional: list[str] = []
    further: dict[str, list[str]] = {}
    for name, value in _flat(groups, entries):
        # The same flag may stand at the top and in its group.
        if name in further:
            raise UsageError(f"config must give a flag once; {quoted(name)} stands twice")
        further[name] = []
        setting = settings.get(name)
        if setting is None:
            # tyro refuses it, with the flags that it resembles.
            further[name] = _as_flag(name, value, is_list=False)
        elif Positional in getattr(setting.type, "__metadata__", ()):
            positional += _values(value)
        # No flag can say "none", and some have no opposite.
        elif value is not setting.default:
            further[name] = _as_flag(name, value, is_list=_is_list(setting))
    typed = list(takewhile(lambda argument: not argument.startswith("-"), arguments))
    # Positional arguments would be taken for values of a list flag before them; of equal flags the last one counts.
    return [*(typed or positional), *chain.from_iterable(further.values()), *arguments[len(typed) :]]


def _flat(groups: Collection[str], entries: Mapping[Any, Any]) -> Iterator[tuple[str, Any]]:
    """Name and value of each flag, those of groups included."""
    for key, value in entries.items():
        if isinstance(value, dict) and str(key).replace("-", "_") in groups:
            yield from _flat(groups, value)
        else:
            yield str(key).replace("_", "-"), value


def _as_flag(name: str, value: Any, *, is_list: bool) -> list[str]:
    if value is None:
        raise UsageError(f"config must give {name} a value; it has none")
    if isinstance(value, bool):
        return [f"--{name}" if value else f"--no-{name}"]
    if is_list or isinstance(value, list):
        return [f"--{name}", *_values(value)]
    # In one piece, as a value may begin with a minus sign.
    return [f"--{name}={value}"]


def _values(value: Any) -> list[str]:
    if isinstance(value, dict):
        return [f"{name}={entry}" for name, entry in value.items()]
    if isinstance(value, list):
        return list(map(str, value))
    return [str(value)]


def _entries(file: str) -> dict[str, Any]:
    import yaml

    class Loader(yaml.SafeLoader):  # type: ignore[misc]  # yaml has no types
        # YAML itself keeps the last of several values of a key, without a word.
        def construct_mapping(self, node: Any, deep: bool = False) -> Any:
            keys = [key.value for key, _ in node.value]
            if len(set(keys)) < len(keys):
                raise ValueError(f"a key must stand once; got {', '.join(keys)}")
            return super().construct_mapping(node, deep)

    path = Path(file)
    text = read_text(path, f"config {file} must be a text file in UTF-8 that can be read")
    with refusing(f"config must be valid YAML or TOML; {file}: ", ValueError, yaml.YAMLError):
        entries = tomllib.loads(text) if path.suffix == ".toml" else yaml.load(text, Loader)
    if not isinstance(entries, dict) or "config" in entries:
        raise UsageError(f"config must map flags to values, and name no other file; {file} does not")
    return entries


def _by_tyro(config: type[Any], arguments: Sequence[str], description: str) -> Any:
    import tyro

    # https://no-color.org; tyro itself does not look at it.
    if os.environ.get("NO_COLOR"):
        tyro._experimental_options["ansi_codes"] = False
    messages = io.StringIO()
    if {"-h", "--help"} & set(arguments):
        # tyro would not wrap it.
        with as_far_as_read():
            print(f"{wrapped(description)}\n")
    with contextlib.redirect_stderr(messages), as_far_as_read():
        try:
            return tyro.cli(
                config,
                args=arguments,
                prog=program(),
                description="",
                config=(tyro.conf.OmitArgPrefixes, tyro.conf.AvoidSubcommands),
            )
        except SystemExit as end:
            if end.code:
                raise UsageError(_in_one_line(messages.getvalue())) from None
    raise SystemExit


def _in_one_line(box: str) -> str:
    """The error in tyro's box, which is drawn for people, as the one line of a message."""
    # Its lines are of ASCII where the terminal has no others.
    text = " ".join(re.sub("[│─╭╮╰╯|+]|-{3,}", " ", box.partition("\n")[2]).split())
    text = re.sub(r"Missing from .*?:", "required:", text)
    text = re.sub(r" (For full|Argument) helptext.*", "", text)
    wrong = re.match(r"Error parsing --(\S+): [^']*?\[?('.*?')(\]|$)", text)
    if wrong:
        # tyro names the type only somewhere in its message; of a list it quotes all values.
        kind = "a whole number" if re.search(r"\bint\b", text, re.I) else "a number"
        text = f"{wrong[1]} must be {kind}; got {wrong[2]}"
    return f"{text.rstrip(' .')}; --help lists all flags"


def wrapped(text: str) -> str:
    """A docstring for the terminal: paragraphs wrapped, indented lines of examples as they are."""
    width = min(shutil.get_terminal_size().columns, WIDEST)
    paragraphs = []
    for paragraph in inspect.cleandoc(text).split("\n\n"):
        # Indented lines are commands, which a line break would make useless.
        plain, *examples = re.split(r"\n(?= )", paragraph)
        paragraphs.append("\n".join([textwrap.fill(plain, width), *examples]))
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
