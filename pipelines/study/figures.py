"""The figure of a study, drawn by `fsd.reporting.figures`."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from fsd.evaluation.metrics import Estimate
from fsd.reporting import figures
from pipelines.study.catalogue import Study
from pipelines.study.cells import CellResult, read_scores

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

    from fsd.token_stats import Scores

HIDDEN = ("state", "metric")
MAX_BANDS = 5
"""Maximum number of lines whose intervals are drawn as bands; the bands of more lines would hide one another."""


def figure(study: Study, results: Sequence[CellResult], measured: "pd.DataFrame") -> "Figure":
    """The study's figure: of the scores of its only cell, or of the AUCs of all cells."""
    if study.figure in ("roc", "scores"):
        return _of_scores(study, results[0])
    aucs = measured[measured["metric"] == "AUC"]
    title = f"{study.place}\n{study.title}"
    if study.figure == "curve":
        return _curve(study, aucs, title)
    if study.figure == "heat map":
        x, y = (list(aucs[axis].unique()) for axis in (study.x, study.y))
        values = aucs.pivot(index=study.y, columns=study.x, values="value").loc[y, x].to_numpy()
        return figures.heat_map(x, y, values, x_name=study.x, y_name=study.y, name="AUC", title=title)
    panels: dict[str, dict[str, dict[str, Estimate]]] = {}
    for auc in aucs.to_dict("records"):
        panel, row = (_join(auc, axes) for axes in (study.columns, study.rows))
        panels.setdefault(panel, {}).setdefault(auc["state"], {})[row] = _estimate(auc)
    return figures.dots(panels, x_name="AUC", title=title, chance=0.5)


def _join(labels: Mapping[Any, Any], axes: Sequence[str]) -> str:
    return " · ".join(labels[axis] for axis in axes if axis not in HIDDEN)


def _estimate(auc: Mapping[Any, Any]) -> Estimate:
    return Estimate(auc["value"], auc["low"], auc["high"])


def _curve(study: Study, aucs: "pd.DataFrame", title: str) -> "Figure":
    x = [float(level) for level in aucs[study.x].unique()]
    # A line has all labels but x in its name, or the name of the detector if only a setting of it is varied.
    settings = {name for spec in study.detectors for name in spec.settings}
    hidden = {study.x, *settings, *(["detector"] if study.x in settings else [])}
    axes = [axis for axis in (*study.rows, *study.columns) if axis not in hidden]
    points = aucs.to_dict("records")
    names = [_join(auc, axes) or study.detectors[0].name for auc in points]
    bands = len(set(names)) <= MAX_BANDS
    lines: dict[str, list[Estimate | float]] = {}
    for name, auc in zip(names, points, strict=True):
        lines.setdefault(name, []).append(_estimate(auc) if bands else auc["value"])
    x_log = min(x) > 0 and max(x) / min(x) >= 100
    return figures.curves(x, {title: lines}, x_name=study.x, y_name="AUC", chance=0.5, x_log=x_log)


def _of_scores(study: Study, result: CellResult) -> "Figure":
    table = read_scores(result)

    def columns(state: str) -> "Scores":
        names = {spec.key: spec.shown for spec in study.detectors if f"{spec.key}.{state}" in table}
        return {shown: table[f"{key}.{state}"].to_numpy(np.float64) for key, shown in names.items()}

    draw = figures.roc if study.figure == "roc" else figures.score_distributions
    return draw(table["label"].to_numpy() == 1, columns("base"), columns("fsd"))
