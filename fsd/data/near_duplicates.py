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
from collections.abc import Hashable, Iterable, Iterator, Sequence
from difflib import SequenceMatcher
from functools import lru_cache
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fsd.data.documents import Document
from fsd.errors import UsageError

NGRAM = 7
OPENING = 10
SHORTEST_OPENING = 5
RUN = 20
OVERLAP = 0.2
COPY = 0.8
ALIGNED = 0.9
"""Share of words in the same order from which near-duplicates with different labels contradict each other."""
COMMON = 10
LISTED = 5
"""Maximum number of pairs listed in the error for texts labelled both 1 and 0."""

UNSPACED = (
    "\u0e00-\u0fff\u1000-\u109f\u1780-\u17ff"  # Thai, Lao, Tibetan; Burmese; Khmer
    "\u3005-\u3007\u3040-\u30ff\u31f0-\u31ff"  # kana
    "\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"  # Han
)
# combining vowel signs and accents are part of the word (Indic scripts, Arabic, Hebrew)
_MARKS = "\u0300-\u036f\u0591-\u05bd\u064b-\u065f\u0670\u0900-\u0963\u0966-\u0dff"
_WORD = re.compile(rf"(?=\w)[{UNSPACED}]|(?:[^\W{UNSPACED}]|[{_MARKS}])+")
IS_UNSPACED = re.compile(f"[{UNSPACED}]")

Hashes = NDArray[np.uint64]
Pairs = NDArray[np.int64]


class Link(NamedTuple):
    """Near-duplicate texts `i` < `j`, the first rule that applies, and the share of 7-grams of the one with fewer."""

    i: int
    j: int
    reason: str
    overlap: float


class _Text(NamedTuple):
    """Word ids (T,), sorted distinct 7-grams and runs, and the words per unit: 2 in scripts without spaces, else 1."""

    words: NDArray[np.int64]
    grams: Hashes
    runs: Hashes
    unit: int


def words(text: str) -> list[str]:
    """Lower-cased words without punctuation, normalised (NFKC); in scripts without spaces each character is a word."""
    return _WORD.findall(text.lower() if text.isascii() else unicodedata.normalize("NFKC", text).lower())


def ngrams(text: str, n: int) -> set[tuple[str, ...]]:
    """The distinct n-grams of words of a text; none of a shorter one."""
    tokens = words(text)
    return set(zip(*(tokens[start:] for start in range(n)), strict=False))


def ngram_hashes(numbers: NDArray[Any], n: int) -> Hashes:
    """A 64-bit hash of each n-gram, in their order; among 10⁸ n-grams, a collision has probability 3e-4."""
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
    return total


def _read(texts: Iterable[str]) -> list[_Text]:
    numbers: dict[str, int] = {}
    read = []
    for text in texts:
        tokens = words(text) or [" ".join(text.split())]
        unspaced = 0 if text.isascii() else sum(1 for token in tokens if IS_UNSPACED.match(token))
        unit = 1 + (2 * unspaced > len(tokens))
        ids = np.array([numbers.setdefault(token, len(numbers)) for token in tokens], np.int64)
        grams, runs = (np.unique(ngram_hashes(ids, n * unit)) for n in (NGRAM, RUN))
        read.append(_Text(ids, grams, runs, unit))
    return read


def _same_key(keys: Iterable[Hashable]) -> list[list[int]]:
    """Positions of equal keys, for each key that occurs more than once; None is ignored."""
    positions: dict[Hashable, list[int]] = {}
    for position, key in enumerate(keys):
        positions.setdefault(key, []).append(position)
    return [group for key, group in positions.items() if key is not None and len(group) > 1]


