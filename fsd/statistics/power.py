"""Power: how often a test finds what is there, on scores of unread texts that are raised as if they had been read.

How far a reading raises scores depends on the model. `READ`, `READ_CANARY` and `READ_PASSAGE` are what our small models
of known training data did (docs/evidence/data_sets.tsv, canaries.tsv and extraction.tsv), and so are `READ_KERNEL` and
`READ_CODEC`: a larger model may remember more of a text, or less.
"""

import math
from collections.abc import Callable, Sequence

import numpy as np
from numpy.random import Generator, default_rng

from fsd.statistics.groups import Groups
from fsd.statistics.intervals import Estimate, observed_rate
from fsd.token_stats import FloatArray, IntArray

READ = {1: 0.5, 2: 0.7, 5: 1.1}
"""Times that a text was read → standard deviations by which its score rises: .5 √times.

At .5 and .7, simulated sets of 23 texts beside 46 others are found as often as those read once and twice were.
"""
READ_CANARY = {1: 0.1, 2: 0.3, 5: 1.1}
"""The same for a canary among its variants: from the median p-values, −Φ⁻¹(p); five times between four and eight."""
READ_PASSAGE = {1: 0.5, 2: 1.0, 5: 2.3}
"""Times that a work was read → decades by which the probability of 20 of its tokens rises."""
READ_KERNEL = {1: 0.5, 2: 0.5, 5: 0.7}
"""Times that a set was read → standard deviations of sets' numbers by which its kernel divergence rises.

From the median p-values of sets of 11, −Φ⁻¹(p): their mean of once to four times, and between that and eight times.
"""
READ_CODEC = {1: 0.0, 2: 0.0, 5: 0.0}
"""The same for CoDeC, whose number was the same for sets that our models had read and for others."""
DRAWS = 100
"""Simulated data sets for one power."""
MOST = 2000
"""Texts of a side in a simulated data set; more would cost minutes, and are found more often."""
SMOOTHED = 0.5
"""Noise that is added to scores drawn with replacement, in their standard deviations."""
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


def planted_passages(
    log_p: FloatArray, blocks: IntArray, count: int, rise: float, rng: Generator
) -> tuple[FloatArray, IntArray]:
    """Log-probabilities of the passages of a work that was read, and their blocks.

    They are `count` blocks of unread ones, drawn with replacement, and `rise` nats likelier.
    """
    drawn = rng.choice(np.unique(blocks), count)
    parts = [log_p[blocks == name] for name in drawn]
    lengths = [part.size for part in parts]
    return np.concatenate(parts) + rise, np.repeat(np.arange(count), lengths)


def raised_above(scores: FloatArray, threshold: float, shift: float, groups: Groups = None) -> Estimate:
    """Share of unread texts that reach a threshold once their scores are `shift` standard deviations higher."""
    return observed_rate(scores + shift * scores.std() >= threshold, groups)
