"""The command on files of every kind; the counts are tested in tests/fsd/data/test_overlap.py."""

import json
from pathlib import Path

import pandas as pd

from pipelines.evidence.overlap import OverlapConfig, prepare

WORDS = [f"w{number}" for number in range(100)]


def test_a_folder_is_searched_and_each_text_has_a_row(tmp_path: Path, monkeypatch, capsys) -> None:
    from fsd.tracking import find_runs

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
