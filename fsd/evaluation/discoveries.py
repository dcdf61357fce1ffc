"""False discovery rate: which of many texts may be called members if few of the calls are to be wrong?"""

from collections.abc import Hashable, Sequence

import numpy as np
from numpy.typing import ArrayLike
from scipy import stats

from fsd.errors import UsageError
from fsd.evaluation.intervals import BoolArray, group_index, group_members
from fsd.token_stats import FloatArray

SPLIT = 0.5
"""p-values above this estimate the share of non-members in Storey's correction."""
_SLACK = 1e-9


def discoveries(
    p_values: ArrayLike, groups: Sequence[Hashable] | None = None, *, fdr: float = 0.1, storey: bool = False
) -> BoolArray:
    """Texts selected as members by Benjamini and Hochberg's procedure over families.

    On average, at most the share `fdr` of the selected families contains no member. A family counts once, by Simes'
    combination of the p-values of its texts; within a selected family, texts are selected at the level fdr · R / F for
    R of F families (Benjamini and Bogomolov 2014, https://arxiv.org/abs/1106.3670). Conformal p-values that share one
    calibration set depend on each other positively, for which the procedure is valid (Bates et al. 2023,
    https://arxiv.org/abs/2104.08279).

    Args:
        p_values: (N,) p-values.
        groups: (N,) family of each text; None if all are independent.
        fdr: false discovery rate; a UsageError unless it is between 0 and 1.
        storey: whether to divide by Storey's estimate of the share of families without members,
            (1 + number of families with p > .5) / (F / 2), which finds more if there are many members (Storey, Taylor
            and Siegmund 2004, https://doi.org/10.1111/j.1467-9868.2004.00439.x).

    Returns:
        (N,) whether each text is selected.
    """
    check_fdr(fdr)
    values = np.asarray(p_values, dtype=np.float64)
    selected = np.zeros(values.size, dtype=bool)
    if not values.size:
        return selected
    group = group_index(groups, values.size)
    members = group_members(group)
    family = np.array([_adjusted(values[own]).min() for own in members])
    null = min(1.0, (1 + int((family > SPLIT).sum())) / (family.size * (1 - SPLIT))) if storey else 1.0
    called = _adjusted(family) * null <= fdr + _SLACK
    for own in np.flatnonzero(called):
        selected[members[own]] = _adjusted(values[members[own]]) * null <= fdr * called.mean() + _SLACK
    return selected


def check_fdr(fdr: float) -> None:
    """A UsageError unless a false discovery rate is between 0 and 1."""
    if not 0 < fdr < 1:
        raise UsageError(f"fdr must be above 0 and below 1; got {fdr:g}")


def _adjusted(p_values: FloatArray) -> FloatArray:
    """Benjamini and Hochberg's adjusted p-values; the smallest is Simes' p-value of the intersection."""
    return np.asarray(stats.false_discovery_control(p_values), dtype=np.float64)
