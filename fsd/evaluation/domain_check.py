"""Out-of-domain check: does a new text resemble the calibration texts, whose error rates would otherwise not apply?

Four checks, each with a limit estimated from the calibration texts: script, length, character-trigram similarity
(language) and vocabulary coverage (domain). Each limit is the value that 99 % of the calibration texts satisfy when
their own group is left out, so each of the three graded checks raises a false alarm on about max(1 %, 1 / number of
groups) of texts of the same kind. Measured on abstracts and encyclopaedia articles: 2-3 % for all checks together,
6 % with only 30 calibration texts.
"""

import math
from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from fsd.data.near_duplicates import words
from fsd.evaluation.intervals import group_index

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

COVERAGE = 0.99
"""Share of calibration texts that satisfy each limit."""

TRIGRAMS = 400
"""Number of most frequent character trigrams that represent a language; enough to separate related ones."""

WORDS = 20_000
"""Number of most widespread words that represent a domain."""


def script(text: str) -> str:
    """The script of most letters of the text; "no known" if there are none."""
    counts: Counter[str] = Counter()
    for letter, number in Counter(filter(str.isalpha, text)).items():
        code = ord(letter)
        name = next((name for name, (low, high) in SCRIPTS.items() if low <= code <= high), None)
        if name:
            counts[name] += number
    return counts.most_common(1)[0][0] if counts else "no known"


def _trigrams(text: str) -> Counter[str]:
    clean = f" {' '.join(words(text))} "
    return Counter(clean[at : at + 3] for at in range(len(clean) - 2))


def _cosine(first: Mapping[str, float], second: Mapping[str, float]) -> float:
    product = sum(value * second.get(key, 0.0) for key, value in first.items())
    lengths = [math.sqrt(sum(value * value for value in side.values())) for side in (first, second)]
    return product / (lengths[0] * lengths[1]) if min(lengths) > 0 else 0.0


@dataclass(frozen=True)
class DomainCheck:
    """Properties of the calibration texts, and limits on how far a new text may deviate from them.

    Attributes:
        scripts: scripts in which the texts are mainly written.
        shortest: smallest number of words in domain.
        longest: largest number of words in domain.
        trigrams: character trigram → mean frequency.
        least_trigrams: smallest cosine similarity with `trigrams` in domain.
        words: the most widespread words.
        least_words: smallest share of a text's words that must be among `words`.
    """

    scripts: tuple[str, ...]
    shortest: float
    longest: float
    trigrams: Mapping[str, float]
    least_trigrams: float
    words: frozenset[str]
    least_words: float

    @classmethod
    def fit(cls, texts: Sequence[str], groups: Sequence[Hashable] | None = None) -> "DomainCheck":
        """Estimate the properties and limits from calibration texts.

        Args:
            texts: (N,) texts, N ≥ 1.
            groups: (N,) group of each text, left out when the limit for that text is estimated; None if all are
                independent.
        """
        lengths = np.log([max(1, len(words(text))) for text in texts])
        trigrams, least_trigrams = _trigram_profile(texts)
        vocabulary, least_words = _vocabulary(texts, group_index(groups, len(texts)).tolist())
        low, high = np.quantile(lengths, [1 - COVERAGE, COVERAGE])
        slack = math.log(1.25)
        return cls(
            scripts=tuple(sorted({script(text) for text in texts})),
            shortest=math.exp(low - slack),
            longest=math.exp(high + slack),
            trigrams=trigrams,
            least_trigrams=least_trigrams,
            words=vocabulary,
            least_words=least_words,
        )

    def out_of_domain(self, text: str) -> str | None:
        """Reason why the text does not resemble the calibration texts; None if it does."""
        tokens = words(text)
        written = script(text)
        if written not in self.scripts:
            return f"written in {written} letters; calibrated on {', '.join(self.scripts)}"
        if not self.shortest <= len(tokens) <= self.longest:
            return f"length {len(tokens)} words; calibrated on {math.ceil(self.shortest)} to {math.floor(self.longest)}"
        similarity = _cosine(_trigrams(text), self.trigrams)
        if similarity < self.least_trigrams:
            return (
                f"language or spelling unlike the calibration texts: trigram similarity {similarity:.2f}, "
                f"at least {self.least_trigrams:.2f} expected"
            )
        share = sum(word in self.words for word in tokens) / max(1, len(tokens))
        if share < self.least_words:
            return (
                f"vocabulary unlike the calibration texts: {share:.0%} of the words occur in them, "
                f"at least {self.least_words:.0%} expected"
            )
        return None

    def to_dict(self) -> dict[str, Any]:
        """The check as JSON-serialisable values."""
        return asdict(self) | {"scripts": list(self.scripts), "words": sorted(self.words)}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> "DomainCheck":
        """The inverse of `to_dict`."""
        return cls(**{**values, "scripts": tuple(values["scripts"]), "words": frozenset(values["words"])})


def _trigram_profile(texts: Sequence[str]) -> tuple[dict[str, float], float]:
    """Mean trigram frequencies, and the similarity with the other texts' mean that `COVERAGE` of the texts reach."""
    frequencies = []
    total: Counter[str] = Counter()
    for text in texts:
        counts = _trigrams(text)
        size = max(1, counts.total())
        frequencies.append({key: value / size for key, value in counts.items()})
        total.update(frequencies[-1])
    top = dict(total.most_common(TRIGRAMS))
    similar = [_cosine(own, {key: value - own.get(key, 0.0) for key, value in top.items()}) for own in frequencies]
    mean = {key: value / len(texts) for key, value in top.items()}
    return mean, float(np.quantile(similar, 1 - COVERAGE, method="lower")) if len(texts) > 1 else 0.0


def _vocabulary(texts: Sequence[str], groups: Sequence[int]) -> tuple[frozenset[str], float]:
    """Words used by at least two groups, and the share of them that `COVERAGE` of the texts reach without their own."""
    tokens = [words(text) for text in texts]
    by_group: dict[int, set[str]] = {}
    for group, own in zip(groups, tokens, strict=True):
        by_group.setdefault(group, set()).update(own)
    groups_of = Counter(word for used in by_group.values() for word in used)
    top = {word: count for word, count in groups_of.most_common(WORDS) if count >= 2}
    shares = [sum(top.get(word, 0) >= 3 for word in own) / max(1, len(own)) for own in tokens]
    limit = float(np.quantile(shares, 1 - COVERAGE, method="lower")) if len(by_group) > 2 else 0.0
    return frozenset(top), limit
