"""What people have: fine-tuning files of other tools, files of other shapes, and what is said of the columns."""

import json
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import yaml

from fsd.data.documents import json_line
from fsd.data.fields import parse_columns
from fsd.data.readers import read_files
from fsd.data.reading import read_otherwise
from fsd.errors import UsageError

ROOT = Path(__file__).parents[3]
LAYOUTS: dict[str, dict[str, Any]] = yaml.safe_load((ROOT / "tests" / "data" / "layouts.yaml").read_text())


def written(folder, rows):
    path = folder / "a.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def read(folder, layout):
    columns = parse_columns(layout.get("columns", ""), answers=True)
    return read_files([written(folder, layout["rows"])], columns, answers=True)


@pytest.mark.parametrize("name", [name for name, layout in LAYOUTS.items() if "refused" not in layout])
def test_a_layout_is_read_and_said(name, tmp_path):
    layout = LAYOUTS[name]
    documents = read(tmp_path, layout)
    assert len(documents) == len(layout["rows"])
    chat = documents[0].chat
    assert documents[0].prompt.text == layout["scored"]
    if "turns" in layout:
        assert [turn.role for turn in chat.turns] == layout["turns"]
    elif "prompt" in layout:
        assert chat.turns[0].content == layout["prompt"]
    else:
        assert chat is None
    said = read_otherwise(documents)
    assert layout["read"] in said
    assert bool(said) == bool(layout["read"])
    # What a run writes of them is read as the same.
    again = tmp_path / "again.jsonl"
    again.write_bytes(b"".join(map(json_line, documents)))
    assert [document.prompt.text for document in read_files([again], answers=True)] == [
        document.prompt.text for document in documents
    ]


@pytest.mark.parametrize("name", [name for name, layout in LAYOUTS.items() if "refused" in layout])
def test_a_row_that_fits_no_layout_or_two_is_refused(name, tmp_path):
    with pytest.raises(UsageError, match=LAYOUTS[name]["refused"]) as error:
        read(tmp_path, LAYOUTS[name])
    assert "\n" not in str(error.value)


def test_where_texts_alone_are_read_prompt_and_completion_are_refused(tmp_path):
    path = written(tmp_path, [{"instruction": "Who?", "input": "of two", "output": "A member."}])
    with pytest.raises(UsageError, match=r'Alpaca\)\): make one .* "text=\{instruction\} \{input\} \{output\}"$'):
        read_files([path])
    columns = parse_columns("text={instruction} {input} {output}")
    assert [document.text for document in read_files([path], columns)] == ["Who? of two A member."]


TSV = {
    # As most such files are: a quote is a character.
    "quotes": ('a\t"b" c\n"d\te\nf"\tg\n"h"\t"i ""j"""\n', [["a", '"b" c'], ['"d', "e"], ['f"', "g"], ["h", 'i "j"']]),
    # As programs for CSV write cells with tabs, line breaks and blank lines, in the last column and before it.
    "last": ('a\t"b\n\nc"\nd\te\n', [["a", "b\n\nc"], ["d", "e"]]),
    "first": ('"a\nb"\tc\nd\te\n', [["a\nb", "c"], ["d", "e"]]),
    "tabs": ('"a\tb"\tc\n', [["a\tb", "c"]]),
    "Windows": ('a\t"b"\r\n"c\td\r\n', [["a", "b"], ['"c', "d"]]),
}


@pytest.mark.parametrize("ending", ["tsv", "csv"])
@pytest.mark.parametrize("name", TSV)
def test_a_quote_in_tabs_is_a_character_unless_it_encloses_a_cell(name, ending, tmp_path):
    content, rows = TSV[name]
    path = tmp_path / f"a.{ending}"
    path.write_bytes(f"text\tgroup\n{content}".encode())
    assert [[document.text, document.group] for document in read_files([path])] == rows


@pytest.mark.parametrize("content", ['"a\nb\nc\td\n', '"a\tb\nc\nd\te\n'])
def test_a_quote_that_never_ends_is_refused_with_its_lines(content, tmp_path):
    path = tmp_path / "a.tsv"
    path.write_text(f"text\tgroup\n{content}")
    with pytest.raises(UsageError, match=r"a\.tsv:2: a cell that begins with a quote.*lines 2 to \d are no row"):
        read_files([path])
    path.write_text('text\n"a\nb"\n')
    with pytest.raises(UsageError, match=r"a\.tsv:2: a cell that begins with a quote"):
        read_files([path])


