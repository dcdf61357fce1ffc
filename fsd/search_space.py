"""Search spaces for the settings of detectors, which each detector defines in its own file."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

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
            return list(dict.fromkeys(round(value) if self.whole else float(f"{value:.2g}") for value in values))
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
