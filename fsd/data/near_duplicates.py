"""Near-duplicate texts, and families of related texts that a split keeps together.

Two texts are near-duplicates by any of these rules (n-grams are of words, and each distinct one counts once per text):

- copy: at least 80 % of the 7-grams of the text with fewer occur in the other one, or both have the same words;
- opening: the first 10 words are the same, or a text of 5 to 9 words is the opening of the other one;
- overlap: at least 20 % of the 7-grams of the text with fewer occur in the other one, not counting 7-grams that
  occur in more than `COMMON` texts;
- run: 20 consecutive words are the same, about one English sentence, unless more than `COMMON` texts contain them or
  all 7-grams shared by the two texts are that common. Independent texts do not agree for that long by chance;
  quotations do, and they leak too.

A passage in more than `COMMON` texts (a licence, a template, "Title: ... Abstract: we study") does not indicate a
common origin, so it does not link texts by opening, overlap or run. More than `COMMON` copies of a text are linked in
a chain, each with the next, which is enough for one family.

In scripts without spaces each character counts as half a word, so the lengths above double. Time and memory are linear
in the number of words: an n-gram yields at most `COMMON` / 2 pairs per text that contains it.
"""

import re
import unicodedata
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from difflib import SequenceMatcher
from functools import lru_cache
from itertools import combinations, compress, count, pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fsd.data.documents import Document, Documents
from fsd.errors import UsageError
from fsd.token_stats import IntArray
from fsd.unspaced import IS_UNSPACED, UNSPACED, single, spelled

NGRAM = 7
OPENING = 10
SHORTEST_OPENING = 5
RUN = 20
OVERLAP = 0.2
COPY = 0.8
ALIGNED = 0.9
"""Share of words in the same order from which near-duplicates with different labels contradict each other."""
RARE = 64
"""Pairs of places, one in each of two texts, up to which a word is rare in them."""
COMMON = 10
LISTED = 5
"""Maximum number of pairs that an error or a remark lists."""

_WORD = re.compile(single(UNSPACED) + "|" + spelled(rf"^\W{UNSPACED}"))

# Soft hyphens, zero-width spaces and joiners, marks of direction: copies of one text differ in them, its words do not.
INVISIBLE = dict.fromkeys([0xAD, *range(0x200B, 0x2010), *range(0x202A, 0x202F), *range(0x2060, 0x206A), 0xFEFF])

Hashes = NDArray[np.uint64]
Pairs = IntArray
Pair = tuple[int, int]
"""Positions of two texts."""


class Link(NamedTuple):
    """Near-duplicate texts `i` < `j`, and the first rule that applies."""

    i: int
    j: int
    reason: str


class _Texts(NamedTuple):
    """Word ids, sorted distinct 7-grams and runs of each text, and its words per unit, see `_unit`."""

    words: list[IntArray]
    grams: list[Hashes]
    runs: list[Hashes]
    units: list[int]


def words(text: str) -> list[str]:
    """Lower-cased words without punctuation, normalised (NFKC); in scripts without spaces each character is a word."""
    if not text.isascii():  # ASCII text is normal already, and normalising costs more than the rest
        text = unicodedata.normalize("NFKC", text.translate(INVISIBLE))
    return _WORD.findall(text.lower())


def ngrams(text: str, n: int) -> set[tuple[str, ...]]:
    """The distinct n-grams of words of a text; none of a shorter one."""
    tokens = words(text)
    return set(zip(*(tokens[start:] for start in range(n)), strict=False))


def ngram_hashes(numbers: NDArray[Any], n: int) -> Hashes:
    """A 64-bit hash of each n-gram, in their order; among 10⁸ n-grams, a collision has probability 3e-4."""
    size = len(numbers) - n + 1
    if size < 1:
        return np.empty(0, np.uint64)
    # splitmix64 spreads small numbers over all 64 bits; products are meant to overflow
    mixed: NDArray[Any] = (numbers.astype(np.uint64) + 1) * 0x9E3779B97F4A7C15
    mixed = (mixed ^ (mixed >> 30)) * 0xBF58476D1CE4E5B9
    mixed = (mixed ^ (mixed >> 27)) * 0x94D049BB133111EB
    mixed ^= mixed >> 31
    hashes = np.zeros(size, np.uint64)
    for offset in range(n):
        # a polynomial, so that the order of the words counts
        hashes = hashes * 0xD1342543DE82EF95 + mixed[offset : offset + size]
    return hashes


