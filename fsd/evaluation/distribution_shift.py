"""Overlap of members and non-members in date, length and vocabulary, compared with chance."""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from sklearn.feature_extraction import DictVectorizer

from fsd.data.documents import Document
from fsd.data.near_duplicates import words
from fsd.evaluation.intervals import BoolArray, group_index
from fsd.token_stats import FloatArray

SHUFFLES = 20
BINS = 10
Similarity = Callable[[BoolArray], float]
"""(N,) labels → overlap of the two sides, from 0 (nothing in common) to 1."""


@dataclass(frozen=True)
class Overlap:
    """Overlap of members and non-members in one respect, as measured, and the mean over shuffled labels.

    The latter is what a matched benchmark of this size would show.
    """

    value: float
    chance: float


def _spread(numbers: FloatArray) -> Similarity:
    """Overlap of two histograms whose bins contain a tenth of all texts each."""
    edges = np.unique(np.quantile(numbers, np.linspace(0, 1, BINS + 1)[1:-1]))
    place = np.searchsorted(edges, numbers, side="right")

    def compare(member: BoolArray) -> float:
        sides = [np.bincount(place[side], minlength=BINS + 1) / max(1, side.sum()) for side in (member, ~member)]
        return float(np.minimum(*sides).sum())

    return compare


def _vocabulary(texts: Sequence[str]) -> Similarity:
    """One minus the Jensen-Shannon divergence (bits) of the two sides' word frequencies."""
    table = DictVectorizer(sort=False).fit_transform([Counter(words(text)) for text in texts])

    def compare(member: BoolArray) -> float:
        sides = [table.T @ side.astype(np.float64) for side in (member, ~member)]
        p, q = (side / max(1.0, side.sum()) for side in sides)
        return 1 - (_entropy((p + q) / 2) - (_entropy(p) + _entropy(q)) / 2)

    return compare


def _entropy(p: FloatArray) -> float:
    positive = p[p > 0]
    return float(-(positive * np.log2(positive)).sum())


def overlaps(documents: Sequence[Document], *, seed: int = 0) -> dict[str, Overlap]:
    """Overlap of members and non-members in length, vocabulary and, if every text has one, date."""
    member = np.array([bool(document.member) for document in documents])
    if member.all() or not member.any():
        return {}
    rng, texts = np.random.default_rng(seed), [document.text for document in documents]
    respects = {
        "length": _spread(np.array([len(words(text)) for text in texts], dtype=np.float64)),
        "vocabulary": _vocabulary(texts),
    }
    dates = [document.date.toordinal() for document in documents if document.date]
    if len(dates) == len(documents):
        respects["date"] = _spread(np.array(dates, dtype=np.float64))
    group = group_index([document.group for document in documents], member.size)
    first = np.unique(group, return_index=True)[1]
    found = {}
    for name, compare in respects.items():
        chance = [compare(rng.permutation(member[first])[group]) for _ in range(SHUFFLES)]
        found[name] = Overlap(compare(member), float(np.mean(chance)))
    return found