def _openings(texts: Sequence[_Text]) -> Iterator[tuple[int, int]]:
    """Pairs of texts with the same opening, each text with the first one; shorter texts by all their words."""
    lengths = {(text.unit, min(len(text.words), OPENING * text.unit)) for text in texts}
    for unit, length in sorted(lengths):
        long = [len(text.words) >= length >= SHORTEST_OPENING * unit == SHORTEST_OPENING * text.unit for text in texts]
        keys = (text.words[:length].tobytes() if fits else None for text, fits in zip(texts, long, strict=True))
        for group in (group for group in _same_key(keys) if len(group) <= COMMON):
            whole = [i for i in group if len(texts[i].words) == length]
            firsts = group[:1] if length == OPENING * unit else whole[:1]
            yield from ((min(first, i), max(first, i)) for first in firsts for i in group if i != first)


def _pairs_sharing(hashes: Sequence[Hashes]) -> tuple[Pairs, Pairs]:
    """Pairs i · N + j, i < j, that share a hash: one for each in at most `COMMON` texts; distinct ones of others."""
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
    """Share of the 7-grams of the text with fewer that occur in the other one."""
    fewer = min(len(a.grams), len(b.grams))
    if fewer == 0:  # shorter than one 7-gram: compare the words
        n = min(len(a.words), len(b.words))
        return float(np.array_equal(a.words[:n], b.words[:n]))
    return len(np.intersect1d(a.grams, b.grams, assume_unique=True)) / fewer