def _read(texts: Iterable[str]) -> _Texts:
    numbers: dict[str, int] = defaultdict(count().__next__)  # numbers words in the order in which they come
    read = _Texts([], [], [], [])
    for text in texts:
        # a text of punctuation alone is compared by its signs
        tokens = words(text) or [" ".join(text.split())]
        ids = np.fromiter(map(numbers.__getitem__, tokens), np.int64, len(tokens))
        unit = 1 if text.isascii() else _unit(tokens)
        read.words.append(ids)
        read.grams.append(np.unique(ngram_hashes(ids, NGRAM * unit)))
        read.runs.append(np.unique(ngram_hashes(ids, RUN * unit)))
        read.units.append(unit)
    return read


def _unit(tokens: Sequence[str]) -> int:
    """2 for a text of which most words are characters of scripts without spaces, else 1."""
    unspaced = list(filter(IS_UNSPACED.match, tokens))
    if 2 * len(unspaced) > len(tokens):
        return 2
    return 1


def _openings(texts: _Texts) -> Iterator[Pair]:
    """Pairs of texts with the same opening, each text with the first one; shorter texts by all their words."""
    lengths = set()
    for ids, unit in zip(texts.words, texts.units, strict=True):
        lengths.add((unit, min(len(ids), OPENING * unit)))
    for unit, length in lengths:
        if length < SHORTEST_OPENING * unit:
            continue
        for alike in _with_same_words(texts, unit, length):
            if len(alike) > COMMON:  # a template
                continue
            start = alike[0]
            if length < OPENING * unit:
                # so few words are an opening only if they are a whole text
                start = min(alike, key=lambda i: len(texts.words[i]))
                if len(texts.words[start]) > length:
                    continue
            for i in alike:
                if i != start:
                    yield min(start, i), max(start, i)


def _with_same_words(texts: _Texts, words_per_unit: int, length: int) -> Iterable[list[int]]:
    """Positions of the texts whose units have so many words, by their first words; shorter texts are in none."""
    positions = defaultdict(list)
    for i, ids in enumerate(texts.words):
        if texts.units[i] == words_per_unit and len(ids) >= length:
            positions[ids[:length].tobytes()].append(i)
    return positions.values()


def _pairs_sharing(hashes: Sequence[Hashes]) -> tuple[Pairs, Pairs]:
    """Pairs i · N + j, i < j, that share a hash: one for each in at most `COMMON` texts; distinct ones of others."""
    n = len(hashes)
    owner = np.repeat(np.arange(n), list(map(len, hashes)))
    joined = np.concatenate(hashes)
    # stable, so that the owners of a hash stay in their order, and i < j
    order = np.argsort(joined, kind="stable")
    joined = joined[order]
    owner = owner[order]
    # each hash once a text, so that equal hashes lie side by side with different owners
    same = joined[1:] == joined[:-1]
    starts = np.flatnonzero(np.r_[len(joined) > 0, ~same])
    sizes = np.diff(starts, append=len(joined))
    rare = []
    for size in range(2, COMMON + 1):
        start = starts[sizes == size]
        for a, b in combinations(range(size), 2):
            rare.append(owner[start + a] * n + owner[start + b])
    # many owners are linked in a chain: all their pairs would be quadratic in number
    common = np.repeat(sizes > COMMON, sizes)
    neighbours = np.flatnonzero(same & common[1:])
    return np.concatenate(rare), np.unique(owner[neighbours] * n + owner[neighbours + 1])


