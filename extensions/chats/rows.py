"""Chats in users' files: rows with `messages`, or with `prompt` and `completion`, as TRL trains on them.

Formats: https://huggingface.co/docs/trl/dataset_formats. A message is an object with `role` and `content`, or with the
tools that it calls; in a CSV file a list of them is written as JSON. Where a row has several of these columns,
`messages` win over `prompt` and `completion`, and these over `text`. Files of other tools: `conversations` of ShareGPT,
whose messages have `from` and `value`, and the columns of `fsd.data.layouts`, over which `text` wins.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from itertools import chain
from typing import Annotated, Any, ClassVar

from pydantic import ConfigDict, Field

from fsd.api import (
    COMPLETION,
    CONVERSATIONS,
    MESSAGES,
    NOT_READ,
    PROMPT,
    SETTINGS,
    TEXTS,
    TOOLS,
    TRL,
    Chat,
    RowError,
    Turn,
    UsageError,
    check_characters,
    check_one,
    checked_text,
    files,
    is_empty,
    is_missing,
    layouts_in,
    quoted,
    refusing,
    unpacked,
)
from fsd.api import parsed_json as from_json

Row = Mapping[str, Any]
TURNS = (MESSAGES, *CONVERSATIONS)
"""Columns of messages."""
NO_ANSWER = "no answer"
"""Why a row was left out: nothing in it could be scored."""
SPEAKERS = {
    "human": "user",
    "gpt": "assistant",
    "chatgpt": "assistant",
    "observation": "tool",
    "user": "user",
    "assistant": "assistant",
    "system": "system",
    "tool": "tool",
}
"""Who a message of ShareGPT is `from` → its role."""
Value = Callable[[str], Any]
"""Field → its value in a row, None where the row has no such column."""


@dataclass
class Named:
    """What a call of a tool names; it has arguments, too."""

    __pydantic_config__: ClassVar = ConfigDict(extra="ignore")
    name: str


@dataclass
class Call:
    """A call of a tool, as most services write it."""

    __pydantic_config__: ClassVar = ConfigDict(extra="ignore")
    function: Named


@dataclass
class Message:
    """A message: who says what, what it calls, and what was thought before."""

    __pydantic_config__: ClassVar = ConfigDict(extra="forbid")
    role: Annotated[str, Field(pattern=r"\S")]
    content: str = ""
    tool_calls: list[Call | Named] = field(default_factory=list)
    tool_call_id: str = ""
    name: str = ""
    reasoning_content: str = ""
    reasoning: str = ""
    thinking: str = ""


def chat_in(row: Row, value: Value, origin_url: str, columns: Mapping[str, str]) -> Chat | None:
    """The chat of a row; None if its columns hold none; `columns` are those that a user names.

    RowError for a chat without an answer, or with a blank one; UsageError for what is no chat, and for a row that fits
    several layouts.
    """
    chat = _by_name(columns, value, origin_url) or _by_layout(row, columns, value, origin_url)
    if chat is None:
        return None
    tools = _given(row, TOOLS, list[dict[str, Any]], "a list of JSON schemas, one a tool", origin_url)
    settings = _given(row, SETTINGS, dict[str, Any], "an object with what the template reads", origin_url)
    chat = chat._replace(tools=tools, settings=settings)
    if chat.given_to_template and not chat.templated:
        raise UsageError(
            f"{origin_url}: columns {TOOLS} and {SETTINGS} must come with turns, as a template reads them; prompt and "
            "completion are strings"
        )
    _check_answers(chat)
    return chat


def _by_name(columns: Mapping[str, str], value: Value, origin_url: str) -> Chat | None:
    """The chat in the columns that a user names."""
    named = [field for field in (MESSAGES, PROMPT, COMPLETION) if columns.get(field, NOT_READ) != NOT_READ]
    layout = ", ".join(f"{field} from {columns[field]}" for field in named if columns[field] != field)
    if MESSAGES in named and not is_missing(value(MESSAGES)):
        return _chat(value(MESSAGES), MESSAGES, origin_url)._replace(layout=layout)
    if PROMPT in named and value(COMPLETION) is None:
        raise UsageError(f"{origin_url}: prompt must come with a completion; name its column, as completion=NAME")
    if named[-1:] in ([PROMPT], [COMPLETION]) and not is_missing(value(COMPLETION)):
        return _divided(value(PROMPT), value(COMPLETION), origin_url)._replace(layout=layout)
    return None


def _by_layout(row: Row, columns: Mapping[str, str], value: Value, origin_url: str) -> Chat | None:
    """The chat in the columns that a row has, in the one layout that it fits."""
    unread = [field for field, name in columns.items() if name == NOT_READ]
    turns = [name for name in TURNS if name not in unread and not is_missing(row.get(name))]
    completion = value(COMPLETION)
    foreign = layouts_in(row, unread)
    if TRL in foreign:
        foreign.remove(TRL)
    if turns:
        check_one(chain(turns, foreign), origin_url)
        return _conversation(row, turns[0], origin_url)
    if not is_missing(completion) and (PROMPT in row or not foreign):
        check_one(chain([TRL], foreign), origin_url)
        return _divided(value(PROMPT), completion, origin_url)
    if not foreign or not all(is_empty(row.get(name)) for name in TEXTS):
        return None
    check_one(foreign, origin_url)
    layout = foreign[0]
    chat = _divided(layout.asked(row, origin_url), layout.answered(row, origin_url), origin_url)
    return chat._replace(layout=str(layout))


def _conversation(row: Row, name: str, origin_url: str) -> Chat:
    """The turns of a column; of ShareGPT's, a column `system` has the first."""
    chat = _chat(row[name], name, origin_url)
    if name == MESSAGES:
        return chat
    system = row.get("system")
    if not is_empty(system) and chat.turns[0].role != "system":
        opening = _turns([{"role": "system", "content": system}], "system", origin_url)
        chat = chat._replace(turns=opening + chat.turns)
    return chat._replace(layout=f"turns from {name}")


