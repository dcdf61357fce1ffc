"""How well scores tell members from non-members, each number with its interval.

Labels are (N,) with True for members; scores are (N,) float64, higher = more likely a member.
"""

import math
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from scipy import stats

from fsd.errors import UsageError
from fsd.evaluation.intervals import (
    FPR_SLACK,
    BoolArray,
    Bootstrap,
    Estimate,
    bootstrap_p,
    delong_test,
    holm,
    percentiles,
    separated,
)
from fsd.token_stats import FloatArray, Scores

FPRS = (0.01, 0.05, 0.10)
"""The false-positive rates at which the true-positive rate is reported."""


@dataclass(frozen=True)
class Evaluation:
    """One detector on one set of texts; every number with its 95 % interval, resampled by group.

    Measured on simulated sets the intervals of AUC and of TPR at 5 and 10 % hold the truth in 92-97 of 100 cases. That
    of TPR at 1 % does so from about 250 non-members on; with 40 to 100 it is too narrow (80-86), because it hangs on
    the one or two highest non-members.

    Attributes:
        auc: chance that a member scores higher than a non-member, ties half.
        tpr_at_1fpr: largest TPR among thresholds whose FPR is at most 1 %; likewise at 5 and 10 %.
        tpr_at_5fpr: see above.
        tpr_at_10fpr: see above.
        accuracy: share of right verdicts at a threshold found on other texts; None where none was given.
        threshold: that threshold.
    """

    auc: Estimate
    tpr_at_1fpr: Estimate
    tpr_at_5fpr: Estimate
    tpr_at_10fpr: Estimate
    accuracy: Estimate | None = None
    threshold: float | None = None


@dataclass(frozen=True)
class Comparison:
    """A second detector against a first one on the same texts.

    Attributes:
        gain: AUC of the second minus that of the first, with its paired bootstrap interval.
        p: two-sided p-value of DeLong's test, by group; the bootstrap's where DeLong has no spread.
        p_holm: the same, corrected for the number of comparisons made together.
        p_bootstrap: two-sided p-value of the paired bootstrap by group.
    """

    gain: Estimate
    p: float
    p_holm: float
    p_bootstrap: float


@dataclass(frozen=True)
class Result:
    """A row of the table: a detector before and after fine-tuning.

    `base` and `comparison` are None for a detector that reads both models together and has no base score.
    """

    detector: str
    base: Evaluation | None
    fsd: Evaluation
    comparison: Comparison | None


def _sides(labels: ArrayLike, scores: ArrayLike) -> tuple[BoolArray, FloatArray]:
    member = np.asarray(labels, dtype=bool)
    values = np.asarray(scores, dtype=np.float64)
    if member.ndim != 1 or member.shape != values.shape:
        raise ValueError(f"labels and scores must be (N,) alike, got {member.shape} and {values.shape}")
    if not np.isfinite(values).all():
        raise ValueError(f"scores must be finite, got {values[~np.isfinite(values)][0]}")
    if member.all() or not member.any():
        raise UsageError(
            "an evaluation must have members and non-members; "
            f"got {int(member.sum())} members among {member.size} texts"
        )
    return member, values


def auc(labels: ArrayLike, scores: ArrayLike) -> float:
    """Chance that a member scores higher than a non-member, ties half (Mann-Whitney's U / mn)."""
    member, values = _sides(labels, scores)
    m, n = int(member.sum()), int((~member).sum())
    return float((stats.rankdata(values)[member].sum() - m * (m + 1) / 2) / (m * n))


def roc(labels: ArrayLike, scores: ArrayLike) -> tuple[FloatArray, FloatArray, FloatArray]:
    """The receiver operating characteristic, from the strictest threshold to the mildest.

    Returns:
        FPR, TPR and threshold, each (K + 1,) for K different scores; the first point is (0, 0) at +inf. A
        text is called a member where its score is at least the threshold.
    """
    member, values = _sides(labels, scores)
    order = np.argsort(-values, kind="stable")
    ends = np.append(np.flatnonzero(np.diff(values[order])), values.size - 1)
    hits, alarms = np.cumsum(member[order])[ends], np.cumsum(~member[order])[ends]
    return (
        np.append(0.0, alarms / alarms[-1]),
        np.append(0.0, hits / hits[-1]),
        np.append(np.inf, values[order][ends]),
    )


def tpr_at_fpr(labels: ArrayLike, scores: ArrayLike, fpr: float) -> float:
    """The largest TPR among thresholds whose FPR is at most `fpr` (0..1), never interpolated."""
    alarms, hits, _ = roc(labels, scores)
    return float(hits[alarms <= fpr + FPR_SLACK].max())


def best_threshold(labels: ArrayLike, scores: ArrayLike) -> float:
    """The ε that maximises accuracy when score ≥ ε means member (FSD §3.2).

    It lies half-way between two neighbouring scores, so that it does not hang on one text. Among equally
    accurate ones the highest wins: fewer texts are called members. Beyond the last score it is that score
    itself, or the next number above the highest one when calling nothing a member is best.
    """
    member, values = _sides(labels, scores)
    alarms, hits, scores_down = roc(member, values)
    right = hits * member.sum() + (1 - alarms) * (~member).sum()
    at = int(np.argmax(np.round(right)))
    if at == 0:
        return float(np.nextafter(scores_down[1], np.inf))
    if at == scores_down.size - 1:
        return float(scores_down[at])
    middle = (scores_down[at] + scores_down[at + 1]) / 2
    return float(middle if middle > scores_down[at + 1] else scores_down[at])


