"""Figures: ROC curves, score distributions, reliability of p-values, heat maps, curves and dot plots.

Base scores are blue, FSD is orange, scores that use both models are green; members are dark, non-members grey. The
palettes, Okabe and Ito's and Paul Tol's muted one, are safe for colour-blind readers.
"""

import io
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from textwrap import fill
from typing import Any

import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.colors import CenteredNorm
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from matplotlib.ticker import NullLocator
from numpy.random import default_rng
from numpy.typing import ArrayLike

from fsd.evaluation.rows import Rows
from fsd.statistics import conformal, metrics
from fsd.statistics.bootstrap import Bootstrap
from fsd.statistics.intervals import LOWER, UPPER, Estimate, shortened
from fsd.token_stats import BoolArray, FloatArray, Scores

BASE = "#0072B2"
FSD = "#D55E00"
BOTH = "#009E73"
MEMBERS = "#1b1b1b"
OTHERS = "#8c8c8c"
CONTROL = "#7f7f7f"
GREY = "#595959"
STATES = {"base score": BASE, "FSD": FSD, "both models": BOTH}
NAMES = ("base score", "FSD")
CYCLE = ("#332288", "#CC6677", "#44AA99", "#882255", "#999933", "#88CCEE", "#000000")
STYLES = ("-", "--", "-.", ":")
MARKS = "osD^vPX*"
ACROSS = 3
"""Panels of detectors side by side."""
COLUMNS = 4
"""Panels of contrasts and studies side by side."""
ALPHA = np.linspace(0, 1, 201)
"""False-positive rates at which the share of small p-values is drawn."""
TAIL = 0.01
"""Share of the texts beyond either end of an axis of scores."""
LOWEST_FPR = 1e-3
"""Left end of logarithmic axes; with fewer than 1,000 non-members, the smallest rate that they can show."""
RATES = (0.001, 0.01, 0.1, 0.5)
"""Ticks of logarithmic axes."""
WIDTH = 26
"""Characters in a line of a panel's title."""
SPREAD = 0.3
"""Distance between the series of one row of a dot plot, rows being 1 apart."""
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
LEGEND: dict[str, Any] = {"fontsize": 9, "frameon": False}

Series = Mapping[str, Mapping[str, Estimate]]
"""Series → row → number with its interval."""
Panels = Mapping[str, Series]
Lines = Mapping[str, Sequence[Estimate | float]]
"""Name of a line → K estimates or plain numbers."""


def png(figure: Figure) -> bytes:
    """The figure as a PNG file."""
    target = io.BytesIO()
    figure.savefig(target, format="png", dpi=110)
    return target.getvalue()


def _sheet(count: int, across: int, size: tuple[float, float]) -> tuple[Figure, int, int]:
    """An empty figure for `count` panels of this size, at most `across` side by side; its rows and its columns."""
    across = min(count, across)
    down = math.ceil(count / across)
    # A single small panel would be too narrow for the titles and the legend.
    width = max(4.8, size[0] * across)
    height = max(2.6, 0.9 + size[1] * down)
    return (Figure(figsize=(width, height), layout="constrained"), down, across)


def _panels(count: int, across: int, size: tuple[float, float], **shared: Any) -> tuple[Figure, Sequence[Axes]]:
    """A figure with panels side by side, and below each other where they are more than `across`."""
    figure, down, across = _sheet(count, across, size)
    axes = figure.subplots(down, across, squeeze=False, **shared).ravel()
    for axis in axes[count:]:
        axis.remove()
    return figure, axes[:count]


def finish(axis: Axes, x_name: str = "", y_name: str = "", title: str = "", *, size: int = 10) -> None:
    """Label the axes, and draw them with a light grid and without a frame."""
    _name(axis, x_name, y_name, size)
    if title:
        axis.set_title(title, fontsize=size + 1, loc="left")
    axis.tick_params(labelsize=9, color="#bbbbbb")
    axis.grid(color="#e5e5e5", linewidth=0.6)
    axis.set_axisbelow(True)
    axis.spines[["top", "right"]].set_visible(False)
    axis.spines[["left", "bottom"]].set_color("#bbbbbb")


