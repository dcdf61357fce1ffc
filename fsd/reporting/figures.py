"""Figures: ROC curves, score distributions, reliability of p-values, heat maps, curves and dot plots.

Base scores are blue, FSD is orange, scores that use both models are green; members are dark, non-members grey. The
palettes, Okabe and Ito's and Paul Tol's muted one, are safe for colour-blind readers.
"""

import io
import math
from collections.abc import Mapping, Sequence
from textwrap import fill
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.colors import TwoSlopeNorm
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from matplotlib.ticker import NullLocator
from numpy.typing import ArrayLike

from fsd.evaluation import metrics
from fsd.evaluation.metrics import Bootstrap, Estimate, Row, shortened
from fsd.evaluation.results import CONTRASTS
from fsd.token_stats import FloatArray, Scores

BASE, FSD, BOTH = "#0072B2", "#D55E00", "#009E73"
MEMBERS, OTHERS, CONTROL, GREY = "#1b1b1b", "#8c8c8c", "#7f7f7f", "#595959"
STATES = {"base score": BASE, "FSD": FSD, "both models": BOTH}
CYCLE = ("#332288", "#CC6677", "#44AA99", "#882255", "#999933", "#88CCEE", "#000000")
STYLES = ("-", "--", "-.", ":")
MARKS = "osD^vPX*"
ACROSS, COLUMNS = 3, 4
"""Panels side by side: of detectors, and of contrasts and studies."""
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
NARROWEST = 0.1
"""Distance from the default that a heat map gives its full colour at least, so that noise stays pale."""

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
    across = min(count, across)
    down = -(-count // across)
    figure = Figure(figsize=(max(4.8, size[0] * across), max(2.6, 0.9 + size[1] * down)), layout="constrained")
    axes = figure.subplots(down, across, squeeze=False, **shared).ravel()
    for axis in axes[count:]:
        axis.remove()
    return figure, axes[:count]


def finish(axis: Axes, x_name: str = "", y_name: str = "", title: str = "", *, size: int = 10) -> None:
    """Label the axes, and draw them with a light grid and without a frame."""
    axis.set_xlabel(x_name, fontsize=size)
    axis.set_ylabel(y_name, fontsize=size)
    if title:
        axis.set_title(title, fontsize=size + 1, loc="left")
    axis.tick_params(labelsize=9, color="#bbbbbb")
    axis.grid(color="#e5e5e5", linewidth=0.6)
    axis.set_axisbelow(True)
    axis.spines[["top", "right"]].set_visible(False)
    axis.spines[["left", "bottom"]].set_color("#bbbbbb")


def _percent(*axes: Axis) -> None:
    for axis in axes:
        axis.set_major_formatter(lambda share, _: f"{100 * share:g} %")


def _decimals(axis: Axis) -> None:
    """Ticks as in the tables: .5, not 0.5."""
    axis.set_major_formatter(lambda value, _: shortened(value, "g"))


def _legend(figure: Figure, axes: Sequence[Axes], columns: int = 2, side: str = "lower") -> None:
    """One legend for all panels."""
    place: Any = f"outside {side} center"
    entries = {label: handle for axis in axes for handle, label in zip(*axis.get_legend_handles_labels(), strict=True)}
    figure.legend(list(entries.values()), list(entries), loc=place, ncols=columns, fontsize=9, frameon=False)


def _states(name: str, base: Scores, fsd: Scores, names: tuple[str, str] = ("base score", "FSD")) -> Any:
    """The scores of a detector: (values, what they are, colour)."""
    if name in base:
        yield base[name], names[0], BASE
    if name in fsd:
        yield (fsd[name], names[1], FSD) if name in base or not base else (fsd[name], "both models", BOTH)


def roc(labels: ArrayLike, base: Scores, fsd: Scores, *, names: tuple[str, str] = ("base score", "FSD")) -> Figure:
    """One panel per detector with the curves of its base score and FSD, over a logarithmic axis, and their AUCs."""
    detectors = list({**fsd, **base})
    figure, axes = _panels(len(detectors), ACROSS, (3.3, 2.5), sharex=True, sharey=True)
    for axis, name in zip(axes, detectors, strict=True):
        for at, (values, word, colour) in enumerate(_states(name, base, fsd, names)):
            fpr, tpr, _ = metrics.roc(labels, values)
            axis.step(np.maximum(fpr, _lowest(labels)), tpr, color=colour, linewidth=1.7, where="post", label=word)
            auc = f"{word}: AUC {shortened(metrics.auc(labels, values))}"
            axis.text(0.03, 0.97 - 0.1 * at, auc, transform=axis.transAxes, va="top", fontsize=9, color=colour)
        _few_alarms(axis, _lowest(labels))
        finish(axis, title=name)
        axis.label_outer()
    _words(figure, "Non-members wrongly called members (false alarms), logarithmic", "Members found")
    _legend(figure, axes, columns=4, side="upper")
    return figure


def _words(figure: Figure, x_name: str, y_name: str) -> None:
    """Label the axes of all panels, once."""
    figure.supxlabel(x_name, fontsize=10)
    figure.supylabel(y_name, fontsize=10)


def _few_alarms(axis: Axes, lowest: float) -> None:
    """Draw guessing, and make the axes those of shares, the lower one logarithmic."""
    axis.set_xscale("log")
    _guessing(axis, lowest)
    axis.set_xticks([rate for rate in RATES if rate >= lowest * 0.99])
    axis.xaxis.set_minor_locator(NullLocator())
    axis.set_xlim(lowest, 1)


def _guessing(axis: Axes, lowest: float) -> None:
    rates = np.geomspace(lowest, 1, 50)
    axis.plot(rates, rates, ":", color=GREY, linewidth=1.0, label="guessing")
    axis.set_ylim(-0.02, 1.02)
    _percent(axis.xaxis, axis.yaxis)


def _lowest(labels: ArrayLike) -> float:
    return max(LOWEST_FPR, 1 / int((~np.asarray(labels, dtype=bool)).sum()))


def headline(labels: ArrayLike, groups: Sequence[str], curves: Mapping[str, tuple[FloatArray, str]]) -> Figure:
    """ROC curves of some scores, name → (N,) values and colour, with pointwise bands from resampled groups."""
    bootstrap, lowest = Bootstrap.draw(labels, groups), _lowest(labels)
    rates = np.union1d(np.linspace(0, 1, 51), np.geomspace(lowest, 1, 40))
    figure, (linear, log) = _panels(2, 2, (5.0, 4.0), sharey=True)
    for name, (values, colour) in curves.items():
        tpr, *drawn = bootstrap.values(values, [metrics.tpr_at(float(rate)) for rate in rates]).T
        low, high = np.quantile(drawn, [(1 - metrics.LEVEL) / 2, (1 + metrics.LEVEL) / 2], axis=0)
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
    detectors, member = list({**fsd, **base}), np.asarray(labels, dtype=bool)
    across = min(ACROSS, len(detectors))
    down = -(-len(detectors) // across)
    figure = Figure(figsize=(max(4.8, 3.3 * across), 0.9 + 3.8 * down), layout="constrained")
    grid, axes = figure.add_gridspec(2 * down, across), []
    for at, name in enumerate(detectors):
        states = list(_states(name, base, fsd))
        row, column = 2 * (at // across), at % across
        for place, (values, word, colour) in enumerate(states):
            rows = slice(row + place, row + place + 3 - len(states))  # a score alone has both places
            axes.append(axis := figure.add_subplot(grid[rows, column]))
            _shares(axis, values, {"members": (member, MEMBERS), "non-members": (~member, OTHERS)}, colour)
            finish(axis, title=f"{name}: {word}" if place == 0 else word, size=9)
            axis.locator_params(axis="x", nbins=4)
            axis.tick_params(labelleft=column == 0)
    _words(figure, "Score (higher: more likely a member)", "Texts with at least this score")
    _legend(figure, axes[:1], side="upper")
    return figure


def _shares(axis: Axes, values: FloatArray, sides: Mapping[str, tuple[Any, str]], between: str) -> None:
    """Share of each of two sides, name → (N,) which texts and colour, that has at least a score."""
    low, high = np.quantile(values, [TAIL, 1 - TAIL])
    x = np.linspace(low, high if high > low else low + 1, 300)
    shares = []
    for name, (chosen, colour) in sides.items():
        side = np.sort(values[chosen])
        shares.append(1 - np.searchsorted(side, x) / max(1, side.size))
        axis.plot(x, shares[-1], color=colour, linewidth=1.8, label=name)
    axis.fill_between(x, shares[0], shares[1], color=between, alpha=0.2, linewidth=0)
    axis.set(xlim=(x[0], x[-1]), ylim=(0, 1.02))
    _percent(axis.yaxis)


def p_value_histogram(name: str, p_values: ArrayLike) -> Figure:
    """Histogram of p-values in ten bars, with the level that uniform ones would have."""
    values = np.asarray(p_values, dtype=np.float64)
    figure, (axis,) = _panels(1, 1, (5.2, 2.3))
    axis.hist(values, bins=np.linspace(0, 1, 11).tolist(), color=BASE, edgecolor="white")
    axis.axhline(values.size / 10, color=GREY, linewidth=1.2)
    finish(axis, "p-value of a document", "documents", name)
    _decimals(axis.xaxis)
    return figure


def _p_values(axis: Axes, p_values: ArrayLike, counts: tuple[int, int], colour: str, label: str) -> FloatArray:
    """Share of the p-values (n,) up to each of `ALPHA`, and the band of valid ones for these `counts` of texts."""
    low, high = metrics.conformal_band(*counts, ALPHA)
    share: FloatArray = (np.asarray(p_values)[None, :] <= ALPHA[:, None] + 1e-9).mean(axis=1)
    axis.fill_between(ALPHA, low, high, color="#e3e3e3", linewidth=0, label="non-members alone, 95 of 100 cases")
    axis.plot(ALPHA, ALPHA, color=GREY, linewidth=0.8)
    axis.plot(ALPHA, share, color=colour, label=label, linewidth=1.7)
    _percent(axis.xaxis, axis.yaxis)
    return share


def reliability(
    name: str, p_values: FloatArray, *, calibration: int, texts: int | None = None, colour: str = FSD
) -> Figure:
    """Share of held-out non-members with p at most α, against α."""
    figure, (axis,) = _panels(1, 1, (6.0, 4.3))
    label = f"{name}, {p_values.size} non-members"
    share = _p_values(axis, p_values, (calibration, texts or p_values.size), colour, label)
    called = float(share[np.argmin(abs(ALPHA - 0.05))])
    axis.plot([0.05], [called], "o", color=colour)
    line = {"arrowstyle": "-", "color": colour, "linewidth": 0.8}
    axis.annotate(
        f"5 % chosen: {100 * called:.0f} % called", (0.05, called), (0.3, 0.04), color=colour, arrowprops=line
    )
    axis.set(xlim=(0, 1), ylim=(0, 1))
    finish(axis, "Chosen error rate", "Non-members wrongly called members", "Does a 5 % error rate mean 5 %?")
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
    ours = np.repeat([True, False], [new.size, known.size])
    sides = {f"these texts ({new.size})": (ours, MEMBERS), f"known non-members ({known.size})": (~ours, OTHERS)}
    _shares(left, np.concatenate([new, known]), sides, FSD)
    if left.get_xlim()[0] <= threshold <= left.get_xlim()[1]:
        left.axvline(threshold, color=FSD, linewidth=1.4, label=f"threshold for {100 * fpr:g} %")
    if new.size:
        _p_values(right, p_values, independent or (known.size, new.size), MEMBERS, "these texts")
    right.axvline(fpr, color=FSD, linewidth=1.4, label=f"chosen error rate {100 * fpr:g} %")
    right.set(xlim=(0, 1), ylim=(0, 1.02))
    finish(left, "Score (higher: more likely a member)", "Texts with at least this score")
    finish(right, "p-value", "Texts with at most this p-value")
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
    default: tuple[object, object] | None = None,
) -> Figure:
    """Values as colours with the numbers written in; above those of the `default` settings green, below purple."""
    figure = Figure(figsize=(1.8 + 0.62 * len(x), 1.7 + 0.42 * len(y)), layout="constrained")
    axis = figure.subplots()
    columns, rows, at = ([f"{v:g}" if isinstance(v, float) else str(v) for v in side] for side in (x, y, default or ()))
    frames: list[tuple[Any, str, str]] = []
    norm, middle, far = None, (np.nanmin(values) + np.nanmax(values)) / 2, 0.0
    if default and at[0] in columns and at[1] in rows:
        place = rows.index(at[1]), columns.index(at[0])
        best = np.unravel_index(np.nanargmax(values), values.shape)
        frames += [(best, "-", "highest"), (place, "--", "default")]
        middle = values[place]
        far = max(NARROWEST, float(np.nanmax(abs(values - middle))))
        norm = TwoSlopeNorm(middle, middle - far, middle + far)
    image = axis.imshow(values, origin="lower", aspect="auto", cmap="PRGn" if norm else "Blues", norm=norm)
    axis.set_xticks(range(len(x)), columns, fontsize=9)
    axis.set_yticks(range(len(y)), rows, fontsize=9)
    axis.set_xlabel(x_name, fontsize=10)
    axis.set_ylabel(y_name, fontsize=10)
    for (row, column), value in np.ndenumerate(values):
        if not math.isnan(value):
            dark = abs(value - middle) > 0.7 * far if norm else value > middle
            colour = "white" if dark else MEMBERS
            axis.text(column, row, shortened(value), ha="center", va="center", fontsize=9, color=colour)
    for (row, column), style, word in frames:
        frame = Rectangle((column - 0.47, row - 0.47), 0.94, 0.94, fill=False, linestyle=style, linewidth=2.2)
        frame.set(edgecolor=MEMBERS, label=word)
        axis.add_patch(frame)
    bar = figure.colorbar(image, ax=axis, label=name)
    _decimals(bar.ax.yaxis)
    axis.set_title(title, fontsize=11, loc="left")
    if frames:
        _legend(figure, [axis])
    return figure


def strips(values: Mapping[str, FloatArray], *, name: str) -> Figure:
    """One strip of colours per series, from its beginning to its end."""
    lowest = -12.0
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
    colours: Mapping[str, str] | None = None,
) -> Figure:
    """One panel per title with a line per name over the same K settings, and intervals as bands."""
    figure, axes = _panels(len(panels), across, (3.5, 2.6) if len(panels) > 1 else (6.8, 3.7), sharey=True)
    for place, (axis, (title, lines)) in enumerate(zip(axes, panels.items(), strict=True)):
        if not lines:
            axis.set_axis_off()
            continue
        for at, (name, points) in enumerate(lines.items()):
            rows = np.array([p if isinstance(p, Estimate) else (p, p, p) for p in points], dtype=np.float64)
            # 28 lines differ in colour or style
            colour, style = CYCLE[at % len(CYCLE)], STYLES[at // len(CYCLE) % len(STYLES)]
            colour = (colours or {}).get(name, colour)
            axis.plot(x, rows[:, 0], color=colour, linestyle=style, label=name, marker=MARKS[at % 8], linewidth=1.7)
            if (rows[:, 1] < rows[:, 2]).any():
                axis.fill_between(x, rows[:, 1], rows[:, 2], color=colour, alpha=0.13, linewidth=0)
        if chance is not None:
            axis.axhline(chance, color=GREY, linewidth=0.9, linestyle=":")
        if x_log:
            axis.set_xscale("log")
            ticks = list(x)[:: -(-len(x) // MOST_TICKS)]
            axis.set_xticks(ticks, [shortened(value, ".2g") for value in ticks])
            axis.minorticks_off()
        outer = x_name if place + across >= len(panels) else "", y_name if place % across == 0 else ""
        finish(axis, *outer, title, size=9)
        _decimals(axis.yaxis)
        axis.tick_params(labelleft=True)
    fullest = max(axes, key=lambda axis: len(axis.lines))
    if len(panels) == 1 and len(fullest.get_legend_handles_labels()[0]) <= len(CYCLE):
        _name_ends(fullest)
    else:
        _legend(figure, [fullest], columns=min(across + 2, len(fullest.lines)))
    return figure


def _name_ends(axis: Axes) -> None:
    """Write the names of the lines at their right ends, apart from each other."""
    lines = [line for line in axis.lines if not str(line.get_label()).startswith("_")]
    ends = np.array([np.asarray(line.get_xydata())[-1] for line in lines])
    bottom, top = axis.get_ylim()
    gap, order = 0.06 * (top - bottom), np.argsort(ends[:, 1], kind="stable")
    steps = gap * np.arange(len(lines))
    upwards = np.maximum.accumulate(ends[order, 1] - steps) + steps
    heights = np.minimum(upwards, top - steps[::-1])
    for at, height in zip(order, heights, strict=True):
        how = {"color": lines[at].get_color(), "va": "center", "fontsize": 9, "annotation_clip": False}
        axis.annotate(str(lines[at].get_label()), (ends[at][0], height), (10, 0), textcoords="offset points", **how)


def contrasts(rows: Mapping[tuple[str, str, str], Row]) -> Figure:
    """AUC of every detector in the three contrasts, one panel each, see `fsd.evaluation.results`."""
    panels: dict[str, dict[str, dict[str, Estimate]]] = {}
    for contrast in CONTRASTS:
        title = "\n".join(fill(part, WIDTH) for part in (contrast.title, f"({contrast.meaning})"))
        metric = f"auc_{contrast.name}"
        panels[title] = by_model({key[:2]: row.estimate for key, row in rows.items() if key[2] == metric})
    return dots(panels, x_name="AUC", title="What the model knows: the texts, or their period?", chance=0.5)


def by_model(scores: Mapping[tuple[str, str], Estimate]) -> dict[str, dict[str, Estimate]]:
    """The series of a dot plot, as in `STATES`, of (detector, state) → number; one without base score uses both."""
    series: dict[str, dict[str, Estimate]] = {name: {} for name in STATES}
    for (detector, state), estimate in scores.items():
        compared = "FSD" if (detector, "base") in scores else "both models"
        series["base score" if state == "base" else compared][detector] = estimate
    return {name: column for name, column in series.items() if column}


def dots(panels: Panels, *, x_name: str, title: str = "", chance: float | None = None) -> Figure:
    """Dot plot: each number is a dot and its interval a bar."""
    rows = list(dict.fromkeys(row for series in panels.values() for column in series.values() for row in column))
    down = max(1, -(-len(panels) // COLUMNS))
    across = max(1, -(-len(panels) // down))
    # room for the names of the rows, left of the first panel, and for the title
    width = max(2.3 + (0.09 * max(map(len, rows), default=0) + 0.4) / across, 0.085 * len(title) / across)
    figure, axes = _panels(len(panels), across, (width, 0.8 + 0.32 * len(rows)), sharex=True, sharey=True)
    for axis, (panel, series) in zip(axes, panels.items(), strict=True):
        pairs = [name for name in series if name != "both models"]
        for name, column in series.items():
            colour, mark = STATES.get(name, BASE), "D" if name == "FSD" else "o"
            shift = SPREAD * (pairs.index(name) - (len(pairs) - 1) / 2) if name in pairs else 0.0
            for row, (value, low, high) in column.items():
                y = rows.index(row) + shift
                label = name if row == next(iter(column)) else ""
                axis.plot([low, high], [y, y], color=colour, linewidth=1.4)
                axis.plot([value], [y], mark, color=colour, markersize=5, label=label)
        if chance is not None:
            axis.axvline(chance, color=GREY, linewidth=0.9, linestyle=":")
        finish(axis, x_name, title=panel, size=9)
        _decimals(axis.xaxis)
    axes[0].set_yticks(range(len(rows)), rows, fontsize=9)
    axes[0].set_ylim(len(rows) - 0.5, -0.5)
    if any(len(series) > 1 for series in panels.values()):
        _legend(figure, axes, columns=3)
    figure.suptitle(title, fontsize=11)
    return figure
