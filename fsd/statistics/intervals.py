"""A number with its 95 % interval."""

import math
import re
from typing import NamedTuple

import numpy as np
from scipy import optimize, stats

from fsd.statistics.groups import Groups, group_index
from fsd.token_stats import BoolArray, FloatArray

CONFIDENCE = 0.95
"""Level of every interval."""
LOWER = (1 - CONFIDENCE) / 2
"""Share of a distribution below the lower end of its interval."""
UPPER = (1 + CONFIDENCE) / 2
"""The same for the upper end."""


_LEADING_ZERO = re.compile(r"^([+-]?)0\.")


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
        return self._with_interval("z.2f")

    @property
    def signed(self) -> str:
        """The same for a difference: +.02 [-.01, +.05]."""
        return self._with_interval("+z.2f")

    @property
    def short(self) -> str:
        """The number alone: .92."""
        return shortened(self.value)

    def _with_interval(self, spec: str) -> str:
        value, low, high = [shortened(number, spec) for number in self]
        return f"{value} [{low}, {high}]"


def percentiles(value: float, resampled: FloatArray) -> Estimate:
    """The value with the interval of the middle 95 % of the resampled values."""
    low, high = np.quantile(resampled, [LOWER, UPPER])
    return Estimate(float(value), float(low), float(high))


def interval_of_auc(value: float, members: int, nonmembers: int) -> tuple[float, float]:
    """95 % interval of an AUC by the numbers of groups alone: Newcombe's method 5 (2006), made for few of a side.

    It holds each θ within z standard errors of the value: (value − θ)² ≤ z² Var(θ), with Hanley and McNeil's
    Var(θ) = θ (1 − θ) (1 + h (1 − θ) / (2 − θ) + h θ / (1 + θ)) / (mn) and h = (m + n) / 2 − 1.
    """
    z = float(stats.norm.ppf(UPPER))
    half = (members + nonmembers) / 2 - 1

    def excess(theta: float) -> float:
        miss = 1 - theta
        inner = 1 + half * miss / (2 - theta) + half * theta / (1 + theta)
        return (value - theta) ** 2 - z * z * theta * miss * inner / (members * nonmembers)

    # at 0 and at 1 the variance is zero
    least = 1e-12
    most = 1 - least
    inside = min(max(value, least), most)
    low = 0.0
    high = 1.0
    if inside > least:
        low = float(optimize.brentq(excess, least, inside))
    if inside < most:
        high = float(optimize.brentq(excess, inside, most))
    return low, high


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
    degrees = math.inf
    if seeds:
        degrees = (values.size - 1) * (squared / seeds) ** 2
    return math.sqrt(squared), degrees


def interval(
    values: FloatArray, over_texts: float, *, within: tuple[float, float] = (-math.inf, math.inf)
) -> tuple[float, float]:
    """Student's 95 % interval of the mean of S values, see `standard_error`, as far as a mean can be: `within`."""
    error, degrees = standard_error(values, over_texts)
    half = stats.t.ppf(UPPER, degrees) * error
    mean = values.mean()
    low, high = np.clip([mean - half, mean + half], *within)
    return float(low), float(high)


def observed_rate(called: BoolArray, groups: Groups = None) -> Estimate:
    """Share of N ≥ 1 texts for which `called` is true, with an exact interval that accounts for groups.

    It is Clopper and Pearson's at the effective sample size of Korn and Graubard (1998, Survey Methodology 24(2),
    193-201): n over the factor by which grouping inflates the variance; the number of groups if all texts agree.
    """
    group = group_index(groups, called.size)
    share = float(called.mean())
    size = float(group.max() + 1)
    # without groups, or without any variance, there is no design effect to estimate
    if 0 < share < 1 and 1 < size < called.size:
        sums = np.bincount(group, weights=called - share)
        variance = size / (size - 1) * float(sums @ sums) / called.size**2
        size = min(called.size, max(1.0, share * (1 - share) / max(variance, 1e-12) + 1))
    hits = share * size
    misses = (1 - share) * size
    low = 0.0
    if hits > 0:
        low = float(stats.beta.ppf(LOWER, hits, misses + 1))
    high = 1.0
    if misses > 0:
        high = float(stats.beta.ppf(UPPER, hits + 1, misses))
    return Estimate(share, low, high)
