"""Results of the laboratory: contrasts of every cell, and their means, with intervals over seeds and texts."""

import functools
import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy import stats

from fsd.api import (
    CONTRASTS,
    METRICS,
    Bootstrap,
    Corpus,
    Document,
    FloatArray,
    Score,
    advised,
    content_hash,
    holm,
    interval,
    load_detector,
    resampled,
    standard_error,
)

WITH_LATER, FAMILIARITY, MEMBERSHIP = CONTRASTS
MEASURES = ("auc", "tpr_at_5fpr", "tpr_at_1fpr")
ERRORS = tuple(f"{name}_error" for name in MEASURES)
# Labels of the targets and references that differ in the seed alone.
TARGET = ["corpus", "size", "sources", "reference", "scored", "exposures"]
# What is scored of texts, where chats have parts.
TEXT = "text"
COMBINED = "combined.fsd"
OURS = ("summed_unread_z.base", "unread_z.base", "standardised_ratio.base", COMBINED)
"""Scores of this project whose lead over the best of the literature is shown."""
# Detectors of this project, which no lead is measured against.
OWN = ("combined", "min_k_reference", "min_k_deviation", "standardised_ratio", "unread_z")
# Those against a reference model that was fine-tuned on unseen texts; these are of this project, too.
ADAPTED = (
    "adapted_reference",
    "adapted_min_k_reference",
    "adapted_wbc",
    "adapted_ez",
    "adapted_info_rmia",
    "adapted_unread_z",
    "summed_unread_z",
)
TITLES = {contrast.name: contrast.title for contrast in CONTRASTS}


def lead_error(score: str) -> str:
    """The column with the error of the lead of one of `OURS`."""
    return f"lead_error_{Score.parse(score).detector}"


def joined(cells: Iterable[tuple[Mapping[str, Any], pd.DataFrame]], texts: Mapping[str, Sequence[Document]]) -> Any:
    """The scores of cells, with their labels and the family of each text among those of its corpus.

    `scored` is what of a text: the text, or of a chat the answers or the whole.
    """
    family = {}
    for corpus, documents in texts.items():
        columns = Corpus(documents)
        for text, number in zip(columns.texts, columns.family.tolist(), strict=True):
            family[corpus, content_hash(text)] = number
    scores = pd.concat([table.assign(**labels) for labels, table in cells], ignore_index=True)
    scores["family"] = [family[place] for place in zip(scores["corpus"], scores["text"], strict=True)]
    return scores


def measure(scores: pd.DataFrame, *, resamples: int = 1000) -> pd.DataFrame:
    """AUC, and TPR at 5 and 1 % FPR, of every score in every contrast that a cell has, with standard errors over texts.

    Those errors are of the mean over the seeds: the families of a corpus are resampled, and each resample is the same
    in all seeds (see `fsd.statistics.bootstrap.resampled`). `scores` are of all cells, with the labels of `TARGET`,
    seed, kind and family of each text; the columns of `lead_error` are of the leads of `OURS` in AUC over a score.
    """
    rows: list[dict[str, object]] = []
    for key, target in scores.groupby(TARGET, sort=False):
        # Targets differ in the scores that they have, as a real model has no `lowercase`.
        cells = dict(list(target.dropna(axis=1).groupby("seed", sort=False)))
        # No resample may leave a kind of any seed without texts.
        sides = []
        for cell in cells.values():
            sides += [side.to_numpy() for _, side in cell.groupby("kind")["family"]]
        counts = resampled(sides, resamples=resamples)
        labels = dict(zip(TARGET, key, strict=True))
        for contrast in CONTRASTS:
            if contrast.possible(target["kind"].to_numpy(str)):
                values = _values(list(cells.values()), contrast, counts)
                rows += _rows(values, list(cells), labels | {"contrast": contrast.name})
    return pd.DataFrame(rows)


def _rows(
    values: Mapping[str, FloatArray], seeds: Sequence[object], labels: Mapping[str, object]
) -> Iterator[dict[str, object]]:
    """The measures of each score and seed, and their errors."""
    for score, value in values.items():
        detector, state = Score.parse(score)
        errors = _errors(values, value)
        for seed, observed in zip(seeds, value[:, :, 0], strict=True):
            row = {**labels, "seed": seed, "detector": detector, "state": state}
            row |= dict(zip(MEASURES, observed, strict=True))
            yield row | errors


def _errors(values: Mapping[str, FloatArray], value: FloatArray) -> dict[str, float]:
    """Standard errors over the texts, of a score's measures and of the leads over it."""
    # The seeds share their texts, so that the mean over them is taken in each resample.
    resamples = value[:, :, 1:].mean(axis=0)
    errors = dict(zip(ERRORS, resamples.std(axis=1, ddof=1), strict=True))
    for score in OURS:
        if score in values:
            leads = (values[score] - value)[:, 0, 1:].mean(axis=0)
            errors[lead_error(score)] = leads.std(ddof=1)
    return errors


