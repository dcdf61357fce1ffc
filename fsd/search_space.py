"""Search spaces for the settings of detectors, which each detector defines in its own file."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Range:
    """Numbers from `low` to `high`, on a grid with `step` or on a logarithmic scale with `log`.

    Two integer limits define a range of integers.
    """

    low: float
    high: float
    step: float | None = None
    log: bool = False


@dataclass(frozen=True)
class Choice:
    """A finite set of values."""

    values: tuple[bool | float | str, ...]


Search = Range | Choice
