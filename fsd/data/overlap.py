"""Which n-grams of some texts occur in a corpus: exact counts, in time linear in both and memory that does not grow.

Words are normalised as the field does since GPT-3 (arXiv 2005.14165, appendix C): lower case, punctuation removed. Both
sides are streamed to disk as hashes of n-grams, those of the corpus only if a hash like theirs occurs in the texts, and
compared one part of the hashes after the other. Hashes only find the candidates: what counts as the same n-gram are the
same words.
"""

import json
import os
import string
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import numpy as np
import xxhash
from numpy.typing import NDArray

from fsd.data.near_duplicates import Hashes, ngram_hashes, words
from fsd.data.readers import Passage
from fsd.errors import UsageError, at_least

NGRAM = 13
PARTS = 256
"""Parts of the hashes; the records of one part of the texts, 28 bytes for each n-gram, must fit the memory."""
BLOCK = 2**18
"""Records that are sorted into the parts, or compared, at a time."""
FILTER = 2**26
"""Entries of the table of hashes that occur in the texts, a byte each."""
SHOWN = 30
"""Words of a passage that are shown."""
LONGEST = 4096
"""Bytes of a passage that are shown."""

_RECORD = np.dtype([("hash", "u8"), ("at", "u8"), ("size", "u4"), ("owner", "u8")])
_PUNCTUATION = str.maketrans("", "", f"{string.punctuation}‘’")  # it is deleted: "don't" is the word "dont"


class Overlap(NamedTuple):
    """What a text shares with the corpus."""

    source: str
    words: int
    ngrams: int  # repeated ones included; 0 for a text of fewer than n words
    found: int  # n-grams that occur in the corpus
    longest: int = 0  # words of the longest passage of which every n-gram occurs in the corpus
    start: int = 0  # words before that passage
    where: str = ""  # the first text of the corpus that holds the first n-gram of that passage
    passage: str = ""  # its first words

    @property
    def share(self) -> float:
        """Share of the n-grams that occur in the corpus."""
        return self.found / self.ngrams if self.ngrams else 0.0


def overlap(texts: Iterable[Passage], corpus: Iterable[Passage], folder: Path, *, n: int = NGRAM) -> Iterator[Overlap]:
    """What each text shares with the corpus, in the order of the texts; a UsageError if a side has no n words.

    Both are read once, as documents or consecutive parts of them. The empty folder takes about 50 bytes a word of the
    texts, and of passages of the corpus whose hashes occur in them.
    """
    at_least(1, n=n)
    known = np.zeros(FILTER, np.bool_)
    own, other = _Spool(folder / "texts"), _Spool(folder / "corpus")
    with own, other:
        count = _spool_texts(texts, own, known, n)
        if not _spool_corpus(corpus, other, known, n):
            raise UsageError(f"corpus must have a text of at least {n} words; it has none")
    if not count:
        raise UsageError(f"texts must have one of at least {n} words; there is none")
    # of each n-gram of the texts: place of a line about the corpus, plus 1, or 0; place of its own words
    places = np.memmap(folder / "places", [("line", "i8"), ("at", "i8")], "w+", shape=(count,))
    for part in range(PARTS):
        for number, found in _same_words(own, other, part):
            places[number] = found
    yield from _rows(own, other, places, n)


def normalised(text: str) -> list[str]:
    """The words of a text that are compared."""
    return words(text.translate(_PUNCTUATION))


