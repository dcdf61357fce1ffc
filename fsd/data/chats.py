"""Chats in users' files: rows with `messages`, or with `prompt` and `completion`, as TRL trains on them.

Formats: https://huggingface.co/docs/trl/dataset_formats. A message is an object with `role` and `content`; in a CSV
file a list of them is written as JSON. Where a row has several of these columns, `messages` win over `prompt` and
`completion`, and these over `text`.
"""

import json
from collections.abc import Callable, Mapping
from typing import Any

from fsd.data.cells import RowError, check_characters, checked_text, is_missing
from fsd.errors import UsageError, quoted
from fsd.token_stats import Chat, Turn

MESSAGES = "messages"
PROMPT = "prompt"
COMPLETION = "completion"
FIELDS = (MESSAGES, PROMPT, COMPLETION)
"""Fields of a chat, and their default columns."""
CHANGING = ("tools", "chat_template_kwargs")
"""Columns that would change what a template writes, and are not read."""
MOST_TURNS = 10_000
"""Turns of a chat."""
NO_ANSWER = "no answer"
"""Why a row was left out: nothing in it could be scored."""
Value = Callable[[str], Any]
"""Field → its value in a row, None where the row has no such column."""


def chat_in(row: Mapping[str, Any], value: Value, origin_url: str) -> Chat | None:
    """The chat of a row; None if its columns hold none.

    RowError for a chat without an answer, or with a blank one; UsageError for what is no chat.
    """
    messages = value(MESSAGES)
    completion = value(COMPLETION)
    if is_missing(messages) and is_missing(completion):
        return None
    for name in CHANGING:
        # An empty list, as of a data set with tools in other rows, changes nothing.
        if not _is_empty(row.get(name)):
            raise UsageError(f"{origin_url}: a chat must be its turns alone; column {name!r} would change its template")
    if not is_missing(messages):
        chat = Chat(_turns(messages, MESSAGES, origin_url), origin=origin_url)
    else:
        chat = _divided(value(PROMPT), completion, origin_url)
    _check_answers(chat)
    return chat


def _is_empty(value: Any) -> bool:
    return is_missing(value) or (hasattr(value, "__len__") and len(value) == 0)


def columns_of(chat: Chat) -> dict[str, Any]:
    """The columns of a row that `chat_in` reads as this chat."""
    if not chat.templated:
        prompt, completion = chat.turns
        return {PROMPT: prompt.content, COMPLETION: completion.content}
    messages = list(map(Turn._asdict, chat.turns))
    if chat.given is None:
        return {MESSAGES: messages}
    return {PROMPT: messages[: chat.given], COMPLETION: messages[chat.given :]}


def _divided(prompt: Any, completion: Any, origin_url: str) -> Chat:
    """A chat of a prompt and a completion: two texts, or two lists of messages."""
    prompt = unpacked(prompt)
    completion = unpacked(completion)
    if isinstance(prompt, str) and isinstance(completion, str):
        if prompt:
            checked_text(prompt, origin_url, PROMPT)
        checked_text(completion, origin_url, COMPLETION, reason=NO_ANSWER)
        return Chat((Turn("", prompt), Turn("", completion)), 1, origin_url)
    if isinstance(prompt, str) or isinstance(completion, str) or is_missing(prompt):
        raise UsageError(
            f"{origin_url}: prompt and completion must be two strings, or two lists of messages; got {quoted(prompt)} "
            f"and {quoted(completion)}"
        )
    asked = _turns(prompt, PROMPT, origin_url)
    answered = _turns(completion, COMPLETION, origin_url)
    return Chat(asked + answered, len(asked), origin_url)


def unpacked(value: Any) -> Any:
    """The messages that a string holds as JSON, as a cell of a CSV file does; any other value as it is."""
    if not isinstance(value, str) or not value.lstrip().startswith("["):
        return value
    messages = _from_json(value)
    # Brackets may begin a text, too.
    if isinstance(messages, list) and messages and all(map(_is_message, messages)):
        return messages
    return value


def _is_message(value: Any) -> bool:
    return isinstance(value, dict) and {"role", "content"} <= value.keys()


def _turns(messages: Any, field: str, origin_url: str) -> tuple[Turn, ...]:
    if isinstance(messages, str):
        messages = _from_json(messages)
    # a data frame holds arrays
    if hasattr(messages, "tolist"):
        messages = messages.tolist()
    if not isinstance(messages, list | tuple) or not messages:
        raise UsageError(
            f"{origin_url}: {field} must be a list of objects with role and content; got {quoted(messages)}"
        )
    if len(messages) > MOST_TURNS:
        raise UsageError(f"{origin_url}: {field} must have at most {MOST_TURNS:,} turns; got {len(messages):,}")
    return tuple(
        _turn(
            message,
            number,
            field,
            origin_url,
        )
        for number, message in enumerate(messages, 1)
    )


def _from_json(messages: str) -> Any:
    """Messages as a cell of a CSV file has them; what is no JSON stays as it is."""
    try:
        return json.loads(messages)
    except (ValueError, RecursionError):
        return messages


def _turn(message: Any, number: int, field: str, origin_url: str) -> Turn:
    where = f"{origin_url}: turn {number} of {field}"
    if not isinstance(message, Mapping):
        raise UsageError(f"{where} must be an object with role and content; got {quoted(message)}")
    # Parquet fills in what other turns have
    filled = {name: content for name, content in message.items() if not is_missing(content)}
    role = filled.pop("role", None)
    content = filled.pop("content", "")
    if not isinstance(role, str) or not role.strip():
        raise UsageError(f"{where} must have a role, such as user or assistant; got {quoted(role)}")
    check_characters(role, origin_url, f"the role of turn {number} of {field}")
    if not isinstance(content, str):
        raise UsageError(f"{where} must have a string as its content; got {quoted(content)}")
    if filled:
        raise UsageError(f"{where} must have role and content alone; got {', '.join(map(repr, filled))}, too")
    check_characters(content, origin_url, f"turn {number} of {field}")
    return Turn(role, content)


def _check_answers(chat: Chat) -> None:
    """Refuse a chat without an answer, or with one that has no words."""
    answers = chat.answers
    if not answers:
        raise RowError(
            f"{chat.origin}: a chat must have an answer, a turn of the role assistant; it has none",
            NO_ANSWER,
        )
    for number in answers:
        if not chat.turns[number].content.strip():
            raise RowError(
                f"{chat.origin}: an answer must be a string that is not blank; turn {number + 1} is",
                NO_ANSWER,
            )
