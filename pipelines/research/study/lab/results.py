"""Results of the laboratory: contrasts of every cell, and their means, with intervals over seeds and texts."""

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from numpy.typing import NDArray
from scipy import stats

from fsd.data.corpus import as_corpus
from fsd.data.documents import Document, content_hash
from fsd.evaluation.results import CONTRASTS, FAMILIARITY, MEMBERSHIP, Contrast
from fsd.evaluation.sentences import advised
from fsd.reporting.figures import BASE, BOTH, FSD, by_model, curves, dots, png
from fsd.reporting.report import (
    Column,
    Report,
    Section,
    Table,
    markdown,
    numbers,
    plain,
)
from fsd.scores import Score
from fsd.statistics.bootstrap import Bootstrap, resampled
from fsd.statistics.intervals import Estimate, interval, standard_error
from fsd.statistics.metrics import METRICS
from fsd.statistics.multiplicity import holm
from fsd.token_stats import FloatArray

MEASURES = ("auc", "tpr_at_5fpr")
ERRORS = ("auc_error", "tpr_at_5fpr_error")
# Labels of the targets that differ in the seed alone.
TARGET = ["corpus", "size", "exposures"]
COMBINED = "combined.fsd"
# Detectors of this project, which the lead of `combined` is not measured against.
OWN = ("combined", "min_k_reference", "min_k_deviation", "standardised_ratio")
WITH_REFERENCE = ("combined", "ez", "ht", "info_rmia", "min_k_reference", "reference", "standardised_ratio", "wbc")
SHOWN = {
    "loss.base": ("loss, base score", "#56B4E9"),
    "loss.fsd": ("loss, FSD", FSD),
    "min_k_pp.base": ("min_k_pp, base score", BASE),
    "reference.base": ("reference, base score", "#999933"),
    "min_k_reference.base": ("min_k_reference, base score", "#003B63"),
    "wbc.base": ("wbc, base score", "#CC79A7"),
    COMBINED: ("combined, both models", BOTH),
}
"""Scores of the table and the figure, in words and with their colours; all are in the raw results."""
CORPORA = {"wikimia-64": "WikiMIA", "arxivmia": "ArxivMIA", "code": "Code"}
TITLES = {contrast.name: contrast.title for contrast in CONTRASTS}


def joined(
    cells: Iterable[tuple[Mapping[str, Any], pd.DataFrame]],
    texts: Mapping[str, Sequence[Document]],
) -> Any:
    """The scores of cells, with their labels and the family of each text among those of its corpus."""
    family = {}
    for corpus, documents in texts.items():
        columns = as_corpus(documents)
        for text, number in zip(columns.texts, columns.family.tolist(), strict=True):
            family[corpus, content_hash(text)] = number
    scores = pd.concat([table.assign(**labels) for labels, table in cells], ignore_index=True)
    scores["family"] = [family[place] for place in zip(scores["corpus"], scores["text"], strict=True)]
    return scores


