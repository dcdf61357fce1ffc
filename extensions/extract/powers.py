"""What an extraction would have found, simulated on the passages of its controls."""

import math

import numpy as np
from numpy.random import Generator

from extensions.extract.extraction import LEVELS, Array, Side
from fsd.api import Finding, observed_rate, power
from pipelines.api import by_times, simulated_power

READ_PASSAGE = {1: 0.5, 2: 1.0, 5: 2.3}
"""Times that a work was read → decades by which the probability of 20 of its tokens rises."""
DECADE = 20
"""Tokens of a continuation whose probability rises by the decades of `READ_PASSAGE`."""


def extraction_power(work: Side, controls: Side) -> Finding:
    """How often a work that was read is distinguished from its controls.

    The simulated work has as many blocks of passages as `work`, drawn from the controls and made more probable. As in
    the answer, its share above the lowest level has to have an interval above that of the controls.
    """
    least = math.log(LEVELS[0])
    nats = math.log(10) * work.works[0].suffix / DECADE
    highest = observed_rate(controls.log_p >= least, controls.blocks.tolist()).high

    def missed(rng: Generator, decades: float) -> float:
        planted, blocks = planted_passages(controls, work.highest.size, decades * nats, rng)
        share = observed_rate(planted >= least, blocks.tolist())
        # `power` counts what is at most its level as found. This is no p-value but 0 or 1, so the level is 0.
        return float(share.low <= highest)

    powers = by_times(READ_PASSAGE, lambda decades: power(lambda rng: missed(rng, decades), 0.0, seed=0))
    return simulated_power("works", powers, "this comparison")


def planted_passages(unread: Side, count: int, rise: float, rng: Generator) -> tuple[Array, Array]:
    """Log-probabilities of the passages of a work that was read, and their blocks.

    They are `count` blocks of unread ones, drawn with replacement, and `rise` nats likelier.
    """
    drawn = rng.choice(unread.highest.size, count)
    parts = [unread.log_p[unread.blocks == block] for block in drawn]
    lengths = [part.size for part in parts]
    return np.concatenate(parts) + rise, np.repeat(np.arange(count), lengths)
