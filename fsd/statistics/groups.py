"""Groups of texts that are not independent, as (N,) integers."""

from collections.abc import Hashable, Sequence

import numpy as np
import pandas as pd
from numpy.random import Generator

from fsd.token_stats import FloatArray, IntArray

Groups = Sequence[Hashable] | None
"""Name of the group of each text; None if every text is a group of its own."""


def group_index(groups: Groups, texts: int) -> IntArray:
    """Groups as (N,) integers 0..G−1 in order of appearance; a text whose group is "" or missing is its own."""
    if groups is None:
        return np.arange(texts, dtype=np.int64)
    if len(groups) != texts:
        raise ValueError(f"labels and groups must have one length, got {texts} and {len(groups)}")
    numbers: dict[Hashable, int] = {}
    index = np.empty(texts, dtype=np.int64)
    for row, name in enumerate(groups):
        # what files have where a text has no group: NaN and NaT differ from themselves, and NA is asked first, since a
        # comparison with it has no truth value
        missing = name is pd.NA or name in ("", None) or name != name
        key = ("", row) if missing else name
        index[row] = numbers.setdefault(key, len(numbers))
    return index


def group_members(group: IntArray) -> list[IntArray]:
    """Positions of the texts of each group 0..G−1."""
    ends = np.cumsum(np.bincount(group))
    return np.split(np.argsort(group, kind="stable"), ends[:-1])


def evenly(group: IntArray, rng: Generator) -> IntArray:
    """Positions of as many texts of each group 0..G−1 as the smallest has, drawn at random; in order.

    Means of groups of unequal size differ in variance, and such groups are not exchangeable under permuted labels.
    """
    size = np.bincount(group).min()
    drawn = [rng.choice(rows, size, replace=False) for rows in group_members(group)]
    return np.sort(np.concatenate(drawn))


def group_means(values: FloatArray, group: IntArray) -> FloatArray:
    """(N,) or (N, D) values of texts → (G,) or (G, D) means of groups 0..G−1."""
    size = np.bincount(group)
    return np.apply_along_axis(lambda column: np.bincount(group, weights=column) / size, 0, values)
