"""Which n-grams of some texts occur in a corpus: exact counts, in memory that does not grow with either side.

Words are normalised as the field does since GPT-3 (arXiv 2005.14165, appendix C): lower case, punctuation removed. The
texts are read in parts that fit the memory, and the corpus is read once for each part. Hashes only find the candidates:
what counts as the same n-gram are the same words.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fsd.api import COMMON, Passage, UsageError, ngram_hashes, normalised, runs_of, word_numbers

NGRAM = 13
WORDS = 2**20
"""Words of the texts from which on a next part begins; each takes about a hundred bytes."""
SHOWN = 30
"""Words of a passage that are shown."""
LONGEST = 4096
"""Characters of a passage that are shown."""
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

Array = NDArray[Any]


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


def overlap(texts: Iterable[Passage], corpus: Iterable[Passage], *, n: int = NGRAM) -> Iterator[Overlap]:
    """What each text shares with the corpus, in the order of the texts; a UsageError if a side has no n words.

    Both are documents or consecutive parts of them. The corpus is read again for each `WORDS` words of the texts.
    """
    comparable = False
    for part in _parts(texts, n):
        # for a part without n-grams the corpus need not be read
        if part.index():
            comparable = True
            part.look_in(corpus)
        yield from part.rows()
    if not comparable:
        raise UsageError(f"texts must have one of at least {n} words; there is none")


def _parts(texts: Iterable[Passage], n: int) -> Iterator["_Part"]:
    part = _Part(n)
    for passage in texts:
        # a text is not divided
        if passage.opens and len(part.words) > WORDS:
            yield part
            part = _Part(n)
        part.add(passage)
    yield part


@dataclass
class _Text:
    """A text of a part: where its words are there, and which of them are its answer."""

    origin_url: str
    answer: tuple[int, int] | None
    begin: int
    end: int = 0


class _Part:
    """Some of the texts: their words one after the other, and which of their n-grams the corpus has."""

    def __init__(self, n: int) -> None:
        self.n = n
        self.texts: list[_Text] = []
        self.words: list[str] = []
        self.sources: list[str] = []  # texts of the corpus that have n-grams of these

    def add(self, passage: Passage) -> None:
        """Add a text, or what follows of the one before."""
        words = normalised(passage.text)
        if passage.opens:
            # only a row has an answer, and a row is one passage
            answer = _answer_span(normalised(passage.answer), words)
            self.texts.append(_Text(passage.origin_url, answer, len(self.words)))
        self.words += words
        self.texts[-1].end = len(self.words)

    def index(self) -> bool:
        """Sort the n-grams by their hashes, once all texts are there; whether there are any."""
        hashes = self._hashes(self.words)
        inside = np.zeros(hashes.size, np.bool_)
        for text in self.texts:
            # what begins in the last words of a text would lie in two
            inside[text.begin : max(text.begin, text.end - self.n + 1)] = True
        places = np.flatnonzero(inside)
        order = np.argsort(hashes[places], kind="stable")
        self.order = places[order]
        self.hashes, firsts = np.unique(hashes[self.order], return_index=True)
        self.bounds = np.append(firsts, self.order.size)  # of each hash in `order`
        self.missing = np.ones(self.hashes.size, np.bool_)  # whether the corpus may have n-grams of a hash yet
        # of the n-gram that begins at a word: its source, and whether many of the texts have it
        self.where = np.full(len(self.words), -1)
        self.common = np.zeros(len(self.words), np.bool_)
        return places.size > 0

    def _hashes(self, words: Sequence[str]) -> Array:
        return ngram_hashes(word_numbers(list(map(str.encode, words))), self.n)

    def look_in(self, corpus: Iterable[Passage]) -> None:
        """Note the first text of the corpus that has each n-gram; a UsageError if none has n words."""
        comparable = False
        carried: list[str] = []
        for passage in corpus:
            # n-grams that lie in two passages begin in the last words of the first
            words = normalised(passage.text)
            if not passage.opens:
                words = carried + words
            carried = words[max(0, len(words) - self.n + 1) :]
            hashes = self._hashes(words)
            comparable |= hashes.size > 0
            # without the last one, the place of no hash is beyond the end
            numbers = np.searchsorted(self.hashes[:-1], hashes)
            candidates = self.missing[numbers] & (self.hashes[numbers] == hashes)
            for place in np.flatnonzero(candidates).tolist():
                self._note(numbers[place], words[place : place + self.n], passage.origin_url)
        if not comparable:
            raise UsageError(f"corpus must have a text of at least {self.n} words; it has none")

    def _note(self, number: int, ngram: list[str], source: str) -> None:
        """Note where the corpus has an n-gram, if no text before had it; `number` is that of its hash."""
        # a passage may have it several times
        if not self.missing[number]:
            return
        of_hash = self.order[self.bounds[number] : self.bounds[number + 1]].tolist()
        # equal hashes may be of different words
        same = [place for place in of_hash if self.words[place : place + self.n] == ngram]
        if not same or self.where[same[0]] >= 0:
            return
        if self.sources[-1:] != [source]:
            self.sources.append(source)
        self.where[same] = len(self.sources) - 1
        self.common[same] = len(same) > COMMON
        self.missing[number] = (self.where[of_hash] < 0).any()

    def rows(self) -> Iterator[Overlap]:
        """The result of each text."""
        return map(self._row, self.texts)

    def _row(self, text: _Text) -> Overlap:
        size = text.end - text.begin
        ngrams = max(0, size - self.n + 1)
        where = self.where[text.begin : text.begin + ngrams]
        common = self.common[text.begin : text.begin + ngrams]
        runs = runs_of(where >= 0)
        answered = None
        if text.answer:
            answered = _holds(runs, common, text.answer, self.n)
        found = int((where >= 0).sum())
        row = Overlap(text.origin_url, size, ngrams, found, common=int(common.sum()), answered=answered)
        if not runs:
            return row
        # of equally long ones the first
        start, end = max(runs, key=lambda run: run[1] - run[0])
        length = end - start + self.n - 1
        begin = text.begin + start
        first_words = self.words[begin : begin + min(length, SHOWN)]
        passage = " ".join(first_words)[:LONGEST]
        source = self.sources[where[start]]
        return row._replace(longest=length, start=start, where=source, passage=passage)


def _answer_span(answer: Sequence[str], words: Sequence[str]) -> tuple[int, int] | None:
    """First word and end of the last place where a text has its answer; (0, 0) if nowhere, None without an answer."""
    size = len(answer)
    if not size:
        return None
    for start in range(len(words) - size, -1, -1):
        if words[start : start + size] == answer:
            return start, start + size
    return 0, 0


def _holds(runs: Sequence[Sequence[int]], common: Array, answer: tuple[int, int], n: int) -> bool:
    """Whether a run of n-grams, of which many texts do not have all, covers the words of an answer."""
    start, stop = answer
    if start == stop:  # the text does not have its answer
        return False
    for begin, end in runs:
        covers = begin <= start and stop <= end + n - 1
        if covers and not common[begin:end].all():
            return True
    return False
