"""Options of a domain on the command line, taken from the keyword-only parameters of its `texts`."""

import inspect
from collections.abc import Sequence
from typing import Any

from fsd.collection.source import Texts
from fsd.errors import UsageError

REQUIRED = inspect.Parameter.empty


def options(texts: Texts) -> dict[str, Any]:
    """Name -> default of each option; `REQUIRED` where there is none."""
    parameters = inspect.signature(texts).parameters.values()
    return {parameter.name: parameter.default for parameter in parameters if parameter.kind is parameter.KEYWORD_ONLY}


def parse(domain: str, texts: Texts, entries: Sequence[str]) -> dict[str, Any]:
    """Parse `["categories=cs.CL,cs.LG", "words=512"]` into values of the defaults' types.

    Raises:
        UsageError: for another syntax, an unknown option, or a missing one.
    """
    defaults = options(texts)
    values: dict[str, Any] = {}
    for entry in entries:
        name, equals, value = entry.partition("=")
        if not equals or name not in defaults or name in values:
            raise UsageError(f"options of {domain} must be {_listed(defaults)}, each once; got {entry!r}")
        values[name] = _parse_value(name, value.strip(), defaults[name])
    missing = [name for name, default in defaults.items() if default is REQUIRED and name not in values]
    if missing:
        raise UsageError(f"options of {domain} must have {missing[0]}=VALUE; all are {_listed(defaults)}")
    return values


def _listed(defaults: dict[str, Any]) -> str:
    shown = {name: ",".join(default) if isinstance(default, tuple) else default for name, default in defaults.items()}
    return ", ".join(f"{name}={'VALUE (required)' if v is REQUIRED else v}" for name, v in shown.items()) or "none"


def _parse_value(name: str, value: str, default: object) -> Any:
    if isinstance(default, tuple):
        return tuple(part.strip() for part in value.split(",") if part.strip())
    if isinstance(default, int):
        if not value.isascii() or not value.isdigit():
            raise UsageError(f"option {name} must be a whole number, 0 or more; got {value!r}")
        return int(value)
    return value
