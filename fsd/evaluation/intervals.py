"""How sure a number is: bootstrap and DeLong's variance, both by group, and corrections for many tests.

Passages of one book are not independent, so whatever is drawn or summed here is a whole group. Labels are
(N,) with True for members, scores are (N,) and higher means more likely a member.
"""

import math
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import optimize, stats

from fsd.errors import UsageError
from fsd.token_stats import FloatArray, IntArray

BoolArray = NDArray[np.bool_]

BLOCK = 150_000
"""Numbers that one block of resamples holds at once: small enough to stay in the processor's cache."""

FPR_SLACK = 1e-9
"""A false-positive rate may exceed its bound by this much, so that .29 × 100 still allows 29 false alarms."""


class Estimate(NamedTuple):
    """A number and the interval it lies in."""

    value: float
    low: float
    high: float

    def __str__(self) -> str:
        """Two decimals, without the leading zero: .92 [.90, .94]."""
        value, low, high = (f"{number:.2f}".replace("0.", ".", 1) for number in self)
        return f"{value} [{low}, {high}]"


def group_index(groups: Sequence[Hashable] | None, texts: int) -> IntArray:
    """Groups as (N,) integers 0..G−1; without groups, or where the name is empty, a text is a group by itself."""
    given: Sequence[Hashable] = [""] * texts if groups is None else groups
    if len(given) != texts:
        raise ValueError(f"labels and groups must have one length, got {texts} and {len(given)}")
    numbers: dict[Hashable, int] = {}
    keys = (("", at) if name == "" else name for at, name in enumerate(given))
    return np.array([numbers.setdefault(key, len(numbers)) for key in keys], np.int64)


def checked(labels: ArrayLike, groups: Sequence[Hashable] | None) -> tuple[BoolArray, IntArray]:
    """Labels as (N,) bool and groups as (N,) integers 0..G−1 (see `group_index`).

    Raises:
        UsageError: unless there are two groups with members and two with non-members: one alone has no
            spread.
    """
    member = np.asarray(labels, dtype=bool)
    index = group_index(groups, member.size)
    members, others = (np.unique(index[side]).size for side in (member, ~member))
    if min(members, others) < 2:
        raise UsageError(
            f"an evaluation must have at least 2 groups with members and 2 with non-members; got {members} and {others}"
        )
    return member, index


