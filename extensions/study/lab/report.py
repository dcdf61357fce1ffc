"""The report of the laboratory: tables by corpus, by what a target learned and by its reference, and a figure."""

from collections.abc import Iterator
from itertools import starmap
from typing import Any

import pandas as pd
from matplotlib.figure import Figure

from extensions.study.lab.results import (
    COMBINED,
    MEASURES,
    MEMBERSHIP,
    TARGET,
    TEXT,
    TITLES,
    gains,
    regrets,
    score_names,
    seen_in_training,
    summarise,
)
from extensions.study.store import pivoted
from fsd.api import Estimate, Report, Score, Section, Table, charts, figures, markdown, numbers, plain, shortened

COLOURS = {
    "loss.base": "#56B4E9",
    "loss.fsd": "#D55E00",
    "min_k_pp.base": "#0072B2",
    "reference.base": "#999933",
    "min_k_reference.base": "#003B63",
    "ez.base": "#882255",
    "ht.base": "#661100",
    "info_rmia.base": "#44AA99",
    "wbc.base": "#CC79A7",
    "standardised_ratio.base": "#E69F00",
    "unread_z.base": "#000000",
    "adapted_wbc.base": "#CC3311",
    "summed_unread_z.base": "#332288",
    COMBINED: "#009E73",
}
"""Scores of the tables and the figure, with their colours; all are in the raw results."""
SHOWN = list(COLOURS)
CORPORA = {"wikimia-64": "WikiMIA", "arxivmia": "ArxivMIA", "code": "Code"}
# Of all scores of a cell, with its labels known.
BEST = "best in hindsight"


def report(measured: pd.DataFrame, cells: int) -> Report:
    """Tables, figure and raw results."""
    summary = summarise(measured)
    aucs = _aucs(summary)
    tables = [*_by_corpus(aucs), _membership(measured), _gains(gains(measured)), _regrets(regrets(measured))]
    page = "\n".join(f"### {table.title}\n\n{markdown(table)}" for table in tables)
    figure = figures.png(_figure(aucs))
    artifacts = {"results.parquet": measured, "summary.csv": summary, "lab.md": page, "lab.png": figure}
    tables.append(numbers("results", measured))
    return Report(
        headline=f"laboratory of {cells} cells",
        sections=[Section("", tables=tables)],
        artifacts=artifacts,
        page="lab.md",
    )


def _aucs(summary: pd.DataFrame) -> pd.DataFrame:
    """The AUCs of the scores that are shown, with their intervals, in the order of contrasts and of scores."""
    summary = summary.assign(score=score_names(summary))
    summary = summary[summary["score"].isin(SHOWN)]
    # pandas would take a list of named tuples for three columns.
    estimates = pd.Series(
        list(starmap(Estimate, summary[["auc", "auc_low", "auc_high"]].to_numpy())), summary.index, object
    )
    contrasts = pd.Categorical(summary["contrast"].map(TITLES), list(TITLES.values()))
    return summary.assign(auc=estimates, contrast=contrasts, score=pd.Categorical(summary["score"], SHOWN))


def _by_corpus(aucs: pd.DataFrame) -> Iterator[Table]:
    named = aucs.assign(text=aucs["auc"].map(_interval), score=aucs["score"].cat.rename_categories("`{}`".format))
    groups: Any = named.groupby(["corpus", "size", "reference", "scored"], sort=False)
    for (corpus, size, reference, scored), cells in groups:
        title = f"{corpus}, {size}, reference {reference}{_part(scored)}"
        yield pivoted(cells, ["contrast", "sources", "exposures"], ["score"], title=title, source="summary.csv")


def _part(scored: str) -> str:
    """What was scored of chats, at the end of a title."""
    return "" if scored == TEXT else f", {scored} scored"


def _interval(auc: Estimate) -> str:
    """.72 [.68, .76]; without an interval for a single seed."""
    return auc.short if pd.isna(auc.low) else str(auc)


def _with_heading(rows: pd.DataFrame) -> pd.DataFrame:
    """The rows with the column of a table that each is in: a group of targets, and its number of cells."""
    rows = rows.reset_index(drop=True)
    groups: Any = rows.groupby(["size", "sources", "reference", "scored"], sort=False)
    for (size, sources, reference, scored), group in groups:
        number = len(group[["corpus", "exposures", "seed"]].drop_duplicates())
        rows.loc[group.index, "targets"] = f"{size}, sources {sources}, {reference}{_part(scored)} ({number})"
    return rows


