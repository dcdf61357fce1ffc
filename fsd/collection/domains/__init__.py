"""The domains, one file each, found by file name; names that begin with _ are skipped.

CONTRIBUTING.md says what a domain's file defines. Defaults of options are strings, whole numbers or tuples of strings.
"""

import importlib
import inspect
import pkgutil
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import date
from typing import Any

from fsd.data.documents import Document
from fsd.errors import UsageError, one_of

REQUIRED = inspect.Parameter.empty


@dataclass(frozen=True)
class Domain:
    """What a domain's file, of that name, defines."""

    name: str
    texts: Callable[..., Iterator[Document]]
    first: date = date.min
    language: str = ""
    benchmark: str = ""

    @property
    def options(self) -> dict[str, Any]:
        """Name -> default of each option of `texts`; `REQUIRED` where there is none."""
        parameters = inspect.signature(self.texts).parameters.values()
        return {p.name: p.default for p in parameters if p.kind is p.KEYWORD_ONLY}

    def parse_options(self, entries: Sequence[str], language: str = "") -> dict[str, Any]:
        """Parse `["categories=cs.CL,cs.LG", "words=512"]`, and `language` where the domain has such an option."""
        options = self.options
        shown = {name: ",".join(value) if isinstance(value, tuple) else value for name, value in options.items()}
        listed = ", ".join(f"{name}={'VALUE (required)' if v is REQUIRED else v}" for name, v in shown.items())
        values: dict[str, Any] = {"language": language} if language and "language" in options else {}
        for entry in entries:
            name, equals, text = entry.partition("=")
            if not equals or name not in options or name in values:
                raise UsageError(f"options of {self.name} must be {listed or 'none'}, each once; got {entry!r}")
            values[name] = text.strip()
            if isinstance(options[name], tuple):
                values[name] = tuple(part.strip() for part in text.split(",") if part.strip())
            elif isinstance(options[name], int):
                if not re.fullmatch("[0-9]+", text.strip()):
                    raise UsageError(f"option {name} must be a whole number, 0 or more; got {text.strip()!r}")
                values[name] = int(text)
        missing = [name for name, default in options.items() if default is REQUIRED and name not in values]
        if missing:
            raise UsageError(f"options of {self.name} must have {missing[0]}=VALUE; all are {listed}")
        return values


def names() -> tuple[str, ...]:
    """All domains, by the names of their files."""
    return tuple(sorted(m.name for m in pkgutil.iter_modules(__path__) if not m.name.startswith("_")))


def load(name: str) -> Domain:
    """The domain of that name; UsageError for an unknown one."""
    if name not in names():
        raise UsageError(one_of("domain", names(), name))
    defined = vars(importlib.import_module(f"{__name__}.{name}"))
    constants = {name: defined[name.upper()] for name in ("first", "language", "benchmark") if name.upper() in defined}
    return Domain(name, defined["texts"], **constants)
