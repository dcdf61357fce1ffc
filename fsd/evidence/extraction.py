"""Probabilistic extraction: how likely a model is to continue a passage of a work with the work's own words.

For a passage of a prefix and a suffix, p_z = exp Σ log p(suffix token | prefix, earlier suffix tokens) is the
probability that one query with the prefix returns the suffix (Hayes et al. 2024, https://arxiv.org/abs/2410.19482;
whole books: Cooper et al. 2025, https://arxiv.org/abs/2505.12546). A control work shows what can be guessed.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fsd.errors import UsageError, at_least
from fsd.evaluation.calibration import observed_rate
from fsd.evaluation.metrics import BoolArray, Estimate
from fsd.token_stats import FloatArray, IntArray

LEVELS = (0.001, 0.01, 0.5)
"""Values of p_z from which a passage counts as extractable in a table: .1 %, 1 % and 50 %."""
BLOCK = 2
"""Length, in passages, of the blocks that intervals take as independent; passages that overlap are not."""


@dataclass(frozen=True)
class Work:
    """A text, with (T,) token ids, and its passages of `prefix` given and `suffix` generated tokens."""

    name: str
    tokens: IntArray
    starts: IntArray
    """(W,) positions at which the passages begin, ascending."""
    log_p: FloatArray
    """(W,) log p_z of each passage, in nats."""
    prefix: int
    suffix: int

    def suffixes(self, log_level: float) -> BoolArray:
        """(T,) whether a token is in the suffix of a passage with log p_z at least `log_level`."""
        edges = np.zeros(self.tokens.size + 1, dtype=np.int64)
        chosen = self.starts[self.log_p >= log_level] + self.prefix
        np.add.at(edges, chosen, 1)
        np.add.at(edges, chosen + self.suffix, -1)
        return edges[:-1].cumsum() > 0

    def best(self, count: int) -> list[int]:
        """Indices of the `count` passages with the highest p_z whose suffixes do not overlap."""
        chosen: list[int] = []
        for at in np.argsort(-self.log_p, kind="stable"):
            if len(chosen) == count or not math.isfinite(self.log_p[at]):
                break
            if all(abs(int(self.starts[at]) - int(self.starts[other])) >= self.suffix for other in chosen):
                chosen.append(int(at))
        return chosen

    def profile(self, bins: int) -> FloatArray:
        """(`bins`,) highest log₁₀ p_z of the passages whose suffix is centred in each equal part of the work."""
        centre = self.starts + self.prefix + self.suffix / 2
        place = np.minimum((centre * bins / self.tokens.size).astype(int), bins - 1)
        highest = np.full(bins, -np.inf)
        np.maximum.at(highest, place, self.log_p / math.log(10))
        return highest


def passages(tokens: IntArray, prefix: int, suffix: int, stride: int) -> tuple[IntArray, IntArray]:
    """(W,) starts and (W, `prefix` + `suffix`) token ids of the passages of (T,) tokens, one every `stride` tokens."""
    at_least(1, " token", prefix=prefix, suffix=suffix, stride=stride)
    length = prefix + suffix
    if tokens.size < length:
        raise UsageError(f"a work must have at least {length} tokens, prefix and suffix; got {tokens.size}")
    starts = np.arange(0, tokens.size - length + 1, stride)
    return starts, np.lib.stride_tricks.sliding_window_view(tokens, length)[starts]


def queries(log_p: float, chance: float = 0.5) -> float:
    """Number of queries that return a passage at least once with probability `chance`: log(1 − chance) / log(1 − p_z).

    With log p_z in nats; a whole number, at least 1, and infinity if the passage cannot be returned.
    """
    if log_p == -math.inf:
        return math.inf
    p = math.exp(log_p)
    if p >= chance:
        return 1.0
    # log1p(−p) is −p where p is too small for a float64
    per_query = -math.log1p(-p) if p > 0 else 0.0
    return math.ceil(-math.log1p(-chance) / per_query - 1e-9) if per_query else math.inf


def ratio(work: Estimate, control: Estimate) -> Estimate:
    """Ratio of two shares with a conservative interval, from the ends of both intervals; infinite if undefined."""

    def divided(above: float, below: float) -> float:
        return above / below if below > 0 else math.inf if above > 0 else math.nan

    return Estimate(
        divided(work.value, control.value), divided(work.low, control.high), divided(work.high, control.low)
    )


def coverage(works: Sequence[Work], level: float) -> Estimate:
    """Share of the works that lies in the suffix of a passage with p_z at least `level`, with its interval.

    The tokens of a block, `BLOCK` passages long, count as related; those in no suffix of any passage are left out.
    """
    flags, blocks = [], []
    for number, work in enumerate(works):
        inside, covered = work.suffixes(-math.inf), work.suffixes(math.log(level))
        flags.append(covered[inside])
        blocks += [(number, int(block)) for block in np.flatnonzero(inside) // (BLOCK * (work.prefix + work.suffix))]
    return observed_rate(np.concatenate(flags), blocks)
