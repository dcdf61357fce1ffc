"""Charts of tuning, studies and other commands; the figures of a run are in `fsd.reporting.figures`."""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import CenteredNorm
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from numpy.random import default_rng
from numpy.typing import ArrayLike

from fsd.reporting.figures import (
    ACROSS,
    BASE,
    GREY,
    MEMBERS,
    OTHERS,
    TAIL,
    decimals,
    finish,
    legend,
    name_axes,
    panels_of,
)
from fsd.statistics.intervals import Estimate, shortened
from fsd.token_stats import BoolArray, FloatArray

CYCLE = ("#332288", "#CC6677", "#44AA99", "#882255", "#999933", "#88CCEE", "#000000")
STYLES = ("-", "--", "-.", ":")
MARKS = "osD^vPX*"
MOST_TICKS = 7
"""Labels on a logarithmic axis."""
BARS = 24
"""Bars of a histogram of scores."""
NARROWEST = 0.1
"""Distance from the default that a heat map gives its full colour at least, so that noise stays pale."""
LOWEST_STRIP = -12.0
"""Value from which on a strip has its darkest colour."""
LETTER = 0.08
"""Inches of a letter of a label."""
SHORT = 5
"""Letters of a label for which there is room beside the cells of a heat map."""
ROW = 0.18
"""Inches of a row of a legend."""
ROWS = 8
"""Rows of a legend for which every figure has room."""
Lines = Mapping[str, Sequence[Estimate | float]]
"""Name of a line → K estimates or plain numbers."""


def p_value_histogram(name: str, p_values: ArrayLike) -> Figure:
    """Histogram of p-values in ten bars, with the level that uniform ones would have."""
    values = np.asarray(p_values)
    figure, (axis,) = panels_of(1, 1, (5.2, 2.3))
    axis.hist(values, bins=np.linspace(0, 1, 11).tolist(), color=BASE, edgecolor="white")
    axis.axhline(values.size / 10, color=GREY, linewidth=1.2)
    finish(axis, "p-value of a document", "documents", name)
    decimals(axis.xaxis)
    return figure


def before_and_after(labels: ArrayLike, base: FloatArray, tuned: FloatArray, *, name: str) -> Figure:
    """Histograms of a number before and after fine-tuning, of members and of non-members, over one axis."""
    member = np.asarray(labels, dtype=bool)
    panels = {"members": member, "non-members": ~member}
    low, high = np.quantile(np.concatenate([base, tuned]), [TAIL, 1 - TAIL])
    edges = np.linspace(low, max(high, low + 1e-9), BARS + 1).tolist()
    figure, axes = panels_of(len(panels), len(panels), (4.2, 3.0), sharex=True, sharey=True)
    # What lies beyond an end is counted in the last bar, so that both sides have all their texts.
    before, after = np.clip([base, tuned], edges[0], edges[-1])
    for axis, (title, side) in zip(axes, panels.items(), strict=True):
        axis.hist(before[side], edges, color=OTHERS, alpha=0.7, label="before fine-tuning")
        axis.hist(after[side], edges, color=MEMBERS, histtype="step", linewidth=1.6, label="after fine-tuning")
        finish(axis, name, "Texts", title)
        axis.label_outer()
    legend(figure, [axes[0]])
    return figure


def tokens(labels: ArrayLike, entropy: FloatArray, logp: FloatArray, selections: Mapping[str, BoolArray]) -> Figure:
    """Entropy against log-probability of tokens, of members beside non-members: all, and those of each selection."""
    member = np.asarray(labels, dtype=bool)
    colours = np.where(member, MEMBERS, OTHERS)
    panels = {"all tokens": np.ones(member.size, dtype=bool), **selections}
    # In a drawn order neither side lies over the other.
    order = default_rng(0).permutation(member.size)
    figure, axes = panels_of(len(panels), ACROSS, (3.6, 3.2), sharex=True, sharey=True)
    for axis, (title, chosen) in zip(axes, panels.items(), strict=True):
        drawn = order[chosen[order]]
        axis.scatter(entropy[drawn], logp[drawn], s=4, alpha=0.6, linewidths=0, c=colours[drawn])
        finish(axis, "entropy of the prediction (nats)", "log-probability of the token (nats)", title)
        axis.text(0.97, 0.04, f"{100 * chosen.mean():.3g} % of them", transform=axis.transAxes, ha="right", fontsize=9)
        axis.label_outer()
    for name, colour in (("members", MEMBERS), ("non-members", OTHERS)):
        axes[0].scatter([], [], s=30, color=colour, label=name)
    legend(figure, [axes[0]])
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
    default: tuple[object, object] | None = None,
) -> Figure:
    """Values as colours with the numbers written in; above those of the `default` settings green, below purple."""
    columns = _labels(x)
    rows = _labels(y)
    # Names are longer than numbers, and would leave no room for the cells.
    cell = max(0.62, LETTER * max(map(len, columns)))
    margin = 1.8 + LETTER * max(0, max(map(len, rows)) - SHORT)
    figure = Figure(figsize=(margin + cell * len(columns), 1.7 + 0.42 * len(rows)), layout="constrained")
    axis = figure.subplots()
    default_x, default_y = _labels(default or ("", ""))
    if default_x in columns and default_y in rows:
        place = (rows.index(default_y), columns.index(default_x))
        middle = values[place]
        far = max(NARROWEST, np.nanmax(abs(values - middle)))
        colours: dict[str, Any] = {"cmap": "PRGn", "norm": CenteredNorm(middle, far)}
        dark = abs(values - middle) > 0.7 * far
        best = np.unravel_index(np.nanargmax(values), values.shape)
        _frame(axis, best, "-", "highest")
        _frame(axis, place, "--", "default")
    else:
        colours = {"cmap": "Blues"}
        dark = values > (np.nanmin(values) + np.nanmax(values)) / 2
    image = axis.imshow(values, origin="lower", aspect="auto", **colours)
    axis.set_xticks(range(len(x)), columns, fontsize=9)
    axis.set_yticks(range(len(y)), rows, fontsize=9)
    name_axes(axis, x_name, y_name, 10)
    for (row, column), value in np.ndenumerate(values):
        if not math.isnan(value):
            colour = "white" if dark[row, column] else MEMBERS
            axis.text(column, row, shortened(value), ha="center", va="center", fontsize=9, color=colour)
    decimals(figure.colorbar(image, ax=axis, label=name).ax.yaxis)
    axis.set_title(title, fontsize=11, loc="left")
    if axis.patches:
        legend(figure, [axis])
    return figure


