"""What a test of canaries, or of an order, would have found, simulated on the scores of its variants."""

from collections.abc import Sequence

import numpy as np

from extensions.canary.canaries import combined_p
from fsd.evaluation.findings import Finding
from fsd.statistics.intervals import Estimate
from fsd.statistics.power import READ_CANARY, planted_choice, power, resamples_for
from fsd.token_stats import FloatArray
from pipelines.experiment.power_sentences import by_times, simulated_power


def choice_power(values: Sequence[FloatArray], shift: float, level: float, seed: int) -> Estimate:
    """How often the test of all documents finds variants that were read: others are drawn, and made likelier.

    `values` are the scores of the variants of each document, `shift` is in their standard deviations.
    """
    resamples = resamples_for(level)

    def p_value(rng: np.random.Generator) -> float:
        planted, indices = planted_choice(values, shift, rng)
        return combined_p(planted, indices, resamples=resamples, seed=int(rng.integers(2**31)))

    return power(p_value, level, seed=seed)


def canary_power(values: Sequence[FloatArray], level: float, seed: int) -> Finding:
    """The same for canaries that were read once, twice and five times; `level` is corrected for the detectors."""
    powers = by_times(READ_CANARY, lambda shift: choice_power(values, shift, level, seed))
    return simulated_power(f"sets of {len(values)} documents", powers, "the exact test")
