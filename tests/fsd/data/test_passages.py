"""Corpora of any size: streamed from every format, in passages, and what is refused."""

import gzip

import pandas as pd
import pytest
import zstandard

from fsd.data.passages import PASSAGE, TextStream, last_cut
from fsd.errors import UsageError


def write(path, content):
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


TEXTS = ["one two", 'three, "four"\nfive', "größer", "六七"]
TABLE = pd.DataFrame({"id": range(len(TEXTS)), "text": TEXTS})
JSON_LINES = TABLE.to_json(orient="records", lines=True).encode()
STREAMS = {
    "a.jsonl": JSON_LINES,
    "a.jsonl.gz": gzip.compress(JSON_LINES[:30]) + gzip.compress(JSON_LINES[30:]),
    "a.jsonl.zst": b"".join(map(zstandard.ZstdCompressor().compress, (JSON_LINES[:30], JSON_LINES[30:]))),
    "a.csv": TABLE.to_csv(index=False).encode(),
    "a.tsv": TABLE.to_csv(index=False, sep="\t").encode(),
    "a.parquet": TABLE.to_parquet(index=False),
}


@pytest.mark.parametrize("name", STREAMS)
def test_every_format_is_streamed_to_the_same_texts_and_reads_all_bytes(tmp_path, name):
    corpus = TextStream([write(tmp_path / name, STREAMS[name])])
    assert [(p.text, p.opens) for p in corpus] == [(text, True) for text in TEXTS]
    assert corpus.done == corpus.size > 0


def test_a_text_file_is_one_document_in_passages_that_keep_every_byte(tmp_path):
    text = "".join(f"word{i} and\n  more\r\n" for i in range(PASSAGE // 8))
    passages = list(TextStream([write(tmp_path / "a.txt", text)]))
    assert "".join(p.text for p in passages) == text
    assert [p.opens for p in passages] == [True] + [False] * (len(passages) - 1)
    assert len(passages) > 2
    cuts = {"ab cd ef": 5, "ab cd  ef": 2, "ab \nc": 4, "abc": 3, " a": 2, "a ": 2}
    assert {text: last_cut(text) for text in cuts} == cuts


def test_empty_and_missing_texts_are_left_out_and_bad_files_named(tmp_path):
    rows = '{"text": ""}\n\n{"text": null}\n{"text": "x \\ud800"}\n'
    assert [p.text for p in TextStream([write(tmp_path / "a.jsonl", rows)])] == ["x \ufffd"]
    for name, content, message in (
        ("a.jsonl", b'{"text": "x"}\n{"text": \n', "jsonl:2"),
        ("a.jsonl.gz", gzip.compress(JSON_LINES, mtime=0)[:-9], "whole file"),
        ("a.jsonl.zst", zstandard.ZstdCompressor().compress(JSON_LINES)[:-5], "whole file"),
        ("a.parquet.gz", b"x", "must end in"),
    ):
        with pytest.raises(UsageError, match=message):
            list(TextStream([write(tmp_path / name, content)]))
