"""Dot plots: the numbers of a table with their intervals, one panel a group of columns."""

from collections.abc import Mapping

from matplotlib.figure import Figure

from fsd.evaluation.intervals import Estimate
from fsd.reporting.figures import BASE, FSD, GREY, _plain

LOOKS = {"base": (BASE, "o"), "FSD": (FSD, "D")}
"""Colour and mark of a series; any other looks like the base."""
COLUMNS = 4
SPREAD = 0.3
"""Distance between the series of one row, rows being 1 apart."""

Panels = Mapping[str, Mapping[str, Mapping[str, Estimate]]]
"""Panel → series → row → number with its interval."""


def dots(panels: Panels, *, x_name: str, title: str = "", chance: float | None = None) -> Figure:
    """One panel a name, a row a line, each number as a dot with its interval as a bar.

    Args:
        panels: panel → series (`base`, `FSD`) → row → number.
        x_name: of the numbers.
        title: above the figure.
        chance: draws a grey line there.
    """
    rows = list(dict.fromkeys(row for series in panels.values() for column in series.values() for row in column))
    across = max(1, min(COLUMNS, len(panels)))
    down = -(-len(panels) // across)
    height = 0.9 + down * (0.8 + 0.32 * len(rows))
    # Room for the names of the rows, which stand left of the first panel, and for the title.
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
        axis.set_title(panel, fontsize=10)
        axis.set_xlabel(x_name, fontsize=9)
        _plain(axis)
    for axis in axes[len(panels) :]:
        axis.set_axis_off()
    axes[0].set_yticks(range(len(rows)), rows, fontsize=9)
    axes[0].set_ylim(len(rows) - 0.5, -0.5)
    if any(len(series) > 1 for series in panels.values()):
        figure.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=2, frameon=False)
    figure.suptitle(title, fontsize=11)
    return figure
