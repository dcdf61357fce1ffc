"""The command on files of every kind; the counts are tested in tests/extensions/overlap/test_overlap.py."""

import json
from pathlib import Path

import pandas as pd
import pytest

from extensions.overlap.command import OverlapConfig
from extensions.overlap.report import prepare
from fsd.errors import UsageError
from fsd.tracking import find_runs

WORDS = [f"w{number}" for number in range(100)]


def test_a_folder_is_searched_and_each_text_has_a_row(tmp_path: Path, monkeypatch, capsys) -> None:
    monkeypatch.chdir(tmp_path)
    texts = ["W0, w1! " + " ".join(WORDS[2:20]), "too short", " ".join(reversed(WORDS))]
    Path("texts.jsonl").write_text("".join(json.dumps({"question": text}) + "\n" for text in texts))
    Path("corpus", "deep").mkdir(parents=True)
    Path("corpus", "b.txt").write_text("before " + " ".join(WORDS[:15]))
    Path("corpus", "deep", "c.csv").write_text(f'text\nnothing\n"{" ".join(WORDS[2:30])}"\n')
    Path("corpus", "notes.md").write_text(" ".join(reversed(WORDS)))
    prepare(OverlapConfig("texts.jsonl", "corpus", "rows.parquet", column="question", corpus_column="text")).run()
    rows = pd.read_parquet("rows.parquet")
    assert rows["source"].tolist() == [f"texts.jsonl:{line}" for line in (1, 2, 3)]
    assert rows["words"].tolist() == [20, 2, 100]
    assert rows["ngrams"].tolist() == [8, 0, 88]
    assert rows["found"].tolist() == [8, 0, 0]
    assert rows["share"].fillna(-1).tolist() == [1, -1, 0]
    assert rows[["longest", "start", "where", "passage"]].iloc[0].tolist() == [
        20, 0, "corpus/b.txt", " ".join(WORDS[:20]),
    ]  # fmt: skip
    (run,) = find_runs("fsd-overlap")
    assert run.metrics["overlap/texts"] == 1 / 3
    assert run.metrics["overlap/longest"] == 20
    shown = " ".join(capsys.readouterr().out.split())
    assert "1 of 3 texts share 13 words in a row with the corpus, which has 8.3% of their 13-grams" in shown
    assert "1 texts have fewer than 13 words and cannot be compared" in shown
    assert "fsd overlap corpus texts.jsonl --column text --corpus-column question" in shown


def test_columns_are_joined_and_the_answer_is_looked_for(tmp_path: Path, monkeypatch, capsys) -> None:
    monkeypatch.chdir(tmp_path)
    question = " ".join(WORDS[:12])
    rows = [{"q": question, "a": 7}, {"q": " ".join(WORDS[20:33]), "a": "me"}, {"q": "no corpus " * 9, "a": "none"}]
    Path("texts.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    pd.DataFrame(rows[:2]).astype({"a": str}).to_parquet("texts.parquet")
    corpus = [f"{question} 7 and more", " ".join(WORDS[20:33])]
    Path("corpus.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in corpus))
    options = {"column": "{q} {a}", "corpus_column": "text", "answer": "a"}
    for file in ("texts.jsonl", "texts.parquet"):
        prepare(OverlapConfig(file, "corpus.jsonl", "rows.parquet", **options)).run()
        frame = pd.read_parquet("rows.parquet")
        assert frame["class"].tolist()[:2] == ["answer inside", "question alone"]
        assert frame["verdict"].tolist()[:2] == ["contaminated", "partly"]
    shown = " ".join(capsys.readouterr().out.split())
    assert "verdicts: 1 contaminated, 1 partly, 1 not found; matches: 1 answer inside" in shown
    assert "fsd overlap corpus.jsonl texts.parquet --column text --corpus-column '{q} {a}'" in shown
    with pytest.raises(UsageError, match="an output file must not be in a folder of inputs"):
        prepare(OverlapConfig("texts.jsonl", ".", "rows.parquet", **options))
    with pytest.raises(UsageError, match="the template of answer must name columns of the file; it has no 'b'"):
        prepare(OverlapConfig("texts.jsonl", "corpus.jsonl", column="q", corpus_column="text", answer="b")).run()
