"""Figures: ROC curves, score distributions, reliability of p-values, heat maps, curves and dot plots.

Every function returns a matplotlib `Figure` and touches no global state; `png` encodes it. Colours are from Okabe and
Ito's palette, which is safe for colour-blind readers; base and FSD also differ by line style.
"""

import io
import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from textwrap import fill
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from numpy.typing import ArrayLike

from fsd.evaluation import metrics
from fsd.evaluation.metrics import Bootstrap, Estimate, conformal_band
from fsd.evaluation.results import CONTRASTS
from fsd.token_stats import FloatArray, Scores

BASE, FSD, MEMBER, NONMEMBER, GREY = "#0072B2", "#D55E00", "#D55E00", "#0072B2", "#595959"
CYCLE = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
STYLES = ("-", "--", "-.", ":")
COLUMNS = 4
ALPHA = np.linspace(0, 1, 201)
"""False-positive rates at which the share of small p-values is drawn."""
MOST = 0.6
"""Share of the texts in one bar of a histogram from which on the figure says so."""
LOWEST_FPR = 1e-3
"""Left end of logarithmic axes; with fewer than 1,000 non-members, the smallest rate that they can show."""
LOOKS = {"base": (BASE, "o"), "FSD": (FSD, "D")}
"""Colour and marker of a series in a dot plot; any other looks like the base."""
WIDTH = 26
"""Characters in a line of a panel's title."""
SPREAD = 0.3
"""Distance between the series of one row of a dot plot, rows being 1 apart."""

Panels = Mapping[str, Mapping[str, Mapping[str, Estimate]]]
"""Panel → series → row → number with its interval."""

Lines = Mapping[str, Sequence[Estimate | float]]
"""Name of a line → K estimates or plain numbers."""


def png(figure: Figure, dpi: int = 110) -> bytes:
    """The figure as a PNG file."""
    target = io.BytesIO()
    figure.savefig(target, format="png", dpi=dpi)
    return target.getvalue()


def _panels(names: Collection[str], height: float) -> tuple[Figure, Sequence[tuple[Axes, Axes]]]:
    """A figure with two panels, one above the other, for each name; at most `COLUMNS` pairs side by side."""
    columns = max(1, min(COLUMNS, len(names)))
    lines = 2 * math.ceil(len(names) / columns)
    figure = Figure(figsize=(max(4.8, 3.0 * columns), height * lines + 0.9), layout="constrained")
    axes = figure.subplots(lines, columns, squeeze=False)
    pairs = [pair for line in range(0, lines, 2) for pair in zip(axes[line], axes[line + 1], strict=True)]
    for axis in chain(*pairs[len(names) :]):
        axis.set_axis_off()
    return figure, pairs[: len(names)]


def finish(axis: Axes, x_name: str, y_name: str = "", title: str = "", *, size: int = 10) -> None:
    """Label the axes, and draw them with a light grid and without a frame."""
    axis.set_xlabel(x_name, fontsize=size)
    axis.set_ylabel(y_name, fontsize=size)
    axis.set_title(title, fontsize=size + 2)
    axis.tick_params(labelsize=8)
    axis.grid(color="#e5e5e5", linewidth=0.6)
    axis.set_axisbelow(True)
    axis.spines[["top", "right"]].set_visible(False)


