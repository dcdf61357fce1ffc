"""What the tests of a data set would have found, simulated on the scores that they were given."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from extensions.canary.powers import choice_power
from extensions.contamination.dataset_tests import rank_among
from fsd.evaluation.findings import Finding
from fsd.statistics.intervals import Estimate
from fsd.statistics.power import READ, planted_number, planted_sets, power, resamples_for
from fsd.token_stats import FloatArray, Scores
from fsd.verdicts.dataset_inference import dataset_verdict
from pipelines.experiment.power_sentences import by_times, simulated_power


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
