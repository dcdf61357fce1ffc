"""All runs of words of a text, in time and memory that are linear in its length."""

from collections.abc import Iterable, Iterator
from typing import NamedTuple


class Match(NamedTuple):
    """The longest run that ends at a word and stands in a text: its words, and where it first ends there."""

    length: int
    end: int


class SuffixAutomaton:
    """Finds the runs of other words that stand in some words.

    A state stands for runs that end at the same places; its link is the state of their longest ending that ends at more
    places (Blumer et al. 1985, https://doi.org/10.1016/0304-3975(85)90157-4).
    """

    def __init__(self, words: Iterable[str]) -> None:
        self._following: list[dict[str, int]] = []
        self._link: list[int] = []
        self._longest: list[int] = []
        self._end: list[int] = []
        last = self._new({}, -1, 0, 0)
        for end, word in enumerate(words, 1):
            last = self._lengthened(last, word, end)

    def matches(self, words: Iterable[str]) -> Iterator[Match]:
        """What each of some words ends, none of it before the first of them."""
        state = 0
        length = 0
        for word in words:
            # A shorter ending of the run may go on by this word.
            while state and word not in self._following[state]:
                state = self._link[state]
                length = self._longest[state]
            if word in self._following[state]:
                state = self._following[state][word]
                length += 1
            yield Match(length, self._end[state])

    def _new(self, following: dict[str, int], link: int, longest: int, end: int) -> int:
        self._following.append(following)
        self._link.append(link)
        self._longest.append(longest)
        self._end.append(end)
        return len(self._link) - 1

    def _lengthened(self, last: int, word: str, end: int) -> int:
        """The state of all words so far, after one more; `last` is that without it."""
        state = self._new({}, 0, self._longest[last] + 1, end)
        while last >= 0 and word not in self._following[last]:
            self._following[last][word] = state
            last = self._link[last]
        if last >= 0:
            self._link[state] = self._after(last, word)
        return state

    def _after(self, before: int, word: str) -> int:
        """The state of the longest run of a state and a word, alone with its endings."""
        state = self._following[before][word]
        longest = self._longest[before] + 1
        if self._longest[state] == longest:
            return state
        # The longer runs of that state end at fewer places from now on.
        parted = self._new(dict(self._following[state]), self._link[state], longest, self._end[state])
        self._link[state] = parted
        while before >= 0 and self._following[before].get(word) == state:
            self._following[before][word] = parted
            before = self._link[before]
        return parted