def _by_grams(texts: Sequence[_Text]) -> Iterator[tuple[int, int, str]]:
    """Links by run, overlap and copy; a pair may occur several times, with the strongest reason last."""
    n, count = len(texts), np.array([len(text.grams) for text in texts])
    rare, near = _pairs_sharing([text.grams for text in texts])
    pairs, shared = np.unique(rare, return_counts=True)
    runs, _ = _pairs_sharing([text.runs for text in texts])
    overlapping = pairs[shared >= OVERLAP * np.minimum(count[pairs // n], count[pairs % n])]
    yield from ((int(pair // n), int(pair % n), "run") for pair in np.intersect1d(runs, pairs))
    yield from ((int(pair // n), int(pair % n), "overlap") for pair in overlapping)
    # common 7-grams count for copies only, which are checked pair by pair
    for pair in np.union1d(near, overlapping):
        i, j = divmod(int(pair), n)
        if _share(texts[i], texts[j]) >= COPY:
            yield i, j, "copy"


def near_duplicates(texts: Sequence[str]) -> list[Link]:
    """Sorted links by the rules above; of many similar texts enough pairs to connect all, not every pair."""
    return list(_near_duplicates(tuple(texts)))


@lru_cache(maxsize=2)  # a run compares the same texts for the split and again for the audit
def _near_duplicates(texts: tuple[str, ...]) -> tuple[Link, ...]:
    read = _read(texts)
    links = dict.fromkeys(_openings(read), "opening")
    for i, j, reason in _by_grams(read):
        if reason == "copy" or (i, j) not in links or links[i, j] == "run":
            links[i, j] = reason
    for group in _same_key(text.words.tobytes() for text in read):
        links |= dict.fromkeys(pairwise(group), "copy")
    return tuple(Link(i, j, links[i, j], _share(read[i], read[j])) for i, j in sorted(links))


def _labelled_links(documents: Sequence[Document]) -> list[Link]:
    at = [i for i, document in enumerate(documents) if document.member is not None]
    return [link._replace(i=at[link.i], j=at[link.j]) for link in near_duplicates([documents[i].whole for i in at])]


def contradictions(documents: Sequence[Document]) -> list[tuple[int, int]]:
    """Sorted positions of members and non-members that are copies, or have `ALIGNED` words in the same order."""
    return sorted(
        (i, j) if documents[i].member else (j, i)
        for i, j, reason, _ in _labelled_links(documents)
        if documents[i].member != documents[j].member
        and (reason == "copy" or _aligned(documents[i].whole, documents[j].whole) >= ALIGNED)
    )


def _aligned(first: str, second: str) -> float:
    """Share of the words of the shorter text that occur in the other one in the same order."""
    a, b = words(first), words(second)
    blocks = SequenceMatcher(None, a, b).get_matching_blocks()
    return sum(block.size for block in blocks) / max(1, min(len(a), len(b)))


def refuse_contradictions(documents: Sequence[Document], remedy: str = "") -> None:
    """Refuse texts of which a member is a copy or near-copy of a non-member; the remedy is appended to the error."""
    pairs = contradictions(documents)
    if pairs:
        listed = "; ".join(f"{documents[i].origin} = {documents[j].origin}" for i, j in pairs[:LISTED])
        more = f"; and {len(pairs) - LISTED} more" if len(pairs) > LISTED else ""
        raise UsageError(
            f"members and non-members must not share texts; {len(pairs)} pair{' is' if len(pairs) == 1 else 's are'} "
            f"copies or near-copies labelled both 1 and 0 (member = non-member): {listed}{more}{remedy}"
        )


def refuse_copies(documents: Sequence[Document], background: Sequence[Document]) -> None:
    """Refuse a background of a model to be trained of which a text is a copy or near-copy of a document."""
    labelled = ((documents, True), (background, False))
    sides = [Document(d.text, member, source=d.source) for side, member in labelled for d in side]
    copies = [(sides[i].origin, sides[j].origin) for i, j in contradictions(sides)]
    if copies:
        raise UsageError(
            "background must hold other texts than the members and non-members, which would be trained on with it; "
            f"{len(copies)} copies, the first {' = '.join(copies[0])}"
        )


def refuse_members(known: Sequence[Document]) -> None:
    """UsageError if a known text is labelled a member."""
    member = next((document for document in known if document.member), None)
    if member:
        raise UsageError(f"known must hold texts that are non-members; {member.source} is labelled a member")


def refuse_related(suspect: Sequence[Document], known: Sequence[Document]) -> None:
    """UsageError if known texts share a group or a near-duplicate with the suspect texts, with the first such text."""
    shared = ({document.group for document in suspect} & {document.group for document in known}) - {""}
    if shared:
        raise UsageError(f"known must hold other groups than the texts to be judged; both have {min(shared)!r}")
    documents = [*suspect, *known]
    for link in near_duplicates([document.text for document in documents]):
        if link.i < len(suspect) <= link.j:
            pair = f"{documents[link.i].source} and {documents[link.j].source}"
            raise UsageError(f"known must hold other texts than those to be judged; {pair} are alike ({link.reason})")


def unrelated(suspect: Sequence[Document], known: Sequence[Document]) -> list[Document]:
    """The known texts that are no near-duplicates of a suspect one."""
    links = near_duplicates([document.text for document in (*suspect, *known)])
    alike = {link.j - len(suspect) for link in links if link.i < len(suspect)}
    return [document for at, document in enumerate(known) if at not in alike]


def drop_contradictions(documents: Sequence[Document]) -> tuple[list[Document], int]:
    """What is left without copies that are labelled differently and all copies of these, and the number left out."""
    pairs = contradictions(documents)
    if not pairs:
        return list(documents), 0
    copies = [(link.i, link.j) for link in _labelled_links(documents) if link.reason == "copy"]
    family = _connected(len(documents), [*copies, *pairs])
    contradicted = {family[i] for i, _ in pairs}
    kept = [document for document, number in zip(documents, family, strict=True) if number not in contradicted]
    return kept, len(documents) - len(kept)


def families(documents: Sequence[Document], links: Iterable[Link] | None = None) -> list[int]:
    """The family of each text, in order of first texts: of one group, or near-duplicates, also through others."""
    links = near_duplicates([d.whole for d in documents]) if links is None else links
    same_group = (pair for group in _same_key(d.group or None for d in documents) for pair in pairwise(group))
    return _connected(len(documents), [*same_group, *((link.i, link.j) for link in links)])


def _connected(size: int, pairs: Sequence[tuple[int, int]]) -> list[int]:
    """The component of each node, numbered in the order of their first nodes."""
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    if not pairs:
        return list(range(size))
    first, second = np.array(pairs, np.int64).T
    graph = coo_array((np.ones(len(pairs)), (first, second)), shape=(size, size))
    numbers: dict[int, int] = {}
    return [numbers.setdefault(label, len(numbers)) for label in connected_components(graph)[1].tolist()]
