"""Chats in users' files: rows with `messages`, or with `prompt` and `completion`, as TRL trains on them.

Formats: https://huggingface.co/docs/trl/dataset_formats. A message is an object with `role` and `content`, or with the
tools that it calls; in a CSV file a list of them is written as JSON. Where a row has several of these columns,
`messages` win over `prompt` and `completion`, and these over `text`. Files of other tools: `conversations` of ShareGPT,
whose messages have `from` and `value`, and the columns of `fsd.data.layouts`, over which `text` wins.
"""

import json
from collections.abc import Callable, Mapping
from itertools import chain
from types import MappingProxyType
from typing import Any

from fsd.data.cells import Row, RowError, check_characters, checked_text, is_missing
from fsd.data.layouts import (
    COMPLETION,
    CONVERSATIONS,
    FIELDS,
    MESSAGES,
    NOT_READ,
    PROMPT,
    SETTINGS,
    TEXTS,
    TOOLS,
    TRL,
    check_one,
    from_json,
    is_empty,
    layouts_in,
    unpacked,
)
from fsd.errors import UsageError, quoted, refusing
from fsd.files import JSON
from fsd.token_stats import REASONING, TOOL, TOOL_CALLS, Chat, Turn

TURNS = (MESSAGES, *CONVERSATIONS)
"""Columns of messages."""
FURTHER = (TOOL_CALLS, "tool_call_id", "name", *REASONING)
"""Fields that a message may have besides role and content."""
NO_ANSWER = "no answer"
"""Why a row was left out: nothing in it could be scored."""
SPEAKERS = {
    "human": "user",
    "gpt": "assistant",
    "chatgpt": "assistant",
    "observation": TOOL,
    "user": "user",
    "assistant": "assistant",
    "system": "system",
    TOOL: TOOL,
}
"""Who a message of ShareGPT is `from` → its role."""
Value = Callable[[str], Any]
"""Field → its value in a row, None where the row has no such column."""
NONE_NAMED: Mapping[str, str] = MappingProxyType({})


def chat_in(row: Row, value: Value, origin_url: str, columns: Mapping[str, str] = NONE_NAMED) -> Chat | None:
    """The chat of a row; None if its columns hold none; `columns` are those that a user names.

    RowError for a chat without an answer, or with a blank one; UsageError for what is no chat, and for a row that fits
    several layouts.
    """
    chat = _by_name(columns, value, origin_url) or _by_layout(row, columns, value, origin_url)
    if chat is None:
        return None
    chat = chat._replace(tools=_tools(row, origin_url), settings=_settings(row, origin_url))
    if chat.given_to_template and not chat.templated:
        raise UsageError(
            f"{origin_url}: columns {TOOLS} and {SETTINGS} must come with turns, as a template reads them; prompt and "
            "completion are strings"
        )
    _check_answers(chat)
    return chat


def _by_name(columns: Mapping[str, str], value: Value, origin_url: str) -> Chat | None:
    """The chat in the columns that a user names."""
    named = [field for field in FIELDS if columns.get(field, NOT_READ) != NOT_READ]
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


def _tools(row: Row, origin_url: str) -> str:
    """The tools that a template is given, as JSON; "" where there are none."""
    tools = _unpacked_cell(row.get(TOOLS))
    if tools is None:
        return ""
    is_list = isinstance(tools, list)
    if not is_list or not all(isinstance(tool, Mapping) for tool in tools):
        raise UsageError(f"{origin_url}: {TOOLS} must be a list of JSON schemas, one a tool; got {quoted(tools)}")
    return _as_json(tools, TOOLS, origin_url)


def _settings(row: Row, origin_url: str) -> str:
    """What else a template is given, as JSON; "" where there is nothing."""
    settings = _unpacked_cell(row.get(SETTINGS))
    if settings is None:
        return ""
    if not isinstance(settings, Mapping):
        raise UsageError(
            f"{origin_url}: {SETTINGS} must be an object with what the template reads; got {quoted(settings)}"
        )
    return _as_json(settings, SETTINGS, origin_url)


