"""Results of the laboratory: contrasts of every cell, and their means, with intervals over seeds and texts."""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy import stats

from fsd.data.documents import Document, content_hash
from fsd.data.near_duplicates import families
from fsd.evaluation.metrics import METRICS, Bootstrap, Estimate, holm, interval, resampled, standard_error
from fsd.evaluation.results import CONTRASTS, FAMILIARITY, MEMBERSHIP, Contrast
from fsd.evaluation.sentences import advised
from fsd.reporting.figures import BASE, BOTH, FSD, by_model, curves, dots, png
from fsd.reporting.report import Column, Report, Section, Table, markdown, numbers, plain
from fsd.token_stats import FloatArray

MEASURES = ("auc", "tpr_at_5fpr")
ERRORS = tuple(f"{name}_error" for name in MEASURES)
TARGET = ["corpus", "size", "exposures"]
"""Labels of the targets that differ in the seed alone."""
COMBINED = "combined.fsd"
OWN = ("combined", "min_k_reference", "min_k_deviation")
"""Detectors of this project."""
WITH_REFERENCE = ("combined", "min_k_reference", "reference", "wbc")
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


def joined(cells: Iterable[tuple[Mapping[str, Any], pd.DataFrame]], texts: Mapping[str, Sequence[Document]]) -> Any:
    """The scores of cells, with their labels and the family of each text among those of its corpus."""
    family = {
        (corpus, content_hash(document.text)): number
        for corpus, documents in texts.items()
        for document, number in zip(documents, families(documents), strict=True)
    }
    scores = pd.concat([table.assign(**labels) for labels, table in cells], ignore_index=True)
    return scores.assign(family=[family[place] for place in zip(scores["corpus"], scores["text"], strict=True)])


def measure(scores: pd.DataFrame) -> pd.DataFrame:
    """AUC and TPR at 5 % FPR of every score in every contrast that a cell has, with their standard errors over texts.

    Those errors are of the mean over the seeds: the families of a corpus are resampled, and each resample is the same
    in all seeds (see `fsd.evaluation.metrics.resampled`). `scores` are those of all cells, with corpus, size,
    exposures, seed, kind and family of each text; `lead_error` is of the lead of `combined` in AUC over a score.
    """
    rows = []
    for key, target in scores.groupby(TARGET, sort=False):
        cells = dict(list(target.dropna(axis=1).groupby("seed", sort=False)))
        counts = resampled([side.to_numpy() for cell in cells.values() for _, side in cell.groupby("kind")["family"]])
        for contrast in (one for one in CONTRASTS if one.possible(target["kind"].to_numpy(str))):
            values = _values(list(cells.values()), contrast, counts)
            for name, value in values.items():
                detector, _, state = name.rpartition(".")
                lead = (values[COMBINED] - value)[:, 0, 1:].mean(axis=0).std(ddof=1)
                errors = dict(zip(ERRORS, value[:, :, 1:].mean(axis=0).std(axis=1, ddof=1), strict=True))
                for seed, of_seed in zip(cells, value[:, :, 0], strict=True):
                    labels = {**dict(zip(TARGET, key, strict=True)), "seed": seed, "contrast": contrast.name}
                    measured = {**dict(zip(MEASURES, of_seed, strict=True)), **errors, "lead_error": lead}
                    rows.append({**labels, "detector": detector, "state": state, **measured})
    return pd.DataFrame(rows)


def _values(cells: Sequence[pd.DataFrame], contrast: Contrast, counts: NDArray[np.uint16]) -> dict[str, FloatArray]:
    """Score → (seeds, measures, 1 + resamples) values in a contrast."""
    chosen = [cell[contrast.among(cell["kind"].to_numpy(str))] for cell in cells]
    first = [(cell["kind"] == contrast.first).to_numpy() for cell in chosen]
    draws = [Bootstrap(member, cell["family"].to_numpy(), counts) for member, cell in zip(first, chosen, strict=True)]
    of = [METRICS[name].of for name in MEASURES]
    return {
        name: np.stack([d.values(cell[name].to_numpy(np.float64), of) for cell, d in zip(chosen, draws, strict=True)])
        for name in map(str, chosen[0])
        if name.endswith((".base", ".fsd"))
    }


