import gzip
import json
from pathlib import Path

import pyarrow as pa
import pytest
import zstandard
from pyarrow import csv, parquet

from fsd.data.readers import PASSAGE, Corpus, last_cut
from fsd.errors import UsageError

TEXTS = ["one two", 'three, "four"\nfive', "größer", "六七"]
LINES = "".join(json.dumps({"id": i, "text": text}) + "\n" for i, text in enumerate(TEXTS)).encode()


def write(file: Path) -> Path:
    table = pa.table({"id": list(range(len(TEXTS))), "text": TEXTS})
    match file.suffixes:
        case [".jsonl"]:
            file.write_bytes(LINES)
        case [".jsonl", ".gz"]:
            file.write_bytes(gzip.compress(LINES[:30]) + gzip.compress(LINES[30:]))
        case [".jsonl", ".zst"]:
            compress = zstandard.ZstdCompressor().compress
            file.write_bytes(compress(LINES[:30]) + compress(LINES[30:]))
        case [".csv"]:
            csv.write_csv(table, file)
        case _:
            parquet.write_table(table, file)
    return file


@pytest.mark.parametrize("name", ["a.jsonl", "a.jsonl.gz", "a.jsonl.zst", "a.csv", "a.parquet"])
def test_every_format_gives_the_same_texts_and_reads_all_bytes(tmp_path, name):
    corpus = Corpus([write(tmp_path / name)])
    assert [(p.text, p.opens) for p in corpus] == [(text, True) for text in TEXTS]
    assert corpus.done == corpus.size > 0


def test_a_text_file_is_one_document_in_passages_that_keep_every_byte(tmp_path):
    text = "".join(f"word{i} and\n  more\r\n" for i in range(PASSAGE // 8))
    (tmp_path / "a.txt").write_bytes(text.encode())
    passages = list(Corpus([tmp_path / "a.txt"]))
    assert len(passages) > 2
    assert "".join(p.text for p in passages) == text
    assert [p.opens for p in passages] == [True] + [False] * (len(passages) - 1)


def test_a_cut_lies_before_the_last_single_space_between_words():
    cuts = {"ab cd ef": 5, "ab cd  ef": 2, "ab \nc": 4, "abc": 3, " a": 2, "a ": 2}
    assert {text: last_cut(text) for text in cuts} == cuts


def test_empty_and_missing_texts_are_left_out(tmp_path):
    (tmp_path / "a.jsonl").write_text('{"text": ""}\n\n{"text": null}\n{"text": "x \\ud800"}\n')
    assert [p.text for p in Corpus([tmp_path / "a.jsonl"])] == ["x �"]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.jsonl", b'{"text": "x"}\n{"text": \n', "jsonl:2"),
        ("a.jsonl.gz", gzip.compress(LINES, mtime=0)[:-9], "whole file"),
        ("a.jsonl.zst", zstandard.ZstdCompressor().compress(LINES)[:-5], "whole file"),
        ("a.parquet.gz", b"x", "must end in"),
    ],
)
def test_bad_files_beside_those_of_the_table_are_named(tmp_path, name, content, message):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(UsageError, match=message):
        list(Corpus([tmp_path / name]))
