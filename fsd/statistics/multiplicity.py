"""Corrections of p-values for several tests."""

from collections.abc import Mapping

import numpy as np
from numpy.typing import ArrayLike
from scipy import stats

from fsd.errors import UsageError
from fsd.statistics.groups import Groups, group_index, group_members
from fsd.token_stats import BoolArray

SPLIT = 0.5
"""p-values above this estimate the share of non-members in Storey's correction."""
SLACK = 1e-9
"""Amount by which a p-value may exceed its level, so that 1/20 reaches .05 however both are rounded."""


def holm(p_values: Mapping[str, float]) -> dict[str, float]:
    """p-values corrected for several tests, which bound the chance of any false discovery (Holm 1979)."""
    ascending = sorted(p_values, key=p_values.__getitem__)
    corrected = {}
    largest = 0.0
    for rank, name in enumerate(ascending):
        scaled = min(1.0, (len(ascending) - rank) * p_values[name])
        # a p-value is corrected to no less than those below it, so that their order stays
        largest = max(largest, scaled)
        corrected[name] = largest
    return {name: corrected[name] for name in p_values}


def discoveries(p_values: ArrayLike, groups: Groups = None, *, fdr: float = 0.1, storey: bool = False) -> BoolArray:
    """(N,) texts selected as members by Benjamini and Hochberg's procedure over families, on average `fdr` wrongly.

    A family counts once, by Simes' combination of its p-values; within a selected one, texts are selected at the level
    fdr · R / F for R of F families (Benjamini and Bogomolov 2014, https://arxiv.org/abs/1106.3670). This is valid for
    conformal p-values that share a calibration set (Bates et al. 2023, https://arxiv.org/abs/2104.08279). `storey`
    multiplies p-values by the estimated share of families without members, (1 + number with p > .5) / (F / 2) (Storey,
    Taylor and Siegmund 2004, https://doi.org/10.1111/j.1467-9868.2004.00439.x).
    """
    check_fdr(fdr)
    values = np.asarray(p_values, dtype=np.float64)
    selected = np.zeros(values.size, dtype=bool)
    if not values.size:
        return selected
    rows = group_members(group_index(groups, values.size))
    adjusted = [stats.false_discovery_control(values[of_family]) for of_family in rows]
    # the smallest adjusted p-value is Simes' p-value of the family
    simes = np.array([p_values_of_family.min() for p_values_of_family in adjusted])
    null_share = 1.0
    if storey:
        n_large = 1 + (simes > SPLIT).sum()
        null_share = min(1.0, n_large / (simes.size * (1 - SPLIT)))
    called = stats.false_discovery_control(simes) * null_share <= fdr + SLACK
    level = fdr * called.mean() + SLACK
    for family in np.flatnonzero(called):
        selected[rows[family]] = adjusted[family] * null_share <= level
    return selected


def check_fdr(fdr: float) -> None:
    """A UsageError unless a false discovery rate is between 0 and 1."""
    if not 0 < fdr < 1:
        raise UsageError(f"fdr must be above 0 and below 1; got {fdr:g}")