def roc(labels: ArrayLike, base: Scores, fsd: Scores, *, names: tuple[str, str] = ("base", "FSD")) -> Figure:
    """One panel per detector with its base and FSD curves; below it, the same with a logarithmic FPR axis."""
    figure, panels = _panels(fsd, height=2.5)
    lowest = max(LOWEST_FPR, 1 / int((~np.asarray(labels, dtype=bool)).sum()))
    chance = np.geomspace(lowest, 1, 50)
    for (name, scores), (linear, log) in zip(fsd.items(), panels, strict=True):
        curves = [(names[0], base[name], BASE, "--")] if name in base else []
        curves.append((names[1], scores, FSD, "-"))
        for label, values, colour, style in curves:
            fpr, tpr, _ = metrics.roc(labels, values)
            shown = f"{metrics.auc(labels, values):.3f}"
            linear.plot(fpr, tpr, style, color=colour, linewidth=1.7, label=f"{label}  AUC {shown}")
            log.step(np.maximum(fpr, lowest), tpr, style, color=colour, linewidth=1.7, where="post")
        linear.plot([0, 1], [0, 1], color=GREY, linewidth=0.8)
        log.plot(chance, chance, color=GREY, linewidth=0.8)
        linear.legend(fontsize=8, loc="lower right", frameon=True, framealpha=0.9, handlelength=1.8)
        log.set(xscale="log", xlim=(lowest, 1), ylim=(-0.02, 1.02))
        linear.set(xlim=(-0.02, 1.02), ylim=(-0.02, 1.02))
        finish(linear, "false-positive rate", "true-positive rate", size=8)
        finish(log, "false-positive rate, log scale", "true-positive rate", size=8)
        linear.set_title(name, fontsize=11, fontweight="bold")
    figure.suptitle(f"ROC curves of {names[0]} score and {names[1]} (grey: chance)", fontsize=12)
    return figure


def p_value_histogram(name: str, p_values: ArrayLike) -> Figure:
    """Histogram of p-values in ten bars, with the level that uniform ones would have."""
    values = np.asarray(p_values, dtype=np.float64)
    figure = Figure(figsize=(5.2, 3.2), layout="constrained")
    axis = figure.subplots()
    axis.hist(values, bins=np.linspace(0, 1, 11).tolist(), color=BASE, edgecolor="white")
    axis.axhline(values.size / 10, color=GREY, linewidth=1.2)
    finish(axis, "rank p-value of a document", "documents", name)
    return figure


def score_distributions(labels: ArrayLike, base: Scores, fsd: Scores) -> Figure:
    """Histograms of members and non-members, two panels per detector: base above, FSD below."""
    figure, panels = _panels(fsd, height=2.2)
    member = np.asarray(labels, dtype=bool)
    for (name, scores), (above, below) in zip(fsd.items(), panels, strict=True):
        for axis, label, values in ((above, "base score", base.get(name)), (below, "FSD", scores)):
            if values is None:
                axis.text(0.5, 0.5, "compares both models,\nno base score", ha="center", va="center", fontsize=9)
                axis.set_axis_off()
                continue
            sides = {"non-members": (values[~member], NONMEMBER, "-"), "members": (values[member], MEMBER, "--")}
            _histograms(axis, sides, tail=0.01)
            finish(axis, label, "share of texts", size=8)
            axis.locator_params(nbins=4)
        above.set_title(f"{name}\n", fontsize=11, fontweight="bold")
    handles, names = panels[0][1].get_legend_handles_labels()
    figure.legend(handles, names, loc="outside lower center", ncols=2, fontsize=10, frameon=False)
    figure.suptitle("Scores of members and non-members", fontsize=12)
    return figure


def _histograms(axis: Axes, sides: Mapping[str, tuple[FloatArray, str, str]], *, tail: float) -> FloatArray:
    """Share of texts per bin, for each side with its colour and line style; returns the edges of the bins.

    The share `tail` of the texts on either end is counted in separate bars on grey ground, apart from the others; a
    line above the bars gives their number, and the share of all texts in a bar that holds most of them.
    """
    together = np.concatenate([values for values, _, _ in sides.values()])
    low, high = np.quantile(together, [tail, 1 - tail])
    edges = np.linspace(low, high if high > low else low + 1, 25)
    width = edges[1] - edges[0]
    below, above = edges[0] - width * np.array([3, 1]), edges[-1] + width * np.array([1, 3])
    under, over = int((together < edges[0]).sum()), int((together > edges[-1]).sum())
    all_edges = np.concatenate([below[: 2 * bool(under)], edges, above[: 2 * bool(over)]])
    for name, (values, colour, style) in sides.items():
        inside = np.histogram(values, edges)[0]
        left = [(values < edges[0]).sum(), 0] if under else []
        right = [0, (values > edges[-1]).sum()] if over else []
        share = np.concatenate([left, inside, right]) / max(1, values.size)
        axis.stairs(share, all_edges, color=colour, fill=True, alpha=0.25)
        axis.stairs(share, all_edges, color=colour, linewidth=1.5, linestyle=style, label=name)
    for ends in ([below] if under else []) + ([above] if over else []):
        axis.axvspan(*ends, color="#e8e8e8", zorder=0)
    beyond = under + over
    most = np.histogram(together, edges)[0].max() / together.size
    notes = [f"{beyond} beyond the axis, on grey"] if beyond else []
    notes += [f"{most:.0%} of all in one bar"] if most > MOST else []
    if notes:
        axis.text(0, 1.03, "\n".join(notes), transform=axis.transAxes, fontsize=7, color=GREY)
    return edges