def _name(axis: Axes, x_name: str, y_name: str, size: int) -> None:
    axis.set_xlabel(x_name, fontsize=size)
    axis.set_ylabel(y_name, fontsize=size)


def _percent(*axes: Axis) -> None:
    for axis in axes:
        axis.set_major_formatter(lambda share, _: f"{100 * share:g} %")


def _decimals(axis: Axis) -> None:
    """Ticks as in the tables: .5, not 0.5."""
    axis.set_major_formatter(lambda value, _: shortened(value, "g"))


def _legend(figure: Figure, axes: Sequence[Axes], columns: int = 2, side: str = "lower") -> None:
    """One legend for all panels."""
    entries: dict[str, Artist] = {}
    for axis in axes:
        handles, labels = axis.get_legend_handles_labels()
        # A line that several panels have is named once.
        entries |= dict(zip(labels, handles, strict=True))
    place: Any = f"outside {side} center"
    figure.legend(list(entries.values()), list(entries), loc=place, ncols=columns, **LEGEND)


def _states(
    name: str, base: Scores, fsd: Scores, names: tuple[str, str] = NAMES
) -> Iterator[tuple[FloatArray, str, str]]:
    """The scores of a detector: (values, what they are, colour)."""
    if name in base:
        yield base[name], names[0], BASE
    if name not in fsd:
        return
    # Where other detectors have a base score, one without it compares both models by itself.
    if base and name not in base:
        yield fsd[name], "both models", BOTH
    else:
        yield fsd[name], names[1], FSD


def roc(labels: ArrayLike, base: Scores, fsd: Scores, *, names: tuple[str, str] = NAMES) -> Figure:
    """One panel per detector with the curves of its base score and FSD, over a logarithmic axis, and their AUCs."""
    detectors = list(fsd | base)
    lowest = _lowest(labels)
    figure, axes = _panels(len(detectors), ACROSS, (3.3, 2.5), sharex=True, sharey=True)
    for axis, detector in zip(axes, detectors, strict=True):
        height = 0.97
        for values, name, colour in _states(detector, base, fsd, names):
            fpr, tpr, _ = metrics.roc(labels, values)
            # A logarithmic axis has no place for a rate of 0.
            axis.step(np.maximum(fpr, lowest), tpr, color=colour, linewidth=1.7, where="post", label=name)
            area = f"{name}: AUC {shortened(metrics.auc(labels, values))}"
            axis.text(0.03, height, area, transform=axis.transAxes, va="top", fontsize=9, color=colour)
            height -= 0.1
        _few_alarms(axis, lowest)
        finish(axis, title=detector)
        axis.label_outer()
    _name_all(figure, "Non-members wrongly called members (false alarms), logarithmic", "Members found")
    _legend(figure, axes, columns=4, side="upper")
    return figure


def _name_all(figure: Figure, x_name: str, y_name: str) -> None:
    """Label the axes of all panels, once."""
    figure.supxlabel(x_name, fontsize=10)
    figure.supylabel(y_name, fontsize=10)


def _few_alarms(axis: Axes, lowest: float) -> None:
    """Draw guessing, and make the axes those of shares, the lower one logarithmic."""
    axis.set_xscale("log")
    _guessing(axis, lowest)
    # The lowest rate may be a tick's up to rounding.
    axis.set_xticks([rate for rate in RATES if rate >= lowest * 0.99])
    axis.xaxis.set_minor_locator(NullLocator())
    axis.set_xlim(lowest, 1)


def _guessing(axis: Axes, lowest: float) -> None:
    rates = np.geomspace(lowest, 1, 50)
    axis.plot(rates, rates, ":", color=GREY, linewidth=1.0, label="guessing")
    axis.set_ylim(-0.02, 1.02)
    _percent(axis.xaxis, axis.yaxis)


def _lowest(labels: ArrayLike) -> float:
    """Left end of a logarithmic axis: the smallest false-positive rate above 0 that the non-members can have."""
    return max(LOWEST_FPR, 1 / int(np.equal(labels, False).sum()))


