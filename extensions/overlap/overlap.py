"""Which n-grams of some texts occur in a corpus: exact counts, in time linear in both and memory that does not grow.

Words are normalised as the field does since GPT-3 (arXiv 2005.14165, appendix C): lower case, punctuation removed. Both
sides are streamed to disk as hashes of n-grams, those of the corpus only if a hash like theirs occurs in the texts, and
compared one part of the hashes after the other. Hashes only find the candidates: what counts as the same n-gram are the
same words.
"""

import json
import os
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fsd.data.near_duplicates import COMMON, Hashes, ngram_hashes, normalised, runs_of, word_numbers
from fsd.data.readers import Passage, Passages
from fsd.errors import UsageError, at_least
from fsd.token_stats import BoolArray, IntArray

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
MOST = 0.8
"""Share of a text's n-grams, without those of many texts, from which a text without an answer is contaminated."""
BOILERPLATE = "boilerplate"
PASSAGE = "passage"
ANSWER = "answer inside"
QUESTION = "question alone"
CONTAMINATED = "contaminated"
PARTLY = "partly"
NOT_FOUND = "not found"
TOO_SHORT = "too short"
VERDICTS = (CONTAMINATED, PARTLY, NOT_FOUND, TOO_SHORT)

Records = NDArray[Any]

_RECORD = np.dtype([("hash", "u8"), ("at", "u8"), ("size", "u4"), ("owner", "u8")])


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
    common: int = 0  # found n-grams that occur more than `COMMON` times in the texts themselves
    answered: bool | None = None  # whether a passage holds the answer of the text; None for a text without one

    @property
    def share(self) -> float:
        """Share of the n-grams that occur in the corpus."""
        return self.found / max(1, self.ngrams)

    @property
    def kind(self) -> str:
        """What the corpus has of the text: the answer, the question alone, a passage, boilerplate of many, or ""."""
        if not self.found:
            return ""
        if self.found == self.common:
            return BOILERPLATE
        if self.answered is None:
            return PASSAGE
        if self.answered:
            return ANSWER
        return QUESTION

    @property
    def verdict(self) -> str:
        """Contaminated if the answer is in the corpus or, for a text without one, `MOST` of the text is."""
        if not self.ngrams:
            return TOO_SHORT
        if self.kind in ("", BOILERPLATE):
            return NOT_FOUND
        whole = self.found - self.common >= MOST * self.ngrams
        if self.answered or (self.answered is None and whole):
            return CONTAMINATED
        return PARTLY


def overlap(texts: Passages, corpus: Passages, folder: Path, *, n: int = NGRAM) -> Iterator[Overlap]:
    """What each text shares with the corpus, in the order of the texts; a UsageError if a side has no n words.

    Both are read once, as documents or consecutive parts of them. The empty folder takes about 50 bytes a word of the
    texts, and of passages of the corpus whose hashes occur in them.
    """
    at_least(1, n=n)
    in_texts = np.zeros(FILTER, np.bool_)
    spool = _Spool(folder / "texts")
    corpus_spool = _Spool(folder / "corpus")
    with spool, corpus_spool:
        size = _spool_texts(texts, spool, in_texts, n)
        if not _spool_corpus(corpus, corpus_spool, in_texts, n):
            raise UsageError(f"corpus must have a text of at least {n} words; it has none")
    if not size:
        raise UsageError(f"texts must have one of at least {n} words; there is none")
    # of each n-gram of the texts: place of a line about the corpus, plus 1, or 0; place of its own words; whether many
    # of the texts have it
    fields = [("line", "i8"), ("at", "i8"), ("common", "?")]
    places = np.memmap(folder / "places", fields, "w+", shape=(size,))
    for part in range(PARTS):
        for number, place in _same_words(spool, corpus_spool, part):
            places[number] = place
    yield from _rows(spool, corpus_spool, places, n)


