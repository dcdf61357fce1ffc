"""Results of the laboratory: contrasts of every cell, and their means, with intervals over seeds and texts."""

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from fsd.evaluation.contrasts import CONTRASTS
from fsd.evaluation.intervals import Bootstrap, resampled, shortened
from fsd.evaluation.metrics import METRICS
from pipelines.study.lab import comparison
from pipelines.study.lab.seeds import interval

if TYPE_CHECKING:
    from pipelines.study.lab.targets import Cell

MEASURES = ("auc", "tpr_at_5fpr")
OF = [METRICS[name].of for name in MEASURES]
ERRORS = tuple(f"{name}_error" for name in MEASURES)
STATES = (".base", ".fsd")
SHOWN = ("loss.base", "loss.fsd", "min_k_pp.base", "min_k_reference.base", comparison.COMBINED)
"""Scores of the table and the figure; all are in the raw results."""


def measure(cells: Sequence[tuple["Cell", pd.DataFrame]]) -> pd.DataFrame:
    """AUC and TPR at 5 % FPR of every score in every contrast that a cell has, with their standard errors over texts.

    Those errors are of the mean over the seeds: the families of a corpus are resampled, and each resample is the same
    in all seeds (see `fsd.evaluation.intervals.resampled`).

    Args:
        cells: each with its scores as `pipelines.study.lab.targets.compute` returns them.

    Returns:
        Rows with corpus, size, exposures, seed, contrast, detector, state, auc, tpr_at_5fpr, auc_error,
        tpr_at_5fpr_error, and lead_error, that of the lead of `combined` in AUC over the score.
    """
    seeds: dict[tuple[str, str, int], list[tuple[Cell, pd.DataFrame]]] = {}
    for cell, scores in cells:
        seeds.setdefault((cell.corpus, cell.size, cell.exposures), []).append((cell, scores))
    return pd.DataFrame([row for of_one in seeds.values() for row in _rows(of_one)])


def _rows(cells: Sequence[tuple["Cell", pd.DataFrame]]) -> Iterator[dict[str, Any]]:
    """The rows of cells that differ in the seed alone."""
    tables = [scores.assign(family=cell.family) for cell, scores in cells]
    counts = resampled([side.to_numpy() for table in tables for _, side in table.groupby("kind")["family"]])
    names = [str(name) for name in tables[0] if str(name).endswith(STATES)]
    for contrast in (one for one in CONTRASTS if one.possible(tables[0]["kind"].to_numpy(str))):
        chosen = [table[contrast.among(table["kind"].to_numpy(str))] for table in tables]
        bootstraps = [
            Bootstrap((table["kind"] == contrast.first).to_numpy(), table["family"].to_numpy(), counts)
            for table in chosen
        ]
        values = {  # score → (seeds, measures, 1 + resamples)
            name: np.stack(
                [b.values(table[name].to_numpy(np.float64), OF) for table, b in zip(chosen, bootstraps, strict=True)]
            )
            for name in names
        }
        for name, value in values.items():
            lead = (values[comparison.COMBINED] - value)[:, 0, 1:].mean(axis=0)
            errors = dict(zip(ERRORS, value[:, :, 1:].mean(axis=0).std(axis=1, ddof=1), strict=True))
            for (cell, _), numbers in zip(cells, value[:, :, 0], strict=True):
                yield {
                    "corpus": cell.corpus,
                    "size": cell.size,
                    "exposures": cell.exposures,
                    "seed": cell.seed,
                    "contrast": contrast.name,
                    "detector": name.rpartition(".")[0],
                    "state": name.rpartition(".")[2],
                    **dict(zip(MEASURES, numbers, strict=True)),
                    **errors,
                    "lead_error": lead.std(ddof=1),
                }


def summarise(results: pd.DataFrame) -> pd.DataFrame:
    """Mean over seeds of every number, with its interval in [0, 1]; the columns end in `_low` and `_high`.

    The interval is over seeds and texts (see `pipelines.study.lab.seeds`). With one seed the limits are NaN.
    """
    keys = ["corpus", "size", "exposures", "contrast", "detector", "state"]
    rows = []
    for key, group in results.groupby(keys, sort=False):
        row: dict[str, object] = dict(zip(keys, key, strict=True)) | {"seeds": len(group)}
        for name, error in zip(MEASURES, ERRORS, strict=True):
            low, high = np.clip(interval(group[name].to_numpy(np.float64), group[error].iloc[0]), 0, 1)
            row |= {name: group[name].mean(), f"{name}_low": low, f"{name}_high": high}
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
