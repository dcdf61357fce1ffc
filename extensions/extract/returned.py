"""What a model's reply to a simple prompt has of a work, word for word, and what is chance of it.

Words are compared as `fsd overlap` compares them: lower case, without punctuation; in scripts without spaces each
character is a word. What the prompt itself gave is not returned by the model: a run of words that stands in the prompt
is taken out of the work before the comparison. Control works, which the model cannot have read, are asked for in the
same way: how many words of them come back is what can be guessed.
"""

import unicodedata
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fsd.api import PIECE, holm, ngram_hashes, normalised, rank_among, runs_of, word_numbers

LEVEL = 0.05
"""Corrected p-value up to which more is returned of a work than can be guessed."""
ABOUT = 0.8
"""Share of a work's length from which on a control is about as long: chance finds hardly more in the work."""
AROUND = 12
"""Words of a reply that are shown before and after a span."""
Array = NDArray[Any]


class Span(NamedTuple):
    """Words in a row that stand in a reply and in a work: their number, and the words before them in both."""

    reply: int
    work: int
    length: int

    @property
    def end(self) -> int:
        """The words of the reply up to its end."""
        return self.reply + self.length


@dataclass(frozen=True)
class Words:
    """A text as its words; an empty word is a gap, which no reply fills."""

    words: Sequence[str]

    @cached_property
    def numbers(self) -> Array:
        """(T,) a number for each word."""
        return word_numbers(list(map(str.encode, self.words)))

    def ngrams(self, n: int) -> Array:
        """(T − n + 1,) hashes of all runs of n words."""
        return ngram_hashes(self.numbers, n)

    def shares(self, ngrams: Array, n: int) -> Array:
        """Whether each of some runs of n words, by their hashes, stands in this text."""
        return np.isin(ngrams, self.ngrams(n))

    def stretches(self, text: "Words", n: int) -> list[tuple[int, int]]:
        """First word and end of what is made of runs of n words that another text has, too."""
        runs = runs_of(text.shares(self.ngrams(n), n))
        return [(start, end + n - 1) for start, end in runs]

    def without(self, prompt: "Words", n: int) -> "Words":
        """This text with gaps for the words that lie in a run of n words of a prompt."""
        words = list(self.words)
        for start, end in self.stretches(prompt, n):
            words[start:end] = [""] * (end - start)
        return Words(words)


def words_of(text: str) -> Words:
    """The words of a text as they are compared."""
    return Words(normalised(text))


def pieces(text: str) -> tuple[list[str], list[tuple[int, int]]]:
    """The words of a text, and where in it (begin, end) what each of them is written as stands."""
    words = []
    places = []
    for piece in PIECE.finditer(text):
        # Two words, such as "spring—summer", may be written as a single piece.
        for word in normalised(piece[0]):
            words.append(word)
            places.append(piece.span())
    return words, places


