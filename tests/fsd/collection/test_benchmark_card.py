"""Balanced benchmarks and their cards."""

import json
from collections import Counter
from dataclasses import replace
from datetime import date, timedelta

import pytest

from fsd.collection.benchmark_card import build, ngram_overlap, shared, write_benchmark
from fsd.data.documents import Document
from fsd.data.readers import read_files
from fsd.errors import UsageError
from fsd.reporting.report import document


@pytest.fixture
def side(prose, monkeypatch):
    """Gives a text of each number, on consecutive days."""
    monkeypatch.setattr("fsd.text_audit.audit.REPEATS", 1)

    def make(member, numbers, start=date(2023, 3, 1), count=40):
        return [
            Document(prose(n, count, "w"), member, start + timedelta(days=i), f"{member}{n}", f"http://{member}/{n}")
            for i, n in enumerate(numbers)
        ]

    return make


def test_a_benchmark_is_balanced_and_described_by_its_card(tmp_path, side):
    members, nonmembers = side(True, range(30), start=date(2022, 1, 1)), side(False, range(100, 125))
    documents, card = build("made", members, nonmembers)
    assert documents == [*members[:25], *nonmembers]
    days = ["2022-01-01", "2022-01-13", "2022-01-25"]
    assert card["members"] == {"texts": 25, "groups": 25, "dates": days, "words": [40, 40, 40]}
    assert card["left_out"] == {"over the smaller side": 5}
    assert card["ngram_overlap"] == {7: 0.0, 13: 0.0}
    assert card["aucs"]["date"]["value"] == 1.0
    assert card["aucs"]["blind"]["low"] <= 0.5
    assert card["warning"] == ""
    out = tmp_path / "b.jsonl"
    write_benchmark(out, documents, card, document("benchmark_card.md", card=card))
    assert Counter(d.member for d in read_files([out], labelled=True)) == {True: 25, False: 25}
    assert json.loads((tmp_path / "b.card.json").read_text())["members"] == card["members"]
    page = (tmp_path / "b.card.md").read_text()
    assert "| texts | 25 | 25 |" in page
    assert "5 over the smaller side" in page


def test_a_shifted_benchmark_is_called_shifted(side):
    members = [replace(d, text=f"old age {d.text}") for d in side(True, range(25), start=date(2022, 1, 1), count=60)]
    nonmembers = [replace(d, text=f"new time {d.text}") for d in side(False, range(100, 125))]
    _, card = build("made", members, nonmembers)
    assert card["aucs"]["blind"]["value"] > 0.9
    assert card["aucs"]["length"]["value"] == 1.0
    assert card["warning"].startswith("SHIFTED: without any model, a classifier of words reaches AUC 1.00")
    assert "the length alone" in card["warning"]
    assert card["warning"] in document("benchmark_card.md", card=card)


def test_sides_that_share_texts_are_refused_with_a_list(side):
    members, nonmembers = side(True, range(8), start=date(2022, 1, 1)), side(False, range(100, 108))
    nonmembers[2] = replace(nonmembers[2], text=members[5].text.upper())
    nonmembers[3] = replace(nonmembers[3], group=members[0].group)
    assert shared(members, nonmembers) == [(0, 3, "group True0"), (5, 2, "copy")]
    listed = r"share no text; 2 pairs do: http://True/0 .2022-01-01. = http://False/103.*--drop-shared$"
    with pytest.raises(UsageError, match=listed):
        build("made", members, nonmembers)
    documents, card = build("made", members, nonmembers, drop_shared=True)
    assert len(documents) == 12
    assert card["left_out"] == {"shared by both sides": 4}
    with pytest.raises(UsageError, match="none is left on one of them"):
        build("made", members[:1], [nonmembers[3]], drop_shared=True)


def test_ngram_overlap_by_hand():
    assert ngram_overlap(["a b c d"], ["x b c y", "z"], 2) == pytest.approx((1 / 3 + 0) / 2)
    assert ngram_overlap(["a b c"], ["A, b c!"], 3) == 1.0
