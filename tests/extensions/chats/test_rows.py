"""Chats in every format that is read, what wins where a row has several columns, and rows that are none."""

import csv
import json
from collections import Counter
from dataclasses import replace

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from fsd.data.cells import RowError
from fsd.data.documents import digest, json_line
from fsd.data.fields import parse_columns
from fsd.data.readers import read_files
from fsd.errors import UsageError
from fsd.token_stats import Chat, Prompt, Turn, of_chat

TALK = [{"role": "user", "content": "Who moves?"}, {"role": "assistant", "content": "A member."}]
TURNS = tuple(Turn(**message) for message in TALK)


def read(folder, *rows, columns="", name="a.jsonl", **options):
    (folder / name).write_text("".join(json.dumps(row) + "\n" for row in rows))
    return read_files([folder / name], parse_columns(columns, answers=True), answers=True, **options)


@pytest.mark.parametrize("ending", ["jsonl", "json", "csv", "parquet", "saved"])
def test_every_format_holds_chats(ending, tmp_path):
    rows = [{"messages": TALK, "label": 1}, {"messages": TALK * 2, "label": 0}]
    file = tmp_path / f"a.{ending}"
    if ending == "parquet":
        pq.write_table(pa.Table.from_pylist(rows), file)
    elif ending == "saved":
        datasets = pytest.importorskip("datasets")
        datasets.Dataset.from_list(rows).save_to_disk(file)
    elif ending == "csv":
        with file.open("w", newline="") as out:
            writer = csv.DictWriter(out, ["messages", "label"])
            writer.writeheader()
            writer.writerows({**row, "messages": json.dumps(row["messages"])} for row in rows)
    else:
        file.write_text(json.dumps(rows) if ending == "json" else "\n".join(map(json.dumps, rows)))
    first, second = read_files([file], answers=True, labelled=True)
    assert first.chat is not None
    assert (first.chat.turns, first.chat.given) == (TURNS, None)
    assert first.text == "Who moves?\n\nA member."
    assert first.prompt == Prompt("A member.", chat=first.chat)
    assert second.prompt.text == "A member.\n\nA member."


def test_messages_win_over_prompt_and_completion_and_these_over_text(tmp_path):
    full = {"text": "the text", "prompt": "a?", "completion": " b", "messages": TALK, "context": "before"}
    without = {name: full[name] for name in full if name != "messages"}
    alone = {name: full[name] for name in ("text", "context", "prompt")}
    texts = [document.prompt.text for document in read(tmp_path, full, without, alone)]
    assert texts == ["A member.", " b", "the text"]
    assert read(tmp_path, alone)[0].prompt == Prompt("the text", "before")
    (named,) = read(tmp_path, full, columns="text=text")
    assert named.prompt == Prompt("the text", "before")
    (renamed,) = read(tmp_path, {"talk": TALK}, columns="messages=talk")
    assert renamed.chat is not None


def test_prompt_and_completion_are_texts_or_turns(tmp_path):
    turns, texts = read(
        tmp_path, {"prompt": TALK[:1], "completion": TALK[1:]}, {"prompt": "Who?", "completion": " A member."}
    )
    assert turns.chat == Chat(TURNS, 1, f"{tmp_path}/a.jsonl:1")
    assert texts.chat == Chat((Turn("", "Who?"), Turn("", " A member.")), 1, f"{tmp_path}/a.jsonl:2")
    assert not texts.chat.templated


def test_a_csv_file_has_prompt_and_completion_as_json_too(tmp_path):
    file = tmp_path / "a.csv"
    with file.open("w", newline="") as out:
        writer = csv.writer(out)
        writer.writerow(["prompt", "completion"])
        writer.writerow([json.dumps(TALK[:1]), json.dumps(TALK[1:])])
        writer.writerow(["[1, 2", "[]"])
    turns, texts = read_files([file], answers=True)
    assert turns.chat[:2] == (TURNS, 1)
    assert texts.chat.turns == (Turn("", "[1, 2"), Turn("", "[]"))


def test_no_tools_are_as_no_column(tmp_path):
    row = {"messages": TALK, "tools": [], "chat_template_kwargs": {}}
    assert read(tmp_path, row)[0].chat.turns == TURNS


