"""How well scores separate members from non-members, each metric with its 95 % interval.

Labels are (N,) with True for members; scores are (N,) float64, and higher means more likely a member. A metric is one
entry of `METRICS`: from there it reaches the table of results, MLflow, summary.csv, the report and the terminal.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike
from scipy import stats
from sklearn.metrics import roc_curve

from fsd.errors import UsageError
from fsd.evaluation.intervals import (
    FPR_SLACK,
    LEVEL,
    BoolArray,
    Bootstrap,
    Estimate,
    RocCurves,
    bootstrap_p,
    delong_test,
    holm,
    percentiles,
    separated,
)
from fsd.token_stats import FloatArray, Scores


@dataclass(frozen=True)
class Metric:
    """A number that measures one detector on one set of texts: its heading, and (K, R) ROC curves → (R,) values."""

    label: str
    of: Callable[[RocCurves], FloatArray]
    needs_threshold: bool = False
    """Whether it judges texts at a decision threshold from other texts."""
    in_terminal: bool = True
    """Whether the table in the terminal has a column for it."""
    needs: int = 0
    """Number of families of non-members from which on its interval has the promised coverage."""


def _area(curves: RocCurves) -> FloatArray:
    """Area under the curves through the origin, ties as straight lines: Mann-Whitney's U / mn."""
    hits, alarms, _ = curves
    below = np.concatenate([hits[:1] / 2, (hits[1:] + hits[:-1]) / 2])
    area = np.einsum("kr,kr->r", np.diff(alarms, axis=0, prepend=0.0), below)
    return np.asarray(area / (hits[-1] * alarms[-1]), dtype=np.float64)


def _tpr_at(fpr: float) -> Callable[[RocCurves], FloatArray]:
    """The largest TPR among thresholds whose FPR is at most `fpr`, never interpolated."""

    def tpr(curves: RocCurves) -> FloatArray:
        hits, alarms, _ = curves
        allowed = (alarms <= fpr * alarms[-1] + FPR_SLACK).sum(axis=0)
        reached = np.take_along_axis(hits, np.maximum(allowed - 1, 0)[None], axis=0)[0]
        return np.where(allowed > 0, reached / hits[-1], 0.0)

    return tpr


def _accuracy(curves: RocCurves) -> FloatArray:
    """Share of texts on the right side of the threshold."""
    hits, alarms, called = curves
    right = hits[called - 1] + alarms[-1] - alarms[called - 1] if called else alarms[-1]
    return np.asarray(right / (hits[-1] + alarms[-1]), dtype=np.float64)


METRICS = {
    "auc": Metric("AUC", _area),
    "tpr_at_1fpr": Metric("TPR@1%FPR", _tpr_at(0.01), in_terminal=False, needs=250),
    "tpr_at_5fpr": Metric("TPR@5%FPR", _tpr_at(0.05), needs=50),
    "tpr_at_10fpr": Metric("TPR@10%FPR", _tpr_at(0.10), in_terminal=False, needs=25),
    "accuracy": Metric("Accuracy", _accuracy, needs_threshold=True, in_terminal=False),
}
"""Name → metric.

On simulated data the intervals of the AUC and of the TPR at 5 and 10 % contain the true value in 92 to 97 of 100 cases.
That of the TPR at 1 % does so from about 250 families of non-members on, 2.5 / FPR; with 40 to 105 it is too narrow
(77 to 91), because it depends on the one or two highest non-members; `sentences.too_few` names the metrics concerned.
"""


class Comparison(NamedTuple):
    """A second detector against a first one on the same texts.

    `gain` is the metric of the second minus that of the first with its 95 % interval, `p` the two-sided p-value, and
    `p_holm` the same, corrected for the number of comparisons made together. For the AUC both are DeLong's by group
    (see `intervals.delong_test`), so that the interval excludes 0 exactly if p < .05; for any other metric, and an AUC
    without variance, they are the paired bootstrap's.
    """

    gain: Estimate
    p: float
    p_holm: float


class Row(NamedTuple):
    """One number of the table of results, with its 95 % interval and p-values; NaN for those that it has not.

    The state is base, tuned or fsd, and empty for a comparison of states. The metric is a name out of `METRICS`, or
    auc_gain, placebo_auc, placebo_lead or validation_auc; those of a contrast end in its name.
    """

    detector: str
    state: str
    metric: str
    value: float
    low: float = math.nan
    high: float = math.nan
    p: float = math.nan
    p_holm: float = math.nan

    @property
    def estimate(self) -> Estimate:
        """The number with its interval."""
        return Estimate(self.value, self.low, self.high)


def by_state(scores: pd.DataFrame, states: Sequence[str] = ("base", "fsd")) -> dict[str, Scores]:
    """State → detector → (N,) scores, from columns named as in scores.parquet: `loss.base`, `loss.fsd`."""
    found: dict[str, Scores] = {state: {} for state in states}
    for name in map(str, scores.columns):
        detector, _, state = name.rpartition(".")
        if detector and state in found:
            found[state][detector] = scores[name].to_numpy(np.float64)
    return found


def by_key(table: pd.DataFrame) -> dict[tuple[str, str, str], Row]:
    """(detector, state, metric) → row of the table of results."""
    return {(row.detector, row.state, row.metric): row for row in map(Row._make, table.itertuples(index=False))}


