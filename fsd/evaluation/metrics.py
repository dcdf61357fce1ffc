"""How well scores separate members from non-members, each metric with its 95 % interval.

Labels are (N,) with True for members; scores are (N,) float64, and higher means more likely a member.
"""

import math
import re
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, chain
from typing import NamedTuple

import numpy as np
import pandas as pd
import scipy  # its modules are imported where they are used
from numpy.typing import ArrayLike, NDArray

from fsd.errors import UsageError
from fsd.token_stats import FloatArray, IntArray, Scores

BoolArray = NDArray[np.bool_]

LEVEL = 0.95
"""Level of every interval."""
_LEADING_ZERO = re.compile(r"^([+-]?)0\.")

BLOCK = 150_000
"""Numbers in one block of resamples: few enough to stay in the processor's cache."""
FPR_SLACK = 1e-9
"""A false-positive rate may exceed its bound by this much, so that .29 × 100 still allows 29 false alarms."""


def shortened(number: float, spec: str = "z.2f") -> str:
    """The number in a format, without a zero before its point: .71, -.05, 10.00; never -.00."""
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
        return "{} [{}, {}]".format(*(shortened(number, "+z.2f") for number in self))

    @property
    def short(self) -> str:
        """The number alone: .92."""
        return shortened(self.value)


def group_index(groups: Sequence[Hashable] | None, texts: int) -> IntArray:
    """Groups as (N,) integers 0..G−1 in order of appearance; a text whose group is "" or missing is its own."""
    if groups is None:
        return np.arange(texts, dtype=np.int64)
    if len(groups) != texts:
        raise ValueError(f"labels and groups must have one length, got {texts} and {len(groups)}")
    numbers: dict[Hashable, int] = {}
    index = np.empty(texts, dtype=np.int64)
    for row, name in enumerate(groups):
        # what files have where a text has no group: NaN and NaT differ from themselves, and NA is asked first, since a
        # comparison with it has no truth value
        missing = name is pd.NA or name in ("", None) or name != name
        index[row] = numbers.setdefault(("", row) if missing else name, len(numbers))
    return index


def group_members(group: IntArray) -> list[IntArray]:
    """Positions of the texts of each group 0..G−1."""
    return np.split(np.argsort(group, kind="stable"), np.cumsum(np.bincount(group))[:-1])


def group_means(values: FloatArray, group: IntArray) -> FloatArray:
    """(N,) or (N, D) values of texts → (G,) or (G, D) means of groups 0..G−1."""
    sums = np.apply_along_axis(lambda column: np.bincount(group, weights=column), 0, values)
    return np.asarray((sums.T / np.bincount(group)).T)


