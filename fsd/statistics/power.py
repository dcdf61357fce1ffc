"""Power: how often a test finds what is there, on scores of unread texts that are raised as if they had been read.

How far a reading raises scores depends on the model. `READ` is what our small models of known training data did
(docs/evidence/data_sets.tsv), as are the numbers of extensions: a larger model may remember more of a text, or less.
"""

import math
from collections.abc import Callable, Sequence

import numpy as np
from numpy.random import Generator, default_rng

from fsd.statistics.groups import Groups
from fsd.statistics.intervals import Estimate, observed_rate
from fsd.statistics.ranks import combined_p
from fsd.token_stats import FloatArray

READ = {1: 0.5, 2: 0.7, 5: 1.1}
"""Times that a text was read → standard deviations by which its score rises: .5 √times.

At .5 and .7, simulated sets of 23 texts beside 46 others are found as often as those read once and twice were.
"""
DRAWS = 100
"""Simulated data sets for one power."""
_SLACK = 1e-9

Draw = Callable[[Generator], float]


def power(p_value: Draw, level: float, *, draws: int = DRAWS, seed: int = 0) -> Estimate:
    """Share of simulated data sets whose p-value is at most `level`, with its interval."""
    rng = default_rng(seed)
    p_values = np.array([p_value(rng) for _ in range(draws)])
    return observed_rate(p_values <= level + _SLACK)


def resamples_for(level: float) -> int:
    """Resamples of a simulated test whose smallest p-value is well below `level`: 199 or more."""
    return max(199, math.ceil(4 / level) - 1)


def planted_choice(values: Sequence[FloatArray], shift: float, rng: Generator) -> tuple[list[FloatArray], list[int]]:
    """Scores of the variants of each document, of which one was read, and its index.

    The index is drawn, and its score raised by `shift` standard deviations of the document's scores.
    """
    planted = []
    indices = []
    for scores in values:
        index = int(rng.integers(len(scores)))
        raised = scores.copy()
        raised[index] += shift * scores.std()
        planted.append(raised)
        indices.append(index)
    return planted, indices


def raised_above(scores: FloatArray, threshold: float, shift: float, groups: Groups = None) -> Estimate:
    """Share of unread texts that reach a threshold once their scores are `shift` standard deviations higher."""
    return observed_rate(scores + shift * scores.std() >= threshold, groups)


def choice_power(values: Sequence[FloatArray], shift: float, level: float, seed: int) -> Estimate:
    """How often the test of all documents finds variants that were read: others are drawn, and made likelier.

    `values` are the scores of the variants of each document, `shift` is in their standard deviations.
    """
    resamples = resamples_for(level)

    def p_value(rng: np.random.Generator) -> float:
        planted, indices = planted_choice(values, shift, rng)
        return combined_p(planted, indices, resamples=resamples, seed=int(rng.integers(2**31)))

    return power(p_value, level, seed=seed)
