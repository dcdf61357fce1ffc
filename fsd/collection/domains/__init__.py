"""The domains, one file each, found by file name; names that begin with _ are skipped.

A domain's file defines

- `texts(window, journal, *, options)`: dated texts of its source, see `fsd.collection.source`. The keyword-only
  parameters are its options on the command line; a default is a string, a whole number or a tuple of strings.
- `FIRST`: the first day of the source; optional.
- `LANGUAGE`: language code of the texts, "" (the default) for any.
- `BENCHMARK`: name of its published benchmark in `fsd.data.benchmarks`; optional.
"""

import importlib
import inspect
import pkgutil
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date
from types import ModuleType
from typing import Any

from fsd.collection.options import REQUIRED, options, parse
from fsd.collection.source import Texts
from fsd.errors import UsageError

CONTRACT = "texts(window, journal, *, options)"


@dataclass(frozen=True)
class Domain:
    """A domain's file under its name, checked against the contract.

    Raises:
        UsageError: if the file does not keep the contract.
    """

    name: str
    module: ModuleType

    def __post_init__(self) -> None:
        must = f"domain {self.name} must define"
        if not callable(getattr(self.module, "texts", None)):
            raise UsageError(f"{must} {CONTRACT}; it defines no texts")
        signature = inspect.signature(self.texts)
        kinds = inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY
        parameters = [p for p in signature.parameters.values() if p.kind is not kinds[1]]
        if [p.name for p in parameters if p.kind is kinds[0]] != ["window", "journal"] or len(parameters) != 2:
            raise UsageError(f"{must} {CONTRACT}; it defines texts{signature}")
        for name, default in options(self.texts).items():
            if default is not REQUIRED and not isinstance(default, str | int | tuple):
                raise UsageError(f"{must} options whose defaults are str, int or tuple; got {name}={default!r}")
        for name, kind in (("FIRST", date), ("LANGUAGE", str), ("BENCHMARK", str)):
            value = getattr(self.module, name, None)
            if value is not None and not isinstance(value, kind):
                raise UsageError(f"{must} {name} as a {kind.__name__}; got {value!r}")

    @property
    def texts(self) -> Texts:
        """The generator of dated texts."""
        texts: Texts = self.module.texts
        return texts

    @property
    def first(self) -> date:
        """The first day of the source."""
        return getattr(self.module, "FIRST", date.min)

    @property
    def language(self) -> str:
        """Default language of the texts; "" for any."""
        return getattr(self.module, "LANGUAGE", "")

    def parse_options(self, entries: Sequence[str], language: str = "") -> dict[str, Any]:
        """Values of the options `name=value`, and of the option `language` where the domain has one.

        Raises:
            UsageError: for an unknown option, a missing one, or a value of the wrong type.
        """
        default = [f"language={language}"] if language and "language" in options(self.texts) else []
        return parse(self.name, self.texts, [*default, *entries])


def names() -> tuple[str, ...]:
    """All domains, by the names of their files."""
    return tuple(sorted(m.name for m in pkgutil.iter_modules(__path__) if not m.name.startswith("_")))


def load(name: str) -> Domain:
    """The domain of that name.

    Raises:
        UsageError: for an unknown name, or a file that does not keep the contract.
    """
    if name not in names():
        raise UsageError(f"domain must be one of {', '.join(names())}; got {name!r}")
    return Domain(name, importlib.import_module(f"{__name__}.{name}"))
