"""Tables of the detectors of a run: everything measured, the three contrasts, and the control."""

from operator import methodcaller
from typing import NamedTuple

import pandas as pd

from fsd.evaluation.metrics import METRICS, Row, by_key
from fsd.evaluation.results import CONTRASTS, Results
from fsd.reporting.report import Column, Table, p_value, shown


class Line(NamedTuple):
    """The rows of one detector, by state and metric."""

    detector: str
    rows: dict[tuple[str, str], Row]

    def shown(self, state: str, metric: str) -> str:
        """A number with its interval."""
        return shown(self.rows.get((state, metric)))

    def holm(self, state: str, metric: str) -> str:
        """Its p-value, corrected for the number of detectors."""
        row = self.rows.get((state, metric))
        return p_value(row.p_holm if row else None)


def _lines(table: pd.DataFrame, metric: str) -> list[Line]:
    """One line for each detector that has the metric by its FSD."""
    lines: dict[str, Line] = {}
    for (detector, state, name), row in by_key(table).items():
        lines.setdefault(detector, Line(detector, {})).rows[state, name] = row
    return [line for line in lines.values() if ("fsd", metric) in line.rows]


def _of(state: str, metric: str, heading: str) -> Column:
    return Column(heading, lambda line: line.shown(state, metric))


def _value(line: Line, state: str, metric: str, form: str) -> str:
    row = line.rows.get((state, metric))
    return format(row.value, form) if row else "–"


def detectors_table(results: Results) -> Table:
    """One line per detector; that of the best is highlighted."""
    lines = _lines(results.table, "auc")
    columns = [
        Column("Detector", "detector"),
        _of("base", "auc", "Base AUC\n[95 % CI]"),
        _of("fsd", "auc", "FSD AUC\n[95 % CI]"),
        Column("Gain", lambda line: _value(line, "", "auc_gain", "+.2f")),
        Column("p (Holm)", lambda line: line.holm("", "auc_gain")),
        *([Column("Placebo", lambda line: _value(line, "fsd", "placebo_auc", ".2f"))] if results.placebo else []),
        *(_of("fsd", name, metric.label) for name, metric in METRICS.items() if name != "auc"),
        _of("", "auc_gain", "Gain [95 % CI]"),
    ]
    chosen = "validation" if results.parts.validation else "the test texts themselves"
    return Table(
        lines,
        columns,
        caption="AUC is the probability that a text from the training data scores higher than one that is not; .50 is "
        "guessing, 1.00 is perfect. The 95 % interval, by groups of related texts, is in brackets. The columns to "
        "the right of p describe the FSD: TPR@5%FPR is the share of training texts found when 5 of 100 other texts "
        "are wrongly called training texts. p (Holm) is how often chance alone shows such a gain or a larger one, "
        "corrected for the number of detectors. The highlighted row is the detector of the findings.",
        title=f"{len(results.judged)} test texts, best on {chosen}: {results.best}",
        name="results",
        frame=results.table,
        marked=[at for at, line in enumerate(lines) if line.detector == results.best],
        kept=(0, 2, 3, 1, 4, *([5] if results.placebo else [])),
        source="summary.csv",
    )


def contrast_tables(results: Results) -> list[Table]:
    """One table for each of the three contrasts that were measured, see `fsd.evaluation.results`."""
    return [
        Table(
            _lines(results.table, f"auc_{contrast.name}"),
            [
                Column("Detector", "detector"),
                _of("base", f"auc_{contrast.name}", "Base AUC"),
                _of("fsd", f"auc_{contrast.name}", "FSD AUC"),
                _of("", f"auc_gain_{contrast.name}", "Gain"),
                Column("p (Holm)", methodcaller("holm", "", f"auc_gain_{contrast.name}")),
                _of("fsd", f"placebo_auc_{contrast.name}", "Placebo FSD"),
            ],
            caption=f"{contrast.title.capitalize()}: {contrast.meaning}.",
            title=f"{contrast.title} ({contrast.meaning})",
            kept=(0, 2, 3, 1, 4),
            source="summary.csv",
        )
        for contrast in (CONTRASTS if results.contrasts else ())
    ]


def placebo_table(results: Results) -> Table:
    """What the same procedure reaches on a control model, and the difference."""
    return Table(
        _lines(results.table, "placebo_lead"),
        [
            Column("Detector", "detector"),
            _of("fsd", "auc", "FSD AUC"),
            _of("fsd", "placebo_auc", "Placebo"),
            _of("fsd", "placebo_lead", "Difference"),
            Column("p (Holm)", lambda line: line.holm("fsd", "placebo_lead")),
        ],
        caption="The placebo is the same fine-tuning and scoring of the same texts with a control model trained on "
        "none of them: any separation that it shows comes from the texts. The difference of the two AUCs is tested "
        "in pairs; only the difference can come from the training data: from these texts or, unless the non-members "
        "are contemporaries of the members, from others of their period. p (Holm) is corrected for the number of "
        "detectors.",
        name="placebo",
        printed=False,
    )
