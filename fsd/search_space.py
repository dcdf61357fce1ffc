"""What a detector says of a setting, beside its default: which values it may have, and which are searched for it."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Annotated, Any


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
    settings = {}
    for name, annotation in function.__annotations__.items():
        for record in getattr(annotation, "__metadata__", ()):
            if isinstance(record, Setting):
                settings[name] = record
    return settings
