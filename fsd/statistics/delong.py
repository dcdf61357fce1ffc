"""DeLong's test whether two AUCs on the same texts differ, by groups."""

import math
from typing import NamedTuple

import numpy as np
import scipy

from fsd.statistics.bootstrap import Bootstrap
from fsd.token_stats import BoolArray, FloatArray


class DeLong(NamedTuple):
    """Difference of two AUCs; its error follows Student's t. `p` is 1 for equal rankings, NaN without any variance."""

    difference: float
    error: float
    degrees: float
    p: float


def delong_test(texts: Bootstrap, first: FloatArray, second: FloatArray) -> DeLong:
    """Test whether the AUCs of two detectors on the same N texts differ.

    The error is that of DeLong, DeLong and Clarke-Pearson (1988) without groups, and of Obuchowski (1997) with groups;
    the difference in errors follows Student's t with Satterthwaite's degrees of freedom, as in the test of Brunner and
    Munzel (2000, https://doi.org/10.1002/(SICI)1521-4036(200001)42:1%3C17::AID-BIMJ17%3E3.0.CO;2-U).
    """
    member = texts.member
    nonmember = ~member
    scores = np.stack([first, second])
    ranks = scipy.stats.rankdata(scores, axis=1)
    # placements: the share of the other side that each text is ranked above, or below
    above = (ranks[:, member] - scipy.stats.rankdata(scores[:, member], axis=1)) / nonmember.sum()
    below = 1 - (ranks[:, nonmember] - scipy.stats.rankdata(scores[:, nonmember], axis=1)) / member.sum()
    aucs = above.mean(axis=1)
    difference = float(aucs[1] - aucs[0])
    size = int(texts.group.max()) + 1

    def group_errors(placements: FloatArray, side: BoolArray) -> FloatArray:
        """(G,) contributions of the groups of a side to the error of the difference."""
        sums = [np.bincount(texts.group[side], placements[row] - aucs[row], size) / side.sum() for row in (0, 1)]
        return np.asarray(sums[1] - sums[0])

    of_members = group_errors(above, member)
    of_nonmembers = group_errors(below, nonmember)
    n_members, n_nonmembers = texts.sides
    members_part = n_members / (n_members - 1) * float(of_members @ of_members)
    nonmembers_part = n_nonmembers / (n_nonmembers - 1) * float(of_nonmembers @ of_nonmembers)
    parts = members_part + nonmembers_part
    # a group with texts of both sides makes their errors depend on each other
    variance = parts + 2 * size / (size - 1) * float(of_members @ of_nonmembers)
    if variance < 1e-24:
        # zero but for rounding: equal rankings do not differ, and for unequal ones the test says nothing
        return DeLong(difference, 0.0, math.inf, 1.0 if abs(difference) < 1e-12 else math.nan)
    degrees = parts**2 / (members_part**2 / (n_members - 1) + nonmembers_part**2 / (n_nonmembers - 1))
    error = math.sqrt(variance)
    return DeLong(difference, error, degrees, float(2 * scipy.stats.t.sf(abs(difference) / error, degrees)))
