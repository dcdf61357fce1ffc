"""Figures: ROC curves, score distributions, reliability of p-values, heat maps, curves and dot plots.

Every function returns a matplotlib `Figure` and touches no global state; `png` encodes it. Colours are from Okabe and
Ito's palette, which is safe for colour-blind readers; base and FSD also differ by line style.
"""

import io
import math
from collections.abc import Collection, Mapping, Sequence
from textwrap import fill
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from numpy.typing import ArrayLike

from fsd.evaluation import metrics
from fsd.evaluation.metrics import Bootstrap, Estimate, Row
from fsd.evaluation.results import CONTRASTS
from fsd.token_stats import FloatArray, Scores

BASE, FSD, GREY = "#0072B2", "#D55E00", "#595959"
CYCLE = (BASE, FSD, "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
STYLES = ("-", "--", "-.", ":")
MARKS = "osD^vPX*"
COLUMNS = 4
ALPHA = np.linspace(0, 1, 201)
"""False-positive rates at which the share of small p-values is drawn."""
MOST = 0.6
"""Share of the texts in one bar of a histogram from which on the figure says so."""
LOWEST_FPR = 1e-3
"""Left end of logarithmic axes; with fewer than 1,000 non-members, the smallest rate that they can show."""
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


def _panels(count: int, across: int, size: tuple[float, float], **shared: Any) -> tuple[Figure, Sequence[Axes]]:
    """A figure with panels side by side, and below each other where they are more than `across`."""
    down = -(-count // across)
    figure = Figure(figsize=(max(4.8, size[0] * across), max(2.6, 0.9 + size[1] * down)), layout="constrained")
    axes = figure.subplots(down, across, squeeze=False, **shared).ravel()
    for axis in axes[count:]:
        axis.set_axis_off()
    return figure, axes[:count]


def _pairs(names: Sequence[str], height: float) -> tuple[Figure, Sequence[tuple[Axes, Axes]]]:
    """A figure with two panels, one above the other, for each name; at most `COLUMNS` pairs side by side."""
    across = min(COLUMNS, len(names))
    figure, axes = _panels(2 * across * -(-len(names) // across), across, (3.0, height))
    rows = np.reshape(np.array(axes), (-1, across))
    pairs = list(zip(rows[::2].ravel(), rows[1::2].ravel(), strict=True))
    for pair in pairs[len(names) :]:
        for axis in pair:
            axis.set_axis_off()
    for (axis, _), name in zip(pairs, names, strict=False):
        axis.set_title(name, fontsize=11, fontweight="bold")
    return figure, pairs[: len(names)]


def finish(axis: Axes, x_name: str, y_name: str = "", title: str = "", *, size: int = 10) -> None:
    """Label the axes, and draw them with a light grid and without a frame."""
    axis.set_xlabel(x_name, fontsize=size)
    axis.set_ylabel(y_name, fontsize=size)
    if title:
        axis.set_title(title, fontsize=size + 2)
    axis.tick_params(labelsize=8)
    axis.grid(color="#e5e5e5", linewidth=0.6)
    axis.set_axisbelow(True)
    axis.spines[["top", "right"]].set_visible(False)


def _legend_below(figure: Figure, axis: Axes, columns: int = 2) -> None:
    handles, labels = axis.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=columns, fontsize=9, frameon=False)


def roc(labels: ArrayLike, base: Scores, fsd: Scores, *, names: tuple[str, str] = ("base", "FSD")) -> Figure:
    """One panel per detector with its base and FSD curves; below it, the same with a logarithmic FPR axis."""
    figure, pairs = _pairs(list(fsd), height=2.5)
    lowest = _lowest(labels)
    for name, (linear, log) in zip(fsd, pairs, strict=True):
        for scores, label, colour, style in ((base, names[0], BASE, "--"), (fsd, names[1], FSD, "-")):
            if name in scores:
                fpr, tpr, _ = metrics.roc(labels, scores[name])
                shown = f"{label}  AUC {metrics.auc(labels, scores[name]):.3f}"
                linear.plot(fpr, tpr, style, color=colour, linewidth=1.7, label=shown)
                log.step(np.maximum(fpr, lowest), tpr, style, color=colour, linewidth=1.7, where="post")
        linear.legend(fontsize=8, loc="lower right", frameon=True, framealpha=0.9, handlelength=1.8)
        _rates(linear, log, lowest, size=8)
    figure.suptitle(f"ROC curves of {names[0]} score and {names[1]} (grey: chance)", fontsize=12)
    return figure


def _rates(linear: Axes, log: Axes, lowest: float, *, size: int) -> None:
    """Finish two panels of ROC curves, with a linear and a logarithmic axis, and draw guessing."""
    rates = np.geomspace(lowest, 1, 50)
    for axis in (linear, log):
        axis.plot(rates, rates, ":", color=GREY, linewidth=1.0)
        axis.set(xlim=(0, 1), ylim=(-0.02, 1.02))
    log.set(xscale="log", xlim=(lowest, 1))
    finish(linear, "false-positive rate", "true-positive rate", size=size)
    finish(log, "false-positive rate, log scale", "true-positive rate", size=size)


def _lowest(labels: ArrayLike) -> float:
    return max(LOWEST_FPR, 1 / int((~np.asarray(labels, dtype=bool)).sum()))


def headline_scores(columns: Collection[str], base: str, best: str) -> dict[str, str]:
    """Column → name of the scores to compare: the best base score, the FSD of `best`, and a combined score if any."""
    names = {f"{base}.base": f"{base}, before fine-tuning (base)"} if base else {}
    names[f"{best}.fsd"] = f"{best}, FSD"
    if combined := [name for name in ("combined.fsd", "combined.base") if name in columns]:
        names.setdefault(combined[0], "combined score")
    return names


def headline(
    scores: pd.DataFrame, names: Mapping[str, str], rows: Mapping[tuple[str, str, str], Row], *, seed: int = 0
) -> Figure:
    """ROC curves of the named columns on the test texts, with linear and with logarithmic false-positive rates.

    The bands, from resampled groups, are pointwise: each contains the true value at its rate in about 95 of 100 cases.
    """
    test = scores[scores["split"] == "test"]
    bootstrap = Bootstrap.draw(test["label"].to_numpy(bool), test["group"].tolist(), seed=seed)
    rates = np.union1d(np.linspace(0, 1, 51), np.geomspace(_lowest(bootstrap.member), 1, 40))
    figure, (linear, log) = _panels(2, 2, (5.0, 4.0))
    for column, name in names.items():
        detector, _, state = column.rpartition(".")
        colour, style = (CYCLE[2], "-.") if detector == "combined" else (BASE, "--") if state == "base" else (FSD, "-")
        of_rates = [metrics.tpr_at(float(rate)) for rate in rates]
        tpr, *drawn = bootstrap.values(test[column].to_numpy(np.float64), of_rates).T
        low, high = np.quantile(drawn, [(1 - metrics.LEVEL) / 2, (1 + metrics.LEVEL) / 2], axis=0)
        label = f"{name}: AUC {rows[detector, state, 'auc'].estimate}"
        for axis in (linear, log):
            axis.fill_between(rates, low, high, color=colour, alpha=0.15, linewidth=0, step="post")
            axis.step(rates, tpr, style, color=colour, linewidth=2, label=label, where="post")
    _rates(linear, log, rates[1], size=11)
    linear.lines[-1].set_label("guessing")
    linear.set_title("Members found against wrong calls", fontsize=13)
    log.set_title("The same, few wrong calls enlarged", fontsize=13)
    _legend_below(figure, linear)
    return figure


def score_distributions(labels: ArrayLike, base: Scores, fsd: Scores) -> Figure:
    """Histograms of members and non-members, two panels per detector: base above, FSD below."""
    figure, pairs = _pairs([f"{name}\n" for name in fsd], height=2.2)
    member = np.asarray(labels, dtype=bool)
    for name, pair in zip(fsd, pairs, strict=True):
        for axis, label, values in zip(pair, ("base score", "FSD"), (base.get(name), fsd[name]), strict=True):
            if values is None:
                axis.text(0.5, 0.5, "compares both models,\nno base score", ha="center", va="center", fontsize=9)
                axis.set_axis_off()
                continue
            sides = {"non-members": (values[~member], BASE, "-"), "members": (values[member], FSD, "--")}
            _histograms(axis, sides, tail=0.01)
            finish(axis, label, "share of texts", size=8)
            axis.locator_params(nbins=4)
    _legend_below(figure, pairs[0][1])
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
    width, (first, *_, last) = edges[1] - edges[0], edges
    under, over = int((together < first).sum()), int((together > last).sum())
    below, above = [first - 3 * width, first - width], [last + width, last + 3 * width]
    bins = np.concatenate([below if under else [], edges, above if over else []])
    for name, (values, colour, style) in sides.items():
        within = np.minimum(values, np.nextafter(last, first))  # the last bin contains its end
        placed = np.select([values < first, values > last], [first - 2 * width, last + 2 * width], within)
        share = np.histogram(placed, bins)[0] / max(1, values.size)
        axis.stairs(share, bins, color=colour, fill=True, alpha=0.25)
        axis.stairs(share, bins, color=colour, linewidth=1.5, linestyle=style, label=name)
    for ends in ([below] if under else []) + ([above] if over else []):
        axis.axvspan(*ends, color="#e8e8e8", zorder=0)
    most = np.histogram(together, edges)[0].max() / together.size
    notes = [f"{under + over} beyond the axis, on grey"] if under + over else []
    notes += [f"{most:.0%} of all in one bar"] if most > MOST else []
    axis.text(0, 1.03, "\n".join(notes), transform=axis.transAxes, fontsize=7, color=GREY)
    return edges


def p_value_histogram(name: str, p_values: ArrayLike) -> Figure:
    """Histogram of p-values in ten bars, with the level that uniform ones would have."""
    values = np.asarray(p_values, dtype=np.float64)
    figure, (axis,) = _panels(1, 1, (5.2, 2.3))
    axis.hist(values, bins=np.linspace(0, 1, 11).tolist(), color=BASE, edgecolor="white")
    axis.axhline(values.size / 10, color=GREY, linewidth=1.2)
    finish(axis, "rank p-value of a document", "documents", name)
    return figure


def _p_values(axis: Axes, p_values: ArrayLike, counts: tuple[int, int], colour: str, label: str) -> None:
    """Share of the p-values (n,) up to each of `ALPHA`, and the band of valid ones for these `counts` of texts."""
    low, high = metrics.conformal_band(*counts, ALPHA)
    share = (np.asarray(p_values)[None, :] <= ALPHA[:, None] + 1e-9).mean(axis=1)
    axis.fill_between(ALPHA, low, high, color="#dddddd", linewidth=0, label="non-members alone, 95 of 100 cases")
    axis.plot(ALPHA, ALPHA, color=GREY, linewidth=0.8)
    axis.plot(ALPHA, share, color=colour, label=label, linewidth=1.7)


def reliability(name: str, p_values: FloatArray, *, calibration: int, texts: int | None = None) -> Figure:
    """Share of held-out non-members with p at most α, against α."""
    figure, (axis,) = _panels(1, 1, (5.6, 4.3))
    _p_values(axis, p_values, (calibration, texts or p_values.size), BASE, f"{name}, {p_values.size} non-members")
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
    figure, (left, right) = _panels(2, 2, (5.0, 3.9))
    known, new = np.asarray(calibration, dtype=np.float64), np.asarray(scores, dtype=np.float64)
    sides = {f"known non-members ({known.size})": (known, BASE, "-"), f"these texts ({new.size})": (new, FSD, "--")}
    edges = _histograms(left, sides, tail=0.005)
    if edges[0] <= threshold <= edges[-1]:
        left.axvline(threshold, color="black", linewidth=1.2, label=f"threshold for {fpr:.1%}")
    if new.size:
        _p_values(right, p_values, independent or (known.size, new.size), FSD, "these texts")
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
    shown = [series if len(series) <= 28 else f"{series[:13]}…{series[-13:]}" for series in values]
    axis.set_yticks([at + 0.5 for at in range(len(values))], shown, fontsize=9)
    axis.set_xlabel("place in the work, %", fontsize=9)
    figure.colorbar(image, ax=axis, label=name, extend="min")
    return figure


def curves(
    x: Sequence[Any],
    panels: Mapping[str, Lines],
    *,
    x_name: str,
    y_name: str,
    across: int = 1,
    chance: float | None = None,
    x_log: bool = False,
) -> Figure:
    """One panel per title with a line per name over the same K settings, and intervals as bands.

    A panel without lines stays empty.
    """
    figure, axes = _panels(len(panels), across, (3.5, 2.6) if len(panels) > 1 else (6.8, 3.7), sharey=True)
    for axis, (title, lines) in zip(axes, panels.items(), strict=True):
        if not lines:
            axis.set_axis_off()
            continue
        for at, (name, points) in enumerate(lines.items()):
            rows = np.array([p if isinstance(p, Estimate) else (p, p, p) for p in points], dtype=np.float64)
            # 28 lines differ in colour or style
            colour, style = CYCLE[at % len(CYCLE)], STYLES[at // len(CYCLE) % len(STYLES)]
            axis.plot(x, rows[:, 0], color=colour, linestyle=style, label=name, marker=MARKS[at % 8], linewidth=1.7)
            if (rows[:, 1] < rows[:, 2]).any():
                axis.fill_between(x, rows[:, 1], rows[:, 2], color=colour, alpha=0.13, linewidth=0)
        if chance is not None:
            axis.axhline(chance, color=GREY, linewidth=0.9)
        if x_log:
            axis.set_xscale("log")
            axis.set_xticks(list(x), [f"{value:g}" for value in x])
            axis.minorticks_off()
        finish(axis, x_name, y_name, title, size=9)
        axis.tick_params(labelleft=True)
    fullest = max(axes, key=lambda axis: len(axis.lines))
    _legend_below(figure, fullest, columns=min(4, max(1, len(fullest.lines))))
    return figure


def contrasts(rows: Mapping[tuple[str, str, str], Row]) -> Figure:
    """AUC of every detector in the three contrasts, one panel each, see `fsd.evaluation.results`."""
    panels = {
        "\n".join(fill(part, WIDTH) for part in (contrast.title, f"({contrast.meaning})")): {
            shown: {row.detector: row.estimate for (_, *key), row in rows.items() if key == [state, metric]}
            for state, shown in (("base", "base"), ("fsd", "FSD"))
        }
        for contrast in CONTRASTS
        for metric in (f"auc_{contrast.name}",)
    }
    return dots(panels, x_name="AUC", title="What the model knows: the texts, or their period?", chance=0.5)


def dots(panels: Panels, *, x_name: str, title: str = "", chance: float | None = None) -> Figure:
    """Dot plot: each number is a dot and its interval a bar."""
    rows = list(dict.fromkeys(row for series in panels.values() for column in series.values() for row in column))
    across = max(1, min(COLUMNS, len(panels)))
    # room for the names of the rows, left of the first panel, and for the title
    width = max(2.3 + (0.09 * max(map(len, rows), default=0) + 0.4) / across, 0.085 * len(title) / across)
    figure, axes = _panels(len(panels), across, (width, 0.8 + 0.32 * len(rows)), sharex=True, sharey=True)
    for axis, (panel, series) in zip(axes, panels.items(), strict=True):
        for at, (name, column) in enumerate(series.items()):
            colour, mark = (FSD, "D") if name == "FSD" else (BASE, "o")
            shift = SPREAD * (at - (len(series) - 1) / 2)
            for row, (value, low, high) in column.items():
                y = rows.index(row) + shift
                label = name if row == next(iter(column)) else ""
                axis.plot([low, high], [y, y], color=colour, linewidth=1.4)
                axis.plot([value], [y], mark, color=colour, markersize=5, label=label)
        if chance is not None:
            axis.axvline(chance, color=GREY, linewidth=0.9)
        finish(axis, x_name, title=panel, size=9)
    axes[0].set_yticks(range(len(rows)), rows, fontsize=9)
    axes[0].set_ylim(len(rows) - 0.5, -0.5)
    if any(len(series) > 1 for series in panels.values()):
        _legend_below(figure, axes[0])
    figure.suptitle(title, fontsize=11)
    return figure
