"""Exact p-values by ranks: of published variants among their alternatives, and of a set among others."""

from collections.abc import Sequence

import numpy as np

from fsd.errors import UsageError
from fsd.statistics.conformal import conformal_p
from fsd.token_stats import FloatArray

RESAMPLES = 99_999
"""Random choices of variants with which the published ones are compared."""


def check_level(name: str, level: float) -> None:
    """Refuse a significance level that is not between 0 and 1."""
    if not 0 < level < 1:
        raise UsageError(f"{name} must be between 0 and 1; got {level:g}")


def z_scores(values: FloatArray) -> FloatArray:
    """(N,) values less their mean, in standard deviations; zeros if all are equal."""
    spread = values.std()
    # Equal scores prefer no variant; without this branch they would be 0 / 0.
    return (values - values.mean()) / spread if spread > 0 else np.zeros(len(values))


def rank_p(scores: FloatArray, published: int) -> float:
    """Exact p-value of one document: the share of its (N,) variants that score at least like the published one."""
    # Ties count against the claim, and the published variant is one of those that score like it: p is at least 1/N.
    return float(np.mean(scores >= scores[published]))


def combined_p(
    scores: Sequence[FloatArray], published: Sequence[int], *, resamples: int = RESAMPLES, seed: int = 0
) -> float:
    """Exact p-value of all documents together, by drawing the published variants anew.

    The statistic is the sum over documents of the published variant's z-score among its variants. Under the null
    hypothesis the published variants are one of the equally likely choices, so (1 + #{draws ≥ observed}) / (1 + B) is
    valid for every number B of draws (Phipson and Smyth 2010, https://arxiv.org/abs/1603.05766).
    """
    rng = np.random.default_rng(seed)
    drawn = np.zeros(resamples)
    # Documents have scores of different spread; as z-scores none of them decides alone.
    observed = 0.0
    for values, index in zip(scores, published, strict=True):
        z = z_scores(values)
        observed += z[index]
        drawn += z[rng.integers(0, len(z), resamples)]
    # Sums in another order differ by rounding. Equal ones count against the claim.
    slack = 1e-9 * max(1.0, abs(observed))
    return (1 + np.count_nonzero(drawn >= observed - slack)) / (1 + resamples)


def rank_among(value: float, reference: Sequence[float]) -> float:
    """p-value of a set: its rank among R equally large reference sets, (1 + #{reference ≥ value}) / (1 + R)."""
    return float(conformal_p(np.array([value]), np.array(reference))[0])
