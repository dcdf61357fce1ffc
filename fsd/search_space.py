"""Search spaces for the settings of detectors, which each detector defines in its own file."""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Range:
    """Numbers from `low` to `high` (integers if both are), with `step` or on a logarithmic scale."""

    low: float
    high: float
    step: float | None = None
    log: bool = False


@dataclass(frozen=True)
class Choice:
    """A finite set of values."""

    values: tuple[bool | float | str, ...]


Search = Range | Choice
Space = Mapping[str, Search]
"""Setting → what is searched for it."""