def headline(labels: ArrayLike, groups: Sequence[str], curves: Mapping[str, tuple[FloatArray, str]]) -> Figure:
    """ROC curves of some scores, name → (N,) values and colour, with pointwise bands from resampled groups."""
    bootstrap = Bootstrap.draw(labels, groups)
    lowest = _lowest(labels)
    # Evenly spaced on the linear panel and on the logarithmic one, so that neither curve has corners.
    rates = np.union1d(np.linspace(0, 1, 51), np.geomspace(lowest, 1, 40))
    measures = list(map(metrics.tpr_at, rates.tolist()))
    figure, (linear, log) = _panels(2, 2, (5.0, 4.0), sharey=True)
    for name, (values, colour) in curves.items():
        tpr, *resampled = bootstrap.values(values, measures).T
        low, high = np.quantile(resampled, [LOWER, UPPER], axis=0)
        for axis in (linear, log):
            axis.fill_between(rates, low, high, color=colour, alpha=0.13, linewidth=0, step="post")
            axis.step(rates, tpr, color=colour, linewidth=2, label=name, where="post")
    _guessing(linear, lowest)
    linear.set(xlim=(0, 1), xticks=np.linspace(0, 0.8, 5))
    _few_alarms(log, lowest)
    finish(linear, "Non-members wrongly called members (false alarms)", "Members found")
    finish(log, "The same, with few false alarms enlarged")
    figure.suptitle("Share of members found at a given false-alarm rate", fontsize=12, x=0.01, ha="left")
    _legend(figure, [linear])
    return figure


