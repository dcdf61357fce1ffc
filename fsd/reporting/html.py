"""report.html: one self-contained page for readers who know neither the software nor the field."""

from base64 import b64encode
from collections.abc import Collection, Sequence
from dataclasses import dataclass

import pandas as pd
from jinja2 import Environment, PackageLoader
from markupsafe import Markup

from fsd.errors import printable
from fsd.evaluation.contrasts import CONTRASTS
from fsd.evaluation.intervals import shortened
from fsd.evaluation.metrics import METRICS, Row, by_key


@dataclass(frozen=True)
class Table:
    """A table; the first column names its row.

    Attributes:
        caption: what it shows, in one or two sentences.
        head: names of the columns.
        rows: text of the cells.
        left: indices of the columns of words; the others hold numbers and are aligned to the right.
        marked: indices of the highlighted rows.
        name: of its file in the tracked run, without suffix; empty for a table that is on the page only.
    """

    caption: str
    head: Sequence[str]
    rows: Sequence[Sequence[str]]
    left: Collection[int] = (0,)
    marked: Collection[int] = ()
    name: str = ""


@dataclass(frozen=True)
class Picture:
    """A PNG file.

    Attributes:
        png: the file.
        caption: how to read it, in one or two sentences.
        alt: what it shows, for readers who do not see it; the caption if empty.
    """

    png: bytes
    caption: str
    alt: str = ""

    @property
    def base64(self) -> str:
        """The file as text, for the page."""
        return b64encode(self.png).decode("ascii")


@dataclass(frozen=True)
class Section:
    """A heading with paragraphs, points, tables and pictures below it, in this order."""

    title: str
    paragraphs: Sequence[str] = ()
    points: Sequence[str] = ()
    tables: Sequence[Table] = ()
    pictures: Sequence[Picture] = ()


@dataclass(frozen=True)
class Page:
    """A report: one HTML page with its figures inside, without external resources and scripts.

    All text is escaped, and control characters and overrides of its direction are made visible.

    Attributes:
        title: of the page.
        question: one sentence.
        findings: the results in sentences, the most important first; one that starts with LEAK or WARNING is set in
            bold.
        sections: in order; `limits` makes the one about what is not proved.
        facts: label and value of what is needed to repeat the run: model, data, settings, versions, date.
        answer: the answer in plain words; the first of the findings if empty.
        changes: what would change the answer.
    """

    title: str
    question: str
    findings: Sequence[str]
    sections: Sequence[Section]
    facts: Sequence[tuple[str, str]]
    answer: Sequence[str] = ()
    changes: Sequence[str] = ()

    def render(self) -> str:
        """The page in HTML."""
        first = {} if self.answer else {"answer": self.findings[:1], "findings": self.findings[1:]}
        pages = Environment(
            loader=PackageLoader("fsd.reporting"),
            autoescape=True,
            finalize=_shown,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        return pages.get_template("report.html").render({**vars(self), **first})


def shown(row: Row | None) -> str:
    """The number with its interval as in the text, or a dash if there is none."""
    return "–" if row is None else str(row.estimate)


def p_shown(p: float | None) -> str:
    """A p-value with three decimals."""
    if p is None:
        return "–"
    return "< .001" if p < 0.001 else shortened(p, ".3f")


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
            "corrected for the number of detectors. The highlighted row is the detector of the findings."
        ),
        head=head,
        rows=cells,
        marked=[detectors.index(best)] if best in detectors else (),
        name="results",
    )


def contrast_tables(table: pd.DataFrame) -> list[Table]:
    """One table for each of the three contrasts, see `fsd.evaluation.contrasts`."""
    rows = by_key(table)
    tables = []
    for contrast in CONTRASTS:
        fsd = {d: row for (d, state, metric), row in rows.items() if (state, metric) == ("fsd", f"auc_{contrast.name}")}
        cells = []
        for detector, row in fsd.items():
            base, gain = (rows.get((detector, state, f"{name}_{contrast.name}")) for state, name in _BASE_AND_GAIN)
            placebo = rows.get((detector, "fsd", f"placebo_auc_{contrast.name}"))
            cells.append(
                [detector, shown(base), shown(row), shown(gain), p_shown(gain.p_holm if gain else None), shown(placebo)]
            )
        tables.append(
            Table(
                caption=f"{contrast.title.capitalize()}: {contrast.meaning}.",
                head=["Detector", "Base AUC", "FSD AUC", "Gain", "p (Holm)", "Placebo FSD"],
                rows=cells,
            )
        )
    return tables


_BASE_AND_GAIN = (("base", "auc"), ("", "auc_gain"))


def _shown(value: object) -> object:
    """An expression of the template without control characters; what is HTML already is made of such."""
    return value if isinstance(value, Markup) else printable(str(value))


def placebo_table(table: pd.DataFrame) -> Table:
    """What the same procedure reaches on a control model, and the lead over it."""
    rows = by_key(table)
    head = ["Detector", "FSD AUC", "Placebo", "Lead", "p (Holm)"]
    cells = [
        [
            detector,
            shown(rows[detector, "fsd", "auc"]),
            shown(rows[detector, "fsd", "placebo_auc"]),
            shown(row),
            p_shown(row.p_holm),
        ]
        for (detector, _, metric), row in rows.items()
        if metric == "placebo_lead"
    ]
    return Table(
        caption=(
            "The placebo is the same fine-tuning and scoring of the same texts with a control model trained on none of "
            "them: any separation that it shows comes from the texts. The lead is the difference of the two AUCs, "
            "tested in pairs; only the lead can come from the training data: from these texts or, unless the "
            "non-members are contemporaries of the members, from others of their period. p (Holm) is corrected for the "
            "number of detectors."
        ),
        head=head,
        rows=cells,
        name="placebo",
    )


def limits(fpr: float | None = None) -> Section:
    """What such numbers never prove.

    Args:
        fpr: the chosen false-positive rate, if the report gives verdicts.
    """
    points = [
        "A high score is statistical evidence, not a copy found in the training data. Single texts can be misjudged in "
        "both directions.",
        "A text called “not shown” may still have been in the training data: the method often misses texts that the "
        "model saw only once.",
        "The error rates hold for texts of the same kind, language, length and period as the texts on which they were "
        "measured. For others they are unknown.",
        "A model may know a text through quotations, translations or copies elsewhere, although the text itself was "
        "never collected.",
        "A model may be familiar with the period of a text that it never read. Only contemporaries, texts of the "
        "members' own period that are known not to be in the training data, tell this from membership.",
        "If a classifier that never sees the model separates members from non-members as well, the result shows how "
        "the texts differ, and nothing about the training data.",
    ]
    if fpr is not None:
        points.insert(
            0,
            f"By design, about {fpr:.1%} of the texts that were not in the training data are called members; of 1,000 "
            f"such texts, about {fpr * 1000:.0f}.",
        )
    return Section("What this does not prove", points=points)
