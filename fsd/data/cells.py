"""Checks of a cell of a user's file, which readers of texts and of chats share."""

import math
from collections.abc import Mapping
from typing import Any

from fsd.errors import UsageError, quoted

Row = Mapping[str, Any]
"""Column of a file → its value in a row."""
LONGEST = 10**7
"""Characters of a text, three times War and Peace; time and memory would not suffice for a longer one."""


class RowError(UsageError):
    """A row without a text, or without a label of 0 or 1; `reason` is what it lacks, for counts of such rows."""

    def __init__(self, message: str, reason: str) -> None:
        super().__init__(message)
        self.reason = reason


def is_missing(value: Any) -> bool:
    """Whether a cell has no value."""
    # NaN is what pandas writes for a missing value
    return value is None or (isinstance(value, float) and math.isnan(value))


def checked_text(value: Any, origin_url: str, field: str = "text", *, reason: str = "") -> str:
    """A text that can be read, or an error; `reason` is what a row without one lacks, by default the field."""
    if not isinstance(value, str) or not value.strip():
        message = f"{origin_url}: {field} must be a string that is not blank; got {quoted(value)}"
        if isinstance(value, str) or is_missing(value):
            raise RowError(message, reason or f"blank {field}")
        # a number or a list is no missing text but a wrong column
        raise UsageError(message)
    check_characters(value, origin_url, field)
    return value


def check_characters(value: str, origin_url: str, field: str) -> None:
    """Refuse a string, perhaps a blank one, that is too long or that no tokenizer reads."""
    if len(value) > LONGEST:
        raise UsageError(
            f"{origin_url}: {field} must have at most {LONGEST:,} characters; it has {len(value):,}: cut it"
        )
    try:
        # an escaped half of a surrogate pair is valid JSON, but no tokenizer reads it
        value.encode()
    except UnicodeEncodeError as error:
        position = error.start + 1
        raise UsageError(
            f"{origin_url}: {field} must be valid Unicode; character {position} is half of a surrogate pair"
        ) from error
