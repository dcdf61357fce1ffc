"""Resamples of groups, the same for every score, so that differences are paired."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.random import default_rng
from numpy.typing import ArrayLike, NDArray

from fsd.errors import UsageError
from fsd.statistics.groups import Groups, group_index
from fsd.token_stats import BoolArray, FloatArray, IntArray

BLOCK = 150_000
"""Numbers in one block of resamples: few enough to stay in the processor's cache."""


def resampled(sides: Sequence[IntArray], *, resamples: int = 1000, seed: int = 0) -> NDArray[np.uint16]:
    """(G, R) how often each of R resamples contains each group of the texts of some sides, none of them left empty."""
    rng = default_rng(seed)
    size = max(groups.max() for groups in sides) + 1
    texts = np.stack([np.bincount(groups, minlength=size) for groups in sides], axis=1)
    counts = np.empty((size, resamples), np.uint16)
    step = max(1, BLOCK // size)
    wanted = np.arange(resamples)
    while wanted.size:
        rejected = []
        # drawn in parts: a number has eight bytes until it is kept
        for columns in np.split(wanted, range(step, wanted.size, step)):
            drawn = rng.multinomial(size, np.full(size, 1 / size), size=columns.size)
            counts[:, columns] = drawn.T
            # a resample that leaves a side empty has no AUC: it is drawn again
            rejected.append(columns[((drawn @ texts) == 0).any(axis=1)])
        wanted = np.concatenate(rejected)
    return counts


class RocCurves(NamedTuple):
    """(K, R) weight of members, and of non-members, that score at least each of K scores, falling, in R resamples.

    `called` of these scores reach the decision threshold; None without one.
    """

    hits: FloatArray
    alarms: FloatArray
    called: int | None = None


Compute = Callable[[RocCurves], FloatArray]
"""A metric: the curves of R resamples → (R,) values."""


@dataclass(frozen=True, eq=False)
class Bootstrap:
    """(G, R) resamples of the groups of N texts, the same for every detector, so that differences are paired."""

    member: BoolArray
    group: IntArray
    counts: NDArray[np.uint16]

    @classmethod
    def draw(cls, labels: ArrayLike, groups: Groups = None, *, resamples: int = 1000, seed: int = 0) -> "Bootstrap":
        """Draw G groups with replacement, R times; a UsageError with fewer than two groups of either class."""
        member = np.asarray(labels, dtype=bool)
        group = group_index(groups, member.size)
        sides = [group[member], group[~member]]
        n_members, n_nonmembers = (np.unique(side).size for side in sides)
        # a single group of a side is in every resample: the interval would not know how much others differ from it
        if min(n_members, n_nonmembers) < 2:
            raise UsageError(
                "an evaluation must have at least 2 groups with members and 2 with non-members; "
                f"got {n_members} and {n_nonmembers}"
            )
        return cls(member, group, resampled(sides, resamples=resamples, seed=seed))

    @property
    def sides(self) -> list[int]:
        """Number of groups with members, and with non-members."""
        return [np.unique(self.group[side]).size for side in (self.member, ~self.member)]

    def values(self, scores: FloatArray, metrics: Sequence[Compute], threshold: float | None = None) -> FloatArray:
        """(M, 1 + R) values of M metrics: of the texts themselves in the first column, then of every resample."""
        order = np.argsort(-scores, kind="stable")
        falling = scores[order]
        # the last text of each distinct score
        ends = np.append(np.flatnonzero(np.diff(falling)), scores.size - 1)
        called = None
        if threshold is not None:
            called = (falling[ends] >= threshold).sum()
        member = self.member[order, None]
        blocks = []
        for counts in self._in_blocks(self.group[order]):
            weight = counts.astype(np.float64)
            hits = np.cumsum(weight * member, axis=0)[ends]
            alarms = np.cumsum(weight * ~member, axis=0)[ends]
            curves = RocCurves(hits, alarms, called)
            blocks.append(np.stack([metric(curves) for metric in metrics]))
        return np.concatenate(blocks, axis=1)

    def _in_blocks(self, group: IntArray) -> Iterator[NDArray[np.uint16]]:
        """How often texts of these (N,) groups count: each once, as they are, then the resamples block by block."""
        yield np.ones((group.size, 1), np.uint16)
        # the weights of all resamples together, eight bytes each, would not stay in the cache
        step = max(1, BLOCK // group.size)
        for start in range(0, self.counts.shape[1], step):
            yield self.counts[group, start : start + step]


def bootstrap_p(differences: FloatArray) -> float:
    """Two-sided p-value of resampled differences (R,): twice the share on the rarer side of zero."""
    rarer = min(int((differences <= 0).sum()), int((differences >= 0).sum()))
    # the texts themselves count as a resample, so that no p-value is 0
    return min(1.0, 2 * (1 + rarer) / (1 + differences.size))
