"""What people have: fine-tuning files of other tools, files of other shapes, and what is said of the columns."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from fsd.data.documents import json_line
from fsd.data.readers import parse_columns, read_files
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
