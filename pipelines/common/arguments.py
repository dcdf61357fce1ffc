"""The command line, and the configuration file that it names, as a dataclass of settings and how the command is run."""

import contextlib
import difflib
import inspect
import io
import math
import os
import re
import shlex
import shutil
import sys
import textwrap
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stdout
from contextvars import ContextVar
from dataclasses import Field, dataclass, field, fields, is_dataclass, make_dataclass
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any, NamedTuple, TextIO, TypeVar, cast, get_args, get_origin

from tyro.conf import FlagCreatePairsOff, Positional, arg

from fsd import distributed
from fsd.config import OptionalName, OptionalPath, flags, settings_of
from fsd.errors import UsageError, without_credentials

OWN_TAGS = frozenset(
    {
        *("base_model", "base_revision", "base_fingerprint", "model", "adapter", "reused_adapter", "method", "texts"),
        *("task", "tune", "study", "plan", "kind", "cell", "from", "process", "error"),
    }
)
"""Tags that commands set themselves."""
_TAG = re.compile(r"(?P<name>[\w. :/-]{1,250})=(?P<value>.*)", re.DOTALL)


@dataclass(frozen=True)
class Invocation:
    """How the command is run, and what it prints; every command has these options."""

    config: OptionalPath = None
    """YAML or TOML file of settings, named like the flags; flags on the command line replace them."""
    dry_run: FlagCreatePairsOff[bool] = False
    """Print what would be read, loaded, computed and written, and the memory; train, write and track nothing."""
    json: FlagCreatePairsOff[bool] = False
    """Print the results as one JSON document on stdout, and everything else on stderr."""
    name: OptionalName = None
    """Name of the run in MLflow. Default: made of model, data and method."""
    tags: Annotated[tuple[str, ...], arg(metavar="KEY=VALUE ...", help_behavior_hint="")] = ()
    """Tags of the run in MLflow, by which it can be found."""

    def check(self) -> None:
        """Check the tags."""
        for tag in self.tags:
            found = _TAG.fullmatch(tag)
            if not found:
                raise UsageError(f"tags must look like KEY=VALUE; got {tag!r}")
            if found["name"].startswith("mlflow."):
                raise UsageError(f"tags must not begin with mlflow., which MLflow itself sets; got {tag!r}")
            if found["name"] in OWN_TAGS:
                raise UsageError(
                    f"tags must not replace those of commands ({', '.join(sorted(OWN_TAGS))}); got {tag!r}"
                )

    @property
    def run_tags(self) -> dict[str, str]:
        """The tags of the run."""
        return {name: value for name, _, value in (tag.partition("=") for tag in self.tags)}


@dataclass(frozen=True)
class Context:
    """The command that is running.

    Attributes:
        command: its name, such as `run` or `canary test`; empty where a pipeline is called as a function.
        invocation: how it is run.
        stdout: where results are printed.
    """

    command: str = ""
    invocation: Invocation = Invocation()
    stdout: TextIO | None = None


_CONTEXT = ContextVar("context", default=Context())  # noqa: B039 - frozen


def context() -> Context:
    """The command that is running."""
    return _CONTEXT.get()


@contextmanager
def running(command: str, invocation: Invocation) -> Iterator[None]:
    """Make a command the one that is running; with `--json`, whatever else prints to stdout goes to stderr."""
    stdout = sys.stdout
    token = _CONTEXT.set(Context(command, invocation, stdout))
    try:
        with redirect_stdout(sys.stderr if invocation.json else stdout):
            yield
    finally:
        _CONTEXT.reset(token)


NAME = "config.yaml"
"""Name of the artifact with the settings of a run."""
VERSION = 1
"""Version of the format, which files may state under `version`."""
_SUFFIXES = (".yaml", ".yml", ".toml")


def dump(config: Any, command: str) -> str:
    """The settings as a configuration file in YAML, without the credentials of URLs."""
    import yaml

    entries = {name.replace("_", "-"): _plain(value) for name, value in flags(config).items()}
    own = {"version": VERSION} | ({"command": command} if command else {})
    return str(yaml.safe_dump(own | entries, sort_keys=False, allow_unicode=True))


def _plain(value: Any) -> Any:
    if isinstance(value, tuple | list):
        return [_plain(entry) for entry in value]
    return without_credentials(str(value)) if isinstance(value, str | Path) else value


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
