"""All runs of words of a text, in time and memory that are linear in its length."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple


class Match(NamedTuple):
    """The longest run that ends at a word and stands in a text: its words, and where it first ends there."""

    length: int
    end: int


@dataclass(eq=False, slots=True)
class _State:
    """Runs that end at the same places: the words of the longest, the first place, and what follows them."""

    longest: int
    end: int
    link: "_State | None" = None
    following: "dict[str, _State]" = field(default_factory=dict)


class SuffixAutomaton:
    """Finds the runs of other words that stand in some words.

    The link of a state is that of the longest ending of its runs that ends at more places than they (Blumer et al.
    1985, https://doi.org/10.1016/0304-3975(85)90157-4).
    """

    def __init__(self, words: Iterable[str]) -> None:
        self._root = _State(0, 0)
        whole = self._root
        for end, word in enumerate(words, 1):
            whole = self._lengthened(whole, word, end)

    def matches(self, words: Iterable[str]) -> Iterator[Match]:
        """What each of some words ends, none of it before the first of them."""
        state = self._root
        length = 0
        for word in words:
            # A shorter ending of the run may go on by this word.
            while state.link and word not in state.following:
                state = state.link
                length = state.longest
            if word in state.following:
                state = state.following[word]
                length += 1
            yield Match(length, state.end)

    def _lengthened(self, whole: _State, word: str, end: int) -> _State:
        """The state of all words so far and one more."""
        state = _State(whole.longest + 1, end, self._root)
        ending: _State | None = whole
        while ending and word not in ending.following:
            ending.following[word] = state
            ending = ending.link
        if ending:
            state.link = _parted(ending, word)
        return state


def _parted(ending: _State, word: str) -> _State:
    """The state of the longest run of a state and a word, without longer runs, which end at fewer places now."""
    state = ending.following[word]
    longest = ending.longest + 1
    if state.longest == longest:
        return state
    parted = _State(longest, state.end, state.link, dict(state.following))
    state.link = parted
    shorter: _State | None = ending
    while shorter and shorter.following.get(word) is state:
        shorter.following[word] = parted
        shorter = shorter.link
    return parted
