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

from fsd.data.documents import Document
from fsd.errors import UsageError, one_of, quoted
from fsd.files import JSON

REQUIRED = inspect.Parameter.empty


def _anything(**_: object) -> None:
    """Refuse nothing: a domain whose options may have any value of their type."""


@dataclass(frozen=True)
class Domain:
    """What a domain's file, of that name, defines."""

    name: str
    texts: Callable[..., Iterator[Document]]
    first: date = date.min
    language: str = ""
    benchmark: str = ""
    check: Callable[..., object] = _anything

    @property
    def options(self) -> JSON:
        """Name -> default of each option of `texts`; `REQUIRED` where there is none."""
        parameters = inspect.signature(self.texts).parameters.values()
        return {p.name: p.default for p in parameters if p.kind is p.KEYWORD_ONLY}

    def parse_options(self, entries: Sequence[str], language: str = "") -> JSON:
        """Parse `["categories=cs.CL,cs.LG", "words=512"]`, and `language` where the domain has such an option."""
        options = self.options
        values: JSON = {}
        # A language that is given by its flag may not be given as an option too.
        if language and "language" in options:
            values["language"] = language
        for entry in entries:
            name, equals, text = entry.partition("=")
            if not equals or name not in options or name in values:
                allowed = _listed(options) or "none"
                # Without the value: it may be a key, which a user takes for an option.
                raise UsageError(f"options of {self.name} must be {allowed}, each once; got {quoted(name)}")
            values[name] = _parse(name, text.strip(), options[name])
        for name, default in options.items():
            if default is REQUIRED and name not in values:
                raise UsageError(f"options of {self.name} must have {name}=VALUE; all are {_listed(options)}")
        return values


def _listed(options: JSON) -> str:
    """All options with their defaults, as they are written on the command line."""
    entries = []
    for name, default in options.items():
        if default is REQUIRED:
            default = "VALUE (required)"
        elif isinstance(default, tuple):
            default = ",".join(default)
        entries.append(f"{name}={default}")
    return ", ".join(entries)


def _parse(name: str, text: str, default: object) -> object:
    """The value of an option, of the type of its default."""
    if isinstance(default, tuple):
        return tuple(filter(None, map(str.strip, text.split(","))))
    if not isinstance(default, int):
        return text
    # int() would also take a sign, underscores and the digits of other scripts.
    if not re.fullmatch("[0-9]+", text):
        raise UsageError(f"option {name} must be a whole number, 0 or more; got {text!r}")
    return int(text)


def names() -> tuple[str, ...]:
    """All domains, by the names of their files."""
    files = pkgutil.iter_modules(__path__)
    return tuple(sorted(file.name for file in files if not file.name.startswith("_")))


def load(name: str) -> Domain:
    """The domain of that name; UsageError for an unknown one."""
    if name not in names():
        raise UsageError(one_of("domain", names(), name))
    # Only the file of the domain that is asked for is imported: each brings its own libraries.
    module = importlib.import_module(f"{__name__}.{name}")
    earliest = getattr(module, "FIRST", Domain.first)
    language = getattr(module, "LANGUAGE", Domain.language)
    benchmark = getattr(module, "BENCHMARK", Domain.benchmark)
    check = getattr(module, "check", Domain.check)
    return Domain(name, module.texts, earliest, language, benchmark, check)
