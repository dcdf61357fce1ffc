"""The figure of the laboratory: AUC against exposures, a row per corpus and a column per contrast."""

from typing import TYPE_CHECKING

import pandas as pd

from fsd.evaluation.contrasts import CONTRASTS
from pipelines.study.lab.results import SHOWN, summarise

if TYPE_CHECKING:
    from matplotlib.figure import Figure

LOOKS = {
    "loss.base": ("#56B4E9", "--", "o", "loss"),
    "min_k_pp.base": ("#0072B2", "--", "s", "min_k_pp"),
    "min_k_reference.base": ("#777777", "-.", "v", "min_k_reference"),
    "loss.fsd": ("#D55E00", "-", "D", "FSD of loss"),
    "combined.fsd": ("#009E73", "-", "^", "combined"),
}
"""Colour (Okabe and Ito), line, marker and label of a score."""


def figure(results: pd.DataFrame, measure: str = "auc") -> "Figure":
    """One panel for each corpus and contrast: a line per score with the 95 % interval over seeds and texts as a band.

    Args:
        results: as `pipelines.study.lab.results.measure` returns them, of any number of cells.
        measure: `auc` or `tpr_at_5fpr`.
    """
    from matplotlib.figure import Figure

    summary = summarise(results)
    rows = list(dict.fromkeys(zip(summary["corpus"], summary["size"], strict=True)))
    drawing = Figure(figsize=(10.5, 0.9 + 2.6 * len(rows)), layout="constrained")
    axes = drawing.subplots(len(rows), len(CONTRASTS), squeeze=False, sharey=True)
    for line, (corpus, size) in zip(axes, rows, strict=True):
        for axis, contrast in zip(line, CONTRASTS, strict=True):
            chosen = summary[
                (summary["corpus"] == corpus) & (summary["size"] == size) & (summary["contrast"] == contrast.name)
            ]
            if chosen.empty:
                axis.set_axis_off()
                continue
            exposures = sorted(chosen["exposures"].unique())
            for name in SHOWN:
                detector, _, state = name.rpartition(".")
                one = chosen[(chosen["detector"] == detector) & (chosen["state"] == state)].sort_values("exposures")
                if one.empty:
                    continue
                colour, style, marker, label = LOOKS[name]
                at = [exposures.index(value) for value in one["exposures"]]
                axis.plot(
                    at, one[measure], style, color=colour, marker=marker, markersize=4, linewidth=1.6, label=label
                )
                axis.fill_between(
                    at, one[f"{measure}_low"], one[f"{measure}_high"], color=colour, alpha=0.13, linewidth=0
                )
            axis.axhline(0.5 if measure == "auc" else 0.05, color="#777777", linewidth=0.8, linestyle=":")
            axis.set_xticks(range(len(exposures)), [str(value) for value in exposures])
            axis.set_xlabel("times that a member was read", fontsize=9)
            axis.set_title(f"{corpus}, {size}\n{contrast.title}", fontsize=10)
            axis.grid(color="#e5e5e5", linewidth=0.6)
            axis.spines[["top", "right"]].set_visible(False)
            axis.tick_params(labelsize=8)
        line[0].set_ylabel("AUC" if measure == "auc" else "TPR at 5 % FPR", fontsize=9)
        line[0].set_ylim((0.35, 1.0) if measure == "auc" else (0, 1))
    handles, labels = max((axis.get_legend_handles_labels() for axis in axes.flat), key=lambda pair: len(pair[0]))
    drawing.legend(handles, labels, loc="outside lower center", ncols=len(labels), fontsize=9, frameon=False)
    return drawing
