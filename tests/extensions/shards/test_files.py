"""Files cut into shards: every row once, in order, with its origin, without loading a file."""

import json
from pathlib import Path

import fsspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from extensions.shards import files as shards
from fsd.errors import UsageError

ROWS = [{"text": f"text {number} é"} for number in range(25)]


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("corpus")
    lines = [json.dumps(row, ensure_ascii=False) for row in ROWS]
    (folder / "a.jsonl").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    (folder / "b.ndjson").write_text("\n".join(lines), encoding="utf-8")
    pq.write_table(pa.Table.from_pylist(ROWS), folder / "sub.parquet", row_group_size=4)
    (folder / "empty.jsonl").touch()
    (folder / "notes.txt").write_text("not a table")
    memory = fsspec.filesystem("memory")
    for file in ("a.jsonl", "sub.parquet"):
        memory.pipe(f"/corpus/{file}", (folder / file).read_bytes())
    return folder


@pytest.mark.parametrize("name", ["more.jsonl.gz", "more.csv"])
def test_data_that_no_shard_can_be_made_of_are_named(name, tmp_path) -> None:
    (tmp_path / "a.jsonl").write_text('{"text": "a"}')
    (tmp_path / name).write_text("b")
    with pytest.raises(UsageError, match=rf"shards must be made of \S+, \S+, .parquet; got \S+{name}"):
        shards.find([str(tmp_path)])


def test_the_password_of_an_address_is_no_part_of_an_origin() -> None:
    fsspec.filesystem("memory").pipe("/user:secret@host/a.jsonl", b'{"text": "a"}')
    shard = shards.Shard(0, "memory://user:secret@host/a.jsonl", 0, 13, 1, 1)
    assert shard.read() == [("memory://user:***@host/a.jsonl:1", {"text": "a"})]
    assert "secret" not in str(shard)


@pytest.mark.parametrize("rows", [1, 4, 7, 25, 100])
@pytest.mark.parametrize(
    "place", ["", "/*.jsonl", "/b.ndjson", "/sub.parquet", "memory://corpus", "memory://corpus/*.parquet"]
)
def test_every_row_is_in_one_shard_with_its_origin(corpus, place, rows, monkeypatch) -> None:
    monkeypatch.setattr(shards, "BLOCK", 7)
    inputs, found = shards.cut(shards.find([place if "://" in place else f"{corpus}{place}"]), rows)
    read = [row for shard in found for row in shard.read()]
    full = [file for file in inputs if file.size]
    assert [row for _, row in read] == ROWS * len(full)
    assert [origin for origin, _ in read] == [f"{file.url}:{line}" for file in full for line in range(1, 26)]
    assert sum(shard.rows for shard in found) == sum(file.rows for file in inputs) == len(read)
    assert max(shard.rows for shard in found) <= rows


def test_files_are_named_as_they_were_given_and_hashed_by_their_content(corpus, monkeypatch) -> None:
    monkeypatch.chdir(corpus.parent)
    local, _ = shards.cut(shards.find([corpus.name]), 10)
    remote, _ = shards.cut(shards.find(["memory://corpus"]), 10)
    assert [file.url for file in local] == [
        f"{corpus.name}/{name}" for name in ("a.jsonl", "b.ndjson", "empty.jsonl", "sub.parquet")
    ]
    assert [file.hash for file in remote] == [local[0].hash, local[3].hash]


def test_what_is_not_utf_8_is_named_with_its_line(tmp_path) -> None:
    (tmp_path / "bad.jsonl").write_bytes(b'{"text": "a"}\n' * 3 + b'{"text": "\xff"}\n')
    _, found = shards.cut(shards.find([str(tmp_path)]), 2)
    with pytest.raises(UsageError, match=r"bad\.jsonl:4: must be encoded in UTF-8"):
        found[1].read()


def test_files_below_the_output_are_none_and_endings_are_in_any_case(tmp_path) -> None:
    (tmp_path / "A.JSONL").write_text('{"text": "a"}\n')
    pq.write_table(pa.Table.from_pylist(ROWS), tmp_path / "B.PARQUET")
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "_manifest.json").write_text("{}")
    inputs, found = shards.cut(shards.find([str(tmp_path)], tmp_path / "out"), 100)
    assert [file.rows for file in inputs] == [1, len(ROWS)]
    assert [row for shard in found for _, row in shard.read()] == [{"text": "a"}, *ROWS]
    with pytest.raises(UsageError, match=r"shards must be made of .*; got \S+/out/_manifest\.json"):
        shards.find([str(tmp_path)])
