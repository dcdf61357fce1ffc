"""Probabilistic extraction: how likely a model is to continue a passage of a work with the work's own words.

For a passage of a prefix and a suffix, p_z = exp Σ log p(suffix token | prefix, earlier suffix tokens) is the
probability that one query with the prefix returns the suffix (Hayes et al. 2024, https://arxiv.org/abs/2410.19482;
whole books: Cooper et al. 2025, https://arxiv.org/abs/2505.12546). A control work shows what can be guessed.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from fsd.api import Estimate, UsageError, observed_rate

LEVELS = (0.001, 0.01, 0.5)
"""Values of p_z from which a passage counts as extractable in a table: .1 %, 1 % and 50 %."""
BLOCK = 2
"""Length, in passages, of the blocks that intervals take as independent; passages that overlap are not."""
Array = NDArray[Any]


@dataclass(frozen=True)
class Work:
    """A text, with (T,) token ids, and its passages of `prefix` given and `suffix` generated tokens."""

    name: str
    tokens: Array
    starts: Array
    """(W,) positions at which the passages begin, ascending."""
    log_p: Array
    """(W,) log p_z of each passage, in nats."""
    prefix: int
    suffix: int

    def suffixes(self, log_level: float) -> Array:
        """(T,) whether a token is in the suffix of a passage with log p_z at least `log_level`."""
        covered = np.zeros(self.tokens.size, dtype=bool)
        for start in self.starts[self.log_p >= log_level] + self.prefix:
            covered[start : start + self.suffix] = True
        return covered

    @property
    def passages(self) -> Array:
        """(W, `prefix` + `suffix`) token ids of the passages."""
        return sliding_window_view(self.tokens, self.prefix + self.suffix)[self.starts]

    def block(self, positions: Array) -> Array:
        """The block in which tokens lie, each `BLOCK` passages long: what overlaps is no independent evidence."""
        return positions // (BLOCK * (self.prefix + self.suffix))

    def best(self, count: int) -> list[int]:
        """Indices of the `count` passages with the highest p_z whose suffixes do not overlap."""
        chosen: list[int] = []
        # Stable, so that the earlier of two equal passages stands for both.
        for index in np.argsort(-self.log_p, kind="stable").tolist():
            if len(chosen) == count or not math.isfinite(self.log_p[index]):
                break
            # Neighbouring passages share most of their suffix: a table of them would show one place ten times.
            distances = np.abs(self.starts[chosen] - self.starts[index])
            if (distances >= self.suffix).all():
                chosen.append(index)
        return chosen

    def profile(self, bins: int) -> Array:
        """(`bins`,) highest log₁₀ p_z of the passages whose suffix is centred in each equal part of the work."""
        centre = self.starts + self.prefix + self.suffix / 2
        part = (centre * bins / self.tokens.size).astype(int)
        return _highest(part, bins, self.log_p / math.log(10))


def _highest(groups: Array, count: int, values: Array) -> Array:
    """(`count`,) highest of the values of each group; −∞ for a group without any."""
    highest = np.full(count, -np.inf)
    # Unlike `highest[groups] = ...`, `at` takes every value of a group into account, not the last one alone.
    np.maximum.at(highest, groups, values)
    return highest


def passages(tokens: Array, prefix: int, suffix: int, stride: int) -> Array:
    """(W,) starts of the passages of (T,) tokens, one every `stride` tokens; a UsageError for too few tokens."""
    length = prefix + suffix
    if tokens.size < length:
        raise UsageError(f"a work must have at least {length} tokens, prefix and suffix; got {tokens.size}")
    return np.arange(0, tokens.size - length + 1, stride)


class Side:
    """Works that are taken together: the one in question, or its controls."""

    def __init__(self, works: Sequence[Work]) -> None:
        self.works = works

    @cached_property
    def log_p(self) -> Array:
        """(W,) log p_z of the passages of all works."""
        return np.concatenate([work.log_p for work in self.works])

    @cached_property
    def blocks(self) -> Array:
        """(W,) the block of each passage, numbered from 0 without gaps and apart for each work."""
        blocks = []
        for number, work in enumerate(self.works):
            blocks += [(number, block) for block in work.block(work.starts).tolist()]
        _, numbers = np.unique(blocks, axis=0, return_inverse=True)
        return numbers.ravel()

    @cached_property
    def highest(self) -> Array:
        """(B,) highest log p_z of each block; passages of a block return the same words."""
        return _highest(self.blocks, int(self.blocks.max()) + 1, self.log_p)

    def coverage(self, level: float) -> Estimate:
        """Share of the works that lies in the suffix of a passage with p_z at least `level`, with its interval.

        The tokens of a block count as related; those in no suffix of any passage are left out.
        """
        covered = []
        blocks = []
        for number, work in enumerate(self.works):
            inside = work.suffixes(-math.inf)
            covered.append(work.suffixes(math.log(level))[inside])
            # Overlapping passages return the same words: their tokens are counted in blocks, not one by one.
            blocks += [(number, block) for block in work.block(np.flatnonzero(inside)).tolist()]
        return observed_rate(np.concatenate(covered), blocks)


def queries(log_p: float, chance: float = 0.5) -> float:
    """Number of queries that return a passage at least once with probability `chance`: log(1 − chance) / log(1 − p_z).

    With log p_z in nats; a whole number, at least 1, and infinity if the passage cannot be returned.
    """
    # 0 for log p_z below −745 too, which no float64 holds.
    p = math.exp(log_p)
    if p >= chance:
        return 1.0
    if p == 0:
        return math.inf
    # log1p keeps the digits of a small p that 1 − p would round away. The slack is for quotients such as
    # 1.0000000000000002, which would need a query more.
    return math.ceil(math.log1p(-chance) / math.log1p(-p) - 1e-9)


def ratio(work: Estimate, control: Estimate) -> Estimate:
    """Ratio of two shares with a conservative interval from the ends of both; infinite by 0, NaN for 0 by 0."""
    # The lowest quotient of two intervals has the lower end above and the upper end below.
    return Estimate(
        _quotient(work.value, control.value), _quotient(work.low, control.high), _quotient(work.high, control.low)
    )


def _quotient(numerator: float, denominator: float) -> float:
    """A quotient of shares; infinite by 0, and undefined for 0 by 0."""
    if denominator > 0:
        return numerator / denominator
    if numerator > 0:
        return math.inf
    return math.nan


def lead(work: Array, controls: Array) -> tuple[int, float]:
    """Number of a work's (B,) blocks above all (C,) of its controls, and p of at least so many; 1 where there is none.

    If all blocks are alike, each order of them is equally likely: the chance that the k highest of B + C are all of the
    work is the product of (B − i)/(B + C − i) over i < k.
    """
    count = int((work > controls.max()).sum())
    place = np.arange(count)
    return count, float(np.prod((work.size - place) / (work.size + controls.size - place)))