def _share_up_to(p_values: ArrayLike) -> FloatArray:
    """Share of the p-values (n,) that are at most each of `ALPHA`."""
    return np.asarray((np.asarray(p_values)[None, :] <= ALPHA[:, None] + 1e-9).mean(axis=1))


def _band(axis: Axes, calibration: int, texts: int) -> None:
    """Where the curve of valid p-values is in 95 of 100 cases, and the diagonal."""
    low, high = conformal_band(calibration, texts, ALPHA)
    axis.fill_between(ALPHA, low, high, color="#dddddd", linewidth=0, label="non-members alone, 95 of 100 cases")
    axis.plot([0, 1], [0, 1], color=GREY, linewidth=0.8)


def reliability(name: str, p_values: FloatArray, *, calibration: int, texts: int | None = None) -> Figure:
    """Share of held-out non-members with p at most α, against α."""
    figure = Figure(figsize=(5.6, 5.2), layout="constrained")
    axis = figure.subplots()
    _band(axis, calibration, texts or p_values.size)
    axis.plot(
        ALPHA, _share_up_to(p_values), color=CYCLE[0], label=f"{name}, {p_values.size} non-members", linewidth=1.7
    )
    axis.set(xlim=(0, 1), ylim=(0, 1))
    finish(axis, "chosen false-positive rate α", "held-out non-members called members", "Are the p-values right?")
    axis.legend(fontsize=9, loc="upper left", frameon=False)
    return figure


def verdicts(
    calibration: ArrayLike,
    scores: ArrayLike,
    p_values: ArrayLike,
    *,
    threshold: float,
    fpr: float,
    independent: tuple[int, int] | None = None,
) -> Figure:
    """Scores of new texts against those of known non-members, and the distribution of their p-values."""
    figure = Figure(figsize=(10.0, 4.8), layout="constrained")
    left, right = figure.subplots(1, 2)
    known, new = np.asarray(calibration, dtype=np.float64), np.asarray(scores, dtype=np.float64)
    sides = {
        f"known non-members ({known.size})": (known, NONMEMBER, "-"),
        f"these texts ({new.size})": (new, FSD, "--"),
    }
    edges = _histograms(left, sides, tail=0.005)
    if edges[0] <= threshold <= edges[-1]:
        left.axvline(threshold, color="black", linewidth=1.2, label=f"threshold for {fpr:.1%}")
    if new.size:
        _band(right, *(independent or (known.size, new.size)))
        right.plot(ALPHA, _share_up_to(p_values), color=FSD, linewidth=1.7, label="these texts")
    right.axvline(fpr, color="black", linewidth=1.2, label=f"chosen error rate {fpr:.1%}")
    right.set(xlim=(0, 1), ylim=(0, 1.02))
    finish(left, "score (higher = more likely a member)", "share of texts", "Scores\n")
    finish(right, "p-value α", "share of texts with p at most α", "p-values\n")
    for axis in (left, right):
        axis.legend(fontsize=9, frameon=False, loc="upper center", bbox_to_anchor=(0.5, -0.16), ncols=2)
    return figure


