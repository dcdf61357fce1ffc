"""Neighbours of a text: copies with a few words replaced, for the neighbourhood comparison.

The likelihood of a member exceeds that of its neighbours by more than for other texts: replacing words keeps topic,
length and difficulty, but not memorised wording. Words come from a masked language model if there is one, else from the
unseen texts. Only the replaced spans change: whitespace, punctuation and layout stay, byte for byte.

Source: Mattern et al. 2023, "Membership inference attacks against language models via neighbourhood comparison",
arXiv:2305.18462.
"""

import hashlib
import re
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from fsd.errors import UsageError

_UNSPACED = "\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
WORD = re.compile(rf"[{_UNSPACED}]|(?:(?![{_UNSPACED}])[^\W\d_])+(?:['’](?:(?![{_UNSPACED}])[^\W\d_])+)*")
"""Letters with inner apostrophes; in scripts without spaces (Chinese, Japanese), each character."""

NEAREST = 20
"""Number of words of nearest rank among which the replacement of a word is drawn."""
TRIES = 10
"""Most draws for a neighbour that differs from those before."""


@dataclass(frozen=True)
class Vocabulary:
    """Words by class (case and length), the most frequent first; `ranks` gives the rank of a word in its class."""

    classes: Mapping[tuple[str, int], tuple[str, ...]]
    ranks: Mapping[str, int]


def build_vocabulary(texts: Iterable[str]) -> Vocabulary:
    """The words of the unseen texts by class and frequency."""
    counts = Counter(word for text in texts for word in WORD.findall(text))
    if not counts:
        raise UsageError("the unseen texts must hold words to make neighbours from; they hold none")
    classes: dict[tuple[str, int], list[str]] = {}
    for word in sorted(counts, key=lambda word: (-counts[word], word)):
        classes.setdefault(word_class(word), []).append(word)
    ranks = {word: rank for words in classes.values() for rank, word in enumerate(words)}
    return Vocabulary({key: tuple(words) for key, words in classes.items()}, ranks)


def word_class(word: str) -> tuple[str, int]:
    """Case (lower, title, upper, other) and length class (1, 2-3, 4-6, 7-9, 10 or more letters) of a word."""
    if not word.isupper() and not word.islower() and not word.istitle():
        case = "other"
    elif word.isupper() and len(word) > 1:
        case = "upper"
    else:
        case = "lower" if word.islower() else "title"
    return case, bisect_left((1, 3, 6, 9), len(word))


def word_swaps(text: str, vocabulary: Vocabulary, *, count: int = 25, share: float = 0.15, seed: int = 42) -> list[str]:
    """Neighbours without a model: a share of the words replaced by others of similar frequency, case and length.

    They are determined by text and seed, and differ from each other if enough words can be replaced; a text in which no
    word can be replaced is its own neighbour.
    """
    if count < 1:
        raise UsageError(f"count of neighbours must be at least 1; got {count}")
    if not 0 < share <= 1:
        raise UsageError(f"share of swapped words must be above 0 and at most 1; got {share}")
    words = [(match.span(), replacements(match.group(), vocabulary)) for match in WORD.finditer(text)]
    options = [(span, others) for span, others in words if others]
    if not options:
        return [text] * count
    swaps = min(len(options), max(1, round(share * len(words))))
    digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()
    rng = np.random.default_rng([seed, int.from_bytes(digest[:16])])
    neighbours: list[str] = []
    for _ in range(count):
        for _ in range(TRIES):
            chosen = sorted(rng.choice(len(options), size=swaps, replace=False).tolist())
            drawn = [(options[i][0], options[i][1][rng.integers(len(options[i][1]))]) for i in chosen]
            neighbour = replaced(text, drawn)
            if neighbour not in neighbours:
                break
        neighbours.append(neighbour)
    return neighbours


def replacements(word: str, vocabulary: Vocabulary) -> tuple[str, ...]:
    """Up to `NEAREST` other words of the same class that are nearest in rank; if there are none, of the same case.

    A word outside the vocabulary ranks last.
    """
    case, length = word_class(word)
    lengths = sorted({size for kind, size in vocabulary.classes if kind == case}, key=lambda size: abs(size - length))
    for size in lengths:
        words = vocabulary.classes[case, size]
        rank = vocabulary.ranks.get(word, len(words)) if size == length else len(words)
        low = max(0, min(rank - NEAREST // 2, len(words) - NEAREST - 1))
        near = tuple(other for other in words[low : low + NEAREST + 1] if other != word)
        if near:
            return near
    return ()


def replaced(text: str, swaps: Iterable[tuple[tuple[int, int], str]]) -> str:
    """The text with (begin, end) spans replaced, which must be in order and must not overlap."""
    parts = []
    done = 0
    for (begin, end), word in swaps:
        parts += [text[done:begin], word]
        done = end
    return "".join([*parts, text[done:]])


class Proposal(NamedTuple):
    """A masked language model's word for `text[begin:end]`; `weight` is its suitability p(word)/(1 − p(original))."""

    begin: int
    end: int
    word: str
    weight: float


def masked_neighbours(text: str, proposals: Sequence[Proposal], *, count: int = 25) -> list[str]:
    """Neighbours with one word replaced, the most suitable replacements first.

    The suitability of a word is its probability, given that it is not the original word (Mattern et al. 2023, §2). One
    replacement per neighbour was best in the paper. Ties go to the earlier position. A text without proposals is its
    own neighbour.
    """
    if count < 1:
        raise UsageError(f"count of neighbours must be at least 1; got {count}")
    neighbours: dict[str, None] = {}
    for begin, end, word, _ in sorted(proposals, key=lambda proposal: (-proposal.weight, proposal)):
        if not 0 <= begin < end <= len(text):
            raise ValueError(f"a proposal must be a span of the text of {len(text)} characters, got {begin}:{end}")
        if word != text[begin:end]:
            neighbours[replaced(text, [((begin, end), word)])] = None
        if len(neighbours) == count:
            break
    return list(neighbours) or [text]
