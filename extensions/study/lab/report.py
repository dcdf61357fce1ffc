"""The report of the laboratory: tables by corpus, by what a target learned and by its reference, and a figure."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import starmap
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from extensions.study.lab.parts import TEXT
from extensions.study.lab.results import (
    COMBINED,
    MEASURES,
    TARGET,
    TITLES,
    gains,
    periods,
    regrets,
    score_names,
    seen_in_training,
    summarise,
)
from fsd.evaluation.results import MEMBERSHIP
from fsd.reporting.figures import BASE, BOTH, FSD, by_model, curves, dots, png
from fsd.reporting.report import Report, Section, Table, markdown, numbers, plain
from fsd.scores import Score
from fsd.statistics.intervals import Estimate, shortened

COLOURS = {
    "loss.base": "#56B4E9",
    "loss.fsd": FSD,
    "min_k_pp.base": BASE,
    "reference.base": "#999933",
    "min_k_reference.base": "#003B63",
    "ez.base": "#882255",
    "ht.base": "#661100",
    "info_rmia.base": "#44AA99",
    "wbc.base": "#CC79A7",
    "standardised_ratio.base": "#E69F00",
    "unread_z.base": "#000000",
    COMBINED: BOTH,
}
"""Scores of the tables and the figure, with their colours; all are in the raw results."""
SHOWN = list(COLOURS)
CORPORA = {"wikimia-64": "WikiMIA", "arxivmia": "ArxivMIA", "code": "Code"}
# Of all scores of a cell, with its labels known.
BEST = "best in hindsight"
# What the cells of a column of the tables have in common.
GROUP = ["size", "sources", "reference", "scored"]


def report(measured: pd.DataFrame, cells: int) -> Report:
    """Tables, figure and raw results."""
    summary = summarise(measured)
    tables = [*_by_corpus(summary), _membership(measured)]
    periods_alone = periods(measured)
    # Not every corpus has later texts.
    if len(periods_alone):
        tables.append(_periods(periods_alone))
    tables += [_gains(gains(measured)), _regrets(regrets(measured))]
    page = "\n".join(f"### {table.title}\n\n{markdown(table)}" for table in tables)
    artifacts = {"results.parquet": measured, "summary.csv": summary, "lab.md": page, "lab.png": png(_figure(summary))}
    tables.append(numbers("results", measured))
    return Report(
        headline=f"laboratory of {cells} cells",
        sections=[Section("", tables=tables)],
        artifacts=artifacts,
        page="lab.md",
    )


def _aucs(summary: pd.DataFrame) -> pd.DataFrame:
    """AUCs of the scores that are shown, a column each, by the labels of the cells."""
    # pandas would take a list of named tuples for three columns.
    aucs = pd.Series(
        list(starmap(Estimate, summary[["auc", "auc_low", "auc_high"]].to_numpy())), index=summary.index, dtype=object
    )
    estimates = summary.assign(
        auc=aucs, score=score_names(summary), contrast=pd.Categorical(summary["contrast"], list(TITLES))
    )
    table = estimates.pivot(
        index=["corpus", "size", "reference", "scored", "contrast", "sources", "exposures"],
        columns="score",
        values="auc",
    )
    # In the order of the tables.
    return table[[score for score in SHOWN if score in table]]


def _by_corpus(summary: pd.DataFrame) -> Iterator[Table]:
    aucs: Any = _aucs(summary)
    headings = ["contrast", "sources", "exposures"]
    headings += [f"`{score}`" for score in aucs]
    targets = summary[["corpus", "size", "reference", "scored"]].drop_duplicates()
    for corpus, size, reference, scored in targets.itertuples(index=False):
        lines = []
        for (contrast, sources, exposures), row in aucs.loc[corpus, size, reference, scored].iterrows():
            line = [TITLES[contrast], str(sources), str(exposures)]
            line += map(_shown, row)
            lines.append(line)
        yield plain(
            headings, lines, title=f"{corpus}, {size}, reference {reference}{_part(scored)}", source="summary.csv"
        )


def _part(scored: str) -> str:
    """What was scored of chats, at the end of a title."""
    return "" if scored == TEXT else f", {scored} scored"


def _shown(auc: Any) -> str:
    """.72 [.68, .76]; without an interval for a single seed."""
    if not isinstance(auc, Estimate):
        return "–"
    return auc.short if pd.isna(auc.low) else str(auc)


def _membership(measured: pd.DataFrame) -> Table:
    """Mean over the cells of each score within a period, a column for each reference and number of sources."""
    seen = seen_in_training(measured)
    within = seen[seen["contrast"] == MEMBERSHIP.name]
    best = within.loc[within.groupby([*TARGET, "seed"])["auc"].idxmax()]
    scores = pd.concat([within, best.assign(score=BEST)])
    means = scores.groupby([*GROUP, "score"], sort=False)[list(MEASURES)].mean()
    cells = {}
    for key, mean in means.iterrows():
        rates = " · ".join(map(shortened, mean[1:]))
        cells[key] = f"{shortened(mean['auc'], 'z.3f')} · {rates}"
    lines = {(f"`{score}`",): (score,) for score in SHOWN}
    lines[BEST,] = (BEST,)
    return _by_group(
        within,
        ["score"],
        lines,
        cells,
        "Members against contemporaries, mean of the cells: AUC · TPR at 5 % FPR · at 1 %",
    )


def _by_group(
    rows: pd.DataFrame,
    headings: Sequence[str],
    lines: Mapping[Any, tuple[str, ...]],
    cells: Mapping[Any, str],
    title: str,
) -> Table:
    """A table with a column for each group of targets, headed by its number of cells.

    `lines` are the words that begin each line, and the rest of its key among the `cells`, after that of the group; a
    line without any cell is left out.
    """
    groups: Any = rows.groupby(GROUP, sort=False)
    columns = list(headings)
    for (size, sources, reference, scored), group in groups:
        number = len(group[["corpus", "exposures", "seed"]].drop_duplicates())
        columns.append(f"{size}, sources {sources}, {reference}{_part(scored)} ({number})")
    table = []
    for words, rest in lines.items():
        values = [cells.get((*group, *rest), "–") for group in groups.groups]
        if set(values) != {"–"}:
            table.append([*words, *values])
    return plain(columns, table, words=range(len(headings)), title=title)


def _periods(table: pd.DataFrame) -> Table:
    selected = table[table["score"].isin(SHOWN)]
    headings = [*TARGET, "score", "target", "untouched model", "added by training"]
    lines = []
    rows: Any = selected.itertuples()
    for row in rows:
        line = [str(getattr(row, label)) for label in TARGET]
        line += [f"`{row.score}`", shortened(row.auc), shortened(row.untouched), f"{row.added:+.2f}"]
        lines.append(line)
    return plain(headings, lines, title="The period alone: contemporaries against later texts", frame=selected)


def _gains(table: pd.DataFrame) -> Table:
    headings = ["score", "contrast", *TARGET, "best published score", "lead over it", "Holm p"]
    lines = []
    rows: Any = table.itertuples()
    for row in rows:
        line = [f"`{row.score}`", TITLES[row.contrast]]
        line += [str(getattr(row, label)) for label in TARGET]
        line += [f"`{row.best}`", _lead(row), _p_value(row)]
        lines.append(line)
    return plain(
        headings,
        lines,
        words=range(4),
        title="Scores of this project against the best published one in hindsight",
        frame=table,
    )


def _lead(row: Any) -> str:
    # One seed has no interval.
    if pd.isna(row.p_holm):
        return f"{row.gain:+.3f}"
    return f"{row.gain:+.3f} [{row.low:+.3f}, {row.high:+.3f}]"


def _p_value(row: Any) -> str:
    return "–" if pd.isna(row.p_holm) else f"{row.p_holm:.3g}"


def _regrets(table: pd.DataFrame) -> Table:
    """The mean regret of each score, and its largest, among all scores and among those without a reference."""
    summary = table.groupby([*GROUP, "setting", "score"], sort=False).agg(
        mean=("regret", "mean"), largest=("regret", "max")
    )
    cells = {}
    for key, row in summary.iterrows():
        cells[key] = f"{row['mean']:.3f} ({row['largest']:.3f})"
    lines = {}
    for setting, rows in table.groupby("setting", sort=False):
        recommended = set(rows["advised"])
        for score in SHOWN:
            mark = "advised" if score in recommended else ""
            lines[str(setting), f"`{score}`", mark] = (str(setting), score)
    return _by_group(
        table,
        ["setting", "score", ""],
        lines,
        cells,
        "Regret, members against contemporaries: mean (largest) loss of AUC to the best score in hindsight",
    )


def _figure(summary: pd.DataFrame) -> Figure:
    """AUC against exposures: a row of panels per corpus, and a column per contrast, which not every corpus has.

    It has the targets of the first number of sources, by the first reference and part of chats; those of a size that
    were measured at a single number of exposures are in the tables alone. Where the members were seen in one number of
    exposures only, it is a dot plot of that.
    """
    drawn = summary[summary["reference"] == summary["reference"].iloc[0]]
    drawn = drawn[drawn["scored"] == drawn["scored"].iloc[0]]
    trained = drawn[drawn["exposures"] > 0]
    # A control has learned no source.
    drawn = drawn[drawn["sources"].isin([0, trained["sources"].iloc[0]])]
    aucs = _aucs(drawn).droplevel(["reference", "scored", "sources"])
    times = sorted(drawn["exposures"].unique())
    # Besides the control there is one number of exposures, which makes no line.
    if len(times) <= 2:
        return _dots(aucs, times[-1])
    panels = {}
    measured = drawn.groupby(["corpus", "size"], sort=False)["exposures"].nunique()
    complete = measured[measured == len(times)].index
    for corpus, size in complete:
        for contrast, title in TITLES.items():
            places = pd.MultiIndex.from_product([[corpus], [size], [contrast], times])
            # A contrast that the corpus has not is a panel without lines, which keeps the columns apart.
            lines = aucs.reindex(places).dropna(axis=1)
            name = f"{CORPORA.get(corpus, corpus)}, {size} parameters\n{title}"
            panels[name] = {_words(str(score)): list(line) for score, line in lines.items()}
    colours = {_words(score): colour for score, colour in COLOURS.items()}
    return curves(
        list(map(str, times)),
        panels,
        across=len(TITLES),
        x_name="times seen in training",
        y_name="AUC",
        chance=0.5,
        colours=colours,
    )


def _words(score: str) -> str:
    """A score in the legend of the figure."""
    return Score.parse(score).title(paired=score == COMBINED)


def _dots(aucs: pd.DataFrame, times: int) -> Figure:
    """Each score with its interval, first within the period."""
    within: dict[str, Any] = {}
    across: dict[str, Any] = {}
    rows: Any = aucs.xs(times, level="exposures").iloc[::-1].iterrows()
    for (corpus, _, contrast), row in rows:
        estimates = {}
        for score, auc in row.dropna().items():
            detector, state = Score.parse(str(score))
            # A single seed has no interval, so that its ends are the AUC itself.
            numbers = np.nan_to_num(auc, nan=auc[0])
            estimates[detector, state] = Estimate(*numbers)
        panels = across
        if contrast == MEMBERSHIP.name:
            panels = within
        name = f"{CORPORA.get(corpus, corpus)}\n{TITLES[contrast]}"
        panels[name] = by_model(estimates)
    return dots(within | across, x_name="AUC", title=f"times that members were seen in training: {times}", chance=0.5)