def _share(texts: _Texts, i: int, j: int) -> float:
    """Share of the 7-grams of the text with fewer that occur in the other one."""
    a = texts.grams[i]
    b = texts.grams[j]
    fewer = min(len(a), len(b))
    if fewer:
        return len(np.intersect1d(a, b, assume_unique=True)) / fewer
    # shorter than one 7-gram: compare the words
    a_words = texts.words[i]
    b_words = texts.words[j]
    n = min(len(a_words), len(b_words))
    return float(np.array_equal(a_words[:n], b_words[:n]))


def near_duplicates(texts: Sequence[str]) -> list[Link]:
    """Sorted links by the rules above; of many similar texts enough pairs to connect all, not every pair."""
    return list(_near_duplicates(tuple(texts)))


# A run asks for the same texts in the same order several times. Another order is another key: the audit of leaks, which
# reads the parts one after the other, compares again.
@lru_cache(maxsize=2)
def _near_duplicates(texts: tuple[str, ...]) -> tuple[Link, ...]:
    if not texts:
        return ()
    read = _read(texts)
    links = _by_grams(read)
    # stronger rules replace weaker ones, so copies come last
    for i, j in _openings(read):
        if links.get((i, j)) != "copy":
            links[i, j] = "opening"
    # texts shorter than a 7-gram have none to share
    same_words = defaultdict(list)
    for i, ids in enumerate(read.words):
        same_words[ids.tobytes()].append(i)
    for copies in same_words.values():
        links |= dict.fromkeys(pairwise(copies), "copy")
    found_links = []
    for (i, j), reason in sorted(links.items()):
        found_links.append(Link(i, j, reason))
    return tuple(found_links)