def _membership(measured: pd.DataFrame) -> Table:
    """Mean over the cells of each score within a period, a column for each reference and number of sources."""
    seen = seen_in_training(measured)
    within = _with_heading(seen[seen["contrast"] == MEMBERSHIP.name])
    best = within.loc[within.groupby([*TARGET, "seed"])["auc"].idxmax()]
    scores = pd.concat([within[within["score"].isin(SHOWN)], best.assign(score=BEST)])
    scores["score"] = pd.Categorical(scores["score"], [*SHOWN, BEST])
    means = scores.groupby(["targets", "score"], sort=False, observed=True)[list(MEASURES)].mean().reset_index()
    # Further measures follow the AUC, as it says in the title.
    texts = means["auc"].map(lambda auc: shortened(auc, "z.3f"))
    for rate in MEASURES[1:]:
        texts += " · " + means[rate].map(shortened)
    title = "Members against contemporaries, mean of the cells: AUC · TPR at 5 % FPR · at 1 %"
    names = means["score"].cat.rename_categories({score: f"`{score}`" for score in SHOWN})
    return pivoted(means.assign(text=texts, score=names), ["score"], ["targets"], title=title)


def _gains(table: pd.DataFrame) -> Table:
    headings = ["score", "contrast", *TARGET, "best published score", "lead over it", "Holm p"]
    lines = []
    rows: Any = table.itertuples()
    for row in rows:
        # One seed has no interval, and no p-value.
        single = pd.isna(row.p_holm)
        lead = f"{row.gain:+.3f}" if single else f"{row.gain:+.3f} [{row.low:+.3f}, {row.high:+.3f}]"
        line = [f"`{row.score}`", TITLES[row.contrast]]
        line += [str(getattr(row, label)) for label in TARGET]
        lines.append([*line, f"`{row.best}`", lead, "–" if single else f"{row.p_holm:.3g}"])
    title = "Scores of this project against the best published one in hindsight"
    return plain(headings, lines, words=range(4), title=title, frame=table)


def _regrets(table: pd.DataFrame) -> Table:
    """The mean regret of each score, and its largest, among all scores and among those without a reference."""
    table = _with_heading(table[table["score"].isin(SHOWN)])
    table[""] = (table["score"] == table["advised"]).map({True: "advised", False: ""})
    table["score"] = pd.Categorical(table["score"], SHOWN).rename_categories("`{}`".format)
    summary = table.groupby(["targets", "setting", "score", ""], sort=False, observed=True)["regret"]
    regrets = summary.agg(["mean", "max"]).reset_index()
    regrets["text"] = [f"{mean:.3f} ({largest:.3f})" for mean, largest in regrets[["mean", "max"]].to_numpy()]
    title = "Regret, members against contemporaries: mean (largest) loss of AUC to the best score in hindsight"
    return pivoted(regrets, ["setting", "score", ""], ["targets"], title=title)


def _figure(aucs: pd.DataFrame) -> Figure:
    """AUC against exposures: a row of panels per corpus, and a column per contrast, which not every corpus has.

    It has the targets of the first number of sources, by the first reference and part of chats; those of a size that
    were measured at another number of exposures are in the tables alone.
    """
    drawn = aucs
    for label in ("reference", "scored"):
        drawn = drawn[drawn[label] == aucs[label].iloc[0]]
    trained = drawn[drawn["exposures"] > 0]
    # A control has learned no source.
    drawn = drawn[drawn["sources"].isin([0, trained["sources"].iloc[0]])]
    times = sorted(drawn["exposures"].unique())
    panels: dict[str, dict[str, list[Estimate]]] = {}
    groups: Any = drawn.groupby(["corpus", "size"], sort=False)
    for (corpus, size), cells in groups:
        if set(cells["exposures"]) != set(times):
            continue
        for contrast in TITLES.values():
            # A contrast that the corpus has not is a panel without lines, which keeps the columns apart.
            lines = cells[cells["contrast"] == contrast].pivot(index="exposures", columns="score", values="auc")
            name = f"{CORPORA.get(corpus, corpus)}, {size} parameters\n{contrast}"
            panels[name] = {_words(score): list(line) for score, line in lines.dropna(axis=1).items()}
    colours = {_words(score): colour for score, colour in COLOURS.items()}
    return charts.curves(
        list(map(str, times)),
        panels,
        across=len(TITLES),
        x_name="times seen in training",
        y_name="AUC",
        chance=0.5,
        colours=colours,
    )


def _words(score: Any) -> str:
    """A score in the legend of the figure."""
    return Score.parse(str(score)).title(paired=score == COMBINED)
