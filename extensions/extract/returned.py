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
from itertools import chain
from typing import NamedTuple

import numpy as np

from extensions.extract.suffixes import Match, SuffixAutomaton
from fsd.data.near_duplicates import Hashes, ngram_hashes, normalised, runs_of, word_numbers
from fsd.statistics.multiplicity import holm
from fsd.statistics.ranks import rank_among
from fsd.token_stats import BoolArray
from fsd.unspaced import PIECE

LEVEL = 0.05
"""Corrected p-value up to which more is returned of a work than can be guessed."""
ABOUT = 0.8
"""Share of a work's length from which on a control is about as long: chance finds hardly more in the work."""
AROUND = 12
"""Words of a reply that are shown before and after a span."""


class Span(NamedTuple):
    """Words in a row that stand in a reply and in a work: their number, and the words before them in both."""

    reply: int
    work: int
    length: int


@dataclass(frozen=True)
class Words:
    """A text as its words; an empty word is a gap, which no reply fills."""

    words: Sequence[str]

    @cached_property
    def numbers(self) -> Hashes:
        """(T,) a number for each word."""
        return word_numbers(list(map(str.encode, self.words)))

    def ngrams(self, n: int) -> Hashes:
        """(T − n + 1,) hashes of all runs of n words."""
        return ngram_hashes(self.numbers, n)

    def shares(self, ngrams: Hashes, n: int) -> BoolArray:
        """Whether each of some runs of n words, by their hashes, stands in this text."""
        return np.isin(ngrams, self.ngrams(n))

    def without(self, prompt: "Words", n: int) -> "Words":
        """This text with gaps for the words that lie in a run of n words of a prompt."""
        words = list(self.words)
        for start, end in runs_of(prompt.shares(self.ngrams(n), n)):
            covered = end + n - 1 - start
            words[start : start + covered] = [""] * covered
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


def beginning(text: str, count: int) -> str:
    """A text up to its word number `count`, as it is written; the whole of a shorter one."""
    if not count:
        return ""
    _, places = pieces(text)
    if len(places) <= count:
        return text
    return text[: places[count - 1][1]]


def common_spans(reply: Words, work: Words, n: int) -> list[Span]:
    """The spans of at least n words that a reply shares with a work, in order, none within another."""
    stretches = runs_of(work.shares(reply.ngrams(n), n))
    # Most replies have nothing of a work.
    if not stretches:
        return []
    shared_words: list[str] = []
    places: list[int] = []
    for start, end in runs_of(reply.shares(work.ngrams(n), n)):
        stop = end + n - 1
        # A gap, which no reply fills, parts what does not follow one another.
        shared_words += work.words[start:stop]
        shared_words.append("")
        places += range(start, stop + 1)
    # By the words themselves: equal hashes may be of different ones.
    shared = SuffixAutomaton(shared_words)
    spans: list[Span] = []
    for start, end in stretches:
        # Every run of n words stands in the work; not all of them need follow each other there.
        spans += _maximal(shared, places, reply.words[start : end + n - 1], n, start)
    return spans


def _maximal(
    shared: SuffixAutomaton, places: Sequence[int], words: Sequence[str], n: int, offset: int
) -> Iterator[Span]:
    """The spans in a stretch of a reply, of what it shares with a work; `places` are those of these words there."""
    longest = Match(0, 0)
    for number, match in enumerate(chain(shared.matches(words), [Match(0, 0)])):
        # One that goes on by this word lies within a longer one.
        if longest.length >= n and match.length <= longest.length:
            place = places[longest.end - longest.length]
            yield Span(offset + number - longest.length, place, longest.length)
        longest = match


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


@dataclass(frozen=True)
class Quoted:
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


@dataclass(frozen=True)
class Exchange:
    """A prompt by its name and in full, and the reply to it."""

    name: str
    prompt: str
    reply: str


@dataclass(frozen=True)
class Returned:
    """What the replies to the prompts for a work have of it."""

    work: str
    control: bool
    size: int
    """Words of the work."""
    replies: int
    empty: int
    """Replies without a word."""
    longest: int
    """Most words in a row, of what stands in no control work."""
    words: int
    """Words of the replies that lie in such spans."""
    chance: int | None
    """Most words in a row that the same replies share with a control work; None without any, and for a control."""
    spans: Sequence[Quoted] = ()