def heat_map(
    x: Sequence[object],
    y: Sequence[object],
    values: FloatArray,
    *,
    x_name: str,
    y_name: str,
    name: str,
    title: str = "",
) -> Figure:
    """Values as colours with the numbers written in; the highest is framed."""
    figure = Figure(figsize=(1.8 + 0.62 * len(x), 1.5 + 0.42 * len(y)), layout="constrained")
    axis = figure.subplots()
    image = axis.imshow(values, origin="lower", aspect="auto", cmap="cividis")
    axis.set_xticks(range(len(x)), [str(value) for value in x], fontsize=9)
    axis.set_yticks(range(len(y)), [str(value) for value in y], fontsize=9)
    axis.set_xlabel(x_name, fontsize=10)
    axis.set_ylabel(y_name, fontsize=10)
    middle = (np.nanmin(values) + np.nanmax(values)) / 2
    for (row, column), value in np.ndenumerate(values):
        if not math.isnan(value):
            colour = "white" if value <= middle else "black"
            axis.text(column, row, f"{value:.3f}", ha="center", va="center", fontsize=8, color=colour)
    row, column = np.unravel_index(np.nanargmax(values), values.shape)
    frame = Rectangle((column - 0.48, row - 0.48), 0.96, 0.96, fill=False, edgecolor=FSD, linewidth=2.4)
    axis.add_patch(frame)
    figure.colorbar(image, ax=axis, label=name)
    axis.set_title(title, fontsize=12)
    return figure


def strips(values: Mapping[str, FloatArray], *, name: str, lowest: float = -12.0) -> Figure:
    """One strip of colours per series, from its beginning to its end."""
    figure = Figure(figsize=(9.0, 1.2 + 0.45 * len(values)), layout="constrained")
    axis = figure.subplots()
    grid = np.maximum(np.array(list(values.values())), lowest)
    image = axis.imshow(grid, aspect="auto", cmap="cividis", vmin=lowest, vmax=0, extent=(0, 100, len(values), 0))
    axis.set_yticks([at + 0.5 for at in range(len(values))], [shortened(series) for series in values], fontsize=9)
    axis.set_xlabel("place in the work, %", fontsize=9)
    figure.colorbar(image, ax=axis, label=name, extend="min")
    return figure


def shortened(name: str, length: int = 28) -> str:
    """A name with its middle left out if it is longer than `length` characters."""
    half = (length - 1) // 2
    return name if len(name) <= length else f"{name[:half]}…{name[-half:]}"


def curve(
    x: Sequence[float],
    lines: Lines,
    *,
    x_name: str,
    y_name: str,
    title: str = "",
    chance: float | None = None,
    x_log: bool = False,
) -> Figure:
    """One line per name over a setting, with intervals as bands."""
    figure = Figure(figsize=(6.8, 4.4), layout="constrained")
    axis = figure.subplots()
    _draw_lines(axis, x, lines, chance)
    if x_log:
        axis.set_xscale("log")
        axis.set_xticks(list(x), [f"{value:g}" for value in x])
        axis.minorticks_off()
    finish(axis, x_name, y_name, title)
    axis.legend(fontsize=9, frameon=False, loc="center left", bbox_to_anchor=(1.0, 0.5))
    return figure