def score_distributions(labels: ArrayLike, base: Scores, fsd: Scores) -> Figure:
    """Share of the members, and of the non-members, with at least each score; a detector's base above its FSD."""
    detectors = list(fsd | base)
    member = np.asarray(labels, dtype=bool)
    sides = {"members": (member, MEMBERS), "non-members": (~member, OTHERS)}
    figure, down, across = _sheet(len(detectors), ACROSS, (3.3, 3.8))
    grid = figure.add_gridspec(2 * down, across)
    for index, detector in enumerate(detectors):
        states = list(_states(detector, base, fsd))
        column = index % across
        top = 2 * (index // across)
        title = f"{detector}: "
        for values, name, colour in states:
            # A score alone has the height of two.
            bottom = top + 3 - len(states)
            axis = figure.add_subplot(grid[top:bottom, column])
            _shares(axis, values, sides, colour)
            finish(axis, title=title + name, size=9)
            axis.locator_params(axis="x", nbins=4)
            axis.tick_params(labelleft=column == 0)
            top = bottom
            title = ""
    _name_all(figure, "Score (higher: more likely a member)", "Texts with at least this score")
    _legend(figure, figure.axes[:1], side="upper")
    return figure


def before_and_after(labels: ArrayLike, base: FloatArray, tuned: FloatArray, *, name: str) -> Figure:
    """Histograms of a number of members and of non-members, before and after fine-tuning, over one axis."""
    member = np.asarray(labels, dtype=bool)
    panels = {"before fine-tuning": base, "after fine-tuning": tuned}
    low, high = np.quantile(np.concatenate([base, tuned]), [TAIL, 1 - TAIL])
    edges = np.linspace(low, max(high, low + 1e-9), BARS + 1).tolist()
    figure, axes = _panels(len(panels), len(panels), (4.2, 3.0), sharex=True, sharey=True)
    for axis, (title, values) in zip(axes, panels.items(), strict=True):
        # What lies beyond an end is counted in the last bar, so that both sides have all their texts.
        clipped = np.clip(values, edges[0], edges[-1])
        axis.hist(clipped[~member], edges, color=OTHERS, alpha=0.7, label="non-members")
        axis.hist(clipped[member], edges, color=MEMBERS, histtype="step", linewidth=1.6, label="members")
        finish(axis, name, "Texts", title)
        axis.label_outer()
    _legend(figure, [axes[0]])
    return figure


def tokens(labels: ArrayLike, entropy: FloatArray, logp: FloatArray, selections: Mapping[str, BoolArray]) -> Figure:
    """Entropy against log-probability of tokens, of members beside non-members: all, and those of each selection."""
    member = np.asarray(labels, dtype=bool)
    colours = np.where(member, MEMBERS, OTHERS)
    panels = {"all tokens": np.ones(member.size, dtype=bool), **selections}
    # In a drawn order neither side lies over the other.
    order = default_rng(0).permutation(member.size)
    figure, axes = _panels(len(panels), ACROSS, (3.6, 3.2), sharex=True, sharey=True)
    for axis, (title, chosen) in zip(axes, panels.items(), strict=True):
        drawn = order[chosen[order]]
        axis.scatter(entropy[drawn], logp[drawn], s=4, alpha=0.6, linewidths=0, c=colours[drawn])
        finish(axis, "entropy of the prediction (nats)", "log-probability of the token (nats)", title)
        axis.text(0.97, 0.04, f"{100 * chosen.mean():.3g} % of them", transform=axis.transAxes, ha="right", fontsize=9)
        axis.label_outer()
    for name, colour in (("members", MEMBERS), ("non-members", OTHERS)):
        axes[0].scatter([], [], s=30, color=colour, label=name)
    _legend(figure, [axes[0]])
    return figure


def _shares(axis: Axes, values: FloatArray, sides: Mapping[str, tuple[Any, str]], between: str) -> None:
    """Share of each of two sides, name → (N,) which texts and colour, that has at least a score."""
    # A few far scores would press all others into a corner.
    low, high = np.quantile(values, [TAIL, 1 - TAIL])
    if high <= low:
        high = low + 1
    x = np.linspace(low, high, 300)
    shares = []
    for name, (chosen, colour) in sides.items():
        side = np.sort(values[chosen])
        share = 1 - np.searchsorted(side, x) / max(1, side.size)
        axis.plot(x, share, color=colour, linewidth=1.8, label=name)
        shares.append(share)
    axis.fill_between(x, shares[0], shares[1], color=between, alpha=0.2, linewidth=0)
    axis.set(xlim=(low, high), ylim=(0, 1.02))
    _percent(axis.yaxis)


def p_value_histogram(name: str, p_values: ArrayLike) -> Figure:
    """Histogram of p-values in ten bars, with the level that uniform ones would have."""
    values = np.asarray(p_values)
    figure, (axis,) = _panels(1, 1, (5.2, 2.3))
    axis.hist(values, bins=np.linspace(0, 1, 11).tolist(), color=BASE, edgecolor="white")
    axis.axhline(values.size / 10, color=GREY, linewidth=1.2)
    finish(axis, "p-value of a document", "documents", name)
    _decimals(axis.xaxis)
    return figure


def _p_values(axis: Axes, p_values: ArrayLike, counts: tuple[int, int], colour: str, label: str) -> FloatArray:
    """Share of the p-values (n,) up to each of `ALPHA`, and the band of valid ones for these `counts` of texts."""
    low, high = conformal.conformal_band(*counts, ALPHA)
    # Conformal p-values are fractions k / n, which `ALPHA` meets only up to rounding.
    share: FloatArray = (np.asarray(p_values) <= ALPHA[:, None] + 1e-9).mean(axis=1)
    axis.fill_between(ALPHA, low, high, color="#e3e3e3", linewidth=0, label="non-members alone, 95 of 100 cases")
    axis.plot(ALPHA, ALPHA, color=GREY, linewidth=0.8)
    axis.plot(ALPHA, share, color=colour, label=label, linewidth=1.7)
    _percent(axis.xaxis, axis.yaxis)
    return share


def reliability(name: str, p_values: FloatArray, *, calibration: int, texts: int, colour: str) -> Figure:
    """Share of held-out non-members with p at most α, against α."""
    figure, (axis,) = _panels(1, 1, (6.0, 4.3))
    label = f"{name}, {p_values.size} non-members"
    share = _p_values(axis, p_values, (calibration, texts), colour, label)
    called = share[np.argmin(abs(ALPHA - 0.05))]
    axis.plot([0.05], [called], "o", color=colour)
    axis.annotate(
        f"5 % chosen: {100 * called:.0f} % called",
        xy=(0.05, called),
        xytext=(0.3, 0.04),
        color=colour,
        arrowprops={"arrowstyle": "-", "color": colour, "linewidth": 0.8},
    )
    axis.set(xlim=(0, 1), ylim=(0, 1))
    finish(axis, "Chosen error rate", "Non-members wrongly called members", "Does a 5 % error rate mean 5 %?")
    axis.legend(loc="upper left", **LEGEND)
    return figure


def verdicts(
    calibration: ArrayLike,
    scores: ArrayLike,
    p_values: ArrayLike,
    *,
    threshold: float,
    fpr: float,
    independent: tuple[int, int],
) -> Figure:
    """Scores of new texts against those of known non-members, and the distribution of their p-values."""
    figure, (left, right) = _panels(2, 2, (5.0, 3.9))
    new = np.asarray(scores)
    values = np.concatenate([new, np.asarray(calibration)])
    is_new = np.arange(values.size) < new.size
    sides = {
        f"these texts ({new.size})": (is_new, MEMBERS),
        f"known non-members ({values.size - new.size})": (~is_new, OTHERS),
    }
    _shares(left, values, sides, FSD)
    low, high = left.get_xlim()
    rate = f"{100 * fpr:g} %"
    if low <= threshold <= high:
        left.axvline(threshold, color=FSD, linewidth=1.4, label=f"threshold for {rate}")
    if new.size:
        _p_values(right, p_values, independent, MEMBERS, "these texts")
    right.axvline(fpr, color=FSD, linewidth=1.4, label=f"chosen error rate {rate}")
    right.set(xlim=(0, 1), ylim=(0, 1.02))
    finish(left, "Score (higher: more likely a member)", "Texts with at least this score")
    finish(right, "p-value", "Texts with at most this p-value")
    for axis in (left, right):
        axis.legend(loc="upper center", bbox_to_anchor=(0.5, -0.16), ncols=2, **LEGEND)
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
    _name(axis, x_name, y_name, 10)
    for (row, column), value in np.ndenumerate(values):
        if not math.isnan(value):
            colour = "white" if dark[row, column] else MEMBERS
            axis.text(column, row, shortened(value), ha="center", va="center", fontsize=9, color=colour)
    _decimals(figure.colorbar(image, ax=axis, label=name).ax.yaxis)
    axis.set_title(title, fontsize=11, loc="left")
    if axis.patches:
        _legend(figure, [axis])
    return figure


def _labels(values: Iterable[object]) -> list[str]:
    return [f"{value:g}" if isinstance(value, float) else str(value) for value in values]


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
    names = [series if len(series) <= 28 else f"{series[:13]}…{series[-13:]}" for series in values]
    # Between two of them matplotlib reads a formula.
    names = [series.replace("$", r"\$") for series in names]
    axis.set_yticks(np.arange(count) + 0.5, names, fontsize=9)
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
    colours: Mapping[str, str] | None = None,
) -> Figure:
    """One panel per title with a line per name over the same K settings, and intervals as bands."""
    figure, axes = _panels(len(panels), across, (3.5, 2.6) if len(panels) > 1 else (6.8, 3.7), sharey=True)
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
        _decimals(axis.yaxis)
        axis.tick_params(labelleft=True)
    fullest = max(axes, key=lambda axis: len(axis.lines))
    _, names = fullest.get_legend_handles_labels()
    # Names at the ends need one panel, and a colour for each line to tell to which it belongs.
    if len(panels) == 1 and len(names) <= len(CYCLE):
        _name_ends(fullest)
    else:
        columns = min(across + 2, len(fullest.lines))
        # A legend of many lines would leave no room for them.
        figure.set_figheight(figure.get_figheight() + ROW * max(0, math.ceil(len(names) / columns) - ROWS))
        _legend(figure, [fullest], columns=columns)
    return figure