class _Compared(NamedTuple):
    """What one reply has of a work, as the fields of `Returned` have it of all replies."""

    empty: bool
    longest: int
    words: int
    chance: int
    spans: Sequence[Quoted]


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
    quotations: list[Quoted] = []
    longest = 0
    empty = 0
    covered = 0
    chance: int | None = None
    for exchange in exchanges:
        reply = _compared(exchange, work, n, controls)
        longest = max(longest, reply.longest)
        empty += reply.empty
        covered += reply.words
        if controls:
            chance = max(chance or 0, reply.chance)
        quotations += reply.spans
    # The longest is told first; of equal ones, that of the earlier prompt.
    quotations.sort(key=lambda quotation: -quotation.length)
    return Returned(
        work=name,
        control=control,
        size=len(work.words),
        replies=len(exchanges),
        empty=empty,
        longest=longest,
        words=covered,
        chance=chance,
        spans=quotations,
    )


def _compared(exchange: Exchange, work: Words, n: int, controls: Sequence[Words]) -> _Compared:
    """Compare one reply with the work, and with control works."""
    # A mark that is written after its letter would be a piece of its own where no spaces part words.
    text = unicodedata.normalize("NFC", exchange.reply)
    words, places = pieces(text)
    reply = Words(words)
    prompt = words_of(exchange.prompt)
    rest = work.without(prompt, n)
    spans = common_spans(reply, rest, n)
    # What common phrases give: replies about this work have nothing to do with the others.
    chance = 0
    common = set()
    for other_work in controls:
        rest_of_other = other_work.without(prompt, n)
        in_other = common_spans(reply, rest_of_other, n)
        chance = max(chance, longest_run(in_other, reply, rest_of_other, prompt, n))
        # A phrase is common also where the prompt has it.
        if spans and rest_of_other.words != other_work.words:
            in_other = common_spans(reply, other_work, n)
        common |= _within(spans, in_other)
    quotations = [_quoted(exchange.name, text, places, span, work, common=span in common) for span in spans]
    # What stands in a work that the model cannot have read may be known from elsewhere.
    specific = [span for span in spans if span not in common]
    return _Compared(
        empty=not words,
        longest=longest_run(specific, reply, rest, prompt, n),
        words=_covered(specific),
        chance=chance,
        spans=quotations,
    )


def _within(spans: Sequence[Span], longer: Sequence[Span]) -> set[Span]:
    """Those spans of a reply that lie within a longer one, or one as long; none of these lies within another."""
    ends = [span.reply + span.length for span in longer]
    within = set()
    for span in spans:
        # Of those that end late enough, the first begins first, too.
        nearest = bisect_left(ends, span.reply + span.length)
        if nearest < len(ends) and longer[nearest].reply <= span.reply:
            within.add(span)
    return within


def _covered(spans: Sequence[Span]) -> int:
    """Words of a reply that lie in spans, which may overlap."""
    total = 0
    end = 0
    for span in spans:
        # They come in order, and an overlap counts once.
        total += span.reply + span.length - max(end, span.reply)
        end = span.reply + span.length
    return total


def _quoted(
    name: str, text: str, places: Sequence[tuple[int, int]], span: Span, work: Words, *, common: bool
) -> Quoted:
    final = span.reply + span.length - 1
    begin = places[span.reply][0]
    end = places[final][1]
    # Near the ends of a reply there are fewer words around a span.
    start = places[max(0, span.reply - AROUND)][0]
    stop = places[min(len(places) - 1, final + AROUND)][1]
    place = span.work / len(work.words)
    leading = text[start:begin].strip()
    following = text[end:stop].strip()
    return Quoted(name, span.length, place, leading, text[begin:end], following, common)


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

    A longer work has more places where chance may return something: as many as it has windows of a control's length.
    Longer windows are fewer, and so are the controls as long: the length is that which allows the smallest p-value.
    """

    def windows(length: int) -> float:
        return max(1.0, ABOUT * work.size / length)

    def as_long(length: int) -> list[float]:
        return [float(control.longest) for control in controls if control.size >= length]

    lengths = sorted({max(1, control.size) for control in controls})
    best = min(lengths, key=lambda length: windows(length) / (1 + len(as_long(length))))
    return min(1.0, windows(best) * rank_among(work.longest, as_long(best)))
