"""Uncertainty of a number: bootstrap and DeLong's variance, both by group, and Holm's correction for many tests.

Passages of one book are not independent, so resamples and variances are taken over whole groups. Labels are (N,) with
True for members; scores are (N,), and higher means more likely a member.
"""

import math
import re
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, chain
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import optimize, stats

from fsd.errors import UsageError
from fsd.token_stats import FloatArray, IntArray

BoolArray = NDArray[np.bool_]

LEVEL = 0.95
"""Level of every interval."""
_LEADING_ZERO = re.compile(r"^([+-]?)0\.")

BLOCK = 150_000
"""Numbers in one block of resamples: few enough to stay in the processor's cache."""
FPR_SLACK = 1e-9
"""A false-positive rate may exceed its bound by this much, so that .29 × 100 still allows 29 false alarms."""


def shortened(number: float, spec: str = ".2f") -> str:
    """The number in a format, without a zero before its point: .71, -.05, 10.00."""
    return _LEADING_ZERO.sub(r"\1.", format(number, spec))


class Estimate(NamedTuple):
    """A number with its confidence interval."""

    value: float
    low: float
    high: float

    def __str__(self) -> str:
        """Two decimals, without the leading zero: .92 [.90, .94]."""
        return "{} [{}, {}]".format(*map(shortened, self))

    @property
    def signed(self) -> str:
        """The same for a difference: +.02 [-.01, +.05]."""
        return "{} [{}, {}]".format(*(shortened(number, "+.2f") for number in self))

    @property
    def short(self) -> str:
        """The number alone: .92."""
        return shortened(self.value)


def group_index(groups: Sequence[Hashable] | None, texts: int) -> IntArray:
    """Groups as (N,) integers 0..G−1 in order of appearance; without groups, or named "", a text is its own group."""
    if groups is None:
        return np.arange(texts, dtype=np.int64)
    if len(groups) != texts:
        raise ValueError(f"labels and groups must have one length, got {texts} and {len(groups)}")
    numbers: dict[Hashable, int] = {}
    keys = (("", at) if name == "" else name for at, name in enumerate(groups))
    return np.array([numbers.setdefault(key, len(numbers)) for key in keys], np.int64)


def group_members(group: IntArray) -> list[IntArray]:
    """Positions of the texts of each group 0..G−1."""
    return np.split(np.argsort(group, kind="stable"), np.cumsum(np.bincount(group))[:-1])


def group_means(values: FloatArray, group: IntArray) -> FloatArray:
    """(N,) or (N, D) values of texts → (G,) or (G, D) means of groups 0..G−1."""
    sums = np.apply_along_axis(lambda column: np.bincount(group, weights=column), 0, values)
    return np.asarray((sums.T / np.bincount(group)).T, dtype=np.float64)


def checked(labels: ArrayLike, groups: Sequence[Hashable] | None) -> tuple[BoolArray, IntArray]:
    """Labels as (N,) bool and groups as (N,) integers; a UsageError unless two groups are on either side."""
    member = np.asarray(labels, dtype=bool)
    index = group_index(groups, member.size)
    members, others = (np.unique(index[side]).size for side in (member, ~member))
    if min(members, others) < 2:
        raise UsageError(
            f"an evaluation must have at least 2 groups with members and 2 with non-members; got {members} and {others}"
        )
    return member, index


def resampled(sides: Sequence[IntArray], *, resamples: int = 1000, seed: int = 0) -> NDArray[np.uint16]:
    """(G, R) how often each of R resamples contains each of the groups 0..G−1, which are given for each side's texts.

    A resample that leaves a side empty is redrawn.
    """
    rng = np.random.default_rng(seed)
    size = max(int(groups.max()) for groups in sides) + 1
    texts = np.stack([np.bincount(groups, minlength=size) for groups in sides], axis=1)
    counts = rng.multinomial(size, np.full(size, 1 / size), size=resamples)
    while (lacking := ((counts @ texts) == 0).any(axis=1)).any():
        counts[lacking] = rng.multinomial(size, np.full(size, 1 / size), size=int(lacking.sum()))
    return np.ascontiguousarray(counts.T, dtype=np.uint16)


