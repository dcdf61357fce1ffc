"""report.html: one file that a reader without the software, the network or the field can follow and print."""

import base64
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

import pandas as pd

from fsd.evaluation.metrics import METRICS, Row, by_key

STYLE = """
:root { color-scheme: light; }
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 62rem; padding: 2.5rem 1.5rem 4rem; background: #fff; color: #1b1b1b;
  font: 16px/1.55 Georgia, "Liberation Serif", "Times New Roman", serif; }
h1 { font-size: 1.9rem; line-height: 1.2; margin: 0 0 .3rem; }
h2 { font-size: 1.25rem; margin: 2.4rem 0 .6rem; padding-bottom: .2rem; border-bottom: 2px solid #1b1b1b; }
.question { font-size: 1.12rem; font-style: italic; color: #444; margin: 0 0 1.4rem; }
.findings { margin: 0; padding: .9rem 1.2rem .9rem 2.2rem; background: #f4f6f8; border-left: 5px solid #0072b2; }
.findings li { margin: .25rem 0; }
.findings li.warning { font-weight: bold; color: #8a3a00; }
table { border-collapse: collapse; margin: .8rem 0 .4rem;
  font: 14px/1.4 system-ui, "Liberation Sans", Arial, sans-serif; }
table.wide { width: 100%; }
caption { text-align: left; color: #444; padding: 0 0 .45rem; }
th, td { padding: .35rem .7rem .35rem 0; text-align: left; vertical-align: top; border-bottom: 1px solid #ddd; }
thead th { border-bottom: 2px solid #777; vertical-align: bottom; }
td.number, th.number { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
td { overflow-wrap: anywhere; }
th[scope=row] { font-weight: 600; white-space: nowrap; }
tr.best { background: #fff4e8; }
figure { margin: 1.2rem 0; }
figure img { display: block; max-width: 100%; height: auto; }
figcaption { font-size: .92rem; color: #444; margin-top: .4rem; }
@media print {
  body { max-width: none; padding: 0; font-size: 11pt; }
  table { font-size: 8.5pt; }
  th, td { padding-right: .4rem; }
  h2, caption { break-after: avoid; }
  tr, figure, .findings { break-inside: avoid; }
}
"""


@dataclass(frozen=True)
class Table:
    """A table; the first column names its row.

    Attributes:
        caption: what it shows, one or two sentences.
        head: names of the columns.
        rows: texts of the cells.
        numeric: columns that hold numbers, counted from 0.
        marked: rows to be highlighted, counted from 0.
    """

    caption: str
    head: Sequence[str]
    rows: Sequence[Sequence[str]]
    numeric: frozenset[int] = frozenset()
    marked: frozenset[int] = frozenset()


@dataclass(frozen=True)
class Picture:
    """A PNG file and the sentence below it."""

    png: bytes
    caption: str


@dataclass(frozen=True)
class Section:
    """A heading and what stands below it, in this order: paragraphs, points, tables, pictures."""

    title: str
    paragraphs: Sequence[str] = ()
    points: Sequence[str] = ()
    tables: Sequence[Table] = ()
    pictures: Sequence[Picture] = ()


@dataclass(frozen=True)
class ReportContent:
    """All that a report says; every text is plain text and is escaped.

    Attributes:
        title: of the page.
        question: what was asked, one sentence.
        findings: the answer, the most important first; one that starts with "LEAK" is set off as a warning.
        sections: in order; `limits` makes the one about what is not proved.
        facts: label and value: model, data, settings, versions, date: what is needed to do it again.
    """

    title: str
    question: str
    findings: Sequence[str]
    sections: Sequence[Section]
    facts: Sequence[tuple[str, str]]


def shown(row: Row | None) -> str:
    """The number with its interval as in the text, or a dash if there is none."""
    return "–" if row is None else str(row.estimate)


def p_shown(p: float | None) -> str:
    """A p-value with as many digits as mean anything."""
    if p is None:
        return "–"
    return "< .001" if p < 0.001 else f"{p:.3f}".replace("0.", ".", 1)


def results_table(table: pd.DataFrame, best: str) -> Table:
    """The table of detectors, with 95 % intervals; the row of `best` is highlighted."""
    rows = by_key(table)
    others = [name for name in METRICS if name != "auc"]
    head = ["Detector", "Base AUC", "FSD AUC", "Gain", "p (Holm)", *(METRICS[name].label for name in others)]
    detectors = list(dict.fromkeys(row.detector for row in rows.values() if row.state == "fsd"))
    cells = [
        [
            detector,
            shown(rows.get((detector, "base", "auc"))),
            shown(rows.get((detector, "fsd", "auc"))),
            shown(gain := rows.get((detector, "", "auc_gain"))),
            p_shown(gain.p_holm if gain else None),
            *(shown(rows.get((detector, "fsd", name))) for name in others),
        ]
        for detector in detectors
    ]
    return Table(
        caption=(
            "AUC is the probability that a text from the training data scores higher than one that is not; .50 is "
            "guessing, 1.00 is perfect. The 95 % interval, by groups of related texts, is in brackets. The columns to "
            "the right of p describe the FSD: TPR@5%FPR is the share of training texts found when 5 of 100 other texts "
            "are wrongly called training texts. p (Holm) is how often chance alone shows such a gain or a larger one, "
            "corrected for the number of detectors."
        ),
        head=head,
        rows=cells,
        numeric=frozenset(range(1, len(head))),
        marked=frozenset({detectors.index(best)} if best in detectors else ()),
    )


