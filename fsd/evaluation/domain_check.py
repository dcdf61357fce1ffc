"""Domain check: does a text resemble the calibration non-members, on which the error rate of verdicts rests?

The novelty of a text is the largest of three deviations: its script, its number of words, and its similarity (words and
character n-grams) with the nearest calibration texts. It becomes a conformal p-value: each calibration text in turn is
compared with all others and the new text, so that a text that is exchangeable with them has p ≤ α with probability at
most α, whatever the texts are like (Vovk, Gammerman and Shafer 2005, Algorithmic Learning in a Random World, ch. 2).
"""

import math
from collections import Counter
from collections.abc import Hashable, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
from scipy import sparse
from sklearn.feature_extraction.text import HashingVectorizer, TfidfTransformer

from fsd.data.near_duplicates import words
from fsd.evaluation.intervals import group_index
from fsd.token_stats import FloatArray

SCRIPTS: dict[str, tuple[int, int]] = {
    "Latin": (0x41, 0x24F),
    "Greek": (0x370, 0x3FF),
    "Cyrillic": (0x400, 0x52F),
    "Hebrew": (0x590, 0x5FF),
    "Arabic": (0x600, 0x6FF),
    "Devanagari": (0x900, 0x97F),
    "Bengali": (0x980, 0x9FF),
    "Thai": (0xE00, 0xE7F),
    "Hangul": (0xAC00, 0xD7AF),
    "Kana": (0x3040, 0x30FF),
    "Chinese characters": (0x3400, 0x9FFF),
}
"""Script → first and last code point of its range."""

LEVEL = 0.025
"""Share of texts like the calibration texts that may be found outside; 1 / (G + 1) if that is larger."""

NEAREST = 10
"""Number of nearest calibration texts whose mean similarity counts."""

CHARACTERS = 20_000
"""Beginning of a text that is compared; the number of words is that of the whole text."""


def script(text: str) -> str:
    """The script of most letters of the text; "no known" if there are none."""
    counts: Counter[str] = Counter()
    for letter, number in Counter(filter(str.isalpha, text)).items():
        code = ord(letter)
        name = next((name for name, (low, high) in SCRIPTS.items() if low <= code <= high), None)
        if name:
            counts[name] += number
    return counts.most_common(1)[0][0] if counts else "no known"


@lru_cache(maxsize=2048)  # the domain check and the test of exchangeability count the same texts
def _counted(text: str) -> tuple[sparse.csr_matrix, ...]:
    settings: tuple[dict[str, Any], ...] = ({"analyzer": words}, {"analyzer": "char_wb", "ngram_range": (2, 4)})
    return tuple(
        HashingVectorizer(n_features=2**18, norm=None, alternate_sign=False, **one).transform([text[:CHARACTERS]])
        for one in settings
    )


def text_features(texts: Sequence[str]) -> list[sparse.csr_matrix]:
    """(N, D) counts of hashed words, and of hashed character n-grams, of N ≥ 1 texts."""
    return [sparse.csr_matrix(sparse.vstack(rows)) for rows in zip(*map(_counted, texts), strict=True)]