def _checked(labels: ArrayLike, scores: ArrayLike) -> tuple[BoolArray, FloatArray]:
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
    """Probability that a member scores higher than a non-member, ties counting half (Mann-Whitney's U / mn)."""
    member, values = _checked(labels, scores)
    m, n = int(member.sum()), int((~member).sum())
    return float((stats.rankdata(values)[member].sum() - m * (m + 1) / 2) / (m * n))


def roc(labels: ArrayLike, scores: ArrayLike) -> tuple[FloatArray, FloatArray, FloatArray]:
    """The receiver operating characteristic, from the strictest threshold to the mildest: FPR, TPR and threshold.

    Each is (K + 1,) for K distinct scores; the first point is (0, 0) at +inf. A text is called a member if its score is
    at least the threshold.
    """
    alarms, hits, thresholds = roc_curve(*_checked(labels, scores), drop_intermediate=False)
    return alarms, hits, thresholds


def tpr_at_fpr(labels: ArrayLike, scores: ArrayLike, fpr: float) -> float:
    """The largest TPR among thresholds whose FPR is at most `fpr` (0..1), never interpolated."""
    alarms, hits, _ = roc(labels, scores)
    return float(hits[alarms <= fpr + FPR_SLACK].max())


def best_threshold(labels: ArrayLike, scores: ArrayLike) -> float:
    """The ε that maximises accuracy when score ≥ ε means member (FSD §3.2), the first of `best_thresholds`."""
    return float(best_thresholds(labels, scores)[0])


def best_thresholds(labels: ArrayLike, scores: ArrayLike) -> FloatArray:
    """(K,) all ε that maximise accuracy when score ≥ ε means member, one between any two distinct scores, falling.

    Each is half-way between two neighbouring scores, so that it does not depend on a single text. The highest comes
    first, at which the fewest texts are called members. If calling every text a member is best, it is the lowest score
    itself; if calling none is best, the next number above the highest score.
    """
    member, values = _checked(labels, scores)
    alarms, hits, scores_down = roc(member, values)
    right = np.round(hits * member.sum() + (1 - alarms) * (~member).sum())
    below = np.append(scores_down[1:], scores_down[-1])
    middle = (scores_down + below) / 2
    thresholds = np.where(middle > below, middle, scores_down)
    thresholds[0] = np.nextafter(scores_down[1], np.inf)
    return np.asarray(thresholds[right == right.max()], dtype=np.float64)


def estimates(bootstrap: Bootstrap, scores: FloatArray, threshold: float | None = None) -> dict[str, Estimate]:
    """Every metric of one detector's (N,) scores with its 95 % bootstrap interval by group.

    Without a threshold, which comes from other texts, metrics that need one are left out.
    """
    _, scores = _checked(bootstrap.member, scores)
    metrics = {name: metric for name, metric in METRICS.items() if threshold is not None or not metric.needs_threshold}
    rows = bootstrap.values(scores, [metric.of for metric in metrics.values()], threshold)
    measured = {name: percentiles(row[0], row[1:]) for name, row in zip(metrics, rows, strict=True)}
    if measured["auc"].value in (0, 1):
        sides = (bootstrap.member, ~bootstrap.member)
        bound = separated(*(np.unique(bootstrap.group[side]).size for side in sides))
        measured["auc"] = Estimate(1.0, bound, 1.0) if measured["auc"].value else Estimate(0.0, 0.0, 1 - bound)
    return measured


def roc_band(bootstrap: Bootstrap, scores: FloatArray, rates: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
    """TPR at each of the false-positive rates (K,), and the ends of its 95 % bootstrap interval by group there.

    The band is pointwise: at each rate it contains the true value in about 95 of 100 cases, not the whole curve.
    """
    values = bootstrap.values(_checked(bootstrap.member, scores)[1], [_tpr_at(float(rate)) for rate in rates])
    low, high = np.quantile(values[:, 1:], [(1 - LEVEL) / 2, (1 + LEVEL) / 2], axis=1)
    return values[:, 0], low, high


def compare(bootstrap: Bootstrap, first: Scores, second: Scores, *, metric: str = "auc") -> dict[str, Comparison]:
    """Second against first, (N,) scores each, for every name in both: FSD against base, or any two sets of detectors.

    The interval of a difference of AUCs is DeLong's, not the bootstrap's percentiles: those contain the true difference
    in 92 to 95 of 100 simulated cases, DeLong's in 94 to 96, with 10 groups a side as with 105.
    """
    gains, raw = {}, {}
    for name in (name for name in second if name in first):
        before, after = (_checked(bootstrap.member, scores[name])[1] for scores in (first, second))
        test = delong_test(bootstrap.member, before, after, bootstrap.group.tolist()) if metric == "auc" else None
        if test and not math.isnan(test.p):
            half = float(stats.t.ppf((1 + LEVEL) / 2, test.degrees)) * test.error
            gain = test.difference
            gains[name], raw[name] = Estimate(gain, max(-1.0, gain - half), min(1.0, gain + half)), test.p
        else:
            (low,), (high,) = (bootstrap.values(scores, [METRICS[metric].of]) for scores in (before, after))
            gains[name], raw[name] = (
                percentiles(float(high[0] - low[0]), high[1:] - low[1:]),
                bootstrap_p(high[1:] - low[1:]),
            )
    corrected = holm(raw)
    return {name: Comparison(gain, raw[name], corrected[name]) for name, gain in gains.items()}
