"""Detectors, one per file, discovered by file name.

A detector is a pure function with the name of its file. Its positional parameters are views of the text (see
`fsd.views.VIEWS`), its keyword-only parameters are settings with the paper's defaults. It returns S(x), where higher
means more likely a member. The file may also define `SEARCH`, the search space of the settings; `NEEDS`, the fields
of `TokenStats` that it uses besides text and logp (token, mean, std); and `fallback`, a function with the same
parameters that names the fallback used for the score of a text, or returns None.
"""

import importlib
import inspect
import math
import pkgutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from fsd.errors import UsageError
from fsd.search_space import Search
from fsd.views import VIEWS


@dataclass(frozen=True)
class Detector:
    """A detector function with fixed settings.

    Attributes:
        name: name of the file and the function.
        function: maps views to the score.
        views: names of the views, in the order of the positional parameters.
        settings: values of the keyword-only parameters.
        search: search space of the settings that can be tuned.
        fallback: returns the name of the fallback used for a text, or None.
        needs: fields of `TokenStats` used besides text and logp, which an API may not provide.
    """

    name: str
    function: Callable[..., float]
    views: tuple[str, ...]
    settings: Mapping[str, Any]
    search: Mapping[str, Search]
    fallback: Callable[..., str | None] | None = None
    needs: tuple[str, ...] = ()

    @property
    def paired(self) -> bool:
        """Whether the detector compares base and tuned model itself: its score is an FSD; it has no base score."""
        return "tuned" in self.views

    def __call__(self, statistics: Mapping[str, Any]) -> float:
        """S(x) of one text from its token statistics by view name.

        Raises:
            ValueError: if the score is not finite.
        """
        score = float(self.function(*(statistics[view] for view in self.views), **self.settings))
        if not math.isfinite(score):
            raise ValueError(f"detector {self.name} must give a finite score, got {score}")
        return score

    def fallback_of(self, statistics: Mapping[str, Any]) -> str | None:
        """Name of the fallback used for the score of a text, or None."""
        if self.fallback is None:
            return None
        return self.fallback(*(statistics[view] for view in self.views), **self.settings)

    def with_settings(self, **settings: Any) -> "Detector":
        """The same detector with other values of some settings.

        Raises:
            UsageError: for an unknown setting, or a value of another type.
        """
        for key, value in settings.items():
            if key not in self.settings:
                allowed = ", ".join(self.settings) or "none"
                raise UsageError(f"setting of {self.name} must be one of {allowed}; got {key!r}")
            _check_type(f"{self.name}.{key}", value, self.settings[key])
        return replace(self, settings={**self.settings, **settings})


def _check_type(name: str, value: Any, default: Any) -> None:
    allowed = (int, float) if isinstance(default, int | float) else type(default)
    if not isinstance(value, allowed) or isinstance(value, bool) != isinstance(default, bool):
        raise UsageError(f"{name} must be of the type of its default {default!r}; got {value!r}")


def names() -> tuple[str, ...]:
    """Names of all detectors, in alphabetical order."""
    return tuple(sorted(module.name for module in pkgutil.iter_modules(__path__)))


def load(name: str, **settings: Any) -> Detector:
    """Load a detector by name; `settings` override the paper's defaults.

    Raises:
        UsageError: for an unknown name or setting, or a value of another type.
    """
    if name not in names():
        raise UsageError(f"detector must be one of {', '.join(names())}; got {name!r}")
    module = importlib.import_module(f"{__name__}.{name}")
    function = getattr(module, name)
    parameters = inspect.signature(function).parameters.values()
    views = tuple(p.name for p in parameters if p.kind is not p.KEYWORD_ONLY)
    unknown = set(views) - set(VIEWS)
    assert not unknown, f"detector {name} has unknown views {unknown}; views are {sorted(VIEWS)}"
    detector = Detector(
        name=name,
        function=function,
        views=views,
        settings={p.name: p.default for p in parameters if p.kind is p.KEYWORD_ONLY},
        search=getattr(module, "SEARCH", {}),
        fallback=getattr(module, "fallback", None),
        needs=getattr(module, "NEEDS", ()),
    )
    return detector.with_settings(**settings)