def tracked(measured: pd.DataFrame) -> dict[str, float]:
    """The AUCs under the names by which they are tracked: `auc_members_vs_later/loss.fsd`."""
    names = "auc_" + measured["contrast"] + "/" + measured["detector"] + "." + measured["state"]
    return dict(zip(names, measured["auc"].astype(float), strict=True))


def summarise(results: pd.DataFrame) -> pd.DataFrame:
    """Mean over seeds of every number, with its interval in [0, 1]; the columns end in `_low` and `_high`."""
    rows, keys = [], [*TARGET, "contrast", "detector", "state"]
    for key, group in results.groupby(keys, sort=False):
        row: dict[str, object] = dict(zip(keys, key, strict=True)) | {"seeds": len(group)}
        for name, error in zip(MEASURES, ERRORS, strict=True):
            low, high = np.clip(interval(group[name].to_numpy(np.float64), group[error].iloc[0]), 0, 1)
            row |= {name: group[name].mean(), f"{name}_low": low, f"{name}_high": high}
        rows.append(row)
    return pd.DataFrame(rows)


def seen_in_training(results: pd.DataFrame) -> pd.DataFrame:
    """The results of targets that were trained on the members, with the name of each score."""
    seen = results[results["exposures"] > 0]
    return seen.assign(score=seen["detector"] + "." + seen["state"])


def gains(results: pd.DataFrame) -> pd.DataFrame:
    """`combined` against the best single score of each corpus, contrast and exposure, paired over seeds and texts.

    The best single score is chosen by its mean over the seeds, in hindsight, among all base scores and FSDs of the
    detectors of the literature. p-values of the t-test are corrected by Holm over all rows.
    """
    rows, keys = {}, [*TARGET, "contrast"]
    seen = seen_in_training(results)
    for key, cells in seen[seen["contrast"] != FAMILIARITY.name].groupby(keys, sort=False):
        auc, errors = (cells.pivot(index="seed", columns="score", values=name) for name in ("auc", "lead_error"))
        best = str(auc[[name for name in map(str, auc) if name.rpartition(".")[0] not in OWN]].mean().idxmax())
        lead, over_texts = (auc[COMBINED] - auc[best]).to_numpy(np.float64), float(errors[best].iloc[0])
        low, high = interval(lead, over_texts)
        error, degrees = standard_error(lead, over_texts)
        p = float(2 * stats.t.sf(abs(lead.mean()) / error, degrees)) if error else math.nan
        numbers = {"auc": auc[COMBINED].mean(), "gain": lead.mean(), "low": low, "high": high, "p": p}
        rows[str(key)] = {**dict(zip(keys, key, strict=True)), "best": best, **numbers}
    table = pd.DataFrame.from_dict(rows, orient="index")
    corrected = pd.Series(holm({str(row): p for row, p in table["p"].dropna().items()}), dtype=float)
    return table.assign(p_holm=corrected).reset_index(drop=True)


def regrets(results: pd.DataFrame) -> pd.DataFrame:
    """What the advice loses within a period against the best score in hindsight: one row per cell and setting.

    The settings are `reference`, in which all scores can be computed, and `no reference`, in which those that need a
    reference model cannot.
    """
    rows, keys = [], [*TARGET, "seed"]
    seen = seen_in_training(results)
    for key, cell in seen[seen["contrast"] == MEMBERSHIP.name].groupby(keys, sort=False):
        for setting, among in (("reference", cell), ("no reference", cell[~cell["detector"].isin(WITH_REFERENCE)])):
            auc = among.set_index("score")["auc"]
            score = advised(list(auc.index))
            if score is not None:
                lost = {"advised": score, "best": str(auc.idxmax()), "regret": auc.max() - auc[score]}
                rows.append({**dict(zip(keys, key, strict=True)), "setting": setting, **lost})
    return pd.DataFrame(rows)


def report(measured: pd.DataFrame, cells: int) -> Report:
    """Tables, figure and raw results."""
    summary = summarise(measured)
    tables = [*_by_corpus(summary), _gains(gains(measured)), _regrets(regrets(measured))]
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


