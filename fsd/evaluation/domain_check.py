"""Is a new text like the calibration texts? Error rates measured on those say nothing about other texts.

Four plain questions, each with a limit taken from the calibration texts themselves: is it written in a
script that they use, is it as long, are its letters in their usual order (language), are its words theirs
(domain)? Each calibration text is asked with its own group left out, and the limit is what 99 % of them
keep, so each of the three graded questions raises a false alarm on about max(1 %, 1 / number of groups) of
texts of the same kind. Measured on abstracts and encyclopaedia articles: 2-3 % for all of them together, 6 % with only
30 calibration texts.
"""

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
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
"""Script → first and last code point that it is counted by."""

KEEP = 0.99
"""Share of calibration texts that each limit lets pass."""

TRIGRAMS = 400
"""How many of the most frequent letter triples describe a language: enough to part related ones."""

WORDS = 20_000
"""How many of the most widespread words describe a domain."""


def script(text: str) -> str:
    """The script that most letters of the text belong to; "no known" without any."""
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
class Likeness:
    """What the calibration texts are like, and how far a text may be from them.

    Attributes:
        scripts: scripts that the texts are mainly written in.
        shortest: in words; shorter texts are outside.
        longest: in words; longer texts are outside.
        trigrams: letter triple → its mean frequency.
        least_trigrams: cosine with `trigrams` below which a text is in another language.
        words: the widespread words.
        least_words: share of a text's words among `words` below which it is about other things.
    """

    scripts: tuple[str, ...]
    shortest: float
    longest: float
    trigrams: Mapping[str, float]
    least_trigrams: float
    words: frozenset[str]
    least_words: float

    @classmethod
    def learn(cls, texts: Sequence[str], groups: Sequence[str] | None = None) -> "Likeness":
        """Describe the calibration texts.

        Args:
            texts: at least one.
            groups: of the texts; a text is never its own example, nor are those of its group.
        """
        names = group_index(groups, len(texts)).tolist()
        lengths = np.log([max(1, len(words(text))) for text in texts])
        triples, least_trigrams = _letters(texts)
        known, least_words = _vocabulary(texts, names)
        low, high = np.quantile(lengths, [1 - KEEP, KEEP])
        slack = math.log(1.25)
        return cls(
            scripts=tuple(sorted({script(text) for text in texts})),
            shortest=math.exp(low - slack),
            longest=math.exp(high + slack),
            trigrams=triples,
            least_trigrams=least_trigrams,
            words=known,
            least_words=least_words,
        )

    def outside(self, text: str) -> str | None:
        """Why the text is unlike the calibration texts, in a few words; None if it is not."""
        found = words(text)
        written = script(text)
        if written not in self.scripts:
            return f"written in {written} letters; calibrated on {', '.join(self.scripts)}"
        if not self.shortest <= len(found) <= self.longest:
            return f"length {len(found)} words; calibrated on {math.ceil(self.shortest)} to {math.floor(self.longest)}"
        if (near := _cosine(_trigrams(text), self.trigrams)) < self.least_trigrams:
            return (
                f"language or spelling unlike the calibration texts: likeness {near:.2f}, "
                f"at least {self.least_trigrams:.2f} expected"
            )
        share = _share(found, self.words)
        if share < self.least_words:
            return (
                f"vocabulary unlike the calibration texts: {share:.0%} of the words are known, "
                f"at least {self.least_words:.0%} expected"
            )
        return None

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return asdict(self) | {"scripts": list(self.scripts), "words": sorted(self.words)}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> "Likeness":
        """The inverse of `to_dict`."""
        return cls(**{**values, "scripts": tuple(values["scripts"]), "words": frozenset(values["words"])})


def _share(found: Sequence[str], known: Iterable[str]) -> float:
    return sum(word in known for word in found) / len(found) if found else 0.0


def _letters(texts: Sequence[str]) -> tuple[dict[str, float], float]:
    """Mean trigram frequencies, and the cosine that `KEEP` of the texts reach with the others' mean."""
    singles = []
    total: Counter[str] = Counter()
    for text in texts:
        counts = _trigrams(text)
        size = max(1, counts.total())
        singles.append({key: value / size for key, value in counts.items()})
        total.update(singles[-1])
    top = dict(total.most_common(TRIGRAMS))
    near = [_cosine(one, {key: value - one.get(key, 0.0) for key, value in top.items()}) for one in singles]
    mean = {key: value / len(texts) for key, value in top.items()}
    return mean, float(np.quantile(near, 1 - KEEP, method="lower")) if len(texts) > 1 else 0.0


def _vocabulary(texts: Sequence[str], groups: Sequence[int]) -> tuple[frozenset[str], float]:
    """Words that two groups or more use, and the share of them that `KEEP` of the texts reach without their own."""
    found = [words(text) for text in texts]
    by_group: dict[int, set[str]] = {}
    for group, text in zip(groups, found, strict=True):
        by_group.setdefault(group, set()).update(text)
    spread = Counter(word for used in by_group.values() for word in used)
    top = {word: count for word, count in spread.most_common(WORDS) if count >= 2}
    shares = [sum(top.get(word, 0) >= 3 for word in text) / max(1, len(text)) for text in found]
    limit = float(np.quantile(shares, 1 - KEEP, method="lower")) if len(by_group) > 2 else 0.0
    return frozenset(top), limit
