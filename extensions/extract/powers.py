"""What an extraction would have found, simulated on the passages of its controls."""

import math
from collections.abc import Sequence
from functools import partial

import numpy as np
from numpy.random import Generator

from extensions.extract.extraction import BLOCK, LEVELS, Work
from fsd.evaluation.findings import Finding
from fsd.statistics.intervals import Estimate, observed_rate
from fsd.statistics.power import power
from fsd.token_stats import BoolArray, FloatArray, IntArray
from pipelines.experiment.power_sentences import by_times, simulated_power

READ_PASSAGE = {1: 0.5, 2: 1.0, 5: 2.3}
"""Times that a work was read → decades by which the probability of 20 of its tokens rises."""
DECADE = 20
"""Tokens of a continuation whose probability rises by the decades of `READ_PASSAGE`."""


def extraction_power(work: Work, controls: Sequence[Work]) -> Finding:
    """How often a work that was read is distinguished from its controls.

    The simulated work has as many blocks of passages as `work`, drawn from the controls and made more probable. As in
    the answer, its share above the lowest level has to have an interval above that of the controls.
    """
    log_p = np.concatenate([control.log_p for control in controls])
    blocks = _blocks(controls)
    highest = observed_rate(_extractable(log_p), blocks.tolist()).high
    count = len(np.unique(_blocks([work])))

    def missed(rng: np.random.Generator, decades: float) -> float:
        rise = decades * math.log(10) * work.suffix / DECADE
        planted, of_block = planted_passages(log_p, blocks, count, rise, rng)
        share = observed_rate(_extractable(planted), of_block.tolist())
        # `power` counts what is at most its level as found. This is no p-value but 0 or 1, so the level is 0.
        return float(share.low <= highest)

    def power_at(decades: float) -> Estimate:
        return power(partial(missed, decades=decades), 0.0, seed=0)

    return simulated_power("works", by_times(READ_PASSAGE, power_at), "this comparison")


def _extractable(log_p: FloatArray) -> BoolArray:
    return log_p >= math.log(LEVELS[0])


def _blocks(works: Sequence[Work]) -> IntArray:
    """The block of each passage, numbered apart for each work: overlapping passages are related."""
    blocks = []
    start = 0
    for work in works:
        of_work = start + work.starts // (BLOCK * (work.prefix + work.suffix))
        blocks.append(of_work)
        start = int(of_work.max()) + 1
    return np.concatenate(blocks)


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