class _Spool:
    """One side on disk: its words, a line about each text, and the records of its n-grams in parts by their hashes."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        self.folder = folder
        self.pending = [np.empty(0, _RECORD)]
        self.count = 0

    def __enter__(self) -> None:
        self.words = (self.folder / "words").open("wb")
        self.texts = (self.folder / "lines").open("wb")

    def __exit__(self, *_: object) -> None:
        self._sort()
        self.words.close()
        self.texts.close()

    def line(self, *fields: object) -> int:
        """Write the line about a text, and give its place."""
        place = self.texts.tell()
        self.texts.write(json.dumps(fields).encode() + b"\n")
        return place

    def write(self, words: Sequence[bytes]) -> None:
        """Write words, each followed by a space."""
        self.words.write(b" ".join([*words, b""]))

    def add(self, hashes: Hashes, starts: IntArray, n: int, owner: object) -> None:
        """Add the records of consecutive n-grams; `starts` are the places of their words, and the end."""
        records = np.empty(len(hashes), _RECORD)
        records["hash"] = hashes
        records["at"] = starts[: len(hashes)]
        records["owner"] = owner
        records["size"] = starts[n:] - starts[:-n] - 1  # without the space after the last word
        self.pending.append(records)
        self.count += len(records)
        if self.count > BLOCK:
            self._sort()

    def _sort(self) -> None:
        """Move the pending records to the files of their parts, in their order."""
        records = np.concatenate(self.pending)
        del self.pending[1:]
        self.count = 0
        number = records["hash"] % PARTS
        # stable: the first text of the corpus that has an n-gram is the one that is named
        order = np.argsort(number, kind="stable")
        ends = np.searchsorted(number[order], np.arange(PARTS + 1))
        for part in np.flatnonzero(np.diff(ends)).tolist():
            of_part = order[ends[part] : ends[part + 1]]
            with self.part(part).open("ab") as file:
                file.write(records[of_part].tobytes())

    def part(self, number: int) -> Path:
        return self.folder / f"{number}.records"

    def blocks(self, number: int) -> Iterator[Records]:
        """The records of a part, `BLOCK` at a time."""
        if not self.part(number).exists():
            return
        with self.part(number).open("rb") as file:
            while len(block := np.fromfile(file, _RECORD, BLOCK)):
                yield block

    def with_words(self, records: Records) -> Iterator[tuple[int, int, bytes]]:
        """The owner, the place and the words of each record."""
        with (self.folder / "words").open("rb") as file:
            for owner, place, size in records[["owner", "at", "size"]].tolist():
                yield owner, place, os.pread(file.fileno(), size, place)


def _hashed(passages: Passages, n: int) -> Iterator[tuple[Passage, int, list[bytes], Hashes]]:
    """Each passage with the number of words carried over from the one before, its words after them, and the hashes."""
    carried: list[bytes] = []
    for passage in passages:
        if passage.opens:
            carried = []
        tokens = carried + list(map(str.encode, normalised(passage.text)))
        yield passage, len(carried), tokens, ngram_hashes(word_numbers(tokens), n)
        # n-grams that lie in two passages begin in these words
        carried = tokens[max(0, len(tokens) - n + 1) :]


def _starts(base: int, tokens: Sequence[bytes]) -> IntArray:
    """Where each word begins, and where a next one would, if the first begins at `base`."""
    lengths = np.fromiter(map(len, tokens), np.int64, len(tokens))
    ends = base + np.cumsum(lengths + 1)
    return np.insert(ends, 0, base)


def _spool_texts(texts: Passages, spool: _Spool, in_texts: BoolArray, n: int) -> int:
    """Write the texts, and mark their hashes; gives the number of n-grams, each of which owns its record."""
    total = 0
    origin_url = ""
    word_count = -1
    ngram_count = 0
    answer: tuple[int, int] | None = None
    for passage, carried, tokens, hashes in _hashed(texts, n):
        if passage.opens or word_count < 0:
            if word_count >= 0:
                spool.line(origin_url, word_count, ngram_count, answer)
            origin_url = passage.origin_url
            # only a row has an answer, and a row is one passage
            answer = _answer_span(passage.answer, tokens)
            word_count = 0
            ngram_count = 0
        starts = _starts(spool.words.tell(), tokens)
        # the words that were carried over have been written already, before this place
        starts -= starts[carried] - starts[0]
        spool.add(hashes, starts, n, np.arange(total, total + len(hashes)))
        spool.write(tokens[carried:])
        in_texts[hashes % FILTER] = True
        total += len(hashes)
        word_count += len(tokens) - carried
        ngram_count += len(hashes)
    if word_count >= 0:
        spool.line(origin_url, word_count, ngram_count, answer)
    return total


def _answer_span(answer: str, tokens: Sequence[bytes]) -> tuple[int, int] | None:
    """First word and end of the last place where a text has its answer; (0, 0) if nowhere, None without an answer."""
    wanted = list(map(str.encode, normalised(answer)))
    if not wanted:
        return None
    size = len(wanted)
    for start in range(len(tokens) - size, -1, -1):
        if tokens[start : start + size] == wanted:
            return start, start + size
    return 0, 0


def _spool_corpus(corpus: Passages, spool: _Spool, in_texts: BoolArray, n: int) -> bool:
    """Write the passages of the corpus whose hashes occur in the texts; gives whether any text of it has n words."""
    place = -1
    has_ngrams = False
    for passage, _, tokens, hashes in _hashed(corpus, n):
        if passage.opens:
            place = -1
        has_ngrams |= len(hashes) > 0
        for begin, end in runs_of(in_texts[hashes % FILTER]):
            if place < 0:
                place = spool.line(passage.origin_url)
            run = tokens[begin : end + n - 1]
            spool.add(hashes[begin:end], _starts(spool.words.tell(), run), n, place)
            spool.write(run)
    return has_ngrams


def _same_words(spool: _Spool, corpus: _Spool, part: int) -> Iterator[tuple[int, tuple[int, int, bool]]]:
    """Number of each n-gram of the texts that the corpus has, and its entry in the table of places."""
    records = np.concatenate([np.empty(0, _RECORD), *spool.blocks(part)])
    if not len(records):  # then the part of the corpus need not be read
        return
    candidates = np.unique(records["hash"])
    in_corpus = np.empty(0, np.uint64)
    places: dict[bytes, int] = {}
    for block in corpus.blocks(part):
        # the filter lets hashes through that fall on the same entry
        matching = block[np.isin(block["hash"], candidates)]
        in_corpus = np.union1d(in_corpus, matching["hash"])
        for place, _, ngram in corpus.with_words(matching):
            places.setdefault(ngram, place)  # the first text stays
    matching = records[np.isin(records["hash"], in_corpus)]
    ngrams = list(spool.with_words(matching))
    occurrences = Counter(ngram for _, _, ngram in ngrams)
    for number, place, ngram in ngrams:
        # equal hashes may be of different words
        if ngram in places:
            yield number, (places[ngram] + 1, place, occurrences[ngram] > COMMON)


def _rows(spool: _Spool, corpus: _Spool, places: Records, n: int) -> Iterator[Overlap]:
    """The result of each text."""
    begin = 0
    folder = spool.folder
    with (
        (folder / "lines").open("rb") as lines,
        (folder / "words").open("rb") as words,
        (corpus.folder / "lines").open("rb") as sources,
    ):
        for line in lines:
            origin_url, word_count, ngram_count, answer = json.loads(line)
            of_text = places[begin : begin + ngram_count]
            begin += ngram_count
            runs = runs_of(of_text["line"] > 0)
            answered = None
            if answer:
                answered = _holds(runs, of_text["common"], answer, n)
            if not runs:
                yield Overlap(origin_url, word_count, ngram_count, 0, answered=answered)
                continue
            sizes = [end - start for start, end in runs]
            longest = max(sizes)
            start = runs[sizes.index(longest)][0]
            line_place, word_place, _ = of_text[start].tolist()
            sources.seek(line_place - 1)
            (where,) = json.loads(sources.readline())
            length = longest + n - 1
            common = int(of_text["common"].sum())
            tokens = os.pread(words.fileno(), LONGEST, word_place).split(b" ")
            # The bytes are cut at LONGEST, maybe within a character.
            passage = b" ".join(tokens[: min(length, SHOWN)]).decode(errors="ignore")
            yield Overlap(
                source=origin_url,
                words=word_count,
                ngrams=ngram_count,
                found=sum(sizes),
                longest=length,
                start=start,
                where=where,
                passage=passage,
                common=common,
                answered=answered,
            )


def _holds(runs: Sequence[Sequence[int]], common: BoolArray, answer: Sequence[int], n: int) -> bool:
    """Whether a run of n-grams, of which many texts do not have all, covers the words of an answer."""
    start, stop = answer
    if start == stop:  # the text does not have its answer
        return False
    for begin, end in runs:
        covers = begin <= start and stop <= end + n - 1
        if covers and not common[begin:end].all():
            return True
    return False