class RocCurves(NamedTuple):
    """Weighted ROC curves of R resamples of the same scores, from the strictest threshold to the mildest.

    `hits` and `alarms` are (K, R): weight of the members, and of the non-members, that score at least as high as each
    of the K distinct scores. `called` of these scores reach the decision threshold; None without one.
    """

    hits: FloatArray
    alarms: FloatArray
    called: int | None = None


@dataclass(frozen=True, eq=False)
class Bootstrap:
    """R resamples of the groups, drawn once and used for every detector, so that differences are paired.

    `counts` is (G, R): how often each resample contains a group; `member` and `group` are (N,).
    """

    member: BoolArray
    group: IntArray
    counts: NDArray[np.uint16]

    @classmethod
    def draw(
        cls, labels: ArrayLike, groups: Sequence[Hashable] | None = None, *, resamples: int = 1000, seed: int = 0
    ) -> "Bootstrap":
        """Draw G groups with replacement, R times; a UsageError with fewer than two groups of either class."""
        member, group = checked(labels, groups)
        return cls(member, group, resampled([group[member], group[~member]], resamples=resamples, seed=seed))

    def values(
        self,
        scores: FloatArray,
        metrics: Sequence[Callable[[RocCurves], FloatArray]],
        threshold: float | None = None,
    ) -> FloatArray:
        """(M, 1 + R) values of M metrics: of the texts themselves in the first column, then of every resample.

        One sort serves all resamples, because a resample only changes the weight of each text.
        """
        order = np.argsort(-scores, kind="stable")
        ends = np.append(np.flatnonzero(np.diff(scores[order])), scores.size - 1)
        member, group = self.member[order, None], self.group[order]
        called = None if threshold is None else int((scores[order][ends] >= threshold).sum())
        step = max(1, BLOCK // scores.size)
        resampled = (self.counts[group, at : at + step] for at in range(0, self.counts.shape[1], step))
        blocks = []
        for counts in chain([np.ones((scores.size, 1), np.uint16)], resampled):
            weight = counts.astype(np.float64)
            curves = RocCurves(
                np.cumsum(weight * member, axis=0)[ends], np.cumsum(weight * ~member, axis=0)[ends], called
            )
            blocks.append(np.stack([metric(curves) for metric in metrics]))
        return np.concatenate(blocks, axis=1)


def percentiles(value: float, resampled: FloatArray) -> Estimate:
    """The value with the interval of the middle 95 % of the resampled values."""
    low, high = np.quantile(resampled, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return Estimate(float(value), float(low), float(high))


def separated(members: int, others: int) -> float:
    """Lower bound for an AUC of exactly 1, where no resample can show any spread.

    The θ that the normal approximation around Hanley and McNeil's variance still allows (Newcombe 2006, method 5), for
    a number of groups with members and one of groups with others, each at least 1.
    """
    z = float(stats.norm.ppf((1 + LEVEL) / 2))
    half = (members + others) / 2 - 1

    def excess(theta: float) -> float:
        inner = 1 + half * (1 - theta) / (2 - theta) + half * theta / (1 + theta)
        return (1 - theta) ** 2 - z * z * theta * (1 - theta) * inner / (members * others)

    return float(optimize.brentq(excess, 1e-12, 1 - 1e-12))


class DeLong(NamedTuple):
    """Test of the difference of two AUCs on the same texts: second − first, its standard error, and the p-value.

    The error follows Student's t with `degrees` of freedom. `p` is 1 for equal rankings, and NaN for a difference
    without any variance.
    """

    difference: float
    error: float
    degrees: float
    p: float


def delong_test(
    labels: ArrayLike, first: FloatArray, second: FloatArray, groups: Sequence[Hashable] | None = None
) -> DeLong:
    """Test whether the AUCs of two detectors on the same N texts differ.

    The error is that of DeLong, DeLong and Clarke-Pearson (1988) without groups, and of Obuchowski (1997) with groups
    that may hold several members, several non-members or both. It rests on as few groups as there are of either class,
    so that the difference in such errors follows Student's t with Satterthwaite's degrees of freedom, as in the test of
    Brunner and Munzel (2000, https://doi.org/10.1002/(SICI)1521-4036(200001)42:1%3C17::AID-BIMJ17%3E3.0.CO;2-U).
    """
    member, group = checked(labels, groups)
    scores, size = np.stack([first, second]), int(group.max()) + 1
    m, n = int(member.sum()), int((~member).sum())
    ranks = stats.rankdata(scores, axis=1)
    above = (ranks[:, member] - stats.rankdata(scores[:, member], axis=1)) / n
    below = 1 - (ranks[:, ~member] - stats.rankdata(scores[:, ~member], axis=1)) / m
    aucs = above.mean(axis=1)

    def error_of_groups(placements: FloatArray, side: BoolArray) -> FloatArray:
        """(G,) part of the difference's error that is due to each group."""
        sums = [
            np.bincount(group[side], row - auc, size) / side.sum() for row, auc in zip(placements, aucs, strict=True)
        ]
        return np.asarray(sums[1] - sums[0])

    sides = (error_of_groups(above, member), error_of_groups(below, ~member))
    counts = [np.unique(group[side]).size for side in (member, ~member)]
    parts = [count / (count - 1) * float(part @ part) for count, part in zip(counts, sides, strict=True)]
    variance = sum(parts) + 2 * size / (size - 1) * float(sides[0] @ sides[1])
    difference = float(aucs[1] - aucs[0])
    if variance < 1e-24:
        return DeLong(difference, 0.0, math.inf, 1.0 if abs(difference) < 1e-12 else math.nan)
    degrees = sum(parts) ** 2 / sum(part**2 / (count - 1) for part, count in zip(parts, counts, strict=True))
    error = math.sqrt(variance)
    return DeLong(difference, error, degrees, float(2 * stats.t.sf(abs(difference) / error, degrees)))


def bootstrap_p(differences: FloatArray) -> float:
    """Two-sided p-value of resampled differences (R,): twice the share on the rarer side of zero."""
    rarer = min(int((differences <= 0).sum()), int((differences >= 0).sum()))
    return min(1.0, 2 * (1 + rarer) / (1 + differences.size))


def conformal_band(
    calibration: int, texts: int, rates: FloatArray, *, curves: int = 4000, seed: int = 0
) -> tuple[FloatArray, FloatArray]:
    """Band that contains the whole curve of valid conformal p-values in 95 of 100 cases.

    The curve is the share of the texts with p at most each rate. All p-values share one calibration set, so the number
    of texts below one rate is beta-binomial, not binomial, and the numbers below all rates together are a
    Dirichlet-multinomial (Bates et al. 2023, https://arxiv.org/abs/2104.08279). The band is the global rank envelope of
    simulated curves (Myllymäki et al. 2017, https://doi.org/10.1111/rssb.12172): between the k-th lowest and the k-th
    highest value at each rate, with the largest k that keeps 95 % of the curves inside throughout.

    With numbers of independent calibration texts and texts with a p-value, at least 1, and (K,) ascending rates in
    [0, 1]; returns the (K,) lower and upper ends of the band.
    """
    rng = np.random.default_rng(seed)
    ranks = np.diff(np.floor(np.append(rates, 1.0) * (calibration + 1) + 1e-9), prepend=0.0)
    weights = rng.standard_gamma(ranks, (curves, ranks.size))
    weights /= weights.sum(axis=1, keepdims=True)
    shares = np.cumsum(rng.multinomial(texts, weights), axis=1)[:, :-1] / texts
    ordered = np.sort(shares, axis=0)
    low, high = ordered[0], ordered[-1]
    for at in range(1, curves // 2):
        narrower = ordered[at], ordered[-1 - at]
        if ((shares >= narrower[0]) & (shares <= narrower[1])).all(axis=1).mean() < LEVEL:
            break
        low, high = narrower
    return low, high


def holm(p_values: Mapping[str, float]) -> dict[str, float]:
    """p-values corrected for several tests, which bound the chance of any false discovery (Holm 1979)."""
    ascending = sorted(p_values, key=lambda name: p_values[name])
    scaled = (min(1.0, (len(ascending) - place) * p_values[name]) for place, name in enumerate(ascending))
    corrected = dict(zip(ascending, accumulate(scaled, max), strict=True))
    return {name: corrected[name] for name in p_values}