FRAME = pd.DataFrame({"text": ["one", "two"], "label": [1, 0]})
JSON_FILES = {
    "as it comes": FRAME.to_json(),
    "records": FRAME.to_json(orient="records"),
    "lines": FRAME.to_json(orient="records", lines=True),
    "index": FRAME.to_json(orient="index"),
    "split": FRAME.to_json(orient="split"),
    "table": FRAME.to_json(orient="table", index=False),
    "data": json.dumps({"version": 1, "data": FRAME.to_dict("records")}, indent=2),
    "columns": json.dumps(FRAME.to_dict("list")),
    "strings": '["one", "two"]',
    "lines of strings": '"one"\n"two"\n',
    "data of strings": '{"data": ["one", "two"]}',
}


@pytest.mark.parametrize("name", JSON_FILES)
def test_json_of_every_shape_is_read(name, tmp_path):
    path = tmp_path / "a.json"
    path.write_text(JSON_FILES[name])
    documents = read_files([path])
    assert [document.text for document in documents] == ["one", "two"]
    assert [document.member for document in documents] == ([None, None] if "strings" in name else [True, False])


def test_of_two_tables_in_one_file_one_must_be_saved_apart(tmp_path):
    path = tmp_path / "a.json"
    path.write_text(json.dumps({"train": [{"text": "a"}], "test": [{"text": "b"}]}))
    with pytest.raises(UsageError, match=r"must hold one table; it holds train, test: save each"):
        read_files([path])


@pytest.mark.parametrize(
    ("name", "content", "way"),
    [
        ("a.csv", "text\ncaf\u00e9\n".encode("cp1252"), "iconv -f WINDOWS-1252 -t UTF-8 "),
        ("a.csv", "text\nx\n".encode("utf-16"), "iconv -f UTF-16 -t UTF-8 "),
        ("a.xlsx", b"PK\3\4", ": save the sheet as CSV UTF-8"),
        ("a.docx", b"PK\3\4", ": save it as plain text"),
    ],
)
def test_what_cannot_be_read_says_how_to_save_it(name, content, way, tmp_path):
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(UsageError) as error:
        read_files([path])
    assert way in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("source", ["arxiv:2024", "cc:2019", "https://example.org/news", "c4"])
def test_a_source_is_kept_whatever_its_name(source, tmp_path):
    (document,) = read_files([written(tmp_path, [{"text": "a", "source": source}])])
    assert document.source == source
    # In what a run, a collector or a table of scores writes, it is the place of one text.
    for row in ({"source": source, "sha256": "0"}, {"source": "a.jsonl:3"}):
        assert read_files([written(tmp_path, [{"text": "a", **row}])])[0].source == ""


def test_copies_in_several_files_are_counted(tmp_path):
    for name, numbers in (("train", range(4)), ("test", range(4, 6)), ("all", range(6))):
        rows = "".join(json.dumps({"text": f"text {number}"}) + "\n" for number in numbers)
        (tmp_path / f"{name}.jsonl").write_text(rows)
    said = read_otherwise(read_files([tmp_path]))
    assert said.startswith("6 of 12 rows repeat another one, as ")
    assert said.endswith(f"{tmp_path}/test.jsonl:1 repeats {tmp_path}/all.jsonl:5")


@pytest.mark.parametrize(
    "mark", ["<|im_start|>", "[INST]", "<|user|>", "<start_of_turn>", "<|start_header_id|>", "### Instruction:"]
)
def test_marks_of_a_chat_template_are_named(mark, tmp_path):
    path = written(tmp_path, [{"text": f"{mark} user\nWho?"}, {"text": "plain"}])
    said = read_otherwise(read_files([path]))
    assert said.startswith(f"1 of 2 texts hold marks of a chat template, as {mark}")
    assert "column messages" in said


FOREIGN = {"text": "a", "label": "B", "date": "2019", "source": {"name": "x"}, "context": ["y"], "group": [1]}


def test_a_column_that_is_none_of_ours_is_left_out(tmp_path):
    path = written(tmp_path, [FOREIGN])
    spec = ",".join(f"{name}=-" for name in FOREIGN if name != "text")
    (document,) = read_files([path], parse_columns(spec, answers=True), answers=True)
    assert (document.member, document.date, document.source, document.context) == (None, None, "", "")
    for name in list(FOREIGN)[1:]:
        with pytest.raises(UsageError, match=f"{name} must .*--columns {name}=-$"):
            read_files([written(tmp_path, [{"text": "a", name: FOREIGN[name]}])], answers=True)