def _labels(values: Iterable[object]) -> list[str]:
    return list(map(_label, values))


def _label(value: object) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def _frame(axis: Axes, place: Sequence[Any], style: str, name: str) -> None:
    """Draw a frame around the cell of a row and a column, with an entry in the legend."""
    row, column = place
    corner = (column - 0.47, row - 0.47)
    frame = Rectangle(corner, 0.94, 0.94, fill=False, linestyle=style, linewidth=2.2, edgecolor=MEMBERS, label=name)
    axis.add_patch(frame)


def strips(values: Mapping[str, FloatArray], *, name: str) -> Figure:
    """One strip of colours per series, from its beginning to its end."""
    count = len(values)
    figure = Figure(figsize=(9.0, 1.2 + 0.45 * count), layout="constrained")
    axis = figure.subplots()
    image = axis.imshow(
        np.maximum(list(values.values()), LOWEST_STRIP),
        aspect="auto",
        cmap="cividis",
        vmin=LOWEST_STRIP,
        vmax=0,
        extent=(0, 100, count, 0),
    )
    axis.set_yticks(np.arange(count) + 0.5, list(map(_name_of_strip, values)), fontsize=9)
    axis.set_xlabel("place in the work, %", fontsize=9)
    figure.colorbar(image, ax=axis, label=name, extend="min")
    return figure


def _name_of_strip(series: str) -> str:
    if len(series) > 28:
        series = f"{series[:13]}…{series[-13:]}"
    # Between two of them matplotlib reads a formula.
    return series.replace("$", r"\$")


def curves(
    x: Sequence[Any],
    panels: Mapping[str, Lines],
    *,
    x_name: str,
    y_name: str,
    across: int = 1,
    chance: float | None = None,
    x_log: bool = False,
    colours: Mapping[str, str] | None = None,
) -> Figure:
    """One panel per title with a line per name over the same K settings, and intervals as bands."""
    figure, axes = panels_of(len(panels), across, (3.5, 2.6) if len(panels) > 1 else (6.8, 3.7), sharey=True)
    for index, (axis, (title, lines)) in enumerate(zip(axes, panels.items(), strict=True)):
        if not lines:
            axis.set_axis_off()
            continue
        _draw_lines(axis, x, lines, colours or {})
        if chance is not None:
            axis.axhline(chance, color=GREY, linewidth=0.9, linestyle=":")
        if x_log:
            _few_ticks(axis, x)
        # Only the outer panels name their axes.
        below = index + across >= len(panels)
        leftmost = index % across == 0
        finish(axis, x_name if below else "", y_name if leftmost else "", title, size=9)
        decimals(axis.yaxis)
        axis.tick_params(labelleft=True)
    fullest = max(axes, key=lambda axis: len(axis.lines))
    _, names = fullest.get_legend_handles_labels()
    columns = min(across + 2, len(fullest.lines))
    # A legend of many lines would leave no room for them.
    figure.set_figheight(figure.get_figheight() + ROW * max(0, math.ceil(len(names) / columns) - ROWS))
    legend(figure, [fullest], columns=columns)
    return figure


def _draw_lines(axis: Axes, x: Sequence[Any], lines: Lines, colours: Mapping[str, str]) -> None:
    for index, (name, points) in enumerate(lines.items()):
        rows = []
        for point in points:
            row = point if isinstance(point, Estimate) else (point, point, point)
            rows.append(row)
        value, low, high = np.array(rows, dtype=np.float64).T
        colour = colours.get(name, CYCLE[index % len(CYCLE)])
        # The style changes when the colours begin again, so that 28 lines differ.
        style = STYLES[index // len(CYCLE) % len(STYLES)]
        mark = MARKS[index % len(MARKS)]
        axis.plot(x, value, color=colour, linestyle=style, label=name, marker=mark, linewidth=1.7)
        if (low < high).any():
            axis.fill_between(x, low, high, color=colour, alpha=0.13, linewidth=0)


def _few_ticks(axis: Axes, x: Sequence[Any]) -> None:
    """Make an axis logarithmic, with ticks at some of the settings."""
    axis.set_xscale("log")
    ticks = list(x)[:: math.ceil(len(x) / MOST_TICKS)]
    axis.set_xticks(ticks, [shortened(tick, ".2g") for tick in ticks])
    axis.minorticks_off()
