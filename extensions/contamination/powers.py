"""What the tests of a data set would have found, simulated on the scores that they were given."""

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.random import Generator

from fsd.evaluation.findings import Finding
from fsd.statistics.intervals import Estimate
from fsd.statistics.power import READ, choice_power, power, resamples_for
from fsd.statistics.ranks import rank_among
from fsd.token_stats import FloatArray, Scores
from fsd.verdicts.dataset_inference import dataset_verdict
from pipelines.experiment.power_sentences import by_times, simulated_power

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


class Simulated(NamedTuple):
    """A test, and how often it finds a set that was read once, twice and five times."""

    test: str
    by_times: dict[int, Estimate]

    @property
    def metrics(self) -> dict[str, float]:
        """The shares under the names by which they are tracked."""
        return {f"contamination_power/read_{times}": share.value for times, share in self.by_times.items()}

    @property
    def finding(self) -> Finding:
        """The shares in a sentence."""
        return simulated_power("data sets", self.by_times, self.test)


def order_power(test: str, sums: Sequence[FloatArray], level: float, seed: int) -> Simulated:
    """The test of order: in each shard another order is taken for the published one, and made likelier.

    `sums` are the log-probabilities of the orders of each shard.
    """
    return Simulated(test, by_times(READ, lambda shift: choice_power(sums, shift, level, seed)))


def inference_power(test: str, nonmembers: FloatArray, sizes: tuple[int, int], level: float, seed: int) -> Simulated:
    """Dataset inference, see `set_power`."""
    return Simulated(test, by_times(READ, lambda shift: set_power(nonmembers, sizes, shift, level, seed)))


def rank_power(test: str, numbers: FloatArray, shifts: Mapping[int, float], level: float, seed: int) -> Simulated:
    """The rank of the data set's number, made higher, among those of as many unread sets as there are `numbers`."""

    def of_shift(shift: float) -> Estimate:
        def p_value(rng: np.random.Generator) -> float:
            value, unread = planted_number(numbers, shift, rng)
            return rank_among(value, unread.tolist())

        return power(p_value, level, seed=seed)

    return Simulated(test, by_times(shifts, of_shift))


def set_power(nonmembers: FloatArray, sizes: tuple[int, int], shift: float, level: float, seed: int) -> Estimate:
    """How often dataset inference finds a set that was read: both sets are drawn from the known non-members.

    `nonmembers` are (M, D) scores of families; `sizes` are the numbers of families of the data set and of these.
    """
    permutations = resamples_for(level)

    def p_value(rng: np.random.Generator) -> float:
        suspect, unread = planted_sets(nonmembers, sizes, shift, rng)
        verdict = dataset_verdict(
            _named(suspect), _named(unread), permutations=permutations, seed=int(rng.integers(2**31))
        )
        # It is withheld only for a blind classifier, and none is given.
        assert verdict.p is not None
        return verdict.p

    return power(p_value, level, seed=seed)


def _named(rows: FloatArray) -> Scores:
    return {str(number): column for number, column in enumerate(rows.T)}


def strongest(simulated: Sequence[Simulated]) -> Simulated:
    """The test that finds most, over all numbers of readings."""
    return max(simulated, key=lambda test: sum(share.value for share in test.by_times.values()))


def planted_sets(
    scores: FloatArray, sizes: tuple[int, int], shift: float, rng: Generator
) -> tuple[FloatArray, FloatArray]:
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


def planted_number(numbers: FloatArray, shift: float, rng: Generator) -> tuple[float, FloatArray]:
    """The number of a set that was read, and those of R sets that were not, by the (R,) numbers of unread sets.

    All are normal with their mean and standard deviation, and the first is `shift` standard deviations higher: drawn
    from the R numbers themselves, it would often equal one that it is compared with.
    """
    spread = 0.0
    if numbers.size > 1:
        spread = numbers.std(ddof=1)
    drawn = rng.normal(numbers.mean(), spread, numbers.size + 1)
    return float(drawn[0]) + shift * spread, drawn[1:]
