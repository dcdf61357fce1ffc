"""Configuration files: the settings of a command in YAML or TOML, under the names of its flags."""

import difflib
import tomllib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import MISSING, Field, fields, is_dataclass, make_dataclass, replace
from pathlib import Path
from typing import Annotated, Any, cast, get_args, get_origin

from fsd.config import flags, settings_of
from fsd.errors import UsageError, without_credentials

NAME = "config.yaml"
"""Name of the artifact with the settings of a run."""
VERSION = 1
"""Version of the format, which files may state under `version`."""
_SUFFIXES = (".yaml", ".yml", ".toml")
_OWN = ("version", "command")
"""Keys that are no flags."""


def dump(config: Any, command: str) -> str:
    """The settings as a configuration file in YAML, without the credentials of URLs.

    Args:
        config: dataclass of settings.
        command: the command that the file is for; empty for any.
    """
    import yaml

    entries = {name.replace("_", "-"): _plain(value) for name, value in flags(config).items()}
    own = {"version": VERSION} | ({"command": command} if command else {})
    return str(yaml.safe_dump(own | entries, sort_keys=False, allow_unicode=True))


def _plain(value: Any) -> Any:
    if isinstance(value, tuple | list):
        return [_plain(entry) for entry in value]
    return without_credentials(str(value)) if isinstance(value, str | Path) else value


Converter = Callable[[type[Any], list[str], str], Any]
"""Converts a dataclass, arguments and a description as the command line is converted."""


def defaults(config: type[Any], file: str, command: str, convert: Converter) -> Any:
    """The configuration with the settings of a file, where `tyro.MISSING` stands for what is required and not there.

    Args:
        config: dataclass of settings, with the invocation as one of its groups.
        file: path of the file.
        command: name of the command that reads it.
        convert: converts the values.

    Raises:
        UsageError: for a file that cannot be read, is for another command or version of the format, or has an unknown
            key or a value of the wrong type.
    """
    entries = _parse(file)
    version, intended = entries.pop("version", VERSION), entries.pop("command", command)
    if version != VERSION or isinstance(version, bool):
        raise UsageError(f"config must be of version {VERSION}; {file} is of version {version!r}")
    if intended != command:
        raise UsageError(f"config must be of the command {command}; {file} is of {intended!r}")
    try:
        return _with(config, _values(config, dict(_flat(config, entries)), convert))
    except UsageError as error:
        raise UsageError(f"{str(error).removesuffix('; --help lists all flags')} (in {file})") from None


def _parse(file: str) -> dict[str, Any]:
    """The entries of a file.

    Raises:
        UsageError: if it is not a readable YAML or TOML file with a mapping.
    """
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
    """A YAML document; a key that stands twice in a mapping is an error, as it is in TOML.

    Raises:
        ValueError: if it is not valid.
    """
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


def _flat(config: type[Any], entries: Mapping[Any, Any], group: str = "") -> Iterator[tuple[str, Any]]:
    """Name of a field → value, from entries and tables of entries that are named after groups."""
    groups = {entry.name: entry.type for entry in fields(config) if is_dataclass(entry.type)}
    known = {entry.name for entry in settings_of(config)} - {"config"}
    seen: set[str] = set()
    for key, value in entries.items():
        name = str(key).replace("-", "_")
        if name in seen:
            raise UsageError(f"a flag must stand once; {key!r} stands twice")
        seen.add(name)
        if name in groups and isinstance(value, dict):
            yield from _flat(cast("type[Any]", groups[name]), value, f" of {key}")
        elif name in known:
            yield name, value
        else:
            near = difflib.get_close_matches(name, [*known, *(() if group else groups)], n=1, cutoff=0.0)
            nearest = f"; nearest is {near[0].replace('_', '-')}" if near else ""
            raise UsageError(f"keys{group} must be flags of the command; got {str(key)[:60]!r}{nearest}")


def _values(config: type[Any], entries: Mapping[str, Any], convert: Converter) -> dict[str, Any]:
    """Name of a field → its value, converted as the command line converts it.

    Raises:
        UsageError: for a value of the wrong type.
    """
    kinds = {entry.name: entry for entry in settings_of(config)}
    values: dict[str, Any] = {}
    arguments, given = [], []
    for name, value in entries.items():
        if _bare(kinds[name].type) is bool:
            if not isinstance(value, bool):
                raise UsageError(f"{name.replace('_', '-')} must be true or false; got {value!r}")
            values[name] = value
        elif value is None and _may_be_none(kinds[name]):
            values[name] = None
        else:
            arguments += _arguments(name, kinds[name].type, value)
            given.append((name, _bare(kinds[name].type)))
    read = convert(make_dataclass("Config", given), arguments, "")
    return values | {name: getattr(read, name) for name, _ in given}


def _may_be_none(entry: Field[Any]) -> bool:
    return type(None) in get_args(_bare(entry.type)) and entry.default is None


def _bare(kind: Any) -> Any:
    """A type without its annotations."""
    return _bare(get_args(kind)[0]) if get_origin(kind) is Annotated else kind


def _arguments(name: str, kind: Any, value: Any) -> list[str]:
    """A value of the file as it would stand on the command line.

    Raises:
        UsageError: if it cannot: a table, or a list for a flag that takes one value.
    """
    flag = name.replace("_", "-")
    bare = _bare(kind)
    if get_origin(bare) is tuple:
        if isinstance(value, dict):
            value = [f"{key}={entry}" for key, entry in value.items()]
        listed = value if isinstance(value, list) else [value]
        if any(isinstance(entry, dict | list) for entry in listed):
            raise UsageError(f"{flag} must be a list of single values; got {str(value)[:60]}")
        return [f"--{flag}", *map(str, listed)]
    if isinstance(value, dict | list) or value is None:
        raise UsageError(f"{flag} must be one value; got {_kind(value)}")
    if isinstance(value, bool) and bare is not str:
        raise UsageError(f"{flag} must not be true or false; got {str(value).lower()}")
    return [f"--{flag}={value}"]


def _kind(value: Any) -> str:
    names = {dict: "a table", list: "a list", type(None): "nothing", str: "a text"}
    return names.get(type(value), str(value)[:60])


def _with(config: type[Any], values: Mapping[str, Any]) -> Any:
    """The configuration with these values, and its defaults otherwise."""
    import tyro

    made = {}
    for entry in fields(config):
        if is_dataclass(entry.type):
            made[entry.name] = _replaced(cast("Any", entry.default_factory)(), values)
        elif entry.name in values:
            made[entry.name] = values[entry.name]
        elif entry.default is MISSING and entry.default_factory is MISSING:
            made[entry.name] = tyro.MISSING
    return config(**made)


def _replaced(group: Any, values: Mapping[str, Any]) -> Any:
    """A group with these values in place of its own."""
    changes = {}
    for entry in fields(group):
        value = getattr(group, entry.name)
        if is_dataclass(value):
            changes[entry.name] = _replaced(value, values)
        elif entry.name in values:
            changes[entry.name] = values[entry.name]
    return replace(group, **changes)