def accuracy(labels: ArrayLike, scores: ArrayLike, threshold: float) -> float:
    """Share of texts on the right side of `threshold`, score ≥ threshold meaning member."""
    member, values = _sides(labels, scores)
    return float(((values >= threshold) == member).mean())


def evaluate(
    labels: ArrayLike,
    scores: Scores,
    groups: Sequence[Hashable] | None = None,
    *,
    thresholds: Mapping[str, float] | None = None,
    resamples: int = 1000,
    seed: int = 0,
) -> dict[str, Evaluation]:
    """Every detector's AUC, TPRs and accuracy, with 95 % bootstrap intervals by group.

    Args:
        labels: (N,).
        scores: detector → (N,).
        groups: (N,) what is resampled as one; None: every text by itself.
        thresholds: detector → threshold from other texts, for the accuracy.
        resamples: of the bootstrap.
        seed: of the bootstrap.

    Raises:
        UsageError: with fewer than two groups on either side.
    """
    bootstrap = Bootstrap.draw(labels, groups, resamples=resamples, seed=seed)
    given = thresholds or {}
    return {
        name: _evaluation(bootstrap, values, bootstrap.ranking(values, FPRS), given.get(name))
        for name, values in scores.items()
    }


def _evaluation(bootstrap: Bootstrap, scores: FloatArray, resampled: FloatArray, threshold: float | None) -> Evaluation:
    member, values = _sides(bootstrap.member, scores)
    rates = [percentiles(tpr_at_fpr(member, values, fpr), row) for fpr, row in zip(FPRS, resampled[1:], strict=True)]
    right = None
    if threshold is not None:
        correct = (values >= threshold) == member
        right = percentiles(correct.mean(), bootstrap.share(correct))
    return Evaluation(
        auc=_auc_estimate(bootstrap, values, resampled[0]),
        tpr_at_1fpr=rates[0],
        tpr_at_5fpr=rates[1],
        tpr_at_10fpr=rates[2],
        accuracy=right,
        threshold=threshold,
    )


def _auc_estimate(bootstrap: Bootstrap, scores: FloatArray, resampled: FloatArray) -> Estimate:
    estimate = percentiles(auc(bootstrap.member, scores), resampled)
    if 0 < estimate.value < 1:
        return estimate
    sides = (bootstrap.member, ~bootstrap.member)
    bound = separated(*(np.unique(bootstrap.group[side]).size for side in sides))
    return Estimate(1.0, bound, 1.0) if estimate.value == 1 else Estimate(0.0, 0.0, 1 - bound)


def compare(
    labels: ArrayLike,
    first: Scores,
    second: Scores,
    groups: Sequence[Hashable] | None = None,
    *,
    resamples: int = 1000,
    seed: int = 0,
) -> dict[str, Comparison]:
    """Second against first for every name that both hold: FSD against base, or any two sets of detectors.

    Raises:
        UsageError: with fewer than two groups on either side.
    """
    bootstrap = Bootstrap.draw(labels, groups, resamples=resamples, seed=seed)
    gains, raw = {}, {}
    for name in (name for name in second if name in first):
        before, after = _sides(labels, first[name])[1], _sides(labels, second[name])[1]
        drawn = (bootstrap.ranking(after) - bootstrap.ranking(before))[0]
        gain, _, p = delong_test(labels, before, after, groups)
        by_bootstrap = bootstrap_p(drawn)
        gains[name] = (percentiles(gain, drawn), by_bootstrap)
        raw[name] = by_bootstrap if math.isnan(p) else p
    corrected = holm(raw)
    return {name: Comparison(gain, raw[name], corrected[name], p) for name, (gain, p) in gains.items()}


def table(
    labels: ArrayLike,
    base: Scores,
    fsd: Scores,
    groups: Sequence[Hashable] | None = None,
    *,
    thresholds: Mapping[str, float] | None = None,
    resamples: int = 1000,
    seed: int = 0,
) -> list[Result]:
    """One row per detector of `fsd`: base, FSD and the comparison of the two, Holm-corrected over the rows.

    Args:
        labels: (N,).
        base: detector → (N,) scores of the base model; a detector without a base score is left out.
        fsd: detector → (N,) deviations.
        groups: (N,) or None.
        thresholds: `<detector>.base` and `<detector>.fsd` → threshold from the validation texts.
        resamples: of the bootstrap.
        seed: of the bootstrap.
    """
    named = {f"{name}.base": values for name, values in base.items() if name in fsd}
    named |= {f"{name}.fsd": values for name, values in fsd.items()}
    done = evaluate(labels, named, groups, thresholds=thresholds, resamples=resamples, seed=seed)
    gains = compare(labels, base, fsd, groups, resamples=resamples, seed=seed)
    return [Result(name, done.get(f"{name}.base"), done[f"{name}.fsd"], gains.get(name)) for name in fsd]