def _draw_lines(axis: Axes, x: Sequence[Any], lines: Lines, colours: Mapping[str, str]) -> None:
    for index, (name, points) in enumerate(lines.items()):
        rows = [point if isinstance(point, Estimate) else (point, point, point) for point in points]
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


def _name_ends(axis: Axes) -> None:
    """Write the names of the lines at their right ends, apart from each other."""
    # matplotlib's own names of lines without one begin with _.
    lines = [line for line in axis.lines if not str(line.get_label()).startswith("_")]
    ends = np.array([np.asarray(line.get_xydata())[-1] for line in lines])
    bottom, top = axis.get_ylim()
    order = np.argsort(ends[:, 1], kind="stable")
    steps = 0.06 * (top - bottom) * np.arange(len(lines))
    # From the lowest up, each is pushed above the one below it; then the highest ones back into the panel.
    upwards = np.maximum.accumulate(ends[order, 1] - steps) + steps
    heights = np.minimum(upwards, top - steps[::-1])
    for index, height in zip(order, heights, strict=True):
        line = lines[index]
        end = (ends[index, 0], height)
        axis.annotate(
            str(line.get_label()),
            xy=end,
            xytext=(10, 0),
            textcoords="offset points",
            color=line.get_color(),
            va="center",
            fontsize=9,
            annotation_clip=False,
        )


