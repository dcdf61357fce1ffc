"""Configuration files: the settings of a command in YAML or TOML, under the names of its flags."""

import difflib
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import Field, fields, is_dataclass
from pathlib import Path
from typing import Annotated, Any, cast, get_args, get_origin

from tyro.conf import FlagCreatePairsOff, Positional

from fsd.config import flags, settings_of
from fsd.errors import UsageError, without_credentials

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
