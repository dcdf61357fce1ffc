import base64
import re
from html.parser import HTMLParser
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

from fsd.evaluation.findings import Finding, as_findings
from fsd.evaluation.rows import Row, by_key, evaluate
from fsd.reporting.report import Picture, Report, Section, document, limits, p_value, page, plain
from fsd.reporting.results import detectors_table, placebo_table
from fsd.scores import IN_RUN, Score

PNG = b"\x89PNG\r\n\x1a\nnot really"
VOID = {"meta", "img", "br"}


class _Balanced(HTMLParser):
    """Collects the text and fails on a tag that is closed in the wrong order."""

    def __init__(self):
        super().__init__()
        self.open, self.texts = [], []

    def handle_starttag(self, tag, attrs):
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.texts.append(data)


def _page(**more):
    values = {
        "title": "Report",
        "question": "Was it in the training data?",
        "findings": as_findings(["loss FSD .92 [.90, .94]", "LEAK: 3 groups"]),
        "sections": [
            Section(
                "Results",
                paragraphs=["First."],
                points=["A point."],
                tables=[plain(["name", "n"], [["a", "1"], ["b", "2"]], caption="Caption.", marked=[1])],
                pictures=[Picture(PNG, "A figure.")],
            ),
            limits(0.05),
        ],
        "facts": [("Model", "tiny"), ("Seed", "42")],
    }
    return page(Report(**{**values, **more}))


def _read(page):
    parser = _Balanced()
    parser.feed(page)
    assert parser.open == []
    return " ".join(parser.texts)


def test_everything_is_on_the_page_which_stands_alone():
    page = _page()
    text = _read(page)
    for said in ("Was it in the training data?", "LEAK: 3 groups", "A point.", "Caption.", "A figure.", "Seed", "42"):
        assert said in text
    assert "By design, about 5.0% of the texts" in text
    assert "of 1,000 such texts, about 50" in text
    assert not re.search(r"(src|href)=\"(?!data:)", page)
    assert not [outside for outside in ("http", "<script", "url(") if outside in page]
    assert base64.b64encode(PNG).decode() in page
    assert '<li class="warning">LEAK: 3 groups</li>' in page
    assert '<tr class="best"><th scope="row">b</th><td class="number">2</td></tr>' in page


def test_sentences_come_before_technical_notes_and_captions_stay_outside_of_what_scrolls():
    page = _page(answer=["Yes."], sure=["The texts alone do not explain it."], facts=[("Date", "2026-11-23")])
    order = ("Yes.", "How sure is this?", "The texts alone", "Results", "Technical notes", "LEAK: 3 groups", "Date")
    places = [page.index(words) for words in order]
    assert places == sorted(places)
    assert re.search(r'<p class="caption">Caption.</p>\s*<div class="scrolls"', page)
    assert '@top-left { content: "Report"' in page
    assert '@top-right { content: "2026\\2d 11\\2d 23"' in page
    assert '<td class="number">.5<small>[.4, .6]</small>' in _page(
        sections=[Section("", tables=[plain(["a", "b"], [["x", ".5 [.4, .6]"]])])]
    )


def test_a_title_cannot_leave_its_string_in_the_style_sheet():
    assert 'content: "a\\22 \\7d \\3c \\2f style\\3e \\5c b"' in _page(title='a"}</style>\\b')


def _everywhere(words):
    """A page that has the words wherever words can be."""
    section = Section(words, [words], [words], [plain([words], [[words]], caption=words)], [Picture(PNG, words)])
    return _page(title=words, question=words, findings=[Finding(words)], facts=[(words, words)], sections=[section])


def test_texts_are_escaped():
    nasty = '<script>alert("x")</script> & "quotes"'
    page = _everywhere(nasty)
    assert "<script" not in page
    assert _read(page).count(nasty) >= 9


def test_overrides_and_control_characters_are_neutral():
    page = _everywhere("abc\u202edcba\u2066x\x1b[2J\x00\ud800\u2028 \u0645\u0631\u062d\u0628\u0627")
    page.encode("utf-8")
    assert not set("\u202e\u2066\x1b\x00\u2028") & set(page)
    assert "abc\ufffddcba\ufffdx" in page
    assert "\u0645\u0631\u062d\u0628\u0627" in page
    assert "unicode-bidi: plaintext" in page


@pytest.fixture
def results():
    rng = np.random.default_rng(0)
    labels = np.arange(60) % 2 == 0
    scores = {"loss.base": rng.normal(size=60), "loss.fsd": rng.normal(size=60)}
    scores["pair.fsd"] = rng.normal(size=60) + 3 * labels
    table = evaluate(pd.DataFrame(scores), labels, resamples=50, control={"loss": rng.normal(size=60)})
    fallback = Row("loss", "base", "fallback", 0.8)
    parts, rows = SimpleNamespace(validation=[1]), by_key(table) | {fallback[:3]: fallback}
    how = {
        "measured": lambda metric: [row for row in rows.values() if row.metric == metric],
        "headline_title": "pair",
        "control_name": "twin",
        "parts": parts,
        "judged": labels,
        "states": IN_RUN,
    }
    return SimpleNamespace(table=table, rows=rows, headline=Score("pair"), paired=lambda name: name == "pair", **how)


def test_tables_of_results(results):
    table = detectors_table(results)
    assert [len(row) for row in table.rows] == [len(table.head)] * 2
    assert table.rows[0][:2] == ["pair", "–"]
    assert table.rows[0][3:6] == ["–", "–", "–"]
    assert table.marked == [0]
    assert "[" in table.rows[1][1]
    assert (table.head[-1], [row[-1] for row in table.rows]) == ("Fallback", ["–", "80%"])

    (row,) = placebo_table(results).rows
    assert row[:2] == ["loss", table.rows[1][2]]
    assert re.fullmatch(r"-?\.\d\d \[-?\.\d\d, -?\.\d\d\]", row[3])


def test_numbers_as_shown():
    assert [p_value(p) for p in (None, 0.0001, 0.0123, 1.0)] == ["–", "< .001", ".012", "1.000"]


def test_the_name_of_a_file_begins_no_tag_in_a_card():
    card = document("card.md", base={"id": "b"}, texts="<script>alert(1)</script>.jsonl, p < .05")
    assert "&lt;script>alert(1)&lt;/script>.jsonl, p < .05" in card
