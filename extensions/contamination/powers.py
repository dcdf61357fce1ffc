"""What the tests of a data set would have found, simulated on the scores that they were given."""

import math
from typing import Any

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from fsd.api import Estimate, dataset_verdict, power, rank_among, resamples_for

READ_KERNEL = {1: 0.5, 2: 0.5, 5: 0.7}
"""Times that a set was read → standard deviations of sets' numbers by which its kernel divergence rises.

From the median p-values of sets of 11, −Φ⁻¹(p): their mean of once to four times, and between that and eight times.
"""
READ_CODEC = {1: 0.0, 2: 0.0, 5: 0.0}
"""The same for CoDeC, whose number was the same for sets that our models had read and for others."""
MOST = 2000
"""Texts of a side in a simulated data set; more would cost minutes, and are found more often."""
SMOOTHED = 0.5
"""Noise that is added to scores drawn with replacement, in their standard deviations."""
Floats = NDArray[np.float64]


def rank_power(numbers: Floats, shift: float, level: float, seed: int) -> Estimate:
    """How often a rank finds a set that was read, whose number is `shift` standard deviations higher.

    The set is among as many unread ones as there are (R,) `numbers`.
    """

    def p_value(rng: Generator) -> float:
        value, unread = planted_number(numbers, shift, rng)
        return rank_among(value, unread.tolist())

    return power(p_value, level, seed=seed)


def set_power(nonmembers: Floats, sizes: tuple[int, int], shift: float, level: float, seed: int) -> Estimate:
    """How often dataset inference finds a set that was read: both sets are drawn from the known non-members.

    `nonmembers` are (M, D) scores of families; `sizes` are the numbers of families of the data set and of these.
    """
    permutations = resamples_for(level)

    def p_value(rng: Generator) -> Any:
        suspect, unread = map(_named, planted_sets(nonmembers, sizes, shift, rng))
        # It is withheld only for a blind classifier, and none is given.
        return dataset_verdict(suspect, unread, permutations=permutations, seed=int(rng.integers(2**31))).p

    return power(p_value, level, seed=seed)


def _named(rows: Floats) -> dict[str, Floats]:
    return {str(number): column for number, column in enumerate(rows.T)}


def planted_sets(scores: Floats, sizes: tuple[int, int], shift: float, rng: Generator) -> tuple[Floats, Floats]:
    """A set that was read and one that was not, of these sizes and at most `MOST`, drawn from unread texts.

    Rows of the (N, D) scores are drawn with replacement, and smoothed. Those of the first set are raised by `shift`
    standard deviations of each column.
    """
    n, m = (min(size, MOST) for size in sizes)
    drawn = scores[rng.integers(len(scores), size=n + m)]
    # Copies of a text would stand in both halves of a test that fits to one and tests on the other: it would find more.
    detectors = scores.shape[1]
    # A single detector has a variance in place of a matrix.
    covariance = np.cov(scores.T, bias=True).reshape(detectors, detectors)
    noise = rng.multivariate_normal(np.zeros(detectors), covariance, n + m, check_valid="ignore")
    centre = scores.mean(axis=0)
    # Means and covariances remain those of the scores.
    scale = math.sqrt(1 + SMOOTHED**2)
    rows = centre + (drawn - centre + SMOOTHED * noise) / scale
    return rows[:n] + shift * scores.std(axis=0), rows[n:]


def planted_number(numbers: Floats, shift: float, rng: Generator) -> tuple[float, Floats]:
    """The number of a set that was read, and those of R sets that were not, by the (R,) numbers of unread sets.

    All are normal with their mean and standard deviation, and the first is `shift` standard deviations higher: drawn
    from the R numbers themselves, it would often equal one that it is compared with.
    """
    spread = 0.0
    if numbers.size > 1:
        spread = numbers.std(ddof=1)
    drawn = rng.normal(numbers.mean(), spread, numbers.size + 1)
    return float(drawn[0]) + shift * spread, drawn[1:]