def contrasts(rows: Rows, meanings: Mapping[str, tuple[str, str]]) -> Figure:
    """AUC of every detector in some contrasts, one panel each; name of a contrast → its title and meaning."""
    panels = {}
    for contrast, (title, meaning) in meanings.items():
        panel = fill(title, WIDTH) + "\n" + fill(f"({meaning})", WIDTH)
        estimates = {}
        for (detector, state, metric), row in rows.items():
            if metric == f"auc_{contrast}":
                estimates[detector, state] = row.estimate
        panels[panel] = by_model(estimates)
    return dots(panels, x_name="AUC", title="What the model knows: the texts, or their period?", chance=0.5)


def by_model(scores: Mapping[tuple[str, str], Estimate]) -> Series:
    """The series of a dot plot, as in `STATES`, of (detector, state) → number; one without base score uses both."""
    series: dict[str, dict[str, Estimate]] = {name: {} for name in STATES}
    for (detector, state), estimate in scores.items():
        if state == "base":
            name = "base score"
        elif (detector, "base") in scores:
            name = "FSD"
        else:
            name = "both models"
        series[name][detector] = estimate
    return {name: column for name, column in series.items() if column}


def dots(panels: Panels, *, x_name: str, title: str = "", chance: float | None = None) -> Figure:
    """Dot plot: each number is a dot and its interval a bar."""
    names: dict[str, None] = {}
    for series in panels.values():
        for column in series.values():
            names |= dict.fromkeys(column)
    rows = list(names)
    # As many panels in every row: six are three and three, not four and two.
    down = math.ceil(len(panels) / COLUMNS)
    across = math.ceil(len(panels) / down)
    # Room for the names of the rows, left of the first panel, and for the title.
    longest = max(map(len, rows), default=0)
    width = max(2.3 + (0.09 * longest + 0.4) / across, 0.085 * len(title) / across)
    figure, axes = _panels(len(panels), across, (width, 0.8 + 0.32 * len(rows)), sharex=True, sharey=True)
    for axis, (panel, series) in zip(axes, panels.items(), strict=True):
        _draw_dots(axis, series, rows)
        if chance is not None:
            axis.axvline(chance, color=GREY, linewidth=0.9, linestyle=":")
        finish(axis, x_name, title=panel, size=9)
        _decimals(axis.xaxis)
    axes[0].set_yticks(range(len(rows)), rows, fontsize=9)
    axes[0].set_ylim(len(rows) - 0.5, -0.5)
    if max(map(len, panels.values())) > 1:
        _legend(figure, axes, columns=3)
    figure.suptitle(title, fontsize=11)
    return figure


def _draw_dots(axis: Axes, series: Series, rows: Sequence[str]) -> None:
    # A detector of both models has no other number in its row, so that its dot is in the middle.
    pairs = [name for name in series if name != "both models"]
    for name, column in series.items():
        colour = STATES.get(name, BASE)
        mark = "D" if name == "FSD" else "o"
        shift = SPREAD * (pairs.index(name) - (len(pairs) - 1) / 2) if name in pairs else 0.0
        for row, (value, low, high) in column.items():
            y = rows.index(row) + shift
            axis.plot([low, high], [y, y], color=colour, linewidth=1.4)
            axis.plot([value], [y], mark, color=colour, markersize=5, label=name)
