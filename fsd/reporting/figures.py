"""Figures: ROC curves, score distributions, reliability of p-values, and dot plots.

Base scores are blue, FSD is orange, scores that use both models are green; members are dark, non-members grey. The
palettes, Okabe and Ito's and Paul Tol's muted one, are safe for colour-blind readers.
"""

import io
import math
from base64 import b64encode
from collections.abc import Iterator, Mapping, Sequence
from textwrap import fill
from typing import Any, NamedTuple

import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.figure import Figure
from matplotlib.ticker import NullLocator
from numpy.typing import ArrayLike

from fsd.evaluation.rows import Rows
from fsd.statistics import conformal, metrics
from fsd.statistics.bootstrap import Bootstrap
from fsd.statistics.intervals import LOWER, UPPER, Estimate, shortened
from fsd.token_stats import FloatArray, Scores

BASE = "#0072B2"
FSD = "#D55E00"
BOTH = "#009E73"
MEMBERS = "#1b1b1b"
OTHERS = "#8c8c8c"
CONTROL = "#7f7f7f"
GREY = "#595959"
STATES = {"base score": BASE, "FSD": FSD, "both models": BOTH}
NAMES = ("base score", "FSD")
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
LEGEND: dict[str, Any] = {"fontsize": 9, "frameon": False}

Series = Mapping[str, Mapping[str, Estimate]]
"""Series → row → number with its interval."""
Panels = Mapping[str, Series]


class Figures(NamedTuple):
    """ROC curves and distributions of scores, which a notebook shows."""

    roc: Figure
    distributions: Figure

    def _repr_html_(self) -> str:
        page = ""
        for figure in self:
            page += f'<img src="data:image/png;base64,{b64encode(png(figure, dpi=72)).decode("ascii")}">'
        return page


def png(figure: Figure, dpi: int = 110) -> bytes:
    """The figure as a PNG file."""
    target = io.BytesIO()
    figure.savefig(target, format="png", dpi=dpi)
    return target.getvalue()


def _sheet(count: int, across: int, size: tuple[float, float]) -> tuple[Figure, int, int]:
    """An empty figure for `count` panels of this size, at most `across` side by side; its rows and its columns."""
    across = min(count, across)
    down = math.ceil(count / across)
    # A single small panel would be too narrow for the titles and the legend.
    width = max(4.8, size[0] * across)
    height = max(2.6, 0.9 + size[1] * down)
    return (Figure(figsize=(width, height), layout="constrained"), down, across)


def panels_of(count: int, across: int, size: tuple[float, float], **shared: Any) -> tuple[Figure, Sequence[Axes]]:
    """A figure with panels side by side, and below each other where they are more than `across`."""
    figure, down, across = _sheet(count, across, size)
    axes = figure.subplots(down, across, squeeze=False, **shared).ravel()
    for axis in axes[count:]:
        axis.remove()
    return figure, axes[:count]


def finish(axis: Axes, x_name: str = "", y_name: str = "", title: str = "", *, size: int = 10) -> None:
    """Label the axes, and draw them with a light grid and without a frame."""
    name_axes(axis, x_name, y_name, size)
    if title:
        axis.set_title(title, fontsize=size + 1, loc="left")
    axis.tick_params(labelsize=9, color="#bbbbbb")
    axis.grid(color="#e5e5e5", linewidth=0.6)
    axis.set_axisbelow(True)
    axis.spines[["top", "right"]].set_visible(False)
    axis.spines[["left", "bottom"]].set_color("#bbbbbb")


def name_axes(axis: Axes, x_name: str, y_name: str, size: int) -> None:
    """Label the axes."""
    axis.set_xlabel(x_name, fontsize=size)
    axis.set_ylabel(y_name, fontsize=size)


def _percent(*axes: Axis) -> None:
    for axis in axes:
        axis.set_major_formatter(lambda share, _: f"{100 * share:g} %")


def decimals(axis: Axis) -> None:
    """Ticks as in the tables: .5, not 0.5."""
    axis.set_major_formatter(lambda value, _: shortened(value, "g"))


def legend(figure: Figure, axes: Sequence[Axes], columns: int = 2, side: str = "lower") -> None:
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
    figure, axes = panels_of(len(detectors), ACROSS, (3.3, 2.5), sharex=True, sharey=True)
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
    legend(figure, axes, columns=4, side="upper")
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
    figure, (linear, log) = panels_of(2, 2, (5.0, 4.0), sharey=True)
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
    legend(figure, [linear])
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
    legend(figure, figure.axes[:1], side="upper")
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
    figure, (axis,) = panels_of(1, 1, (6.0, 4.3))
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
    figure, (left, right) = panels_of(2, 2, (5.0, 3.9))
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
    figure, axes = panels_of(len(panels), across, (width, 0.8 + 0.32 * len(rows)), sharex=True, sharey=True)
    for axis, (panel, series) in zip(axes, panels.items(), strict=True):
        _draw_dots(axis, series, rows)
        if chance is not None:
            axis.axvline(chance, color=GREY, linewidth=0.9, linestyle=":")
        finish(axis, x_name, title=panel, size=9)
        decimals(axis.xaxis)
    axes[0].set_yticks(range(len(rows)), rows, fontsize=9)
    axes[0].set_ylim(len(rows) - 0.5, -0.5)
    if max(map(len, panels.values())) > 1:
        legend(figure, axes, columns=3)
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
