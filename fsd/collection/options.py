"""A domain's own options on the command line, read off the signature of its `texts`.

So a new domain brings its options with it, and no other file lists them.
"""

import inspect
from collections.abc import Sequence
from typing import Any

from fsd.collection.source import Texts
from fsd.errors import UsageError


def options(texts: Texts) -> dict[str, Any]:
    """Name → default of each option; `inspect.Parameter.empty` for one that must be given."""
    found = inspect.signature(texts).parameters.values()
    return {parameter.name: parameter.default for parameter in found if parameter.kind is parameter.KEYWORD_ONLY}


def parse(domain: str, texts: Texts, entries: Sequence[str]) -> dict[str, Any]:
    """`["categories=cs.CL,cs.LG", "words=512"]` → values of the types that the defaults have.

    Raises:
        UsageError: for another syntax, an option that the domain has not, or one that it must have.
    """
    known = options(texts)
    values: dict[str, Any] = {}
    for entry in entries:
        name, equals, value = entry.partition("=")
        if not equals or name not in known or name in values:
            raise UsageError(f"options of {domain} must be {_listed(known)}, each once; got {entry!r}")
        values[name] = _read(name, value.strip(), known[name])
    missing = [name for name, default in known.items() if default is inspect.Parameter.empty and name not in values]
    if missing:
        raise UsageError(f"options of {domain} must have {missing[0]}=VALUE; all are {_listed(known)}")
    return values


def _listed(known: dict[str, Any]) -> str:
    shown = [
        f"{name}=VALUE (required)" if default is inspect.Parameter.empty else f"{name}={_shown(default)}"
        for name, default in known.items()
    ]
    return ", ".join(shown) or "none"


def _shown(default: object) -> str:
    return ",".join(default) if isinstance(default, tuple) else str(default)


def _read(name: str, value: str, default: object) -> Any:
    if isinstance(default, tuple):
        return tuple(part.strip() for part in value.split(",") if part.strip())
    if isinstance(default, int):
        if not value.isascii() or not value.isdigit():
            raise UsageError(f"option {name} must be a whole number, 0 or more; got {value!r}")
        return int(value)
    return value
