"""Near-duplicate texts, and the families that a split must not tear apart.

Two texts are near-duplicates when one of these holds (n-grams are of words, each counted once a text):

- copy: at least 80 % of the n-grams of the text with fewer are in the other one, or both have the same words;
- opening: the first 10 words are the same; a text of 5 to 9 words opens another one with all its words;
- overlap: at least 20 % of the 7-grams of the text with fewer are in the other one, 7-grams found in more
  than `COMMON` texts not counted as shared;
- run: 20 words in a row are the same, about one whole sentence of English, unless more than `COMMON` texts
  have them or all 7-grams that the two texts share are so common (two standard sentences in a row). Texts
  written apart do not agree for that long by chance; quotations do, and those leak as well.

What stands in more than `COMMON` texts (a licence, a template, "Title: ... Abstract: we study") says nothing
about a common origin, so it cannot link by opening, overlap or run. Only the rule for copies still sees it:
more than `COMMON` copies of a text are linked in a chain, each with the next, which is enough for one family.

Words of scripts without spaces are counted by characters, two a word, so all lengths above double for such
texts. Time and memory grow with the number of words: an n-gram gives at most `COMMON` / 2 pairs for every
text that has it.
"""

import re
import unicodedata
from collections import defaultdict
from collections.abc import Hashable, Iterable, Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fsd.data.documents import Document

NGRAM = 7
OPENING = 10
SHORTEST_OPENING = 5
RUN = 20
OVERLAP = 0.2
COPY = 0.8
COMMON = 10

_UNSPACED = (
    "\u0e00-\u0fff\u1000-\u109f\u1780-\u17ff"  # Thai, Lao, Tibetan; Burmese; Khmer
    "\u3005-\u3007\u3040-\u30ff\u31f0-\u31ff"  # kana
    "\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"  # Han
)
# vowel signs and accents are no letters by themselves, yet part of the word (Indic scripts, Arabic, Hebrew)
_MARKS = "\u0300-\u036f\u0591-\u05bd\u064b-\u065f\u0670\u0900-\u0963\u0966-\u0dff"
_WORD = re.compile(rf"(?=\w)[{_UNSPACED}]|(?:[^\W{_UNSPACED}]|[{_MARKS}])+")
_IS_UNSPACED = re.compile(f"[{_UNSPACED}]")

Hashes = NDArray[np.uint64]
Pairs = NDArray[np.int64]


class Link(NamedTuple):
    """Texts number `i` < `j` are near-duplicates.

    `overlap` is the share of the n-grams of the text with fewer that the other one has; `reason` is the first
    rule that holds, of copy, opening, overlap, run.
    """

    i: int
    j: int
    reason: str
    overlap: float


class _Text(NamedTuple):
    """Word numbers (T,), its distinct n-grams and runs, sorted, and 2 for scripts without spaces, else 1."""

    words: NDArray[np.int64]
    grams: Hashes
    runs: Hashes
    unit: int


def words(text: str) -> list[str]:
    """Lower-cased words without punctuation; in scripts without spaces each character is a word.

    Compatibility forms are made one (NFKC), so that full-width and half-width letters are the same word.
    """
    return _WORD.findall(text.lower() if text.isascii() else unicodedata.normalize("NFKC", text).lower())


def _ngrams(numbers: NDArray[np.int64], n: int) -> Hashes:
    """Distinct n-grams as sorted 64-bit hashes; two of 10⁸ distinct n-grams collide with probability 3e-4."""
    count = len(numbers) - n + 1
    if count < 1:
        return np.empty(0, np.uint64)
    mixed = (numbers.astype(np.uint64) + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)  # splitmix64
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    mixed ^= mixed >> np.uint64(31)
    total = np.zeros(count, np.uint64)
    for offset in range(n):
        total = total * np.uint64(0xD1342543DE82EF95) + mixed[offset : offset + count]
    return np.unique(total)


def _read(texts: Iterable[str]) -> list[_Text]:
    numbers: dict[str, int] = {}
    found = []
    for text in texts:
        tokens = words(text) or [text]
        unspaced = 0 if text.isascii() else sum(1 for token in tokens if _IS_UNSPACED.match(token))
        unit = 1 + (2 * unspaced > len(tokens))
        ids = np.array([numbers.setdefault(token, len(numbers)) for token in tokens], np.int64)
        found.append(_Text(ids, _ngrams(ids, NGRAM * unit), _ngrams(ids, RUN * unit), unit))
    return found


def _alike(keys: Iterable[Hashable]) -> list[list[int]]:
    places: dict[Hashable, list[int]] = defaultdict(list)
    for place, key in enumerate(keys):
        if key is not None:
            places[key].append(place)
    return [group for group in places.values() if len(group) > 1]


def _copies(found: Sequence[_Text]) -> Iterator[tuple[int, int]]:
    for group in _alike(text.words.tobytes() for text in found):
        yield from pairwise(group)