CALL = {"type": "function", "function": {"name": "weather", "arguments": {"city": "Ulm", "at": None}}}
AGENT = [
    TALK[0],
    {"role": "assistant", "tool_calls": [CALL], "reasoning_content": "I look."},
    {"role": "tool", "name": "weather", "tool_call_id": "a1", "content": ""},
    TALK[1],
]
SCHEMAS = [{"type": "function", "function": {"name": "weather", "parameters": {"type": "object"}}}]


def test_a_call_without_words_has_none_in_every_layout(tmp_path):
    """A template may tell nothing from an empty string. The folder has a name in braces."""
    folder = tmp_path / "{run}"
    folder.mkdir()
    said = {"messages": [TALK[0], {"role": "assistant", "tool_calls": [CALL]}]}
    shared = {"conversations": [{"from": "human", "value": "Who moves?"}, {"from": "gpt", "value": None}]}
    shared["conversations"][1]["tool_calls"] = [CALL]
    for row in (said, shared):
        assert read(folder, row)[0].chat.turns[1].message == {"role": "assistant", "tool_calls": [CALL]}


@pytest.mark.parametrize("form", ["jsonl", "csv", "parquet"])
def test_tools_and_their_calls_are_read_in_every_format(form, tmp_path):
    row = {"messages": AGENT, "tools": SCHEMAS, "chat_template_kwargs": {"short": True}}
    file = tmp_path / f"a.{form}"
    if form == "parquet":
        pq.write_table(pa.Table.from_pylist([row]), file)
    elif form == "csv":
        with file.open("w", newline="") as out:
            writer = csv.DictWriter(out, [*row])
            writer.writeheader()
            writer.writerow({name: json.dumps(cell) for name, cell in row.items()})
    else:
        file.write_text(json.dumps(row))
    (document,) = read_files([file], answers=True)
    asks, calls, returns, answers = document.chat.turns
    assert (asks, answers) == TURNS
    assert calls.message == AGENT[1]
    assert returns.message == AGENT[2]
    assert document.chat.given_to_template == {"tools": SCHEMAS, "short": True}
    # What is called counts as said; what tools there are does not.
    assert document.text == 'Who moves?\n\nI look.\nweather {"city": "Ulm", "at": null}\n\nA member.'
    written = tmp_path / "b.jsonl"
    written.write_bytes(json_line(document, labelled=False))
    (again,) = read_files([written], answers=True)
    assert again.chat._replace(origin="") == document.chat._replace(origin="")
    without = [replace(document, chat=document.chat._replace(**{name: ""})) for name in ("tools", "settings")]
    assert len({digest([one]) for one in (document, *without)}) == 3


def test_what_an_answer_calls_stays_in_its_copies():
    chat = Chat((Turn("user", "A?"), Turn("assistant", "", '{"tool_calls": [{"name": "F"}]}'), Turn("assistant", "Bc")))
    copies = of_chat(chat).copies(lambda text: [text.lower(), text.upper()])
    assert [copy.text for copy in copies] == ["F \n\nbc", "F \n\nBC"]
    alone = of_chat(chat.until(2)).copies(lambda text: [text.lower(), text.upper()])
    assert alone == [of_chat(chat.until(2))] * 2


def test_a_digest_of_a_chat_without_tools_is_that_of_earlier_releases(tmp_path):
    (document,) = read(tmp_path, {"messages": TALK})
    assert digest([document]) == "4722274b2c84fb05"


