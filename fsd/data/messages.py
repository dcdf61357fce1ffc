"""Messages that a cell holds as JSON, and the refusal of a row that could be read as several chats."""

import json
from collections.abc import Iterable
from typing import Any

from fsd.errors import UsageError
from fsd.token_stats import TOOL_CALLS


def check_one(fitting: Iterable[object], origin_url: str) -> None:
    """Refuse a row that fits several layouts."""
    listed = list(fitting)
    if len(listed) > 1:
        way = getattr(listed[0], "named", f"--columns messages={listed[0]}")
        raise UsageError(
            f"{origin_url}: a row must fit one layout; its columns fit {len(listed)}: {'; '.join(map(str, listed))}. "
            f"Name one, as {way}"
        )


def unpacked(value: Any) -> Any:
    """The messages that a string holds as JSON, as a cell of a CSV file does; any other value as it is."""
    if not isinstance(value, str) or not value.lstrip().startswith("["):
        return value
    messages = from_json(value)
    # Brackets may begin a text, too.
    if isinstance(messages, list) and messages and all(map(_is_message, messages)):
        return messages
    return value


def _is_message(value: Any) -> bool:
    if not isinstance(value, dict):
        return False
    names = value.keys()
    return ("role" in names or "from" in names) and not names.isdisjoint(("content", TOOL_CALLS, "value"))


def from_json(messages: str) -> Any:
    """Messages as a cell of a CSV file has them; what is no JSON stays as it is."""
    try:
        return json.loads(messages)
    except (ValueError, RecursionError):
        return messages