def measure(scores: pd.DataFrame) -> pd.DataFrame:
    """AUC and TPR at 5 % FPR of every score in every contrast that a cell has, with their standard errors over texts.

    Those errors are of the mean over the seeds: the families of a corpus are resampled, and each resample is the same
    in all seeds (see `fsd.statistics.bootstrap.resampled`). `scores` are those of all cells, with corpus, size,
    exposures, seed, kind and family of each text; `lead_error` is of the lead of `combined` in AUC over a score.
    """
    rows = []
    for key, target in scores.groupby(TARGET, sort=False):
        # Targets differ in the scores that they have, as a real model has no `lowercase`.
        cells = dict(list(target.dropna(axis=1).groupby("seed", sort=False)))
        # No resample may leave a kind of any seed without texts.
        counts = resampled([side.to_numpy() for cell in cells.values() for _, side in cell.groupby("kind")["family"]])
        labels = dict(zip(TARGET, key, strict=True))
        for contrast in CONTRASTS:
            if not contrast.possible(target["kind"].to_numpy(str)):
                continue
            values = _values(list(cells.values()), contrast, counts)
            for score, value in values.items():
                detector, state = Score.parse(score)
                # The seeds share their texts, so that the mean over them is taken in each resample.
                errors = value[:, :, 1:].mean(axis=0).std(axis=1, ddof=1)
                leads = (values[COMBINED] - value)[:, 0, 1:].mean(axis=0)
                numbers = dict(zip(ERRORS, errors, strict=True)) | {"lead_error": leads.std(ddof=1)}
                for seed, observed in zip(cells, value[:, :, 0], strict=True):
                    row = {
                        **labels,
                        "seed": seed,
                        "contrast": contrast.name,
                        "detector": detector,
                        "state": state,
                    }
                    rows.append(row | dict(zip(MEASURES, observed, strict=True)) | numbers)
    return pd.DataFrame(rows)


def _values(
    cells: Sequence[pd.DataFrame],
    contrast: Contrast,
    counts: NDArray[np.uint16],
) -> dict[str, FloatArray]:
    """Score → (seeds, measures, 1 + resamples) values in a contrast."""
    metrics = [METRICS[name].compute for name in MEASURES]
    values = defaultdict[str, list[FloatArray]](list)
    for cell in cells:
        texts = cell[contrast.among(cell["kind"].to_numpy(str))]
        bootstrap = Bootstrap(
            (texts["kind"] == contrast.positive).to_numpy(),
            texts["family"].to_numpy(),
            counts,
        )
        for name in map(str, texts):
            if name.endswith((".base", ".fsd")):
                values[name].append(bootstrap.values(texts[name].to_numpy(), metrics))
    return {name: np.stack(seeds) for name, seeds in values.items()}


def score_names(measured: pd.DataFrame) -> pd.Series:
    """The score of each row, as in `loss.fsd`."""
    return measured["detector"] + "." + measured["state"]


def tracked(measured: pd.DataFrame) -> dict[str, float]:
    """The AUCs under the names by which they are tracked: `auc_members_vs_later/loss.fsd`."""
    names = "auc_" + measured["contrast"] + "/" + score_names(measured)
    return dict(zip(names, measured["auc"].astype(float), strict=True))


def summarise(results: pd.DataFrame) -> pd.DataFrame:
    """Mean over seeds of every number, with its interval in [0, 1]; the columns end in `_low` and `_high`."""
    rows = []
    keys = [*TARGET, "contrast", "detector", "state"]
    for key, group in results.groupby(keys, sort=False):
        row: dict[str, object] = dict(zip(keys, key, strict=True)) | {"seeds": len(group)}
        for name, error in zip(MEASURES, ERRORS, strict=True):
            # The error over the texts is of the mean, so that it is the same for all seeds.
            low, high = np.clip(interval(group[name].to_numpy(), group[error].iloc[0]), 0, 1)
            row |= {
                name: group[name].mean(),
                f"{name}_low": low,
                f"{name}_high": high,
            }
        rows.append(row)
    return pd.DataFrame(rows)


def seen_in_training(results: pd.DataFrame) -> pd.DataFrame:
    """The results of targets that were trained on the members, with the name of each score."""
    seen = results[results["exposures"] > 0]
    return seen.assign(score=score_names(seen))


