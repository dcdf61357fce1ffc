"""How the combined score and the advice compare with the best score in hindsight."""

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd
from scipy import stats

from fsd.evaluation.contrasts import CONTRASTS, FAMILIARITY, MEMBERSHIP
from fsd.evaluation.intervals import holm
from fsd.evaluation.sentences import advised
from pipelines.study.lab.seeds import interval, standard_error

COMBINED = "combined.fsd"
OWN = ("combined", "min_k_reference", "min_k_deviation")
"""Detectors of this project."""
WITH_REFERENCE = ("combined", "min_k_reference", "reference")


def lines(results: pd.DataFrame) -> Iterator[str]:
    """Markdown: the lead of `combined`, and the regret of the advice.

    Args:
        results: as `pipelines.study.lab.results.measure` returns them, of any number of cells.
    """
    yield "### combined against the best single score in hindsight\n"
    yield from _gain_lines(gains(results))
    yield "\n### Regret of the advice, members against contemporaries\n"
    yield from _regret_lines(regrets(results))


def regrets(results: pd.DataFrame) -> pd.DataFrame:
    """What the advice loses within a period against the best score in hindsight: one row per cell read and setting.

    The settings are `reference`, in which all scores can be computed, and `no reference`, in which those that read a
    reference model cannot.

    Returns:
        Rows with corpus, size, exposures, seed, setting, advised, best and regret (AUC, at least 0).
    """
    rows: list[dict[str, Any]] = []
    named = results.assign(score=results["detector"] + "." + results["state"])
    named = named[(named["exposures"] > 0) & (named["contrast"] == MEMBERSHIP.name)]
    keys = ["corpus", "size", "exposures", "seed"]
    for key, cell in named.groupby(keys, sort=False):
        for setting, among in (("reference", cell), ("no reference", cell[~cell["detector"].isin(WITH_REFERENCE)])):
            auc = among.set_index("score")["auc"]
            score = advised(list(auc.index))
            if score is None:
                continue
            best = str(auc.idxmax())
            lost = {"advised": score, "best": best, "regret": auc[best] - auc[score]}
            rows.append({**dict(zip(keys, key, strict=True)), "setting": setting, **lost})
    return pd.DataFrame(rows)


def gains(results: pd.DataFrame) -> pd.DataFrame:
    """`combined` against the best single score of each corpus, contrast and exposure, paired over seeds and texts.

    The best single score is chosen by its mean over the seeds, in hindsight, among all base scores and FSDs of the
    detectors of the literature. Intervals and the p-values of the t-test are over seeds and texts (see
    `pipelines.study.lab.seeds`); the latter are corrected by Holm over all rows.

    Returns:
        Rows with corpus, size, exposures, contrast, best, auc (of `combined`), gain, low, high, p and p_holm.
    """
    named = results.assign(score=results["detector"] + "." + results["state"])
    named = named[(named["exposures"] > 0) & (named["contrast"] != FAMILIARITY.name)]
    rows: list[dict[str, Any]] = []
    for key, cells in named.groupby(["corpus", "size", "exposures", "contrast"], sort=False):
        auc, errors = (cells.pivot(index="seed", columns="score", values=name) for name in ("auc", "lead_error"))
        singles = [name for name in auc.columns if name.rpartition(".")[0] not in OWN]
        best = str(auc[singles].mean().idxmax())
        lead, over_texts = (auc[COMBINED] - auc[best]).to_numpy(np.float64), float(errors[best].iloc[0])
        low, high = interval(lead, over_texts)
        error, degrees = standard_error(lead, over_texts)
        named_key = dict(zip(("corpus", "size", "exposures", "contrast"), key, strict=True))
        numbers = {"auc": auc[COMBINED].mean(), "gain": lead.mean(), "low": low, "high": high}
        p = float(2 * stats.t.sf(abs(lead.mean()) / error, degrees)) if error else math.nan
        rows.append({**named_key, "best": best, **numbers, "p": p})
    corrected = holm({str(at): row["p"] for at, row in enumerate(rows) if not math.isnan(row["p"])})
    return pd.DataFrame([{**row, "p_holm": corrected.get(str(at), float("nan"))} for at, row in enumerate(rows)])


def _gain_lines(table: pd.DataFrame) -> Iterator[str]:
    yield "| corpus | contrast | exposures | best single score | its lead over it | Holm p |"
    yield "|---|---|---:|---|---|---:|"
    titles = {contrast.name: contrast.title for contrast in CONTRASTS}
    for row, several in zip(table.itertuples(), table["p_holm"].notna(), strict=True):  # one seed has no interval
        lead = f"{row.gain:+.3f}" + (f" [{row.low:+.3f}, {row.high:+.3f}]" if several else "")
        where = f"| {row.corpus} | {titles[str(row.contrast)]} | {row.exposures}"
        yield f"{where} | `{row.best}` | {lead} | {f'{row.p_holm:.3g}' if several else '–'} |"


def _regret_lines(table: pd.DataFrame) -> Iterator[str]:
    yield "| setting | advice | cells | mean regret | largest |"
    yield "|---|---|---:|---:|---:|"
    for setting, rows in table.groupby("setting", sort=False):
        lost = rows["regret"]
        yield f"| {setting} | `{rows['advised'].iloc[0]}` | {len(rows)} | {lost.mean():.3f} | {lost.max():.3f} |"