class DomainCheck:
    """Conformal test of whether a new text is like the calibration non-members.

    Args:
        texts: (n,) calibration non-members, n ≥ 1.
        groups: (n,) group of each; a text is not compared with its own group, and every group has one vote. None if all
            are independent.
        background: texts of any kind, other than those and the new ones, that say which words are common.
    """

    def __init__(
        self, texts: Sequence[str], groups: Sequence[Hashable] | None = None, background: Sequence[str] = ()
    ) -> None:
        self.texts = list(texts)
        self.group = group_index(groups, len(texts))
        self.features = text_features(self.texts)
        self._weighting = [
            TfidfTransformer(sublinear_tf=True, use_idf=bool(background)).fit(counts)
            for counts in text_features(background or self.texts)
        ]
        self._rows = self._weighted(self.features)
        similar = self._similarity(self.features)
        similar[self.group[:, None] == self.group[None, :]] = -np.inf
        self._nearest = -np.sort(-similar, axis=1)[:, :NEAREST]
        self._length = np.log([max(1, len(words(text))) for text in self.texts])
        self._script = np.array([script(text) for text in self.texts])
        self._shared = {
            name: np.unique(self.group[self._script == name]).size > 1 for name in np.unique(self._script).tolist()
        }
        self._vote = 1 / np.bincount(self.group)[self.group]

    @property
    def groups(self) -> int:
        """G, the number of groups of calibration texts."""
        return int(self.group.max()) + 1

    @property
    def rank(self) -> int:
        """r: a text is outside if p ≤ r / (G + 1)."""
        return max(1, math.floor(LEVEL * (self.groups + 1) + 1e-9))

    @property
    def limit(self) -> float:
        """The largest p-value of a text outside, r / (G + 1)."""
        return self.rank / (self.groups + 1) + 1e-9

    def p_values(self, texts: Sequence[str]) -> FloatArray:
        """(N,) conformal p-value of each new text; it does not depend on the other new texts."""
        return np.array([p for p, _ in self._judged(texts)], dtype=np.float64)

    def outside(self, texts: Sequence[str]) -> list[str]:
        """(N,) reason why each text is unlike the calibration texts; empty for a text that is like them."""
        return [reason if p <= self.limit else "" for p, reason in self._judged(texts)]

    def _judged(self, texts: Sequence[str]) -> list[tuple[float, str]]:
        """p-value of each text, and what is most unusual about it."""
        if not texts:
            return []
        similar = self._similarity(text_features(texts))
        return [self._judge(text, row) for text, row in zip(texts, similar, strict=True)]

    def _judge(self, text: str, similar: FloatArray) -> tuple[float, str]:
        count, letters = len(words(text)), script(text)
        near = _mean_of_nearest(np.column_stack([self._nearest, similar]))
        nearness = np.append(near, _mean_of_nearest(similar[None, :]))
        length = np.append(self._length, math.log(max(1, count)))
        lone = np.array([not self._shared[name] and name != letters for name in self._script.tolist()])
        strange = np.append(lone, letters not in self._shared)
        deviations = np.stack(
            [np.where(strange, np.inf, 0.0), np.abs(_standard(length)), -_standard(nearness)]
        )  # (3, n + 1), the new text last
        novelty = deviations.max(axis=0)
        p = float((1 + self._vote @ (novelty[:-1] >= novelty[-1] - 1e-12)) / (self.groups + 1))
        shortest, longest = np.exp([self._length.min(), self._length.max()]).round().astype(int)
        reasons = (
            f"written in {letters} letters; calibrated on {', '.join(sorted(self._shared))}",
            f"length {count} words; the calibration texts have {shortest} to {longest}",
            "language or vocabulary unlike the calibration texts",
        )
        return p, reasons[int(deviations[:, -1].argmax())]

    def _weighted(self, features: Sequence[sparse.csr_matrix]) -> sparse.csr_matrix:
        """(N, D) rows whose scalar product is the mean of the cosines by words and by characters."""
        parts = (w.transform(c) for w, c in zip(self._weighting, features, strict=True))
        return sparse.csr_matrix(sparse.hstack([part / math.sqrt(2) for part in parts]))

    def _similarity(self, features: Sequence[sparse.csr_matrix]) -> FloatArray:
        """(N, n) similarity of texts with the calibration texts, from 0 to 1."""
        return np.asarray((self._weighted(features) @ self._rows.T).toarray(), dtype=np.float64)


def _mean_of_nearest(similar: FloatArray) -> FloatArray:
    """(N, M) similarities, -inf for texts that do not count → (N,) mean of the `NEAREST` highest."""
    nearest = -np.sort(-similar, axis=1)[:, :NEAREST]
    known = np.isfinite(nearest)
    total = np.where(known, nearest, 0.0).sum(axis=1)
    return np.asarray(total / np.maximum(1, known.sum(axis=1)), dtype=np.float64)


def _standard(values: FloatArray) -> FloatArray:
    spread = values.std()
    return np.asarray((values - values.mean()) / (spread if spread > 1e-12 else 1.0), dtype=np.float64)
