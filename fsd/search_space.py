"""The range in which a detector's setting may be searched; stands beside the detector, in its own file."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Range:
    """Numbers from `low` to `high`; `step` makes a grid, `log` searches on a logarithmic scale.

    A range of two integers is searched in integers.
    """

    low: float
    high: float
    step: float | None = None
    log: bool = False


@dataclass(frozen=True)
class Choice:
    """One of a few values."""

    values: tuple[bool | float | str, ...]


Search = Range | Choice