def _openings(found: Sequence[_Text]) -> Iterator[tuple[int, int]]:
    """Texts with the same opening, each with the first that has it.

    A short text is compared by all its words: one round for each length under `OPENING` that some text has.
    """
    lengths = {(text.unit, min(len(text.words), OPENING * text.unit)) for text in found}
    for unit, length in sorted(lengths):
        if length < SHORTEST_OPENING * unit:
            continue
        fits = (text.unit == unit and len(text.words) >= length for text in found)
        keys = (t.words[:length].tobytes() if fit else None for t, fit in zip(found, fits, strict=True))
        for group in _alike(keys):
            if len(group) > COMMON:
                continue
            whole = [i for i in group if len(found[i].words) == length]
            firsts = group[:1] if length == OPENING * unit else whole[:1]
            yield from ((min(first, i), max(first, i)) for first in firsts for i in group if i != first)


def _pairs_sharing(hashes: Sequence[Hashes]) -> tuple[Pairs, Pairs]:
    """Pairs of texts that share a hash, coded i · N + j with i < j.

    Returns:
        One entry for each pair and each shared hash that at most `COMMON` texts have, all pairs of them; and
        the distinct pairs of neighbours, in the order of the texts, that share a more common hash.
    """
    n = len(hashes)
    owner = np.repeat(np.arange(n), [len(h) for h in hashes])
    every = np.concatenate(hashes) if hashes else np.empty(0, np.uint64)
    order = np.argsort(every, kind="stable")
    every, owner = every[order], owner[order]
    starts = np.flatnonzero(np.r_[True, every[1:] != every[:-1]][: len(every)])
    sizes = np.diff(np.r_[starts, len(every)])
    rare = [np.empty(0, np.int64)]
    for size in range(2, COMMON + 1):
        place = starts[sizes == size]
        rare += [owner[place + a] * n + owner[place + b] for b in range(1, size) for a in range(b)]
    common = np.repeat(sizes > COMMON, sizes)
    neighbours = np.flatnonzero(common[1:] & (every[1:] == every[:-1]))
    return np.concatenate(rare), np.unique(owner[neighbours] * n + owner[neighbours + 1])


def _share(a: _Text, b: _Text) -> float:
    """Share of the n-grams of the text with fewer that the other one has."""
    fewer = min(len(a.grams), len(b.grams))
    if fewer == 0:  # shorter than one n-gram: the words are the measure
        n = min(len(a.words), len(b.words))
        return float(np.array_equal(a.words[:n], b.words[:n]))
    return len(np.intersect1d(a.grams, b.grams, assume_unique=True)) / fewer


def _by_grams(found: Sequence[_Text]) -> Iterator[tuple[int, int, str]]:
    """Links by run, overlap and copy; a pair may come several times, the stronger reason later."""
    n, count = len(found), np.array([len(text.grams) for text in found])
    rare, near = _pairs_sharing([text.grams for text in found])
    pairs, shared = np.unique(rare, return_counts=True)
    runs, _ = _pairs_sharing([text.runs for text in found])
    overlapping = pairs[shared >= OVERLAP * np.minimum(count[pairs // n], count[pairs % n])]
    yield from ((int(pair // n), int(pair % n), "run") for pair in np.intersect1d(runs, pairs))
    yield from ((int(pair // n), int(pair % n), "overlap") for pair in overlapping)
    # common n-grams count for copies only, and are looked at one pair at a time
    for pair in np.union1d(near, overlapping):
        i, j = divmod(int(pair), n)
        if _share(found[i], found[j]) >= COPY:
            yield i, j, "copy"


def near_duplicates(texts: Sequence[str]) -> list[Link]:
    """Links between near-duplicate texts, by the rules at the head of this module, sorted.

    Where many texts are alike not every pair of them is listed, but enough pairs to join them all; so if
    near-duplicates lie in two parts of a split, some listed link goes from one part to another.
    """
    found = _read(texts)
    links = dict.fromkeys(_openings(found), "opening")
    for i, j, reason in _by_grams(found):
        if reason == "copy" or (i, j) not in links or links[i, j] == "run":
            links[i, j] = reason
    links |= dict.fromkeys(_copies(found), "copy")
    return [Link(i, j, links[i, j], _share(found[i], found[j])) for i, j in sorted(links)]


def families(documents: Sequence[Document], links: Iterable[Link] | None = None) -> list[int]:
    """The family of each text: texts of one group or linked as near-duplicates, directly or through other texts.

    Args:
        documents: N documents.
        links: the near-duplicates among their texts, if they are known already.

    Returns:
        A number for each text; families are numbered from 0 in the order of their first texts.
    """
    parent = list(range(len(documents)))

    def root(i: int) -> int:
        while parent[i] != i:
            parent[i] = parent[parent[i]]
            i = parent[i]
        return i

    same_group = (pair for group in _alike(d.group or None for d in documents) for pair in pairwise(group))
    links = near_duplicates([d.text for d in documents]) if links is None else links
    for i, j in (*same_group, *((link.i, link.j) for link in links)):
        a, b = sorted((root(i), root(j)))
        parent[b] = a
    numbers: dict[int, int] = {}
    return [numbers.setdefault(root(i), len(numbers)) for i in range(len(documents))]