def _aucs(summary: pd.DataFrame) -> pd.DataFrame:
    """AUCs of the scores that are shown, a column each, by corpus, size, contrast and exposures."""
    aucs = [Estimate(*auc) for auc in summary[["auc", "auc_low", "auc_high"]].to_numpy()]
    shown = summary.assign(
        auc=pd.Series(aucs, dtype=object),
        score=summary["detector"] + "." + summary["state"],
        contrast=pd.Categorical(summary["contrast"], list(TITLES)),
    )
    table = shown.pivot(index=["corpus", "size", "contrast", "exposures"], columns="score", values="auc")
    return table.reindex(columns=list(SHOWN))


def _by_corpus(summary: pd.DataFrame) -> Iterator[Table]:
    headings = ["contrast", "exposures", *(f"`{score}`" for score in SHOWN)]
    aucs = _aucs(summary)
    for corpus, size in summary[["corpus", "size"]].drop_duplicates().itertuples(index=False):
        of_corpus: Any = aucs.loc[corpus, size].itertuples()
        lines = [[TITLES[where], str(times), *map(_shown, estimates)] for (where, times), *estimates in of_corpus]
        yield plain(headings, lines, title=f"{corpus}, {size}", source="summary.csv")


def _shown(auc: Any) -> str:
    """.72 [.68, .76]; without an interval for a single seed."""
    return "–" if not isinstance(auc, Estimate) else auc.short if pd.isna(auc.low) else str(auc)


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
    summary = table.groupby("setting", sort=False).agg(
        advised=("advised", "first"), cells=("regret", "size"), mean=("regret", "mean"), most=("regret", "max")
    )
    columns = [
        Column("setting", "setting"),
        Column("advice", lambda row: f"`{row.advised}`", words=True),
        Column("cells", "cells"),
        Column("mean regret", lambda row: f"{row.mean:.3f}"),
        Column("largest", lambda row: f"{row.most:.3f}"),
    ]
    return Table(summary.reset_index(), columns, title="Regret of the advice, members against contemporaries")


def _figure(summary: pd.DataFrame) -> Any:
    """AUC against exposures: a row of panels per corpus, and a column per contrast, which not every corpus has.

    Targets of a size that were measured at a single number of exposures are in the tables alone. Where the members were
    seen in one number of exposures only, it is a dot plot of that.
    """
    aucs, times = _aucs(summary), sorted(summary["exposures"].unique())
    if len(times) <= 2:
        return _dots(aucs, times[-1])
    panels = {}
    for corpus, size in summary[["corpus", "size"]].drop_duplicates().itertuples(index=False):
        if summary[(summary["corpus"] == corpus) & (summary["size"] == size)]["exposures"].nunique() < len(times):
            continue
        for name, title in TITLES.items():
            places = pd.MultiIndex.from_product([[corpus], [size], [name], times])
            lines = aucs.reindex(places).dropna(axis=1)
            named = {SHOWN[str(score)][0]: list(lines[score]) for score in lines}
            panels[f"{CORPORA.get(corpus, corpus)}, {size} parameters\n{title}"] = named
    return curves(
        list(map(str, times)),
        panels,
        across=len(TITLES),
        x_name="times seen in training",
        y_name="AUC",
        chance=0.5,
        colours=dict(SHOWN.values()),
    )


def _dots(aucs: pd.DataFrame, times: int) -> Any:
    """Each score with its interval, first within the period."""
    panels = {}
    for (corpus, _, contrast), row in reversed(list(aucs.xs(times, level="exposures").iterrows())):
        found = {
            str(score).rpartition(".")[::2]: Estimate(*np.nan_to_num(auc, nan=auc[0]))
            for score, auc in row.dropna().items()
        }
        panels[f"{CORPORA.get(corpus, corpus)}\n{TITLES[contrast]}"] = by_model(found)
    within = {title: panel for title, panel in panels.items() if title.endswith(TITLES[MEMBERSHIP.name])}
    return dots(
        {**within, **panels}, x_name="AUC", title=f"times that members were seen in training: {times}", chance=0.5
    )
