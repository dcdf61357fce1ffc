"""The headline figure: the best base score against the best FSD."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from fsd.evaluation import metrics
from fsd.evaluation.intervals import Bootstrap, Estimate
from fsd.reporting.figures import BASE, CYCLE, FSD, GREY, LOWEST_FPR, finish
from fsd.token_stats import FloatArray

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


def choose(scores: pd.DataFrame, best: str) -> dict[str, str]:
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


def curves(scores: pd.DataFrame, names: Mapping[str, str], table: pd.DataFrame, *, seed: int = 0) -> list[Curve]:
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
