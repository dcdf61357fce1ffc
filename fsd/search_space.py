"""What a detector says of a setting, beside its default: which values it may have, and which are searched for it."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from types import SimpleNamespace
from typing import Annotated, Any, get_type_hints

import numpy as np

PER_DECADE = 3
"""Grid points per factor of ten of a logarithmic range: 1, 2.15, 4.64."""
STEPS = 20
"""Intervals of the grid over a linear range without a step."""


@dataclass(frozen=True)
class Range:
    """Numbers from `low` to `high` (integers if both are), with `step` or on a logarithmic scale."""

    low: float
    high: float
    step: float | None = None
    log: bool = False

    @property
    def whole(self) -> bool:
        """Whether it is one of integers."""
        return isinstance(self.low, int) and isinstance(self.high, int)

    @property
    def finite(self) -> bool:
        """Whether the grid holds all of it."""
        return self.step is not None or (self.whole and not self.log)

    @property
    def grid(self) -> list[Any]:
        """Its steps, else a few points evenly spaced on its scale, with two digits on a logarithmic one."""
        if self.log:
            points = round(math.log10(self.high / self.low) * PER_DECADE) + 1
            values = np.geomspace(self.low, self.high, points)
            # A narrow range of integers gives some of them twice.
            return list(dict.fromkeys(map(round if self.whole else _two_digits, values)))
        span = self.high - self.low
        step = self.step or (1 if self.whole else span / STEPS)
        # The upper end belongs to the grid although the division may give 8.999999999.
        count = int(span / step + 1e-9) + 1
        return [self.tidy(self.low + index * step) for index in range(count)]

    def tidy(self, value: float) -> float:
        """A value without floating-point error: 0.30000000000000004 becomes 0.3."""
        return round(value, 12) if self.step else value

    def suggest(self, trial: Any, name: str) -> float:
        """A value that Optuna's trial draws."""
        if self.whole:
            value: int = trial.suggest_int(name, self.low, self.high, step=int(self.step or 1), log=self.log)
            return value
        return self.tidy(trial.suggest_float(name, self.low, self.high, step=self.step, log=self.log))


@dataclass(frozen=True)
class Choice:
    """A finite set of values."""

    values: tuple[bool | float | str, ...]
    finite = True

    @property
    def grid(self) -> list[Any]:
        """The values."""
        return list(self.values)

    def suggest(self, trial: Any, name: str) -> Any:
        """A value that Optuna's trial draws."""
        return trial.suggest_categorical(name, self.grid)


Search = Range | Choice
Space = Mapping[str, Search]
"""Setting → what is searched for it."""


@dataclass(frozen=True)
class Setting:
    """A setting of a detector, in the annotation of its parameter: what is searched, and what it `must` be, in words.

    `holds` says whether a value, which has the type of the default, is such; all are by default.
    """

    search: Search | None = None
    must: str = ""
    holds: Callable[[Any], bool] = lambda _: True


def among(names: tuple[str, ...], search: Search | None = None) -> Setting:
    """A setting that must be one of some names."""
    return Setting(search, f"one of {', '.join(names)}", names.__contains__)


def _two_digits(value: float) -> float:
    return float(f"{value:.2g}")


def is_share(value: float) -> bool:
    """Whether a number is above 0 and at most 1."""
    return 0 < value <= 1


def are_sizes(values: Sequence[object]) -> bool:
    """Whether all values are whole numbers of at least 1."""
    return all(isinstance(value, int) and value >= 1 for value in values)


Share = Annotated[float, Setting(Range(0.05, 1.0, step=0.05), "in (0, 1]", is_share)]
"""A share of the tokens of a text."""


@cache
def declared(function: Callable[..., float]) -> dict[str, Setting]:
    """What the annotations of a detector function say of its settings."""
    annotations = {name: function.__annotations__.get(name) for name in function.__kwdefaults__ or ()}
    # A file may have all of them as strings (PEP 563); those of views may be of names that are not imported.
    hints = get_type_hints(SimpleNamespace(__annotations__=annotations), function.__globals__, include_extras=True)
    settings = {}
    for name, annotation in hints.items():
        for record in getattr(annotation, "__metadata__", ()):
            if isinstance(record, Setting):
                settings[name] = record
    return settings