def placebo_table(table: pd.DataFrame) -> Table:
    """What the same procedure reaches on a control model, and the lead over it."""
    rows = by_key(table)
    head = ["Detector", "FSD AUC", "Placebo", "Lead", "p"]
    cells = [
        [
            detector,
            shown(rows[detector, "fsd", "auc"]),
            shown(rows[detector, "fsd", "placebo_auc"]),
            shown(row),
            p_shown(row.p),
        ]
        for (detector, _, metric), row in rows.items()
        if metric == "placebo_lead"
    ]
    return Table(
        caption=(
            "The placebo is the same fine-tuning and scoring of the same texts with a control model trained on none of "
            "them: any separation that it shows comes from the texts. The lead is the difference of the two AUCs, "
            "tested in pairs; only the lead can come from the training data."
        ),
        head=head,
        rows=cells,
        numeric=frozenset(range(1, len(head))),
    )


def limits(fpr: float | None = None) -> Section:
    """What such numbers never prove; with the chosen false-positive rate where verdicts are given."""
    points = [
        "A high score is statistical evidence, not a copy found in the training data. Single texts can be judged "
        "wrongly in both directions.",
        "A text called “not shown” may still have been in the training data: the method often misses texts that "
        "the model saw only once.",
        "The error rates hold for texts of the same kind, language, length and time as the texts they were measured "
        "on. For others they are unknown.",
        "A model may know a text through quotations, translations or copies elsewhere without the text itself having "
        "been collected.",
        "Where a classifier that never sees the model tells the two sides apart as well, the result shows how the "
        "texts differ, and says nothing about the training data.",
    ]
    if fpr is not None:
        points.insert(
            0,
            f"About {fpr:.1%} of texts that were not in the training data are called members by design; of 1,000 such "
            f"texts, about {fpr * 1000:.0f}.",
        )
    return Section("What this does not prove", points=points)


def html(content: ReportContent) -> str:
    """The report as one HTML page: figures inside, nothing loaded from elsewhere, no script."""
    body = [
        f"<h1>{escape(content.title)}</h1>",
        f'<p class="question">{escape(content.question)}</p>',
        "<h2>Findings</h2>",
        _points(content.findings, "findings"),
        *(_section(section) for section in content.sections),
        "<h2>How to do it again</h2>",
        _facts(content.facts),
    ]
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(content.title)}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n"
        + "\n".join(part for part in body if part)
        + "\n</body>\n</html>\n"
    )


def _section(section: Section) -> str:
    parts = [f"<section>\n<h2>{escape(section.title)}</h2>"]
    parts += [f"<p>{escape(paragraph)}</p>" for paragraph in section.paragraphs]
    parts.append(_points(section.points))
    parts += [_table(table) for table in section.tables]
    parts += [_picture(picture) for picture in section.pictures]
    return "\n".join(part for part in parts if part) + "\n</section>"


def _points(points: Sequence[str], kind: str = "points") -> str:
    if not points:
        return ""
    kinds = (' class="warning"' if point.startswith("LEAK") else "" for point in points)
    items = (f"<li{mark}>{escape(point)}</li>" for mark, point in zip(kinds, points, strict=True))
    return f'<ul class="{kind}">\n' + "\n".join(items) + "\n</ul>"


def _table(table: Table) -> str:
    def cell(tag: str, column: int, text: str) -> str:
        number = ' class="number"' if column in table.numeric else ""
        return f"<{tag}{number}>{escape(text)}</{tag}>"

    lines = []
    for at, row in enumerate(table.rows):
        cells = "".join(cell("td", column, text) for column, text in enumerate(row) if column)
        mark = ' class="best"' if at in table.marked else ""
        lines.append(f'<tr{mark}><th scope="row">{escape(row[0])}</th>{cells}</tr>')
    head = "".join(cell("th", column, text) for column, text in enumerate(table.head))
    return (
        f'<table class="wide"><caption>{escape(table.caption)}</caption>\n<thead><tr>{head}</tr></thead>\n<tbody>\n'
        + "\n".join(lines)
        + "\n</tbody></table>"
    )


def _picture(picture: Picture) -> str:
    data = base64.b64encode(picture.png).decode("ascii")
    caption = escape(picture.caption)
    image = f'<img alt="{caption}" src="data:image/png;base64,{data}">'
    return f"<figure>{image}<figcaption>{caption}</figcaption></figure>"


def _facts(facts: Sequence[tuple[str, str]]) -> str:
    rows = (f'<tr><th scope="row">{escape(label)}</th><td>{escape(value)}</td></tr>' for label, value in facts)
    return "<table><tbody>\n" + "\n".join(rows) + "\n</tbody></table>"