def gains(results: pd.DataFrame) -> pd.DataFrame:
    """`combined` against the best single score of each corpus, contrast and exposure, paired over seeds and texts.

    The best single score is chosen by its mean over the seeds, in hindsight, among all base scores and FSDs of the
    detectors of the literature. p-values of the t-test are corrected by Holm over all rows.
    """
    rows = []
    keys = [*TARGET, "contrast"]
    seen = seen_in_training(results)
    # Familiarity with a period is no membership, so that a lead in it is none.
    for key, cells in seen[seen["contrast"] != FAMILIARITY.name].groupby(keys, sort=False):
        auc = cells.pivot(index="seed", columns="score", values="auc")
        single = cells[~cells["detector"].isin(OWN)].groupby("score")
        best = str(single["auc"].mean().idxmax())
        lead = (auc[COMBINED] - auc[best]).to_numpy()
        over_texts = single["lead_error"].first()[best]
        low, high = interval(lead, over_texts)
        error, degrees = standard_error(lead, over_texts)
        # Of equal scores the lead is 0 in all seeds and resamples, and nothing can be tested.
        p = 2 * stats.t.sf(abs(lead.mean()) / error, degrees) if error else math.nan
        numbers = {
            "auc": auc[COMBINED].mean(),
            "gain": lead.mean(),
            "low": low,
            "high": high,
            "p": p,
        }
        rows.append({**dict(zip(keys, key, strict=True)), "best": best, **numbers})
    table = pd.DataFrame(rows)
    # A single seed has no p-value, and is not counted among the tests.
    tests = table["p"].dropna()
    corrected = holm({str(row): p for row, p in tests.items()})
    return table.assign(p_holm=pd.Series(list(corrected.values()), tests.index, dtype=float))


def regrets(results: pd.DataFrame) -> pd.DataFrame:
    """What the advice loses within a period against the best score in hindsight: one row per cell and setting.

    The settings are `reference`, in which all scores can be computed, and `no reference`, in which those that need a
    reference model cannot.
    """
    rows = []
    keys = [*TARGET, "seed"]
    seen = seen_in_training(results)
    for key, cell in seen[seen["contrast"] == MEMBERSHIP.name].groupby(keys, sort=False):
        labels = dict(zip(keys, key, strict=True))
        alone = cell[~cell["detector"].isin(WITH_REFERENCE)]
        for setting, among in (("reference", cell), ("no reference", alone)):
            auc = among.set_index("score")["auc"]
            score = advised(list(auc.index))
            if score is not None:
                regret = auc.max() - auc[score]
                rows.append(
                    {
                        **labels,
                        "setting": setting,
                        "advised": score,
                        "best": auc.idxmax(),
                        "regret": regret,
                    }
                )
    return pd.DataFrame(rows)


def report(measured: pd.DataFrame, cells: int) -> Report:
    """Tables, figure and raw results."""
    summary = summarise(measured)
    tables = list(_by_corpus(summary))
    tables += [_gains(gains(measured)), _regrets(regrets(measured))]
    page = "\n".join(f"### {table.title}\n\n{markdown(table)}" for table in tables)
    artifacts = {
        "results.parquet": measured,
        "summary.csv": summary,
        "lab.md": page,
        "lab.png": png(_figure(summary)),
    }
    tables.append(numbers("results", measured))
    return Report(
        headline=f"laboratory of {cells} cells",
        sections=[Section("", tables=tables)],
        artifacts=artifacts,
        page="lab.md",
    )


def _aucs(summary: pd.DataFrame) -> pd.DataFrame:
    """AUCs of the scores that are shown, a column each, by corpus, size, contrast and exposures."""
    aucs = [Estimate(*auc) for auc in summary[["auc", "auc_low", "auc_high"]].to_numpy()]
    estimates = summary.assign(
        # pandas would take a list of named tuples for three columns.
        auc=pd.Series(aucs, dtype=object),
        score=score_names(summary),
        contrast=pd.Categorical(summary["contrast"], list(TITLES)),
    )
    table = estimates.pivot(
        index=["corpus", "size", "contrast", "exposures"],
        columns="score",
        values="auc",
    )
    return table.reindex(columns=list(SHOWN))


