"""What the tests of a data set would have found, simulated on the scores that they were given."""

from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

import numpy as np

from fsd.evaluation.dataset_inference import dataset_verdict
from fsd.evaluation.findings import Finding
from fsd.evidence.canaries import combined_p
from fsd.statistics.intervals import Estimate
from fsd.statistics.power import READ, planted_choice, planted_sets, power, resamples_for
from fsd.token_stats import FloatArray
from pipelines.common.power_sentences import by_times, simulated_power


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


def order_power(
    test: str,
    sums: Sequence[FloatArray],
    level: float,
    seed: int,
) -> Simulated:
    """The test of order: in each shard another order is taken for the published one, and made likelier.

    `sums` are the log-probabilities of the orders of each shard.
    """
    resamples = resamples_for(level)

    def p_value(rng: np.random.Generator, shift: float) -> float:
        planted, indices = planted_choice(sums, shift, rng)
        return combined_p(planted, indices, resamples=resamples, seed=int(rng.integers(2**31)))

    return Simulated(test, by_times(READ, lambda shift: power(partial(p_value, shift=shift), level, seed=seed)))


def inference_power(
    test: str,
    nonmembers: FloatArray,
    sizes: tuple[int, int],
    level: float,
    seed: int,
) -> Simulated:
    """Dataset inference: both sets are drawn from the known non-members, and the scores of one are raised.

    `nonmembers` are (M, D) scores of families; `sizes` are the numbers of families of the data set and of these.
    """
    permutations = resamples_for(level)

    def p_value(rng: np.random.Generator, shift: float) -> float:
        columns = [dict(enumerate(rows.T)) for rows in planted_sets(nonmembers, sizes, shift, rng)]
        suspect, known = [{str(name): column for name, column in side.items()} for side in columns]
        verdict = dataset_verdict(suspect, known, permutations=permutations, seed=int(rng.integers(2**31)))
        # It is withheld only for a blind classifier, and none is given.
        assert verdict.p is not None
        return verdict.p

    return Simulated(test, by_times(READ, lambda shift: power(partial(p_value, shift=shift), level, seed=seed)))


def strongest(simulated: Sequence[Simulated]) -> Simulated:
    """The test that finds most, over all numbers of readings."""
    return max(simulated, key=lambda test: sum(share.value for share in test.by_times.values()))
