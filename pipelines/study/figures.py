"""The figure of a study, drawn by `fsd.reporting.figures`."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from fsd.evaluation.intervals import Estimate
from pipelines.study.cells import CellResult
from pipelines.study.spec import Study
from pipelines.study.tables import Measurement, read_scores

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from fsd.token_stats import Scores

HIDDEN = ("state", "metric")
MAX_BANDS = 5
"""Maximum number of lines whose intervals are drawn as bands; the bands of more lines would hide one another."""


def figure(study: Study, results: Sequence[CellResult], measured: Sequence[Measurement]) -> "Figure":
    """The study's figure: of the scores of its only cell, or of the AUCs of all cells."""
    if study.figure in ("roc", "scores"):
        return _of_scores(study, results[0])
    aucs = [measurement for measurement in measured if measurement.labels["metric"] == "AUC"]
    draw = {"curve": _curve, "heat map": _heat_map, "dots": _dots}[study.figure]
    return draw(study, aucs, f"{study.place}\n{study.title}")


def _dots(study: Study, aucs: Sequence[Measurement], title: str) -> "Figure":
    from fsd.reporting.figures import dots

    panels: dict[str, dict[str, dict[str, Estimate]]] = {}
    for measurement in aucs:
        panel, row = (_join(measurement.labels, axes) for axes in (study.columns, study.rows))
        panels.setdefault(panel, {}).setdefault(measurement.labels["state"], {})[row] = measurement.estimate
    return dots(panels, x_name="AUC", title=title, chance=0.5)


def _join(labels: Mapping[str, str], axes: Sequence[str]) -> str:
    return " · ".join(labels[axis] for axis in axes if axis not in HIDDEN)


def _curve(study: Study, aucs: Sequence[Measurement], title: str) -> "Figure":
    from fsd.reporting import figures

    x = list(dict.fromkeys(float(measurement.labels[study.x]) for measurement in aucs))
    lines: dict[str, list[Estimate]] = {}
    for measurement in aucs:
        lines.setdefault(_line(study, measurement), []).append(measurement.estimate)
    shown: dict[str, list[Estimate | float]] = {
        name: [*points] if len(lines) <= MAX_BANDS else [point.value for point in points]
        for name, points in lines.items()
    }
    x_log = min(x) > 0 and max(x) / min(x) >= 100
    return figures.curve(x, shown, x_name=study.x, y_name="AUC", title=title, chance=0.5, x_log=x_log)


def _line(study: Study, measurement: Measurement) -> str:
    """Name of the line of a point: all its labels but x, or the detector's name if only its setting x is varied."""
    settings = {name for spec in study.detectors for name in spec.settings}
    axes = [axis for axis in (*study.rows, *study.columns) if axis not in (study.x, *settings)]
    if study.x in settings:
        axes.remove("detector")
    return _join(measurement.labels, axes) or study.detectors[0].name


def _heat_map(study: Study, aucs: Sequence[Measurement], title: str) -> "Figure":
    from fsd.reporting import figures

    x, y = (list(dict.fromkeys(measurement.labels[axis] for measurement in aucs)) for axis in (study.x, study.y))
    values = np.full((len(y), len(x)), np.nan)
    for measurement in aucs:
        values[y.index(measurement.labels[study.y]), x.index(measurement.labels[study.x])] = measurement.estimate.value
    return figures.heat_map(x, y, values, x_name=study.x, y_name=study.y, name="AUC", title=title)


def _of_scores(study: Study, result: CellResult) -> "Figure":
    from fsd.reporting import figures

    table = read_scores(result)

    def columns(state: str) -> "Scores":
        names = {spec.key: spec.shown for spec in study.detectors if f"{spec.key}.{state}" in table}
        return {shown: table[f"{key}.{state}"].to_numpy(np.float64) for key, shown in names.items()}

    draw = figures.roc if study.figure == "roc" else figures.score_distributions
    return draw(table["label"].to_numpy() == 1, columns("base"), columns("fsd"))