def _chat(messages: Any, field: str, origin_url: str) -> Chat:
    return Chat(_turns(messages, field, origin_url), origin=origin_url)


def _given(row: Row, name: str, kind: Any, must: str, origin_url: str) -> str:
    """What a template is given besides the turns, as JSON; "" where there is nothing."""
    value = row.get(name)
    if isinstance(value, str):
        value = from_json(value)
    value = _listed(value)
    # An empty list, as of a data set with tools in other rows, changes nothing.
    if is_missing(value) or value in ("", [], {}):
        return ""
    return _as_json(value, name, kind, must, origin_url)


def _listed(value: Any) -> Any:
    """A list where a data frame holds an array; any other value as it is."""
    if hasattr(value, "tolist"):
        return value.tolist()
    return value


def _as_json(value: Any, field: str, kind: Any, must: str, origin_url: str) -> str:
    """A value of a kind as JSON, in the order of its names, which a template may keep."""
    with refusing(f"{origin_url}: {field} must be what JSON can hold; ", TypeError, ValueError, RecursionError):
        text = json.dumps(value, ensure_ascii=False, default=_listed)
    check_characters(text, origin_url, field)
    files.from_json(kind, text, f"{origin_url}: {field} must be {must}")
    return text


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
    return Chat(asked + _turns(completion, COMPLETION, origin_url), len(asked), origin_url)


def _turns(messages: Any, field: str, origin_url: str) -> tuple[Turn, ...]:
    if isinstance(messages, str):
        messages = from_json(messages)
    messages = _listed(messages)
    if isinstance(messages, list | tuple):
        named = []
        for number, message in enumerate(messages, 1):
            named.append(_as_message(message, f"{origin_url}: turn {number} of {field}"))
        messages = named
    text = _as_json(
        messages, field, list[Message], "a list of objects with role and content, and perhaps tool_calls", origin_url
    )
    return tuple(map(_turn, json.loads(text)))


def _as_message(message: Any, where: str) -> Any:
    """A message without the fields that have no value, those of ShareGPT under their usual names."""
    if not isinstance(message, Mapping):
        return message
    # Parquet fills in what other turns have.
    filled = {}
    for name, value in message.items():
        if not is_missing(value):
            filled[name] = _listed(value)
    if "from" in filled and "role" not in filled:
        speaker = filled.pop("from")
        if speaker not in SPEAKERS:
            raise UsageError(f"{where} must be from one of {', '.join(SPEAKERS)}; got {quoted(speaker)}")
        filled["role"] = SPEAKERS[speaker]
        if "value" in filled:
            filled["content"] = filled.pop("value")
    return filled


def _turn(message: dict[str, Any]) -> Turn:
    role = message.pop("role")
    content = message.pop("content", None)
    # An empty list of calls is as of a data set in which other turns have some.
    further = {name: value for name, value in message.items() if value}
    # A model that calls a tool need not say anything; a template may tell nothing from an empty string.
    if "tool_calls" in further and content is None:
        further["content"] = None
    return Turn(role, content or "", json.dumps(further, ensure_ascii=False) if further else "")


def _check_answers(chat: Chat) -> None:
    """Refuse a chat without an answer, or with one that has no words."""
    answers = chat.answers
    if not answers:
        raise RowError(
            f"{chat.origin}: a chat must have an answer, a turn of the role assistant; it has none", NO_ANSWER
        )
    for number in answers:
        turn = chat.turns[number]
        # What a tool returns may be nothing.
        if not turn.content.strip() and not turn.calls and turn.role != "tool":
            raise RowError(
                f"{chat.origin}: an answer must be a string that is not blank; turn {number + 1} is", NO_ANSWER
            )
