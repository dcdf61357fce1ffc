"""The headline figure: the best base score against the best FSD, as an image and as an interactive page."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from fsd.evaluation import metrics
from fsd.evaluation.intervals import Bootstrap, Estimate
from fsd.reporting.figures import BASE, CYCLE, FSD, GREY, LOWEST_FPR, finish
from fsd.token_stats import FloatArray

if TYPE_CHECKING:
    from plotly.graph_objects import Figure as InteractiveFigure

COMBINED = "combined"
"""Column, or detector, of a combined score; it is drawn if the scores have it."""
_LOOKS = {"base": (BASE, "--"), "fsd": (FSD, "-"), "": (CYCLE[2], "-.")}
_DASHES = {"--": "dash", "-": "solid", "-.": "dashdot"}


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


def choose(scores: pd.DataFrame, best: str) -> dict[str, str]:
    """Column → name of the scores to compare: the best base score, the FSD of `best`, and a combined score if any.

    The base score is chosen on the validation texts, as `best` is; without any, on the test texts.

    Args:
        scores: rows as in scores.parquet.
        best: detector with the best FSD.
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


def curves(scores: pd.DataFrame, names: Mapping[str, str], table: pd.DataFrame, *, seed: int = 0) -> list[Curve]:
    """The ROC curves of columns on the test texts, with bands from resampled groups.

    Args:
        scores: rows as in scores.parquet.
        names: column → name.
        table: of results, for the AUCs.
        seed: of the bootstrap.
    """
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


def draw(drawn: Sequence[Curve]) -> Figure:
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


def interactive(scores: pd.DataFrame, best: str, table: pd.DataFrame) -> "InteractiveFigure":
    """The same as a page to explore: values under the pointer, axis by choice, other scores by a click in the legend.

    Args:
        scores: rows as in scores.parquet.
        best: detector with the best FSD.
        table: of results, for the AUCs.
    """
    from plotly import graph_objects

    chosen = choose(scores, best)
    drawn = curves(scores, chosen, table)
    figure = graph_objects.Figure()
    for curve in drawn:
        colour, style = _LOOKS[curve.state]
        line = {"shape": "hv", "color": colour, "dash": _DASHES[style], "width": 2.5}
        edge = {"mode": "lines", "line": {"shape": "hv", "width": 0}, "showlegend": False, "hoverinfo": "skip"}
        edge |= {"legendgroup": curve.name}
        red, green, blue = (int(colour[at : at + 2], 16) for at in (1, 3, 5))
        figure.add_scatter(x=curve.rates, y=curve.low, **edge)
        figure.add_scatter(
            x=curve.rates, y=curve.high, fill="tonexty", fillcolor=f"rgba({red},{green},{blue},.15)", **edge
        )
        figure.add_scatter(
            x=curve.rates, y=curve.tpr, name=curve.label, legendgroup=curve.name, line=line, mode="lines"
        )
    test = scores[scores["split"] == "test"]
    labels = test["label"].to_numpy(bool)
    for column in map(str, test):
        name, _, state = column.rpartition(".")
        if state in ("base", "fsd") and column not in chosen:
            fpr, tpr, _ = metrics.roc(labels, test[column])
            label = f"{name}, {state}: AUC {metrics.auc(labels, test[column]):.2f}"
            line = {"shape": "hv", "dash": _DASHES[_LOOKS[state][1]], "width": 1.5}
            figure.add_scatter(x=fpr, y=tpr, name=label, line=line, mode="lines", visible="legendonly")
    diagonal = np.geomspace(float(drawn[0].rates[1]), 1, 50)
    line = {"color": GREY, "dash": "dot", "width": 1}
    figure.add_scatter(x=diagonal, y=diagonal, name="guessing", line=line, mode="lines", hoverinfo="skip")
    axes = [("linear", [0, 1]), ("log", [float(np.log10(drawn[0].rates[1])), 0])]
    buttons = [
        {
            "label": f"{kind} axis",
            "method": "relayout",
            "args": [{"xaxis.type": kind, "xaxis.range": ends, "xaxis.autorange": False}],
        }
        for kind, ends in axes
    ]
    figure.update_layout(
        template="plotly_white",
        title={
            "text": "Members found against wrong calls",
            "subtitle": {"text": "a click on a name shows or hides its curve"},
        },
        margin={"l": 60, "r": 20, "t": 110},
        xaxis={"title": "false-positive rate", "range": [0, 1]},
        yaxis={"title": "true-positive rate", "range": [0, 1.01]},
        hovermode="x unified",
        # below the axes: MLflow's viewer is so narrow that a legend at their side would leave them no room
        legend={"orientation": "h", "yref": "container", "y": 0, "yanchor": "bottom", "maxheight": 0.25},
        updatemenus=[
            {"type": "buttons", "buttons": buttons, "direction": "left", "x": 1, "xanchor": "right"}
            | {"y": 1.02, "yanchor": "bottom"}
        ],
    )
    return figure