def _values(cells: Sequence[pd.DataFrame], contrast: Any, counts: NDArray[np.uint16]) -> dict[str, FloatArray]:
    """Score → (seeds, measures, 1 + resamples) values in a contrast."""
    metrics = [METRICS[name].compute for name in MEASURES]
    values = defaultdict[str, list[FloatArray]](list)
    for cell in cells:
        texts = cell[contrast.among(cell["kind"].to_numpy(str))]
        bootstrap = Bootstrap((texts["kind"] == contrast.positive).to_numpy(), texts["family"].to_numpy(), counts)
        for name in map(str, texts):
            if name.endswith((".base", ".fsd")):
                values[name].append(bootstrap.values(texts[name].to_numpy(), metrics))
    return {name: np.stack(seeds) for name, seeds in values.items()}


def score_names(measured: pd.DataFrame) -> pd.Series:
    """The score of each row, as in `loss.fsd`."""
    return measured["detector"] + "." + measured["state"]


def tracked(measured: pd.DataFrame) -> dict[str, float]:
    """The AUCs under the names by which they are tracked: `auc_members_vs_later/loss.fsd`, of chats with the part."""
    part = (measured["scored"] + "/").replace(f"{TEXT}/", "")
    names = "auc_" + measured["contrast"] + "/" + part + score_names(measured)
    return dict(zip(names, measured["auc"].astype(float), strict=True))


def summarise(results: pd.DataFrame) -> pd.DataFrame:
    """Mean over seeds of every number, with its interval in [0, 1]; the columns end in `_low` and `_high`."""
    rows = []
    keys = [*TARGET, "contrast", "detector", "state"]
    for key, group in results.groupby(keys, sort=False):
        row = dict(zip(keys, key, strict=True))
        row["seeds"] = len(group)
        for name, error in zip(MEASURES, ERRORS, strict=True):
            # The error over the texts is of the mean, so that it is the same for all seeds.
            low, high = interval(group[name].to_numpy(), group[error].iloc[0], within=(0, 1))
            row[name] = group[name].mean()
            row[f"{name}_low"] = low
            row[f"{name}_high"] = high
        rows.append(row)
    return pd.DataFrame(rows)


def seen_in_training(results: pd.DataFrame) -> pd.DataFrame:
    """The results of targets that were trained on the members, with the name of each score."""
    seen = results[results["exposures"] > 0]
    return seen.assign(score=score_names(seen))


def gains(results: pd.DataFrame) -> pd.DataFrame:
    """Each of `OURS` against the best published score of each target and contrast, paired over seeds and texts.

    The best published score is chosen by its mean over the seeds, in hindsight, among all base scores and FSDs of the
    detectors of the literature. p-values of the t-test are corrected by Holm over all rows.
    """
    rows = []
    keys = [*TARGET, "contrast"]
    seen = seen_in_training(results)
    # Familiarity with a period is no membership, so that a lead in it is none.
    for key, cells in seen[seen["contrast"] != FAMILIARITY.name].groupby(keys, sort=False):
        labels = dict(zip(keys, key, strict=True))
        auc = cells.pivot(index="seed", columns="score", values="auc")
        published = cells[~cells["detector"].isin(OWN + ADAPTED)].groupby("score")
        best = str(published["auc"].mean().idxmax())
        for score in OURS:
            if score in auc:
                over_texts = published[lead_error(score)].first()[best]
                lead = _lead((auc[score] - auc[best]).to_numpy(), over_texts)
                row = {"score": score, "best": best, "auc": auc[score].mean()}
                rows.append(labels | row | lead)
    table = pd.DataFrame(rows)
    # A single seed has no p-value, and is not counted among the tests.
    tests = table["p"].dropna()
    corrected = holm({str(row): p for row, p in tests.items()})
    return table.assign(p_holm=pd.Series(list(corrected.values()), tests.index, dtype=float))


def _lead(lead: FloatArray, over_texts: float) -> dict[str, float]:
    """Mean lead over the seeds, its interval and p-value."""
    low, high = interval(lead, over_texts)
    error, degrees = standard_error(lead, over_texts)
    # Of equal scores the lead is 0 in all seeds and resamples, and nothing can be tested.
    p = 2 * stats.t.sf(abs(lead.mean()) / error, degrees) if error else math.nan
    return {"gain": lead.mean(), "low": low, "high": high, "p": p}


def regrets(results: pd.DataFrame) -> pd.DataFrame:
    """What every score loses within a period against the best score in hindsight: one row per cell, setting and score.

    The settings are `reference`, in which all scores can be computed, and `no reference`, in which those that need a
    reference model cannot. `advised` is the score that is advised there.
    """
    tables = []
    keys = [*TARGET, "seed"]
    seen = seen_in_training(results)
    within = seen.loc[seen["contrast"] == MEMBERSHIP.name, [*keys, "detector", "score", "auc"]]
    alone = within[~within["detector"].map(needs_reference)]
    for setting, among in (("reference", within), ("no reference", alone)):
        cells = among.groupby(keys, sort=False)
        regret = cells["auc"].transform("max") - among["auc"]
        advice = cells["score"].transform(_advice)
        tables.append(among.assign(setting=setting, regret=regret, advised=advice))
    return pd.concat(tables, ignore_index=True)


def _advice(scores: pd.Series) -> str | None:
    """The score that is advised where these can be computed."""
    advice = advised(set(scores))
    return advice and advice.score


@functools.cache
def needs_reference(detector: str) -> bool:
    """Whether a detector cannot be computed without a reference model."""
    return load_detector(detector).reads_reference
