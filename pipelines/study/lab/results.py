"""Results of the laboratory: contrasts of every cell, and their means, with intervals over seeds and texts."""

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from fsd.evaluation.contrasts import CONTRASTS
from fsd.evaluation.intervals import Bootstrap, shortened
from fsd.evaluation.metrics import METRICS
from pipelines.study.lab import comparison
from pipelines.study.lab.seeds import interval

if TYPE_CHECKING:
    from pipelines.study.lab.targets import Cell

MEASURES = ("auc", "tpr_at_5fpr")
ERRORS = tuple(f"{name}_error" for name in MEASURES)
STATES = (".base", ".fsd")
SHOWN = ("loss.base", "loss.fsd", "min_k_pp.base", "min_k_reference.base", comparison.COMBINED)
"""Scores of the table and the figure; all are in the raw results."""


def measure(cell: "Cell", scores: pd.DataFrame) -> pd.DataFrame:
    """AUC and TPR at 5 % FPR of every score in every contrast that the cell has.

    Standard errors are over the texts, by a bootstrap of their families (see `fsd.evaluation.intervals.Bootstrap`).

    Args:
        cell: the cell.
        scores: as `pipelines.study.lab.targets.compute` returns them.

    Returns:
        Rows with corpus, size, exposures, seed, contrast, detector, state, auc, tpr_at_5fpr, their standard errors
        auc_error and tpr_at_5fpr_error, and lead_error, that of the lead of `combined` in AUC over the score.
    """
    kind, family = scores["kind"].to_numpy(str), np.asarray(cell.family)
    rows = []
    for contrast in CONTRASTS:
        if not contrast.possible(kind):
            continue
        chosen = contrast.among(kind)
        bootstrap = Bootstrap.draw(kind[chosen] == contrast.first, family[chosen].tolist())
        measured = {
            str(name): bootstrap.values(scores[name].to_numpy(np.float64)[chosen], [METRICS[m].of for m in MEASURES])
            for name in scores.columns
            if str(name).endswith(STATES)
        }
        combined = measured[comparison.COMBINED][0, 1:]
        for name, values in measured.items():
            detector, _, state = name.rpartition(".")
            where = {"corpus": cell.corpus, "size": cell.size, "exposures": cell.exposures, "seed": cell.seed}
            number = dict(zip(MEASURES, values[:, 0], strict=True))
            errors = dict(zip(ERRORS, values[:, 1:].std(axis=1, ddof=1), strict=True))
            lead = {"lead_error": (combined - values[0, 1:]).std(ddof=1)}
            score = {"contrast": contrast.name, "detector": detector, "state": state}
            rows.append({**where, **score, **number, **errors, **lead})
    return pd.DataFrame(rows)


def summarise(results: pd.DataFrame) -> pd.DataFrame:
    """Mean over seeds of every number, with its interval in [0, 1]; the columns end in `_low` and `_high`.

    The interval is over seeds and texts (see `pipelines.study.lab.seeds`). With one seed the limits are NaN.
    """
    keys = ["corpus", "size", "exposures", "contrast", "detector", "state"]
    rows = []
    for key, group in results.groupby(keys, sort=False):
        row: dict[str, object] = dict(zip(keys, key, strict=True)) | {"seeds": len(group)}
        for name, error in zip(MEASURES, ERRORS, strict=True):
            values, errors = (group[column].to_numpy(np.float64) for column in (name, error))
            low, high = np.clip(interval(values, errors), 0, 1)
            row |= {name: values.mean(), f"{name}_low": low, f"{name}_high": high}
        rows.append(row)
    return pd.DataFrame(rows)


def page(results: pd.DataFrame) -> str:
    """Markdown: for each corpus, the AUC of some scores by contrast and exposures."""
    summary = summarise(results)
    parts = []
    for (corpus, size), of_corpus in summary.groupby(["corpus", "size"], sort=False):
        parts.append(f"### {corpus}, {size} parameters\n")
        shown = [name for name in SHOWN if name in set(of_corpus["detector"] + "." + of_corpus["state"])]
        parts.append("| contrast | exposures | " + " | ".join(f"`{name}`" for name in shown) + " |")
        parts.append("|---|---:|" + "---|" * len(shown))
        parts += [
            f"| {title} | {exposures} | " + " | ".join(cells) + " |"
            for title, exposures, cells in _lines(of_corpus, shown)
        ]
        parts.append("")
    return "\n".join([*parts, *comparison.lines(results)])


def _lines(summary: pd.DataFrame, shown: Sequence[str]) -> Iterator[tuple[str, int, list[str]]]:
    for contrast in CONTRASTS:
        of_contrast = summary[summary["contrast"] == contrast.name]
        for exposures, rows in of_contrast.groupby("exposures"):
            named = {f"{row.detector}.{row.state}": row for row in rows.itertuples()}
            yield contrast.title, int(str(exposures)), [_number(named.get(name)) for name in shown]


def _number(row: object) -> str:
    """.72 [.68, .76]; without an interval for a single seed."""
    if row is None:
        return "–"
    value, low, high = (shortened(getattr(row, name)) for name in ("auc", "auc_low", "auc_high"))
    return value if "nan" in low else f"{value} [{low}, {high}]"


def headline(measured: pd.DataFrame) -> Mapping[str, float]:
    """Metrics of one cell for MLflow: `auc_<contrast>/<detector>.<state>`."""
    names = "auc_" + measured["contrast"] + "/" + measured["detector"] + "." + measured["state"]
    return dict(zip(names, measured["auc"].astype(float), strict=True))
