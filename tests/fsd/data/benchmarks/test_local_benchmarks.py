import hashlib
import json
from pathlib import Path
from typing import Any

import pytest

from fsd.data import benchmarks
from fsd.errors import UsageError


def write(path: Path, rows: list[dict[str, Any]]) -> str:
    path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8")
    return str(path)


def test_patentmia(tmp_path: Path) -> None:
    rows = [{"text": "本发明涉及一种装置。", "label": 1}, {"text": "一种电池。", "label": 0}]
    file = write(tmp_path / "PatentMIA.jsonl", rows)
    found = benchmarks.load(f"patentmia:{file}")
    assert [(d.text, d.member) for d in found.documents] == [(row["text"], row["label"] == 1) for row in rows]
    assert found.source == file
    assert found.revision == f"sha256:{hashlib.sha256(Path(file).read_bytes()).hexdigest()}"
    assert found.documents[1].source == f"{file}:2"


def book(count: int, letter: str) -> str:
    return " ".join(f"{letter}{i}" for i in range(count))


def test_dolma_book_by_hand(tmp_path: Path) -> None:
    dolma = write(
        tmp_path / "dolma.jsonl",
        [{"id": "7", "text": book(10, "m"), "source": "gutenberg", "added": "2023-03-27", "metadata": {}},
         {"id": "8", "text": book(2, "s")}],
    )  # fmt: skip
    row = {"text": book(3, "n"), "date": "2024-05-01", "group": "7"}
    new = write(tmp_path / "new.jsonl", [row])
    found = benchmarks.load(f"dolma_book:{dolma},{new},3")
    assert [(d.text, d.member, d.group) for d in found.documents] == [
        ("m0 m1 m2", True, "dolma:7"), ("m3 m4 m5", True, "dolma:7"), ("m7 m8 m9", True, "dolma:7"),
        ("n0 n1 n2", False, "new:7"),
    ]  # fmt: skip
    assert found.source == f"{dolma}, {new}"
    middle = benchmarks.load(f"dolma_book:{dolma},{new},middle,2")
    assert [d.text for d in middle.documents] == ["m4 m5", "s0 s1", "n0 n1"]
    with pytest.raises(UsageError, match=r"dolma.jsonl must have texts of at least 512 words; all 2 are shorter"):
        benchmarks.load(f"dolma_book:{dolma},{new}")
    with pytest.raises(UsageError, match="group must be in column 'id'; columns are text, date, group"):
        benchmarks.load(f"dolma_book:{new},{dolma}")
    write(tmp_path / "new.jsonl", [row, {**row, "text": book(3, "o")}])
    assert len(benchmarks.load(f"dolma_book:{dolma},{new},3").documents) == 5
    with pytest.raises(UsageError, match=r"one row a book if tail alone is asked for; 7 has 2: .* places=tail"):
        benchmarks.load(f"dolma_book:{dolma},{new},3,tail")