def _unpacked_cell(value: Any) -> Any:
    """What a cell holds, in CSV as JSON; None for nothing."""
    if isinstance(value, str):
        value = from_json(value)
    value = _listed(value)
    # An empty list, as of a data set with tools in other rows, changes nothing.
    if is_missing(value) or value in ("", [], {}):
        return None
    return value


def _listed(value: Any) -> Any:
    """A list where a data frame holds an array; any other value as it is."""
    if hasattr(value, "tolist"):
        return value.tolist()
    return value


def _as_json(value: Any, field: str, origin_url: str) -> str:
    """A value as JSON, in the order of its names, which a template may keep; "" for an empty one."""
    if not value:
        return ""
    with refusing(f"{origin_url}: {field} must be what JSON can hold; ", TypeError, ValueError, RecursionError):
        text = json.dumps(value, ensure_ascii=False, default=_listed)
    check_characters(text, origin_url, field)
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
    answered = _turns(completion, COMPLETION, origin_url)
    return Chat(asked + answered, len(asked), origin_url)


def _turns(messages: Any, field: str, origin_url: str) -> tuple[Turn, ...]:
    if isinstance(messages, str):
        messages = from_json(messages)
    messages = _listed(messages)
    if not isinstance(messages, list | tuple) or not messages:
        raise UsageError(
            f"{origin_url}: {field} must be a list of objects with role and content; got {quoted(messages)}"
        )
    return tuple(_turn(message, number, field, origin_url) for number, message in enumerate(messages, 1))


def _turn(message: Any, number: int, field: str, origin_url: str) -> Turn:
    place = f"turn {number} of {field}"
    where = f"{origin_url}: {place}"
    if not isinstance(message, Mapping):
        raise UsageError(f"{where} must be an object with role and content; got {quoted(message)}")
    # Parquet fills in what other turns have
    filled = {name: content for name, content in message.items() if not is_missing(content)}
    # As ShareGPT names them.
    if "from" in filled and "role" not in filled:
        speaker = filled.pop("from")
        if speaker not in SPEAKERS:
            raise UsageError(f"{where} must be from one of {', '.join(SPEAKERS)}; got {quoted(speaker)}")
        filled["role"] = SPEAKERS[speaker]
        filled["content"] = filled.pop("value", None)
    role = filled.pop("role", None)
    content = filled.pop("content", None)
    if not isinstance(role, str) or not role.strip():
        raise UsageError(f"{where} must have a role, such as user or assistant; got {quoted(role)}")
    check_characters(role, origin_url, f"the role of {place}")
    if not isinstance(content, str | None):
        raise UsageError(f"{where} must have a string as its content; got {quoted(content)}")
    further = _further(filled, where)
    # A model that calls a tool need not say anything; a template may tell nothing from an empty string.
    if TOOL_CALLS in further and content is None:
        further["content"] = None
    content = content or ""
    check_characters(content, origin_url, place)
    return Turn(role, content, _as_json(further, place, origin_url))


def _further(fields: JSON, where: str) -> JSON:
    """The fields of a message besides role and content."""
    unknown = fields.keys() - set(FURTHER)
    if unknown:
        names = ", ".join(sorted(map(repr, unknown)))
        raise UsageError(f"{where} must have role and content alone, or also {', '.join(FURTHER)}; got {names}, too")
    further = {}
    for name, value in fields.items():
        if name == TOOL_CALLS:
            value = _listed(value)
            if not isinstance(value, list) or not all(map(_is_call, value)):
                must = f"{where} must have as {name} a list of objects, each with a function and its name"
                raise UsageError(f"{must}; got {quoted(value)}")
        elif not isinstance(value, str):
            raise UsageError(f"{where} must have a string as its {name}; got {quoted(value)}")
        # As of a data set in which other turns have calls.
        if value:
            further[name] = value
    return further


def _is_call(call: Any) -> bool:
    """Whether a call of a tool names it."""
    if not isinstance(call, Mapping):
        return False
    function = call.get("function") or call
    return isinstance(function, Mapping) and isinstance(function.get("name"), str)


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
        if not turn.content.strip() and not turn.calls and turn.role != TOOL:
            raise RowError(
                f"{chat.origin}: an answer must be a string that is not blank; turn {number + 1} is", NO_ANSWER
            )
