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


def delong_test(texts: Bootstrap, baseline: FloatArray, compared: FloatArray) -> DeLong:
    """Test whether the AUCs of two detectors on the same N texts differ, from their (N,) scores.

    The error is that of DeLong, DeLong and Clarke-Pearson (1988) without groups, and of Obuchowski (1997) with groups;
    the difference in errors follows Student's t with Satterthwaite's degrees of freedom, as in the test of Brunner and
    Munzel (2000, https://doi.org/10.1002/(SICI)1521-4036(200001)42:1%3C17::AID-BIMJ17%3E3.0.CO;2-U).
    """
    member = texts.member
    scores = np.stack([baseline, compared])
    ranks = scipy.stats.rankdata(scores, axis=1)

    def placements(side: BoolArray) -> FloatArray:
        """(2, n) share of the other side that each text of a side is ranked above, ties counting half."""
        within_side = scipy.stats.rankdata(scores[:, side], axis=1)
        above: FloatArray = (ranks[:, side] - within_side) / (~side).sum()
        return above

    of_members_above = placements(member)
    aucs = of_members_above.mean(axis=1)
    difference = float(aucs[1] - aucs[0])
    size = texts.group.max() + 1

    def group_errors(shares: FloatArray, side: BoolArray) -> FloatArray:
        """(G,) contributions of the groups of a side to the error of the difference."""
        group = texts.group[side]
        n_texts = side.sum()
        of_baseline, of_compared = shares - aucs[:, None]
        baseline_sums = np.bincount(group, of_baseline, size) / n_texts
        compared_sums = np.bincount(group, of_compared, size) / n_texts
        errors: FloatArray = compared_sums - baseline_sums
        return errors

    of_members = group_errors(of_members_above, member)
    of_nonmembers = group_errors(1 - placements(~member), ~member)
    n_members, n_nonmembers = texts.sides
    members_part = n_members / (n_members - 1) * float(of_members @ of_members)
    nonmembers_part = n_nonmembers / (n_nonmembers - 1) * float(of_nonmembers @ of_nonmembers)
    parts = members_part + nonmembers_part
    # a group with texts of both sides makes their errors depend on each other
    variance = parts + 2 * size / (size - 1) * float(of_members @ of_nonmembers)
    if variance < 1e-24:
        # zero but for rounding: equal rankings do not differ, and for unequal ones the test says nothing
        return DeLong(difference, 0.0, math.inf, 1.0 if abs(difference) < 1e-12 else math.nan)
    # Satterthwaite: the squared variance over the sum of each part's square by its own degrees
    members_term = members_part**2 / (n_members - 1)
    nonmembers_term = nonmembers_part**2 / (n_nonmembers - 1)
    degrees = parts**2 / (members_term + nonmembers_term)
    error = math.sqrt(variance)
    return DeLong(difference, error, degrees, p=float(2 * scipy.stats.t.sf(abs(difference) / error, degrees)))