def resampled(sides: Sequence[IntArray], *, resamples: int = 1000, seed: int = 0) -> NDArray[np.uint16]:
    """(G, R) how often each of R resamples contains each group of the texts of some sides, none of them left empty."""
    rng = np.random.default_rng(seed)
    size = max(int(groups.max()) for groups in sides) + 1
    texts = np.stack([np.bincount(groups, minlength=size) for groups in sides], axis=1)
    counts = np.empty((size, resamples), np.uint16)
    step = max(1, BLOCK // size)
    wanted = np.arange(resamples)
    while wanted.size:
        # a resample that leaves a side empty has no AUC: it is drawn again
        rejected = []
        for columns in np.split(wanted, range(step, wanted.size, step)):  # eight bytes a number only in each part
            drawn = rng.multinomial(size, np.full(size, 1 / size), size=columns.size)
            counts[:, columns] = drawn.T
            rejected.append(columns[((drawn @ texts) == 0).any(axis=1)])
        wanted = np.concatenate(rejected)
    return counts


class RocCurves(NamedTuple):
    """(K, R) weight of members, and of non-members, that score at least each of K scores, falling, in R resamples.

    `called` of these scores reach the decision threshold; None without one.
    """

    hits: FloatArray
    alarms: FloatArray
    called: int | None = None


@dataclass(frozen=True, eq=False)
class Bootstrap:
    """(G, R) resamples of the groups of N texts, the same for every detector, so that differences are paired."""

    member: BoolArray
    group: IntArray
    counts: NDArray[np.uint16]

    @classmethod
    def draw(
        cls, labels: ArrayLike, groups: Sequence[Hashable] | None = None, *, resamples: int = 1000, seed: int = 0
    ) -> "Bootstrap":
        """Draw G groups with replacement, R times; a UsageError with fewer than two groups of either class."""
        member = np.asarray(labels, dtype=bool)
        group = group_index(groups, member.size)
        sides = [group[member], group[~member]]
        n_members, n_nonmembers = (np.unique(side).size for side in sides)
        # a single group of a side is in every resample: the interval would not know how much others differ from it
        if min(n_members, n_nonmembers) < 2:
            raise UsageError(
                "an evaluation must have at least 2 groups with members and 2 with non-members; "
                f"got {n_members} and {n_nonmembers}"
            )
        return cls(member, group, resampled(sides, resamples=resamples, seed=seed))

    @property
    def sides(self) -> list[int]:
        """Number of groups with members, and with non-members."""
        return [np.unique(self.group[side]).size for side in (self.member, ~self.member)]

    def values(
        self,
        scores: FloatArray,
        metrics: Sequence[Callable[[RocCurves], FloatArray]],
        threshold: float | None = None,
    ) -> FloatArray:
        """(M, 1 + R) values of M metrics: of the texts themselves in the first column, then of every resample."""
        order = np.argsort(-scores, kind="stable")
        falling = scores[order]
        ends = np.append(np.flatnonzero(np.diff(falling)), scores.size - 1)  # the last text of each distinct score
        member = self.member[order, None]
        group = self.group[order]
        called = None if threshold is None else (falling[ends] >= threshold).sum()
        # the weights of all resamples together, eight bytes each, would not stay in the cache
        step = max(1, BLOCK // scores.size)
        n_resamples = self.counts.shape[1]
        resampled = (self.counts[group, start : start + step] for start in range(0, n_resamples, step))
        blocks = []
        for counts in chain([np.ones((scores.size, 1), np.uint16)], resampled):
            weight = counts.astype(np.float64)
            hits = np.cumsum(weight * member, axis=0)[ends]
            alarms = np.cumsum(weight * ~member, axis=0)[ends]
            blocks.append(np.stack([metric(RocCurves(hits, alarms, called)) for metric in metrics]))
        return np.concatenate(blocks, axis=1)


def percentiles(value: float, resampled: FloatArray) -> Estimate:
    """The value with the interval of the middle 95 % of the resampled values."""
    low, high = np.quantile(resampled, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return Estimate(float(value), float(low), float(high))


def separated(members: int, nonmembers: int) -> float:
    """Lower bound for an AUC of exactly 1, by numbers of groups: Newcombe's method 5 (2006)."""
    z = float(scipy.stats.norm.ppf((1 + LEVEL) / 2))
    half = (members + nonmembers) / 2 - 1

    def excess(theta: float) -> float:
        inner = 1 + half * (1 - theta) / (2 - theta) + half * theta / (1 + theta)
        return (1 - theta) ** 2 - z * z * theta * (1 - theta) * inner / (members * nonmembers)

    return float(scipy.optimize.brentq(excess, 1e-12, 1 - 1e-12))


class DeLong(NamedTuple):
    """Difference of two AUCs; its error follows Student's t. `p` is 1 for equal rankings, NaN without any variance."""

    difference: float
    error: float
    degrees: float
    p: float


def delong_test(texts: Bootstrap, first: FloatArray, second: FloatArray) -> DeLong:
    """Test whether the AUCs of two detectors on the same N texts differ.

    The error is that of DeLong, DeLong and Clarke-Pearson (1988) without groups, and of Obuchowski (1997) with groups;
    the difference in errors follows Student's t with Satterthwaite's degrees of freedom, as in the test of Brunner and
    Munzel (2000, https://doi.org/10.1002/(SICI)1521-4036(200001)42:1%3C17::AID-BIMJ17%3E3.0.CO;2-U).
    """
    member = texts.member
    nonmember = ~member
    scores = np.stack([first, second])
    ranks = scipy.stats.rankdata(scores, axis=1)
    # placements: the share of the other side that each text is ranked above, or below
    above = (ranks[:, member] - scipy.stats.rankdata(scores[:, member], axis=1)) / nonmember.sum()
    below = 1 - (ranks[:, nonmember] - scipy.stats.rankdata(scores[:, nonmember], axis=1)) / member.sum()
    aucs = above.mean(axis=1)
    difference = float(aucs[1] - aucs[0])
    size = int(texts.group.max()) + 1

    def group_errors(placements: FloatArray, side: BoolArray) -> FloatArray:
        """(G,) contributions of the groups of a side to the error of the difference."""
        sums = [np.bincount(texts.group[side], placements[row] - aucs[row], size) / side.sum() for row in (0, 1)]
        return np.asarray(sums[1] - sums[0])

    of_members = group_errors(above, member)
    of_nonmembers = group_errors(below, nonmember)
    n_members, n_nonmembers = texts.sides
    members_part = n_members / (n_members - 1) * float(of_members @ of_members)
    nonmembers_part = n_nonmembers / (n_nonmembers - 1) * float(of_nonmembers @ of_nonmembers)
    parts = members_part + nonmembers_part
    # a group with texts of both sides makes their errors depend on each other
    variance = parts + 2 * size / (size - 1) * float(of_members @ of_nonmembers)
    if variance < 1e-24:
        # zero but for rounding: equal rankings do not differ, and for unequal ones the test says nothing
        return DeLong(difference, 0.0, math.inf, 1.0 if abs(difference) < 1e-12 else math.nan)
    degrees = parts**2 / (members_part**2 / (n_members - 1) + nonmembers_part**2 / (n_nonmembers - 1))
    error = math.sqrt(variance)
    return DeLong(difference, error, degrees, float(2 * scipy.stats.t.sf(abs(difference) / error, degrees)))


def bootstrap_p(differences: FloatArray) -> float:
    """Two-sided p-value of resampled differences (R,): twice the share on the rarer side of zero."""
    rarer = min(int((differences <= 0).sum()), int((differences >= 0).sum()))
    # the texts themselves count as a resample, so that no p-value is 0
    return min(1.0, 2 * (1 + rarer) / (1 + differences.size))


def conformal_band(calibration: int, texts: int, rates: FloatArray) -> tuple[FloatArray, FloatArray]:
    """(K,) ends of the band that contains, in 95 of 100 cases, the share of valid p-values up to each of K rates.

    All p-values share one calibration set, so the numbers of texts below the rates are a Dirichlet-multinomial (Bates
    et al. 2023, https://arxiv.org/abs/2104.08279). The band is the global rank envelope of simulated curves (Myllymäki
    et al. 2017, https://doi.org/10.1111/rssb.12172): between the k-th lowest and the k-th highest value at each rate,
    with the largest k that keeps 95 % of the curves inside throughout.
    """
    curves = 4000
    rng = np.random.default_rng(0)
    ranks = np.diff(np.floor(np.append(rates, 1.0) * (calibration + 1) + 1e-9), prepend=0.0)
    # normalised gamma variables are a Dirichlet distribution, which numpy has for positive parameters alone
    weights = rng.standard_gamma(ranks, (curves, ranks.size))
    weights /= weights.sum(axis=1, keepdims=True)
    shares = np.cumsum(rng.multinomial(texts, weights), axis=1)[:, :-1] / texts
    ordered = np.sort(shares, axis=0)
    widest = 0
    for k in range(1, curves // 2):
        if ((shares >= ordered[k]) & (shares <= ordered[-1 - k])).all(axis=1).mean() < LEVEL:
            break
        widest = k
    return ordered[widest], ordered[-1 - widest]


def holm(p_values: Mapping[str, float]) -> dict[str, float]:
    """p-values corrected for several tests, which bound the chance of any false discovery (Holm 1979)."""
    ascending = sorted(p_values, key=lambda name: p_values[name])
    scaled = (min(1.0, (len(ascending) - rank) * p_values[name]) for rank, name in enumerate(ascending))
    # a p-value is corrected to no less than those below it, so that their order stays
    corrected = dict(zip(ascending, accumulate(scaled, max), strict=True))
    return {name: corrected[name] for name in p_values}


@dataclass(frozen=True)
class Metric:
    """A number that measures one detector on one set of texts: its heading, and (K, R) ROC curves → (R,) values."""

    label: str
    of: Callable[[RocCurves], FloatArray]
    needs_threshold: bool = False
    """Whether it judges texts at a decision threshold from other texts."""
    needs: int = 0
    """Number of families of non-members from which on its interval has the promised coverage."""


def _area(curves: RocCurves) -> FloatArray:
    """Area under the curves through the origin, ties as straight lines: Mann-Whitney's U / mn."""
    hits, alarms, _ = curves
    below = np.concatenate([hits[:1] / 2, (hits[1:] + hits[:-1]) / 2])
    area = np.einsum("kr,kr->r", np.diff(alarms, axis=0, prepend=0.0), below)
    return np.asarray(area / (hits[-1] * alarms[-1]))


def tpr_at(fpr: float) -> Callable[[RocCurves], FloatArray]:
    """The largest TPR among thresholds whose FPR is at most `fpr`, never interpolated."""

    def tpr(curves: RocCurves) -> FloatArray:
        hits, alarms, _ = curves
        # scores are distinct and alarms grow with them, so the number of points allowed tells the mildest of them
        allowed = (alarms <= fpr * alarms[-1] + FPR_SLACK).sum(axis=0)
        reached = np.take_along_axis(hits, np.maximum(allowed - 1, 0)[None], axis=0)[0]
        return np.where(allowed > 0, reached / hits[-1], 0.0)

    return tpr


def _accuracy(curves: RocCurves) -> FloatArray:
    """Share of texts on the right side of the threshold."""
    hits, alarms, called = curves
    # with a threshold above all scores nothing is called: every non-member is right, and no member
    right = alarms[-1]
    if called:
        right = hits[called - 1] + alarms[-1] - alarms[called - 1]
    return np.asarray(right / (hits[-1] + alarms[-1]))


METRICS = {
    "auc": Metric("AUC", _area),
    "tpr_at_1fpr": Metric("TPR@1%FPR", tpr_at(0.01), needs=250),
    "tpr_at_5fpr": Metric("TPR@5%FPR", tpr_at(0.05), needs=50),
    "tpr_at_10fpr": Metric("TPR@10%FPR", tpr_at(0.10), needs=25),
    "accuracy": Metric("Accuracy", _accuracy, needs_threshold=True),
}
"""Name → metric.

On simulated data the intervals contain the true value in 92 to 97 of 100 cases, that of the TPR at 1 % from about 250
families of non-members on, 2.5 / FPR; with 40 to 105 in 77 to 91, since it depends on the one or two highest of them.
"""


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
    columns: dict[str, Scores] = {state: {} for state in states}
    for column in map(str, scores):
        detector, _, state = column.rpartition(".")
        if detector and state in columns:
            columns[state][detector] = scores[column].to_numpy(np.float64)
    return columns


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
    m = member.sum()
    n = member.size - m
    return float((scipy.stats.rankdata(values)[member].sum() - m * (m + 1) / 2) / (m * n))


def roc(labels: ArrayLike, scores: ArrayLike) -> tuple[FloatArray, FloatArray, FloatArray]:
    """(K + 1,) FPR, TPR and threshold of K distinct scores, from the strictest, +inf, to the mildest."""
    # imported here: commands that never draw a curve start without scikit-learn
    from sklearn.metrics import roc_curve

    alarms, hits, thresholds = roc_curve(*_checked(labels, scores), drop_intermediate=False)
    return alarms, hits, thresholds


def tpr_at_fpr(labels: ArrayLike, scores: ArrayLike, fpr: float) -> float:
    """The largest TPR among thresholds whose FPR is at most `fpr` (0..1), never interpolated."""
    alarms, hits, _ = roc(labels, scores)
    return float(hits[alarms <= fpr + FPR_SLACK].max())


def best_thresholds(labels: ArrayLike, scores: ArrayLike) -> FloatArray:
    """(K,) all ε, falling, that maximise accuracy when score ≥ ε means member (FSD §3.2), each between two scores."""
    member, values = _checked(labels, scores)
    alarms, hits, scores_down = roc(member, values)
    right = np.round(hits * member.sum() + (1 - alarms) * (~member).sum())
    below = np.append(scores_down[1:], scores_down[-1])
    middle = (scores_down + below) / 2
    # between two neighbouring floating-point numbers there is none: the middle is rounded to one of them
    thresholds = np.where(middle > below, middle, scores_down)
    thresholds[0] = np.nextafter(scores_down[1], np.inf)  # in place of +inf
    return np.asarray(thresholds[right == right.max()])


def estimates(bootstrap: Bootstrap, scores: FloatArray, threshold: float | None = None) -> dict[str, Estimate]:
    """Every metric of (N,) scores with its 95 % interval by group; without a threshold none that needs it."""
    _, scores = _checked(bootstrap.member, scores)
    metrics = {name: metric for name, metric in METRICS.items() if threshold is not None or not metric.needs_threshold}
    rows = bootstrap.values(scores, [metric.of for metric in metrics.values()], threshold)
    measured = {name: percentiles(row[0], row[1:]) for name, row in zip(metrics, rows, strict=True)}
    # every resample of texts that are fully separated is so too, and the bootstrap's interval would be a point
    if measured["auc"].value == 1:
        measured["auc"] = Estimate(1.0, separated(*bootstrap.sides), 1.0)
    elif measured["auc"].value == 0:
        measured["auc"] = Estimate(0.0, 0.0, 1 - separated(*bootstrap.sides))
    return measured


def compare(bootstrap: Bootstrap, first: Scores, second: Scores, *, metric: str = "auc") -> dict[str, Row]:
    """Gain of the second over the first, (N,) scores each, for every name in both: `metric`_gain with both p-values.

    For the AUC, interval and p are DeLong's by group, so that the interval excludes 0 exactly if p < .05. For any other
    metric, and an AUC without variance, they are the paired bootstrap's.
    """
    rows = {}
    for name in second:
        if name not in first:
            continue
        _, reference = _checked(bootstrap.member, first[name])
        _, candidate = _checked(bootstrap.member, second[name])
        test = delong_test(bootstrap, reference, candidate) if metric == "auc" else None
        if test and not math.isnan(test.p):
            p = test.p
            gain = test.difference
            half = float(scipy.stats.t.ppf((1 + LEVEL) / 2, test.degrees)) * test.error
            estimate = Estimate(gain, max(-1.0, gain - half), min(1.0, gain + half))
        else:
            metrics = [METRICS[metric].of]
            gains = (bootstrap.values(candidate, metrics) - bootstrap.values(reference, metrics))[0]
            p = bootstrap_p(gains[1:])
            estimate = percentiles(gains[0], gains[1:])
        rows[name] = Row(name, "", f"{metric}_gain", *estimate, p)
    corrected = holm({name: row.p for name, row in rows.items()})
    return {name: row._replace(p_holm=corrected[name]) for name, row in rows.items()}


def standard_error(values: FloatArray, over_texts: float) -> tuple[float, float]:
    """Standard error of the mean of S values over seeds and texts, and its degrees of freedom; NaN for a single one.

    Its square is s²/S + e², where s is the standard deviation over the seeds and e = `over_texts` the standard error
    of the mean over the texts, which all seeds share. The degrees of freedom are Satterthwaite's, with e as known.
    """
    # one seed tells nothing of the spread over seeds
    if values.size < 2:
        return math.nan, math.nan
    seeds = float(values.var(ddof=1)) / values.size
    squared = seeds + over_texts**2
    return math.sqrt(squared), (values.size - 1) * (squared / seeds) ** 2 if seeds else math.inf


def interval(values: FloatArray, over_texts: float) -> tuple[float, float]:
    """Student's 95 % interval of the mean of S values, see `standard_error`."""
    error, degrees = standard_error(values, over_texts)
    half = scipy.stats.t.ppf((1 + LEVEL) / 2, degrees) * error
    return float(values.mean() - half), float(values.mean() + half)
