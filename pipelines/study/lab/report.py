"""Tables and figure of the laboratory."""

from collections.abc import Iterable, Iterator
from typing import Any

import pandas as pd

from fsd.evaluation.metrics import Estimate
from fsd.evaluation.results import CONTRASTS
from fsd.reporting.figures import curves, png
from fsd.reporting.report import Column, Report, Section, Table, markdown, numbers, plain
from pipelines.study.lab import results
from pipelines.study.lab.results import COMBINED

SHOWN = ("loss.base", "loss.fsd", "min_k_pp.base", "min_k_reference.base", COMBINED)
"""Scores of the table and the figure; all are in the raw results."""
TITLES = {contrast.name: contrast.title for contrast in CONTRASTS}


def report(measured: pd.DataFrame, cells: int) -> Report:
    """Tables, figure and raw results."""
    summary = results.summarise(measured)
    tables = [*_by_corpus(summary), _gains(results.gains(measured)), _regrets(results.regrets(measured))]
    return Report(
        headline=f"laboratory of {cells} cells",
        sections=[Section("", tables=[*tables, numbers("results", measured)])],
        artifacts={
            "results.parquet": measured,
            "summary.csv": summary,
            "lab.md": "\n".join(f"### {table.title}\n\n{markdown(table)}" for table in tables),
            "lab.png": png(_figure(summary)),
        },
        page="lab.md",
    )


def _estimates(summary: pd.DataFrame) -> dict[tuple[Any, ...], Estimate]:
    """(corpus, size, contrast, exposures, score) → AUC."""
    rows: Iterable[Any] = summary.itertuples()
    return {
        (r.corpus, r.size, r.contrast, r.exposures, f"{r.detector}.{r.state}"): Estimate(r.auc, r.auc_low, r.auc_high)
        for r in rows
    }


def _by_corpus(summary: pd.DataFrame) -> Iterator[Table]:
    """For each corpus, the AUC of some scores by contrast and exposures."""
    aucs = _estimates(summary)
    for corpus, size in dict.fromkeys(key[:2] for key in aucs):
        places = sorted(
            {key[2:4] for key in aucs if key[:2] == (corpus, size)}, key=lambda key: ([*TITLES].index(key[0]), key[1])
        )
        lines = [
            [TITLES[name], str(times), *(_shown(aucs.get((corpus, size, name, times, score))) for score in SHOWN)]
            for name, times in places
        ]
        headings = ["contrast", "exposures", *(f"`{score}`" for score in SHOWN)]
        yield plain(headings, lines, title=f"{corpus}, {size} parameters", source="summary.csv")


def _shown(auc: Estimate | None) -> str:
    """.72 [.68, .76]; without an interval for a single seed."""
    return "–" if auc is None else auc.short if pd.isna(auc.low) else str(auc)


def _gains(table: pd.DataFrame) -> Table:
    def lead(row: Any) -> str:
        alone = pd.isna(row.p_holm)  # one seed has no interval
        return f"{row.gain:+.3f}" + ("" if alone else f" [{row.low:+.3f}, {row.high:+.3f}]")

    columns = [
        Column("corpus", "corpus"),
        Column("contrast", lambda row: TITLES[row.contrast], words=True),
        Column("exposures", "exposures"),
        Column("best single score", lambda row: f"`{row.best}`", words=True),
        Column("its lead over it", lead),
        Column("Holm p", lambda row: "–" if pd.isna(row.p_holm) else f"{row.p_holm:.3g}"),
    ]
    return Table(table, columns, title="combined against the best single score in hindsight")


def _regrets(table: pd.DataFrame) -> Table:
    lines = [
        [str(setting), f"`{rows['advised'].iloc[0]}`", str(len(rows)), *(f"{lost:.3f}" for lost in (mean, most))]
        for setting, rows in table.groupby("setting", sort=False)
        for mean, most in [rows["regret"].agg(["mean", "max"])]
    ]
    headings = ["setting", "advice", "cells", "mean regret", "largest"]
    return plain(headings, lines, words=(1,), title="Regret of the advice, members against contemporaries")


def _figure(summary: pd.DataFrame) -> Any:
    """AUC against exposures: a row of panels per corpus, and a column per contrast, which not every corpus has."""
    aucs, times = _estimates(summary), sorted(summary["exposures"].unique())
    panels = {
        f"{corpus}, {size}\n{title}": {
            score: [aucs[corpus, size, name, at, score] for at in times]
            for score in SHOWN
            if all((corpus, size, name, at, score) in aucs for at in times)
        }
        for corpus, size in dict.fromkeys(key[:2] for key in aucs)
        for name, title in TITLES.items()
    }
    names = list(map(str, times))
    return curves(names, panels, across=len(TITLES), x_name="exposures of a member", y_name="AUC", chance=0.5)
