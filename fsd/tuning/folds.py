"""Grouped cross-validation of settings: which is best, and how good a chosen one is on texts that did not choose.

A detector learns nothing from labels, so a fold is only a place to measure. A setting's value is its mean over all
folds; families stay whole, so that no fold holds a text whose near-copy is in another.
"""

from collections.abc import Hashable, Sequence

import numpy as np
from numpy.typing import ArrayLike

from fsd.errors import UsageError
from fsd.evaluation.intervals import group_index
from fsd.token_stats import FloatArray, IntArray


def grouped_folds(
    labels: ArrayLike, groups: Sequence[Hashable] | None, *, folds: int = 5, repeats: int = 4, seed: int = 0
) -> list[IntArray]:
    """Row numbers of each fold: `repeats` times a fresh division of the families into `folds` folds.

    Families are shuffled and each is put where its classes are rarest, so that all folds have both classes in about
    the same mix.

    Args:
        labels: (N,) True for members.
        groups: (N,) families, or None where every text is its own.
        folds: parts of a division, at least 2.
        repeats: divisions, at least 1: fresh draws make up for the few texts of a fold.
        seed: of the shuffling.

    Returns:
        `repeats` · `folds` arrays; each run of `folds` of them holds every row once.

    Raises:
        UsageError: for one class only, fewer families of a class than folds, or impossible numbers.
    """
    member = np.asarray(labels, dtype=bool)
    if folds < 2 or repeats < 1:
        raise UsageError(f"folds must be at least 2 and repeats at least 1; got {folds} and {repeats}")
    family = group_index(groups, member.size)
    fewest = [np.unique(family[side]).size for side in (member, ~member)]
    if min(fewest) < folds:
        raise UsageError(
            f"validation must have at least {folds} families with members and {folds} with non-members, one of each "
            f"a fold; got {fewest[0]} and {fewest[1]}: give more texts, a larger validation share or fewer folds"
        )
    sizes = np.stack([np.bincount(family[side], minlength=int(family.max()) + 1) for side in (member, ~member)], axis=1)
    rng = np.random.default_rng(seed)
    found: list[IntArray] = []
    for _ in range(repeats):
        place = _divide(sizes, folds, rng)[family]
        parts = [np.flatnonzero(place == fold) for fold in range(folds)]
        if any(member[part].all() or not member[part].any() for part in parts):
            raise UsageError(
                f"validation must have families enough that each of {folds} folds has members and non-members; "
                f"{fewest[0]} and {fewest[1]} families could not be divided so: give more texts or fewer folds"
            )
        found += parts
    return found


def _divide(sizes: IntArray, folds: int, rng: np.random.Generator) -> IntArray:
    """(G, 2) texts of each class in each family → (G,) fold of each family, the largest families first."""
    share = sizes / sizes.sum(axis=0)
    order = rng.permutation(len(sizes))
    order = order[np.argsort(-share[order].max(axis=1), kind="stable")]
    filled = np.zeros((folds, 2))
    place = np.zeros(len(sizes), dtype=np.int64)
    for family in order:
        # what a fold would have of the classes that this family brings; the emptiest takes it
        place[family] = int(np.argmin((filled * (share[family] > 0)).sum(axis=1)))
        filled[place[family]] += share[family]
    return place


def chosen_elsewhere(values: FloatArray, *, folds: int) -> float:
    """Mean value on each fold of the setting that is best on the other folds of the same division.

    The best of many settings looks better on the texts that chose it than it is. Here the texts that choose and the
    texts that measure are never the same, so the number has no such bonus (Varma and Simon 2006).

    Args:
        values: (S, repeats · folds) of S settings, the default first: of equals the first is chosen.
        folds: of one division.
    """
    found = []
    for start in range(0, values.shape[1], folds):
        part = values[:, start : start + folds]
        others = (part.sum(axis=1, keepdims=True) - part) / (folds - 1)
        best = np.argmax(np.round(others, 12), axis=0)
        found.append(part[best, np.arange(folds)].mean())
    return float(np.mean(found))
