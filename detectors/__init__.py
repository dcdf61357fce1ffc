"""The detectors, one file each, found by file name.

A detector is a pure function of the same name as its file: positional parameters are the views it reads (see
`fsd.views.VIEWS`), keyword-only parameters are its settings with the paper's defaults; it returns S(x),
higher = more likely a member. Beside it the file may hold `SEARCH`, the ranges for tuning, `NEEDS`, what it reads of
`TokenStats` besides logp and the text (token, mean, std), and `fallback`, a function of the same parameters that
names the fallback the score had to take, or gives None.
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
    """A detector function with its settings fixed.

    Attributes:
        name: of the file and the function.
        function: views → score.
        views: names of the views it reads, in the order of its positional parameters.
        settings: every keyword-only parameter and its value.
        search: the settings that can be tuned, and where.
        fallback: names the fallback taken for a text, if any.
        needs: what it reads of a reading besides logp and the text, which an API may not give.
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
        """Whether it reads base and tuned together, so that its value is its FSD and it has no base score."""
        return "tuned" in self.views

    def __call__(self, readings: Mapping[str, Any]) -> float:
        """S(x) from the readings of one text, keyed by view name.

        Raises:
            ValueError: if the score is not a finite number.
        """
        score = float(self.function(*(readings[view] for view in self.views), **self.settings))
        if not math.isfinite(score):
            raise ValueError(f"detector {self.name} must give a finite score, got {score}")
        return score

    def fallback_of(self, readings: Mapping[str, Any]) -> str | None:
        """The name of the fallback that the score of this text takes, or None."""
        if self.fallback is None:
            return None
        return self.fallback(*(readings[view] for view in self.views), **self.settings)

    def having(self, **settings: Any) -> "Detector":
        """The same detector with some settings changed.

        Raises:
            UsageError: for a setting that it does not have, or a value of another type.
        """
        for key, value in settings.items():
            if key not in self.settings:
                allowed = ", ".join(self.settings) or "none"
                raise UsageError(f"setting of {self.name} must be one of {allowed}; got {key!r}")
            _check_type(f"{self.name}.{key}", value, self.settings[key])
        return replace(self, settings={**self.settings, **settings})


def _check_type(name: str, value: Any, default: Any) -> None:
    number = (int, float)
    same = isinstance(value, bool) == isinstance(default, bool) and (
        isinstance(value, number) if isinstance(default, number) else isinstance(value, type(default))
    )
    if not same:
        raise UsageError(f"{name} must be of the type of its default {default!r}; got {value!r}")


def names() -> tuple[str, ...]:
    """All detectors, by the names of their files."""
    return tuple(sorted(module.name for module in pkgutil.iter_modules(__path__)))


def load(name: str, **settings: Any) -> Detector:
    """The detector of that name, with some settings changed from the paper's defaults.

    Raises:
        UsageError: for a name or a setting that does not exist.
    """
    if name not in names():
        raise UsageError(f"detector must be one of {', '.join(names())}; got {name!r}")
    module = importlib.import_module(f"{__name__}.{name}")
    function = getattr(module, name)
    parameters = inspect.signature(function).parameters.values()
    views = tuple(p.name for p in parameters if p.kind is not p.KEYWORD_ONLY)
    unknown = set(views) - set(VIEWS)
    assert not unknown, f"detector {name} reads {unknown}; views are {sorted(VIEWS)}"
    detector = Detector(
        name=name,
        function=function,
        views=views,
        settings={p.name: p.default for p in parameters if p.kind is p.KEYWORD_ONLY},
        search=getattr(module, "SEARCH", {}),
        fallback=getattr(module, "fallback", None),
        needs=getattr(module, "NEEDS", ()),
    )
    return detector.having(**settings)