def test_a_chat_is_written_as_it_is_read_and_its_turns_are_part_of_its_digest(tmp_path):
    rows = [
        {"messages": TALK},
        {"prompt": TALK[:1], "completion": TALK[1:]},
        {"prompt": "Who moves?", "completion": "A member."},
        {"text": "A member.", "context": "Who moves?"},
    ]
    documents = read(tmp_path, *rows)
    file = tmp_path / "b.jsonl"
    file.write_bytes(b"".join(json_line(document, labelled=False) for document in documents))
    again = read_files([file], answers=True)
    assert [d.prompt._replace(chat=None) for d in again] == [d.prompt._replace(chat=None) for d in documents]
    for one, other in zip(documents, again, strict=True):
        assert (one.chat and one.chat[:2]) == (other.chat and other.chat[:2])
    assert len({digest([document]) for document in documents}) == 4
    assert digest(documents) == digest(again) != digest(documents[::-1])


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"messages": TALK[:1]}, "a chat must have an answer, a turn of the role assistant; it has none"),
        ({"messages": []}, "a chat must have an answer"),
        (
            {"messages": [TALK[0], {"role": "assistant", "content": " \n"}]},
            "an answer must be a string that is not blank; turn 2 is",
        ),
        ({"prompt": "a?", "completion": ""}, "completion must be a string that is not blank; got ''"),
        ({"prompt": TALK[:1], "completion": [{"role": "assistant"}]}, "an answer must be .* not blank; turn 2 is"),
    ],
)
def test_a_row_without_an_answer_is_counted_or_refused(row, message, tmp_path):
    with pytest.raises(RowError, match=f"a.jsonl:1: {message}"):
        read(tmp_path, row)
    skipped = Counter()
    assert len(read(tmp_path, row, {"messages": TALK}, skipped=skipped)) == 1
    assert skipped == {"no answer": 1}


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"messages": "hello"}, "messages must be a list of objects with role and content, .*; got 'hello'"),
        ({"messages": ["hello"]}, "messages must be .*; 0: input should be an object; got 'hello'"),
        ({"messages": [{"content": "a"}]}, "messages must be .*; 0.role: field required"),
        ({"messages": [TALK[0], {"role": "assistant", "content": 7}]}, "messages .*; 1.content: .* string; got 7"),
        ({"messages": [{**TALK[0], "weight": 1, "id": 3}, TALK[1]]}, "messages .*; 0.weight: unexpected keyword"),
        ({"messages": [TALK[0], {**TALK[1], "tool_calls": [1]}]}, "messages .*; 1.tool_calls.0.*; got 1"),
        ({"messages": [TALK[0], {**TALK[1], "tool_calls": "f"}]}, "messages .*; 1.tool_calls: .*; got 'f'"),
        ({"messages": [{**TALK[0], "name": 5}, TALK[1]]}, "messages .*; 0.name: .* valid string; got 5"),
        ({"messages": [{**TALK[0], "content": [{"type": "text"}]}, TALK[1]]}, "messages .*; 0.content: .* string"),
        (
            {"conversations": [{"from": "x", "value": "a"}]},
            "turn 1 of conversations must be from one of human, .*; got 'x'",
        ),
        ({"messages": TALK, "tools": "a"}, "tools must be a list of JSON schemas, one a tool; .*; got 'a'"),
        ({"messages": TALK, "tools": [1]}, "tools must be a list of JSON schemas, one a tool; 0: .*; got 1"),
        ({"messages": TALK, "tools": [{"a": "b" * 10**7}]}, "tools must have at most 10,000,000 characters"),
        ({"messages": TALK, "chat_template_kwargs": 5}, "chat_template_kwargs must be an object .*; got 5"),
        (
            {"prompt": "a?", "completion": " b", "tools": [{"a": 1}]},
            "columns tools and chat_template_kwargs must come with turns, .*; prompt and completion are strings",
        ),
        ({"completion": " b"}, "prompt and completion must be two strings, or two lists of messages; got None and "),
        ({"prompt": "a?", "completion": TALK[1:]}, "prompt and completion must be two strings, or two lists"),
        ({"messages": [TALK[0], {"role": "assistant", "content": "\ud800"}]}, "messages must be valid Unicode"),
        ({"messages": [{**TALK[0], "content": " " * (10**7 + 1)}, TALK[1]]}, "messages must have at most"),
        (
            {"prompt": json.dumps(TALK[:1]), "completion": " b"},
            "prompt and completion must be two strings, or two lists of messages",
        ),
    ],
)
def test_what_is_no_chat_is_refused_in_one_line(row, message, tmp_path):
    with pytest.raises(UsageError, match=f"a.jsonl:1: {message}"):
        read(tmp_path, row, skipped=Counter())


def test_readers_that_score_whole_texts_know_no_chats(tmp_path):
    (tmp_path / "a.jsonl").write_text(json.dumps({"messages": TALK}))
    with pytest.raises(UsageError, match="text must be in column"):
        read_files([tmp_path / "a.jsonl"])