class _Spool:
    """One side on disk: its words, a line about each text, and the records of its n-grams in parts by their hashes."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        self.folder = folder
        self.pending: list[NDArray[Any]] = []
        self.count = 0

    def __enter__(self) -> None:
        self.words: BinaryIO = (self.folder / "words").open("wb")
        self.texts: BinaryIO = (self.folder / "lines").open("wb")

    def __exit__(self, *_: object) -> None:
        self._sort()
        self.words.close()
        self.texts.close()

    def line(self, *fields: object) -> int:
        """Write the line about a text, and give its place."""
        place = self.texts.tell()
        self.texts.write(json.dumps(fields).encode() + b"\n")
        return place

    def add(self, hashes: Hashes, starts: NDArray[np.int64], n: int, owner: object) -> None:
        """Add the records of consecutive n-grams; `starts` are the places of their words, and the end."""
        records = np.empty(len(hashes), _RECORD)
        records["hash"], records["at"], records["owner"] = hashes, starts[: len(hashes)], owner
        records["size"] = starts[n:] - starts[:-n] - 1
        self.pending.append(records)
        self.count += len(records)
        if self.count > BLOCK:
            self._sort()

    def _sort(self) -> None:
        """Move the pending records to the files of their parts, in their order."""
        records = np.concatenate([np.empty(0, _RECORD), *self.pending])
        self.pending, self.count = [], 0
        of = records["hash"] % np.uint64(PARTS)
        order = np.argsort(of, kind="stable")
        ends = np.searchsorted(of[order], np.arange(PARTS + 1, dtype=np.uint64))
        for part in np.flatnonzero(np.diff(ends)):
            with self.part(int(part)).open("ab") as file:
                file.write(records[order[ends[part] : ends[part + 1]]].tobytes())

    def part(self, number: int) -> Path:
        return self.folder / f"{number}.records"

    def blocks(self, number: int, size: int) -> Iterator[NDArray[Any]]:
        """The records of a part, so many at a time."""
        if self.part(number).exists():
            with self.part(number).open("rb") as file:
                while len(block := np.fromfile(file, _RECORD, size)):
                    yield block


def _hashed(passages: Iterable[Passage], n: int) -> Iterator[tuple[Passage, int, list[bytes], Hashes]]:
    """Each passage with the number of words carried over from the one before, its words after them, and the hashes."""
    rest: list[bytes] = []
    for passage in passages:
        carried = [] if passage.opens else rest
        found = [*carried, *(word.encode() for word in normalised(passage.text))]
        rest = found[max(0, len(found) - n + 1) :]
        yield passage, len(carried), found, ngram_hashes(np.fromiter(map(_number, found), np.uint64, len(found)), n)


@lru_cache(2**20)
def _number(word: bytes) -> int:
    return int(xxhash.xxh3_64_intdigest(word))


def _starts(base: int, found: Sequence[bytes]) -> NDArray[np.int64]:
    """Where each word begins, and where a next one would, if the first begins at `base`."""
    return base + np.cumsum([0, *(len(word) + 1 for word in found)])


def _spool_texts(texts: Iterable[Passage], spool: _Spool, known: NDArray[np.bool_], n: int) -> int:
    """Write the texts, and mark their hashes as known; gives the number of n-grams, each of which owns its record."""
    count = 0
    about: list[Any] = []
    for passage, carried, found, hashes in _hashed(texts, n):
        if passage.opens or not about:
            if about:
                spool.line(*about)
            about = [passage.source, 0, 0]
        starts = _starts(spool.words.tell(), found)
        spool.add(hashes, starts - (starts[carried] - starts[0]), n, np.arange(count, count + len(hashes)))
        spool.words.write(b"".join(word + b" " for word in found[carried:]))
        known[hashes % np.uint64(FILTER)] = True
        count += len(hashes)
        about = [about[0], about[1] + len(found) - carried, about[2] + len(hashes)]
    if about:
        spool.line(*about)
    return count


def _spool_corpus(corpus: Iterable[Passage], spool: _Spool, known: NDArray[np.bool_], n: int) -> bool:
    """Write the passages of the corpus whose hashes are known; gives whether any text of it has n words."""
    place, any_ngram = -1, False
    for passage, _, found, hashes in _hashed(corpus, n):
        place = -1 if passage.opens else place
        any_ngram |= len(hashes) > 0
        for begin, end in _runs(known[hashes % np.uint64(FILTER)]):
            place = spool.line(passage.source) if place < 0 else place
            run = found[begin : end + n - 1]
            spool.add(hashes[begin:end], _starts(spool.words.tell(), run), n, place)
            spool.words.write(b"".join(word + b" " for word in run))
    return any_ngram


def _runs(mask: NDArray[np.bool_]) -> NDArray[np.int64]:
    """(R, 2) first and last + 1 of each run of True."""
    return np.flatnonzero(np.diff(np.r_[False, mask, False].astype(np.int8))).reshape(-1, 2)


def _same_words(own: _Spool, other: _Spool, part: int) -> Iterator[tuple[int, tuple[int, int]]]:
    """Number of each n-gram of the texts that the corpus has; the place of the first text that has it; where it is."""
    mine = np.concatenate([np.empty(0, _RECORD), *own.blocks(part, BLOCK)])
    candidates, hashes, places = np.unique(mine["hash"]), [np.empty(0, np.uint64)], dict[bytes, int]()
    for block in other.blocks(part, BLOCK) if len(mine) else ():
        maybe = block[np.isin(block["hash"], candidates)]
        hashes.append(np.unique(maybe["hash"]))
        for place, _, found in _with_words(other, maybe):
            places.setdefault(found, place)
    for number, at, found in _with_words(own, mine[np.isin(mine["hash"], np.concatenate(hashes))]):
        if found in places:
            yield number, (places[found] + 1, at)


def _with_words(spool: _Spool, records: NDArray[Any]) -> Iterator[tuple[int, int, bytes]]:
    """The owner, the place and the words of each record."""
    with (spool.folder / "words").open("rb") as file:
        for owner, at, size in zip(*(records[name].tolist() for name in ("owner", "at", "size")), strict=True):
            yield owner, at, os.pread(file.fileno(), size, at)


def _rows(own: _Spool, other: _Spool, places: NDArray[Any], n: int) -> Iterator[Overlap]:
    """The result of each text."""
    done = 0
    with (
        (own.folder / "lines").open("rb") as lines,
        (own.folder / "words").open("rb") as file,
        (other.folder / "lines").open("rb") as sources,
    ):
        for line in lines:
            source, count, ngrams = json.loads(line)
            of, done = places[done : done + ngrams], done + ngrams
            runs = _runs(of["line"] > 0).tolist()
            if not runs:
                yield Overlap(source, count, ngrams, 0)
                continue
            start, end = max(runs, key=lambda run: run[1] - run[0])
            longest = end - start + n - 1
            shown = os.pread(file.fileno(), LONGEST, int(of["at"][start])).split(b" ")[: min(longest, SHOWN)]
            sources.seek(int(of["line"][start]) - 1)
            (where,) = json.loads(sources.readline())
            found = sum(last - first for first, last in runs)
            yield Overlap(source, count, ngrams, found, longest, start, where, b" ".join(shown).decode(errors="ignore"))
