"""Tables of the detectors of a run: everything measured, the three contrasts, and the control."""

from functools import partial
from typing import Any

from fsd.evaluation.results import CONTRASTS, FALLBACK, Results
from fsd.reporting.report import Column, Table, p_value
from fsd.scores import BASE, FSD
from fsd.statistics.intervals import shortened
from fsd.statistics.metrics import METRICS


def _table(results: Results, metric: str, columns: dict[str, tuple[str, str, str]], **options: Any) -> Table:
    """One line for each detector that has the metric; columns: heading → state, metric and form, see `_cell`.

    The state "top" is that of the headline, or FSD without a base score; "said" is FSD but for the headline's detector.
    """
    highest: dict[str, float] = {}
    for row in results.measured(metric):
        if row.state in results.states:
            highest[row.detector] = max(row.value, highest.get(row.detector, 0.0))
    # A detector without an FSD was not measured to the end, so that it has no line.
    detectors = [detector for detector in highest if (detector, FSD, metric) in results.rows]
    detectors.sort(key=lambda detector: -highest[detector])
    cells = [Column(heading, partial(_cell, results, *cell)) for heading, cell in columns.items()]
    marked = [index for index, detector in enumerate(detectors) if detector == results.headline.detector]
    return Table(detectors, [Column("Detector", str), *cells], source="summary.csv", marked=marked, **options)


def _cell(results: Results, state: str, metric: str, form: str, detector: str) -> str:
    """Text of a cell of `_table`; the form is `interval`, `signed`, `p` or the format of a number."""
    if state == "top":
        state = FSD if results.paired(detector) else results.headline.state
    elif state == "said":
        state = results.headline.state if detector == results.headline.detector else FSD
    row = results.rows.get((detector, state, metric))
    if row is None:
        return "–"
    if form == "signed":
        return row.estimate.signed
    if form == "interval":
        return str(row.estimate)
    if form == "p":
        return p_value(row.p_holm)
    return shortened(row.value, form)


def detectors_table(results: Results) -> Table:
    """One line per detector, the highest AUC first; that of the best on validation is highlighted."""
    chosen = "validation" if results.parts.validation else "the test texts themselves"
    described = "base score" if results.headline.state == BASE else "FSD"
    columns = {
        "Base AUC\n[95 % CI]": (BASE, "auc", "interval"),
        "FSD AUC\n[95 % CI]": (FSD, "auc", "interval"),
        "Gain": ("", "auc_gain", "+z.2f"),
        "p (Holm)": ("", "auc_gain", "p"),
    }
    # The detector, its FSD and the gain tell most, so that a narrow terminal loses them last.
    kept = [0, 2, 3, 1, 4]
    if results.control_name:
        columns["Control"] = ("top", "placebo_auc", ".2f")
        kept.append(5)
    for name, metric in METRICS.items():
        if name != "auc":
            columns[metric.label] = ("top", name, "interval")
    columns["Gain [95 % CI]"] = ("", "auc_gain", "signed")
    if results.measured(FALLBACK):
        columns["Fallback"] = (BASE, FALLBACK, ".0%")
    return _table(
        results,
        "auc",
        columns,
        caption="AUC is the probability that a text from the training data scores higher than one that is not; .50 is "
        "guessing, 1.00 is perfect. The 95 % interval, by groups of related texts, is in brackets. The columns to "
        f"the right of p describe the {described}: TPR@5%FPR is the share of training texts found when 5 of 100 other "
        "texts are wrongly called training texts. p (Holm) is how often chance alone shows such a gain or a larger "
        "one, corrected for the number of detectors. The highlighted row is the detector of the findings.",
        title=f"{len(results.judged)} test texts; best on {chosen}: {results.headline_title}",
        name="results",
        frame=results.table,
        kept=kept,
    )


def contrast_tables(results: Results) -> list[Table]:
    """One table for each of the three contrasts that were measured, see `fsd.evaluation.results`."""
    if not results.contrasts:
        return []
    tables = []
    for contrast in CONTRASTS:
        auc = f"auc_{contrast.name}"
        gain = f"auc_gain_{contrast.name}"
        columns = {
            "Base AUC": (BASE, auc, "interval"),
            "FSD AUC": (FSD, auc, "interval"),
            "Gain": ("", gain, "interval"),
            "p (Holm)": ("", gain, "p"),
            "Control FSD": (FSD, f"placebo_{auc}", "interval"),
        }
        caption = f"{contrast.title.capitalize()}: {contrast.meaning}."
        title = f"{contrast.title} ({contrast.meaning})"
        tables.append(_table(results, auc, columns, caption=caption, title=title, kept=(0, 2, 3, 1, 4)))
    return tables


def placebo_table(results: Results) -> Table:
    """What the same procedure reaches on a control model, and the difference."""
    columns = {
        "AUC": ("said", "auc", "interval"),
        "Control": ("said", "placebo_auc", "interval"),
        "Difference": ("said", "placebo_lead", "interval"),
        "p (Holm)": ("said", "placebo_lead", "p"),
    }
    return _table(
        results,
        "placebo_lead",
        columns,
        caption=f"AUC is that of the FSD, and for {results.headline.detector} that of "
        f"{results.headline_title}. Control is the same fine-tuning and scoring of the same texts with a "
        "control model, trained on none of them: any separation that it shows comes from the texts. The difference of "
        "the two AUCs is tested in pairs; only the difference can come from the training data: from these texts or, "
        "unless the non-members are contemporaries of the members, from others of their period. p (Holm) is corrected "
        "for the number of detectors.",
        name="placebo",
        printed=False,
    )
