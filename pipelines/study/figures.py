"""The figure of a study, drawn by `fsd.reporting.figures`."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from fsd.evaluation.intervals import Estimate
from pipelines.study.cells import Done
from pipelines.study.spec import Study
from pipelines.study.tables import Number, scores

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from fsd.token_stats import Scores

HIDDEN = ("state", "metric")
BANDS = 5
"""Lines up to which intervals are drawn as bands."""


def figure(study: Study, cells: Sequence[Done], found: Sequence[Number]) -> "Figure":
    """The study's figure: of all numbers, or of the first cell's scores."""
    if study.figure in ("roc", "scores"):
        return _of_scores(study, cells[0])
    aucs = [number for number in found if number.place["metric"] == "AUC"]
    if study.figure == "curve":
        return _curve(study, aucs)
    if study.figure == "heat map":
        return _heat_map(study, aucs)
    return _dots(study, aucs)


def _title(study: Study) -> str:
    return f"{study.place}\n{study.title}"


def _dots(study: Study, aucs: Sequence[Number]) -> "Figure":
    from fsd.reporting.dots import dots

    panels: dict[str, dict[str, dict[str, Estimate]]] = {}
    for number in aucs:
        panel, row = (_join(number.place, axes) for axes in (study.columns, study.rows))
        panels.setdefault(panel, {}).setdefault(number.place["state"], {})[row] = number.estimate
    return dots(panels, x_name="AUC", title=_title(study), chance=0.5)


def _join(place: Mapping[str, str], axes: Sequence[str]) -> str:
    return " · ".join(place[axis] for axis in axes if axis not in HIDDEN)


def _curve(study: Study, aucs: Sequence[Number]) -> "Figure":
    from fsd.reporting import figures as plots

    x = list(dict.fromkeys(float(number.place[study.x]) for number in aucs))
    lines: dict[str, list[Estimate]] = {}
    for number in aucs:
        lines.setdefault(_line(study, number), []).append(number.estimate)
    shown: dict[str, list[Estimate | float]] = {
        # Bands of many lines would hide one another.
        name: [*points] if len(lines) <= BANDS else [point.value for point in points]
        for name, points in lines.items()
    }
    return plots.curve(x, shown, x_name=study.x, y_name="AUC", title=_title(study), chance=0.5, x_log=_log(x))


def _line(study: Study, number: Number) -> str:
    """What a point belongs to: all of its place but x; a detector that differs in x alone by its own name."""
    settings = {name for detection in study.detectors for name in detection.settings}
    axes = [axis for axis in (*study.rows, *study.columns) if axis not in (*HIDDEN, study.x, *settings)]
    if study.x in settings:
        axes.remove("detector")
    return " · ".join(number.place[axis] for axis in axes) or study.detectors[0].name


def _log(x: Sequence[float]) -> bool:
    return min(x) > 0 and max(x) / min(x) >= 100


def _heat_map(study: Study, aucs: Sequence[Number]) -> "Figure":
    from fsd.reporting import figures as plots

    x, y = (list(dict.fromkeys(number.place[axis] for number in aucs)) for axis in (study.x, study.y))
    values = np.full((len(y), len(x)), np.nan)
    for number in aucs:
        values[y.index(number.place[study.y]), x.index(number.place[study.x])] = number.estimate.value
    return plots.heat_map(x, y, values, x_name=study.x, y_name=study.y, name="AUC", title=_title(study))


def _of_scores(study: Study, done: Done) -> "Figure":
    from fsd.reporting import figures as plots

    table = scores(done)

    def columns(state: str) -> "Scores":
        names = {d.key: d.shown for d in study.detectors if f"{d.key}.{state}" in table}
        return {shown: table[f"{key}.{state}"].to_numpy(np.float64) for key, shown in names.items()}

    draw = plots.roc if study.figure == "roc" else plots.score_distributions
    return draw(table["label"].to_numpy() == 1, columns("base"), columns("fsd"))