def _by_corpus(summary: pd.DataFrame) -> Iterator[Table]:
    headings = ["contrast", "exposures"]
    headings += [f"`{score}`" for score in SHOWN]
    aucs = _aucs(summary)
    for corpus, size in summary[["corpus", "size"]].drop_duplicates().itertuples(index=False):
        lines = []
        rows: Any = aucs.loc[corpus, size].iterrows()
        for (contrast, exposures), row in rows:
            lines.append([TITLES[contrast], str(exposures), *map(_shown, row)])
        yield plain(headings, lines, title=f"{corpus}, {size}", source="summary.csv")


def _shown(auc: Any) -> str:
    """.72 [.68, .76]; without an interval for a single seed."""
    if not isinstance(auc, Estimate):
        return "–"
    return auc.short if pd.isna(auc.low) else str(auc)


def _gains(table: pd.DataFrame) -> Table:
    def lead(row: Any) -> str:
        if pd.isna(row.p_holm):  # one seed has no interval
            return f"{row.gain:+.3f}"
        return f"{row.gain:+.3f} [{row.low:+.3f}, {row.high:+.3f}]"

    def p_value(row: Any) -> str:
        return "–" if pd.isna(row.p_holm) else f"{row.p_holm:.3g}"

    columns = [
        Column("corpus", "corpus"),
        Column("contrast", lambda row: TITLES[row.contrast], words=True),
        Column("exposures", "exposures"),
        Column("best single score", lambda row: f"`{row.best}`", words=True),
        Column("its lead over it", lead),
        Column("Holm p", p_value),
    ]
    return Table(
        table,
        columns,
        title="combined against the best single score in hindsight",
    )


def _regrets(table: pd.DataFrame) -> Table:
    summary = table.groupby("setting", sort=False).agg(
        advised=("advised", "first"),
        cells=("regret", "size"),
        mean=("regret", "mean"),
        most=("regret", "max"),
    )
    columns = [
        Column("setting", "setting"),
        Column("advice", lambda row: f"`{row.advised}`", words=True),
        Column("cells", "cells"),
        Column("mean regret", lambda row: f"{row.mean:.3f}"),
        Column("largest", lambda row: f"{row.most:.3f}"),
    ]
    return Table(
        summary.reset_index(),
        columns,
        title="Regret of the advice, members against contemporaries",
    )


def _figure(summary: pd.DataFrame) -> Figure:
    """AUC against exposures: a row of panels per corpus, and a column per contrast, which not every corpus has.

    Targets of a size that were measured at a single number of exposures are in the tables alone. Where the members were
    seen in one number of exposures only, it is a dot plot of that.
    """
    aucs = _aucs(summary)
    times = sorted(summary["exposures"].unique())
    # Besides the control there is one number of exposures, which makes no line.
    if len(times) <= 2:
        return _dots(aucs, times[-1])
    panels = {}
    targets: Any = summary.groupby(["corpus", "size"], sort=False)["exposures"].nunique()
    for corpus, size in targets[targets == len(times)].index:
        for contrast, title in TITLES.items():
            places = pd.MultiIndex.from_product([[corpus], [size], [contrast], times])
            # A contrast that the corpus has not is a panel without lines, which keeps the columns apart.
            lines = aucs.reindex(places).dropna(axis=1)
            panels[f"{CORPORA.get(corpus, corpus)}, {size} parameters\n{title}"] = {
                SHOWN[str(score)][0]: list(line) for score, line in lines.items()
            }
    return curves(
        list(map(str, times)),
        panels,
        across=len(TITLES),
        x_name="times seen in training",
        y_name="AUC",
        chance=0.5,
        colours=dict(SHOWN.values()),
    )


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
            estimates[detector, state] = Estimate(*np.nan_to_num(auc, nan=auc[0]))
        panels = within if contrast == MEMBERSHIP.name else across
        panels[f"{CORPORA.get(corpus, corpus)}\n{TITLES[contrast]}"] = by_model(estimates)
    title = f"times that members were seen in training: {times}"
    return dots(within | across, x_name="AUC", title=title, chance=0.5)