def excerpts(text: str, count: int, places: int, apart: int) -> list[str]:
    """`count` words from each of evenly spread places of a text, the beginning first, as they are written.

    There are as many places as asked for, or fewer, so that they are `apart` words; the whole of a shorter text.
    """
    _, words = pieces(text)
    if len(words) <= count:
        return [text]
    number = max(1, min(places, len(words) // apart))
    given = []
    for place in range(number):
        first = place * len(words) // number
        # What stands before the first word is a part of the beginning.
        begin = words[first][0] if place else 0
        given.append(text[begin : words[first + count - 1][1]])
    return given


def common_spans(reply: Words, work: Words, n: int) -> list[Span]:
    """The spans of at least n words that a reply shares with a work, in order, none within another."""
    stretches = reply.stretches(work, n)
    # Most replies have nothing of a work.
    if not stretches:
        return []
    shared_words: list[str] = []
    places: list[int] = []
    for start, end in work.stretches(reply, n):
        # A gap, which no reply fills, parts what does not follow one another.
        shared_words += work.words[start:end]
        shared_words.append("")
        places += range(start, end + 1)
    shared = _line(shared_words)
    spans: list[Span] = []
    for start, end in stretches:
        for span in _maximal(reply.words[start:end], shared, n):
            place = places[span.work]
            spans.append(Span(start + span.reply, place, span.length))
    return spans


def _line(words: Sequence[str]) -> str:
    """Words as a text in which a run of them is found with its blanks."""
    return f" {' '.join(words)} "


def _maximal(words: Sequence[str], shared: str, n: int) -> Iterator[Span]:
    """The spans of some words, of which every run of n stands in what is shared, in its line, of a work."""
    line = _line(words)
    # By the words themselves: equal hashes may be of different ones, and not all runs of n follow each other.
    blanks = [0, *accumulate(len(word) + 1 for word in words)]
    covered = 0
    for begin in range(len(words) - n + 1):
        end = max(covered, begin + n - 1)
        while end < len(words) and line[blanks[begin] : blanks[end + 1] + 1] in shared:
            end += 1
        # One that ends no later than the span before lies within it.
        if end > covered and end - begin >= n:
            covered = end
            place = shared.find(line[blanks[begin] : blanks[end] + 1])
            yield Span(begin, shared.count(" ", 0, place), end - begin)


def longest_run(spans: Sequence[Span], reply: Words, work: Words, prompt: Words, n: int) -> int:
    """Most words in a row that a reply shares with a work, and that do not all stand in a row in the prompt.

    `spans` are those of `common_spans`, for which the work must have gaps (`Words.without`).
    """
    if spans:
        return max(span.length for span in spans)
    # Not by halving: a run that the prompt has none of may be made of two that it has.
    for length in range(n - 1, 0, -1):
        ngrams = reply.ngrams(length)
        if (work.shares(ngrams, length) & ~prompt.shares(ngrams, length)).any():
            return length
    return 0


class Quoted(NamedTuple):
    """A span as it stands in a reply, with the words around it."""

    prompt: str
    length: int
    place: float
    """Share of the work that lies before it."""
    leading: str
    quotation: str
    following: str
    common: bool
    """Whether it stands in a control work too."""


class Exchange(NamedTuple):
    """A prompt by its name and in full, and the reply to it."""

    name: str
    prompt: str
    reply: str


@dataclass(frozen=True)
class Returned:
    """What replies have of a work: those to the prompts for it, or one of them."""

    work: str
    control: bool
    size: int
    """Words of the work."""
    replies: int
    empty: int
    """Replies without a word."""
    hits: int
    """Replies with a whole span, of what stands in no control work."""
    longest: int
    """Most words in a row, of what stands in no control work."""
    words: int
    """Words of the replies that lie in such spans."""
    chance: int | None
    """Most words in a row that the same replies share with a control work; None without any, and for a control."""
    spans: Sequence[Quoted] = ()


def returned(
    name: str,
    work: Words,
    exchanges: Sequence[Exchange],
    n: int,
    controls: Sequence[Words] = (),
    *,
    control: bool = False,
) -> Returned:
    """Compare the replies to the prompts for a work with it, in spans of at least n words, and with control works."""
    spans: list[Quoted] = []
    longest = 0
    empty = 0
    hits = 0
    covered = 0
    chances = []
    for exchange in exchanges:
        reply = _Reply(exchange, work, n, controls)
        longest = max(longest, reply.longest)
        empty += not reply.words.words
        hits += reply.longest >= n
        covered += reply.covered
        chances.append(reply.chance)
        spans += reply.quoted
    # The longest is told first; of equal ones, that of the earlier prompt.
    spans.sort(key=lambda span: -span.length)
    chance = None
    if controls:
        chance = max(chances, default=0)
    return Returned(name, control, len(work.words), len(exchanges), empty, hits, longest, covered, chance, spans)


class _Reply:
    """One reply, compared with the work that was asked for, and with control works."""

    def __init__(self, exchange: Exchange, work: Words, n: int, controls: Sequence[Words]) -> None:
        self.name = exchange.name
        self.work = work
        # A mark that is written after its letter would be a piece of its own where no spaces part words.
        self.text = unicodedata.normalize("NFC", exchange.reply)
        words, self.places = pieces(self.text)
        self.words = Words(words)
        prompt = words_of(exchange.prompt)
        rest = work.without(prompt, n)
        self.spans = common_spans(self.words, rest, n)
        # What common phrases give: replies about this work have nothing to do with the others.
        self.chance = 0
        self.common: set[Span] = set()
        for control in controls:
            rest_of_control = control.without(prompt, n)
            spans = common_spans(self.words, rest_of_control, n)
            self.chance = max(self.chance, longest_run(spans, self.words, rest_of_control, prompt, n))
            # A phrase is common also where the prompt has it.
            if self.spans and rest_of_control.words != control.words:
                spans = common_spans(self.words, control, n)
            self.common |= _within(self.spans, spans)
        # What stands in a work that the model cannot have read may be known from elsewhere.
        specific = [span for span in self.spans if span not in self.common]
        self.longest = longest_run(specific, self.words, rest, prompt, n)
        covered: set[int] = set()
        for span in specific:
            covered.update(range(span.reply, span.end))
        self.covered = len(covered)

    @property
    def quoted(self) -> list[Quoted]:
        """The spans as they are written."""
        return list(map(self._quoted, self.spans))

    def _quoted(self, span: Span) -> Quoted:
        begin, _ = self.places[span.reply]
        _, end = self.places[span.end - 1]
        # Near the ends of a reply there are fewer words around a span.
        start, _ = self.places[max(0, span.reply - AROUND)]
        _, stop = self.places[: span.end + AROUND][-1]
        place = span.work / len(self.work.words)
        leading = self.text[start:begin].strip()
        following = self.text[end:stop].strip()
        return Quoted(self.name, span.length, place, leading, self.text[begin:end], following, span in self.common)


def _within(spans: Sequence[Span], longer: Sequence[Span]) -> set[Span]:
    """Those spans of a reply that lie within a longer one, or one as long; none of these lies within another."""
    ends = [span.end for span in longer]
    within = set()
    for span in spans:
        # Of those that end late enough, the first begins first, too.
        nearest = bisect_left(ends, span.end)
        if nearest < len(ends) and longer[nearest].reply <= span.reply:
            within.add(span)
    return within


def p_values(works: Sequence[Returned]) -> dict[str, float]:
    """Work that is no control → p-value of its longest run, Holm-corrected for the number of works.

    There is none without controls. If the model has read neither a work nor the controls, and all are of one kind and
    length, each rank of the work among them is equally likely.
    """
    controls = [work for work in works if work.control]
    if not controls:
        return {}
    ranks = {}
    for work in works:
        if not work.control:
            ranks[work.work] = _rank(work, controls)
    return holm(ranks)


def _rank(work: Returned, controls: Sequence[Returned]) -> float:
    """p-value of a work by its rank among controls that are as long as windows of it, corrected for their number.

    A longer work has more places where chance may return something: as many as it has windows of a control's length,
    and groups of as many replies as about a control. Longer windows are fewer, and so are the controls as long: the
    length is that which allows the smallest p-value.
    """
    ranks: dict[float, float] = {}
    for length in sorted({max(1, control.size) for control in controls}):
        as_long = [control for control in controls if max(1, control.size) >= length]
        windows = max(1.0, ABOUT * work.size / length)
        groups = max(1.0, work.replies / min(control.replies for control in as_long))
        chances = windows * groups
        # By what the controls allow, not by what came back.
        longest = [float(control.longest) for control in as_long]
        ranks.setdefault(chances / (1 + len(as_long)), chances * rank_among(work.longest, longest))
    return min(1.0, ranks[min(ranks)])
