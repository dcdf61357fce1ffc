"""Tables of the detectors of a run: everything measured, the three contrasts, and the control."""

from functools import partial
from typing import Any

from fsd.evaluation.metrics import METRICS, shortened
from fsd.evaluation.results import CONTRASTS, Results
from fsd.reporting.report import Column, Table, p_value, shown


def _table(results: Results, metric: str, columns: dict[str, tuple[str, str, str]], **how: Any) -> Table:
    """One line for each detector that has the metric; columns: heading → state, metric and `interval`, `p` or a format.

    The state "top" is that of the headline, or FSD without a base score; "said" is FSD but for the headline's detector.
    """

    def cell(state: str, name: str, form: str, detector: str) -> str:
        if state == "top":
            state = results.top.state if (detector, "base", "auc") in results.rows else "fsd"
        elif state == "said":
            state = results.top.state if detector == results.top.detector else "fsd"
        row = results.rows.get((detector, state, name))
        if form == "interval":
            return shown(row)
        if form == "p":
            return p_value(row.p_holm if row else None)
        return shortened(row.value, form) if row else "–"

    highest: dict[str, float] = {}
    for (detector, state, name), row in results.rows.items():
        if name == metric and state in ("base", "fsd"):
            highest[detector] = max(row.value, highest.get(detector, 0.0))
    detectors = sorted((d for d in highest if (d, "fsd", metric) in results.rows), key=lambda d: -highest[d])
    shown_columns = [Column(name, partial(cell, *of)) for name, of in columns.items()]
    marked = [at for at, detector in enumerate(detectors) if detector == results.top.detector]
    return Table(detectors, [Column("Detector", str), *shown_columns], source="summary.csv", marked=marked, **how)


def detectors_table(results: Results) -> Table:
    """One line per detector, the highest AUC first; that of the best on validation is highlighted."""
    chosen = "validation" if results.parts.validation else "the test texts themselves"
    described = "base score" if results.top.state == "base" else "FSD"
    return _table(
        results,
        "auc",
        {
            "Base AUC\n[95 % CI]": ("base", "auc", "interval"),
            "FSD AUC\n[95 % CI]": ("fsd", "auc", "interval"),
            "Gain": ("", "auc_gain", "+z.2f"),
            "p (Holm)": ("", "auc_gain", "p"),
            **({"Placebo": ("top", "placebo_auc", ".2f")} if results.placebo else {}),
            **{metric.label: ("top", name, "interval") for name, metric in METRICS.items() if name != "auc"},
            "Gain [95 % CI]": ("", "auc_gain", "interval"),
        },
        caption="AUC is the probability that a text from the training data scores higher than one that is not; .50 is "
        "guessing, 1.00 is perfect. The 95 % interval, by groups of related texts, is in brackets. The columns to "
        f"the right of p describe the {described}: TPR@5%FPR is the share of training texts found when 5 of 100 other "
        "texts are wrongly called training texts. p (Holm) is how often chance alone shows such a gain or a larger "
        "one, corrected for the number of detectors. The highlighted row is the detector of the findings.",
        title=f"{len(results.judged)} test texts; best on {chosen}: {results.named(results.top)}",
        name="results",
        frame=results.table,
        kept=(0, 2, 3, 1, 4, *([5] if results.placebo else [])),
    )


def contrast_tables(results: Results) -> list[Table]:
    """One table for each of the three contrasts that were measured, see `fsd.evaluation.results`."""
    return [
        _table(
            results,
            f"auc_{contrast.name}",
            {
                "Base AUC": ("base", f"auc_{contrast.name}", "interval"),
                "FSD AUC": ("fsd", f"auc_{contrast.name}", "interval"),
                "Gain": ("", f"auc_gain_{contrast.name}", "interval"),
                "p (Holm)": ("", f"auc_gain_{contrast.name}", "p"),
                "Placebo FSD": ("fsd", f"placebo_auc_{contrast.name}", "interval"),
            },
            caption=f"{contrast.title.capitalize()}: {contrast.meaning}.",
            title=f"{contrast.title} ({contrast.meaning})",
            kept=(0, 2, 3, 1, 4),
        )
        for contrast in (CONTRASTS if results.contrasts else ())
    ]


def placebo_table(results: Results) -> Table:
    """What the same procedure reaches on a control model, and the difference."""
    return _table(
        results,
        "placebo_lead",
        {
            "AUC": ("said", "auc", "interval"),
            "Placebo": ("said", "placebo_auc", "interval"),
            "Difference": ("said", "placebo_lead", "interval"),
            "p (Holm)": ("said", "placebo_lead", "p"),
        },
        caption=f"AUC is that of the FSD, and for {results.top.detector} that of {results.named(results.top)}. The "
        "placebo is the same fine-tuning and scoring of the same texts with a control model trained on "
        "none of them: any separation that it shows comes from the texts. The difference of the two AUCs is tested "
        "in pairs; only the difference can come from the training data: from these texts or, unless the non-members "
        "are contemporaries of the members, from others of their period. p (Holm) is corrected for the number of "
        "detectors.",
        name="placebo",
        printed=False,
    )
