"""Verdicts by rights holder, with the day of a reservation beside the end of the model's data."""

import json
from datetime import date
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pandas as pd

from fsd.data.documents import Document
from pipelines.detect.owners import Holder, holders, owners_table


def test_verdicts_are_counted_by_holder(tmp_path: Path) -> None:
    file = tmp_path / "new.jsonl"
    rows = [
        {"text": "a", "owner": "Press", "reserved": "2024-05-01"},
        {"text": "b", "owner": "Press", "reserved": "2024-03-01"},
        {"text": "c", "domain": "daily.example"},
        {"text": "d"},
    ]
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    named = holders([str(file), "one.txt"])
    assert named[f"{file}:1"] == Holder("Press", date(2024, 5, 1))
    assert named[f"{file}:3"] == Holder("daily.example")
    documents = [Document(str(row["text"]), origin_url=f"{file}:{line}") for line, row in enumerate(rows, 1)]
    verdicts: Any = SimpleNamespace(
        table=pd.DataFrame({"verdict": ["member", "not shown", "outside calibrated domain", "no verdict"]})
    )
    table = owners_table(documents, verdicts, named, "embedded", None)
    assert table is not None
    lines = [[str(cell) for cell in row] for row in table.rows]
    assert [row[:5] for row in lines] == [
        ["Press", "2", "1", "1", "0"],
        ["daily.example", "1", "0", "0", "1"],
        ["not named", "1", "0", "0", "1"],
    ]
    assert lines[0][5] == "2024-03-01"
    assert date.fromisoformat(lines[0][6])
    given = owners_table(documents, verdicts, named, "nobody/nothing", date(2024, 1, 31))
    assert cast("Any", given).rows[0][6] == "2024-01-31"
    unknown = owners_table(documents, verdicts, named, "nobody/nothing", None)
    assert cast("Any", unknown).rows[0][6] == "not known"
    assert owners_table(documents, verdicts, {}, "embedded", None) is None