def curves(
    x: Sequence[str],
    panels: Mapping[str, Lines],
    *,
    across: int,
    x_name: str,
    y_name: str,
    chance: float | None = None,
) -> Figure:
    """One panel per title with lines as of `curve` over the same K settings; a panel without lines stays empty."""
    down = -(-len(panels) // across)
    figure = Figure(figsize=(3.5 * across, 0.9 + 2.6 * down), layout="constrained")
    axes = figure.subplots(down, across, squeeze=False, sharey=True).ravel()
    for axis, (title, lines) in zip(axes, panels.items(), strict=False):
        if lines:
            _draw_lines(axis, x, lines, chance)
            finish(axis, x_name, y_name, title, size=9)
            axis.tick_params(labelleft=True)
    for axis in axes:
        if not axis.has_data():
            axis.set_axis_off()
    handles, labels = max((axis.get_legend_handles_labels() for axis in axes), key=lambda pair: len(pair[0]))
    figure.legend(handles, labels, loc="outside lower center", ncols=max(1, len(labels)), fontsize=9, frameon=False)
    return figure


def _draw_lines(axis: Axes, x: Sequence[Any], lines: Lines, chance: float | None) -> None:
    marks = "osD^vPX*"
    for at, (name, points) in enumerate(lines.items()):
        rows = np.array([p if isinstance(p, Estimate) else (p, p, p) for p in points], dtype=np.float64)
        # 28 lines differ in colour or style
        colour, style = CYCLE[at % len(CYCLE)], STYLES[at // len(CYCLE) % len(STYLES)]
        axis.plot(x, rows[:, 0], color=colour, linestyle=style, label=name, marker=marks[at % 8], linewidth=1.7)
        if (rows[:, 1] < rows[:, 2]).any():
            axis.fill_between(x, rows[:, 1], rows[:, 2], color=colour, alpha=0.13, linewidth=0)
    if chance is not None:
        axis.axhline(chance, color=GREY, linewidth=0.9)


def contrasts(table: pd.DataFrame) -> Figure:
    """AUC of every detector in the three contrasts, one panel each, see `fsd.evaluation.results`."""
    rows = metrics.by_key(table)
    panels: dict[str, dict[str, dict[str, Estimate]]] = {}
    for contrast in CONTRASTS:
        panel = "\n".join(fill(part, WIDTH) for part in (contrast.title, f"({contrast.meaning})"))
        series = panels[panel] = {"base": {}, "FSD": {}}
        for (detector, state, metric), row in rows.items():
            if metric == f"auc_{contrast.name}":
                series["FSD" if state == "fsd" else "base"][detector] = row.estimate
    return dots(panels, x_name="AUC", title="What the model knows: the texts, or their period?", chance=0.5)


def dots(panels: Panels, *, x_name: str, title: str = "", chance: float | None = None) -> Figure:
    """Dot plot: each number is a dot and its interval a bar."""
    rows = list(dict.fromkeys(row for series in panels.values() for column in series.values() for row in column))
    across = max(1, min(COLUMNS, len(panels)))
    down = -(-len(panels) // across)
    height = 0.9 + down * (0.8 + 0.32 * len(rows))
    # room for the names of the rows, left of the first panel, and for the title
    width = max(2.3 * across + 0.09 * max(map(len, rows), default=0) + 0.4, 0.085 * len(title), 4.8)
    figure = Figure(figsize=(width, max(height, 2.6)), layout="constrained")
    axes = figure.subplots(down, across, squeeze=False, sharex=True, sharey=True).ravel()
    for axis, (panel, series) in zip(axes, panels.items(), strict=False):
        for at, (name, column) in enumerate(series.items()):
            colour, mark = LOOKS.get(name, LOOKS["base"])
            shift = SPREAD * (at - (len(series) - 1) / 2)
            for row, (value, low, high) in column.items():
                y = rows.index(row) + shift
                axis.plot([low, high], [y, y], color=colour, linewidth=1.4)
                axis.plot(
                    [value], [y], mark, color=colour, markersize=5, label=name if row == next(iter(column)) else ""
                )
        if chance is not None:
            axis.axvline(chance, color=GREY, linewidth=0.9)
        finish(axis, x_name, title=panel, size=9)
    for axis in axes[len(panels) :]:
        axis.set_axis_off()
    axes[0].set_yticks(range(len(rows)), rows, fontsize=9)
    axes[0].set_ylim(len(rows) - 0.5, -0.5)
    if any(len(series) > 1 for series in panels.values()):
        figure.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=2, frameon=False)
    figure.suptitle(title, fontsize=11)
    return figure


COMBINED = "combined"
"""Column, or detector, of a combined score; it is drawn if the scores have it."""
_LOOKS = {"base": (BASE, "--"), "fsd": (FSD, "-"), "": (CYCLE[2], "-.")}


@dataclass(frozen=True)
class Curve:
    """The ROC curve of a column of scores with its 95 % band.

    Attributes:
        name: of the score.
        state: base, fsd, or empty for a combined score.
        auc: area under the curve.
        rates: (K,) false-positive rates.
        tpr: (K,) true-positive rate, and the ends of its interval at each rate.
        low: (K,).
        high: (K,).
    """

    name: str
    state: str
    auc: Estimate
    rates: FloatArray
    tpr: FloatArray
    low: FloatArray
    high: FloatArray

    @property
    def label(self) -> str:
        """Name, AUC and interval, for the legend."""
        return f"{self.name}: AUC {self.auc}"


def headline_scores(scores: pd.DataFrame, best: str) -> dict[str, str]:
    """Column → name of the scores to compare: the best base score, the FSD of `best`, and a combined score if any.

    The base score is chosen on the validation texts, as `best` is; without any, on the test texts.
    """
    held = scores[scores["split"] == "validation"]
    chosen_on = held if len(held) else scores
    labels = chosen_on["label"].to_numpy(bool)
    bases = [name for name in map(str, scores) if name.endswith(".base")]
    names: dict[str, str] = {}
    if bases:
        base = max(bases, key=lambda name: metrics.auc(labels, chosen_on[name]))
        names[base] = f"{base.removesuffix('.base')}, before fine-tuning (base)"
    names[f"{best}.fsd"] = f"{best}, FSD"
    combined = next((name for name in (COMBINED, f"{COMBINED}.fsd", f"{COMBINED}.base") if name in scores), None)
    if combined:
        names.setdefault(combined, "combined score")
    return names


def headline_curves(
    scores: pd.DataFrame, names: Mapping[str, str], table: pd.DataFrame, *, seed: int = 0
) -> list[Curve]:
    """The ROC curves of columns on the test texts, with bands from resampled groups."""
    test = scores[scores["split"] == "test"]
    bootstrap = Bootstrap.draw(test["label"].to_numpy(bool), test["group"].tolist(), seed=seed)
    lowest = max(LOWEST_FPR, 1 / int((~bootstrap.member).sum()))
    rates = np.union1d(np.linspace(0, 1, 51), np.geomspace(lowest, 1, 40))
    rows, drawn = metrics.by_key(table), []
    for column, name in names.items():
        values = test[column].to_numpy(np.float64)
        tpr, low, high = metrics.roc_band(bootstrap, values, rates)
        state = next((state for state in ("base", "fsd") if column.endswith(f".{state}")), "")
        row = rows.get((*column.rpartition(".")[::2], "auc"))
        auc = row.estimate if row else metrics.estimates(bootstrap, values)["auc"]
        drawn.append(Curve(name, "" if column.startswith(COMBINED) else state, auc, rates, tpr, low, high))
    return drawn


def headline(drawn: Sequence[Curve]) -> Figure:
    """Two panels: false-positive rates on a linear axis and on a logarithmic one."""
    figure = Figure(figsize=(10.0, 4.9), layout="constrained")
    linear, log = figure.subplots(1, 2)
    lowest = float(drawn[0].rates[1])
    chance = np.geomspace(lowest, 1, 50)
    for curve in drawn:
        colour, style = _LOOKS[curve.state]
        for axis in (linear, log):
            axis.fill_between(curve.rates, curve.low, curve.high, color=colour, alpha=0.15, linewidth=0, step="post")
            axis.step(curve.rates, curve.tpr, style, color=colour, linewidth=2, label=curve.label, where="post")
    for axis in (linear, log):
        axis.plot(chance, chance, ":", color=GREY, linewidth=1.2, label="guessing")
        axis.set_ylim(0, 1.01)
    linear.set_xlim(0, 1)
    log.set(xscale="log", xlim=(lowest, 1))
    finish(linear, "false-positive rate", "true-positive rate", "Members found against wrong calls", size=11)
    finish(log, "false-positive rate, logarithmic", "", "The same, few wrong calls enlarged", size=11)
    handles, labels = linear.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=2, fontsize=10, frameon=False)
    return figure