@dataclass(frozen=True, eq=False)
class Bootstrap:
    """R resamples of the groups, drawn once and used for every detector, so that differences are paired.

    Attributes:
        member: (N,) labels.
        group: (N,) group of each text.
        counts: (G, R) how often a resample holds a group.
    """

    member: BoolArray
    group: IntArray
    counts: NDArray[np.uint16]

    @classmethod
    def draw(
        cls, labels: ArrayLike, groups: Sequence[Hashable] | None = None, *, resamples: int = 1000, seed: int = 0
    ) -> "Bootstrap":
        """Draw G groups with replacement, R times; a resample that lacks one side is redrawn."""
        member, group = checked(labels, groups)
        rng = np.random.default_rng(seed)
        size = int(group.max()) + 1
        sides = np.stack([np.bincount(group[side], minlength=size) for side in (member, ~member)], axis=1)
        counts = rng.multinomial(size, np.full(size, 1 / size), size=resamples)
        while (lacking := ((counts @ sides) == 0).any(axis=1)).any():
            counts[lacking] = rng.multinomial(size, np.full(size, 1 / size), size=int(lacking.sum()))
        return cls(member, group, np.ascontiguousarray(counts.T, dtype=np.uint16))

    def ranking(self, scores: FloatArray, fprs: Sequence[float] = ()) -> FloatArray:
        """(1 + len(fprs), R): AUC, and the largest TPR at each bound on the FPR, of every resample.

        One sort serves all resamples: a resample only changes how much each text weighs.
        """
        order = np.argsort(-scores, kind="stable")
        ends = np.append(np.flatnonzero(np.diff(scores[order])), scores.size - 1)
        member, group = self.member[order], self.group[order]
        blocks = []
        for part in self._parts(scores.size):
            weight = self.counts[group, part].astype(np.float64)
            hits = np.cumsum(weight * member[:, None], axis=0)[ends]
            alarms = np.cumsum(weight * ~member[:, None], axis=0)[ends]
            blocks.append(np.stack([_area(hits, alarms), *(_tpr(hits, alarms, fpr) for fpr in fprs)]))
        return np.concatenate(blocks, axis=1)

    def share(self, right: BoolArray) -> FloatArray:
        """(R,) share of texts for which `right` holds, in every resample."""
        size = self.counts.shape[0]
        total = np.bincount(self.group, minlength=size).astype(np.float64)
        good = np.bincount(self.group, weights=right, minlength=size)
        return np.asarray((good @ self.counts) / (total @ self.counts), dtype=np.float64)

    def _parts(self, rows: int) -> Iterator[slice]:
        resamples = self.counts.shape[1]
        step = max(1, BLOCK // rows)
        return (slice(at, at + step) for at in range(0, resamples, step))


def _area(hits: FloatArray, alarms: FloatArray) -> FloatArray:
    """Area under the curve through the origin and the (K, R) cumulated weights, ties as straight lines."""
    below = np.concatenate([hits[:1] / 2, (hits[1:] + hits[:-1]) / 2])
    area = np.einsum("kr,kr->r", np.diff(alarms, axis=0, prepend=0.0), below)
    return np.asarray(area / (hits[-1] * alarms[-1]), dtype=np.float64)


def _tpr(hits: FloatArray, alarms: FloatArray, fpr: float) -> FloatArray:
    allowed = (alarms <= fpr * alarms[-1] + FPR_SLACK).sum(axis=0)
    reached = np.take_along_axis(hits, np.maximum(allowed - 1, 0)[None], axis=0)[0]
    return np.where(allowed > 0, reached / hits[-1], 0.0)


def percentiles(value: float, resampled: FloatArray, level: float = 0.95) -> Estimate:
    """The estimate whose interval holds the middle `level` of the resampled values."""
    low, high = np.quantile(resampled, [(1 - level) / 2, (1 + level) / 2])
    return Estimate(float(value), float(low), float(high))


def separated(members: int, others: int, level: float = 0.95) -> float:
    """Lower bound for an AUC of exactly 1, where no resample can show any spread.

    The θ that the normal approximation around Hanley and McNeil's variance still allows (Newcombe 2006,
    method 5).

    Args:
        members: number of groups with members, at least 1.
        others: number of groups with non-members, at least 1.
        level: of the interval.
    """
    z = float(stats.norm.ppf((1 + level) / 2))
    half = (members + others) / 2 - 1

    def excess(theta: float) -> float:
        inner = 1 + half * (1 - theta) / (2 - theta) + half * theta / (1 + theta)
        return (1 - theta) ** 2 - z * z * theta * (1 - theta) * inner / (members * others)

    return float(optimize.brentq(excess, 1e-12, 1 - 1e-12))


def delong(
    labels: ArrayLike, scores: FloatArray, groups: Sequence[Hashable] | None = None
) -> tuple[FloatArray, FloatArray]:
    """AUCs of K detectors on the same texts, and the covariance of those AUCs.

    DeLong, DeLong and Clarke-Pearson (1988) without groups; Obuchowski (1997) with groups that may hold
    several members, several non-members or both. Equal when each group holds one text.

    Args:
        labels: (N,).
        scores: (K, N).
        groups: (N,) or None.

    Returns:
        (K,) AUCs and their (K, K) covariance.
    """
    member, group = checked(labels, groups)
    m, n = int(member.sum()), int((~member).sum())
    ranks = stats.rankdata(scores, axis=1)
    above = (ranks[:, member] - stats.rankdata(scores[:, member], axis=1)) / n
    below = 1 - (ranks[:, ~member] - stats.rankdata(scores[:, ~member], axis=1)) / m
    aucs = above.mean(axis=1)
    size = int(group.max()) + 1
    hits = _group_sums(above - aucs[:, None], group[member], size) / m
    alarms = _group_sums(below - aucs[:, None], group[~member], size) / n
    cross = hits.T @ alarms
    covariance = (
        _bessel(np.unique(group[member]).size) * (hits.T @ hits)
        + _bessel(np.unique(group[~member]).size) * (alarms.T @ alarms)
        + _bessel(size) * (cross + cross.T)
    )
    return aucs, covariance


def _bessel(count: int) -> float:
    return count / (count - 1)


def _group_sums(values: FloatArray, group: IntArray, size: int) -> FloatArray:
    """(K, n) values of texts → (G, K) sums over groups."""
    return np.stack([np.bincount(group, weights=row, minlength=size) for row in values], axis=1)


def delong_interval(auc: float, variance: float, level: float = 0.95) -> Estimate:
    """Interval of an AUC from its variance, symmetric on the logit scale so that it stays inside 0..1."""
    if not 0 < auc < 1:
        return Estimate(auc, auc, auc)
    z = float(stats.norm.ppf((1 + level) / 2))
    centre = math.log(auc / (1 - auc))
    spread = z * math.sqrt(variance) / (auc * (1 - auc))
    return Estimate(auc, 1 / (1 + math.exp(spread - centre)), 1 / (1 + math.exp(-spread - centre)))


def delong_test(
    labels: ArrayLike, first: FloatArray, second: FloatArray, groups: Sequence[Hashable] | None = None
) -> tuple[float, float, float]:
    """Is the AUC of `second` another than that of `first` on the same texts?

    Returns:
        The difference second − first, its standard error, and the two-sided p-value (1 when the two rank
        alike, NaN when they differ without any spread to measure it by).
    """
    aucs, covariance = delong(labels, np.stack([first, second]), groups)
    gain = float(aucs[1] - aucs[0])
    error = math.sqrt(max(float(covariance[0, 0] + covariance[1, 1] - 2 * covariance[0, 1]), 0.0))
    if error < 1e-12:
        return gain, 0.0, 1.0 if abs(gain) < 1e-12 else math.nan
    return gain, error, float(2 * stats.norm.sf(abs(gain) / error))


def bootstrap_p(differences: FloatArray) -> float:
    """Two-sided p-value of resampled differences (R,): twice the share on the rarer side of zero."""
    rarer = min(int((differences <= 0).sum()), int((differences >= 0).sum()))
    return min(1.0, 2 * (1 + rarer) / (1 + differences.size))


def holm(p_values: Mapping[str, float]) -> dict[str, float]:
    """p-values that bound the chance of any false finding among several tests (Holm 1979)."""
    corrected: dict[str, float] = {}
    largest = 0.0
    ascending = sorted(p_values, key=lambda name: p_values[name])
    for place, name in enumerate(ascending):
        largest = max(largest, min(1.0, (len(ascending) - place) * p_values[name]))
        corrected[name] = largest
    return {name: corrected[name] for name in p_values}


def t_test(first: Sequence[float], second: Sequence[float]) -> tuple[float, float]:
    """The papers' test: paired and two-tailed, over a metric of two detectors in the same settings.

    A setting is a model, a data set or a seed. Texts or resamples of one setting are no settings: their
    number could be raised at will.

    Returns:
        The mean difference second − first and its p-value (1 when all differences are zero).

    Raises:
        UsageError: for fewer than two settings or unequal numbers of them.
    """
    if len(first) != len(second) or len(first) < 2:
        raise UsageError(
            f"a t-test must have at least 2 settings, the same for both detectors; got {len(first)} and {len(second)}"
        )
    difference = np.asarray(second, dtype=np.float64) - np.asarray(first, dtype=np.float64)
    mean, spread = float(difference.mean()), float(difference.std(ddof=1))
    if spread == 0:
        return mean, 1.0 if mean == 0 else 0.0
    t = mean / spread * math.sqrt(difference.size)
    return mean, float(2 * stats.t.sf(abs(t), difference.size - 1))