def _by_grams(texts: _Texts) -> dict[Pair, str]:
    """Links by run, overlap and copy, with the strongest of them."""
    n = len(texts.grams)
    sizes = np.array(list(map(len, texts.grams)))
    rare, common = _pairs_sharing(texts.grams)
    pairs, shared = np.unique(rare, return_counts=True)
    runs, _ = _pairs_sharing(texts.runs)
    # a run all of whose 7-grams are common is made of standard sentences
    runs = np.intersect1d(runs, pairs)
    fewer = np.minimum(sizes[pairs // n], sizes[pairs % n])
    overlapping = pairs[shared >= OVERLAP * fewer]
    links = dict.fromkeys(_positions(runs, n), "run")
    links |= dict.fromkeys(_positions(overlapping, n), "overlap")
    # common 7-grams count for copies only, which are checked pair by pair
    for i, j in _positions(np.union1d(common, overlapping), n):
        if _share(texts, i, j) >= COPY:
            links[i, j] = "copy"
    return links


def _positions(pairs: Pairs, n: int) -> Iterator[Pair]:
    return zip((pairs // n).tolist(), (pairs % n).tolist(), strict=True)


def _labelled_links(documents: Documents) -> list[Link]:
    labelled = [i for i, document in enumerate(documents) if document.member is not None]
    # texts without a label are left out before, or a passage that many of them have would count as a template
    links = near_duplicates([documents[i].whole for i in labelled])
    return [link._replace(i=labelled[link.i], j=labelled[link.j]) for link in links]


def contradictions(documents: Documents) -> list[Pair]:
    """Sorted positions of members and non-members that are copies, or have `ALIGNED` words in the same order."""
    pairs = []
    for i, j, reason in _labelled_links(documents):
        a = documents[i]
        b = documents[j]
        if a.member == b.member:
            continue
        if reason == "copy" or _aligned(a.whole, b.whole) >= ALIGNED:
            pairs.append((i, j) if a.member else (j, i))
    return sorted(pairs)


def _aligned(text: str, compared: str) -> float:
    """Share of the words of the shorter text that occur in the other one in the same order; or a bound below `ALIGNED`.

    Of two books, the blocks would take seconds, and hardly any two are so alike.
    """
    a = words(text)
    b = words(compared)
    fewer = max(1, min(len(a), len(b)))
    bound = (Counter(a) & Counter(b)).total() / fewer
    if bound >= ALIGNED:
        bound = _most_in_order(a, b) / fewer
    if bound < ALIGNED:
        return bound
    blocks = SequenceMatcher(None, a, b).get_matching_blocks()
    return sum(block.size for block in blocks) / fewer


def _most_in_order(a: Sequence[str], b: Sequence[str]) -> int:
    """At least as many words as any common subsequence of the two has.

    It has no more of the frequent words than both texts, and no more of the rare ones than their own longest common
    subsequence, which few places make fast (Hunt and Szymanski 1977, https://doi.org/10.1145/359581.359603).
    """
    count = Counter(a)
    in_both = Counter(b)
    rare = set()
    for word, times in count.items():
        n_pairs = times * in_both[word]
        if 0 < n_pairs <= RARE:
            rare.add(word)
    places = defaultdict(list)
    for place in range(len(b) - 1, -1, -1):
        if b[place] in rare:
            places[b[place]].append(place)
    # The last place of the best subsequence of each length; from the end, so that a word is taken once.
    ends: list[int] = []
    for word in a:
        for place in places.get(word, ()):
            length = bisect_left(ends, place)
            ends[length : length + 1] = [place]
    frequent = count & in_both
    for word in rare:
        del frequent[word]
    return frequent.total() + len(ends)


def listed(pairs: Sequence[str]) -> str:
    """The first `LISTED` pairs, and the number of the others."""
    parts = list(pairs[:LISTED])
    if len(pairs) > LISTED:
        parts.append(f"and {len(pairs) - LISTED:,} more")
    return "; ".join(parts)


def refuse_contradictions(documents: Documents, remedy: str = "") -> None:
    """Refuse texts of which a member is a copy or near-copy of a non-member; the remedy is appended to the error."""
    pairs = contradictions(documents)
    if not pairs:
        return
    alike = [f"{documents[i].origin} = {documents[j].origin}" for i, j in pairs]
    raise UsageError(
        f"members and non-members must not share texts; {pairs_are(pairs)} "
        f"copies or near-copies labelled both 1 and 0 (member = non-member): {listed(alike)}{remedy}"
    )


def pairs_are(pairs: Sequence[object]) -> str:
    """How many pairs there are, with the verb."""
    return "1 pair is" if len(pairs) == 1 else f"{len(pairs):,} pairs are"


def copies_among(links: Iterable[Link]) -> list[Pair]:
    """The links that are copies."""
    return [(link.i, link.j) for link in links if link.reason == "copy"]


def drop_contradictions(documents: Documents) -> tuple[list[Document], int]:
    """What is left without copies that are labelled differently and all copies of these, and the number left out."""
    kept = list(documents)
    # What is left is compared again, see `fsd.data.related`.
    while pairs := contradictions(kept):
        copies = copies_among(_labelled_links(kept))
        family = np.array(connected(len(kept), copies + pairs))
        contradicted = np.isin(family, family[np.array(pairs)])
        kept = list(compress(kept, ~contradicted))
    return kept, len(documents) - len(kept)


def families(documents: Documents, links: Iterable[Link] | None = None) -> list[int]:
    """The family of each text, in order of first texts: of one group, or near-duplicates, also through others."""
    if links is None:
        links = near_duplicates([document.whole for document in documents])
    pairs = [(link.i, link.j) for link in links]
    # each text with the latest one of its group: a chain connects them all
    latest: dict[str, int] = {}
    for i, document in enumerate(documents):
        group = document.group
        if group in latest:
            pairs.append((latest[group], i))
        if group:
            latest[group] = i
    return connected(len(documents), pairs)


def connected(size: int, pairs: Sequence[Pair]) -> list[int]:
    """The component of each node, numbered in the order of their first nodes."""
    import pandas as pd
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    if not pairs:
        return list(range(size))
    graph = coo_array((np.ones(len(pairs)), np.array(pairs).T), shape=(size, size))
    _, labels = connected_components(graph)
    # scipy does not promise the order of its labels, on which draws by seed depend
    numbers, _ = pd.factorize(labels)
    return numbers.tolist()
