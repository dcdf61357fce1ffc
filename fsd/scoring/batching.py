"""Batching: prompts cut into context windows, windows grouped into batches, and token statistics reassembled."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from fsd.token_stats import FloatArray, Prompt, TokenStats


class Window(NamedTuple):
    """Input ids[begin:end] of one prompt; positions from `first` on predict a token to be scored."""

    prompt: int
    begin: int
    end: int
    first: int

    @property
    def size(self) -> int:
        """Number of input positions."""
        return self.end - self.begin


def windows(prompt: int, length: int, first: int, context: int) -> Iterator[Window]:
    """Windows that score each position from `first` to `length` once, with at least half a context before it.

    Args:
        prompt: index of the prompt.
        length: number of input positions; position t predicts token t + 1.
        first: first position whose prediction is scored.
        context: largest number of positions of one forward pass.

    Yields:
        A single window if the prompt fits, else windows that overlap by at least half a context.
    """
    step = max(1, context // 2)
    done, end = first, min(length, max(context, first + step))
    while done < length:
        yield Window(prompt, max(0, end - context), end, done)
        done, end = end, min(length, end + step)


@dataclass(frozen=True)
class Plan:
    """The forward passes that a list of prompts takes.

    Attributes:
        prompts: N distinct prompts.
        ids: N lists of token ids, with start token and context.
        firsts: N positions, each of which predicts the first token of a text.
        batches: the windows of each forward pass, the longest first.
    """

    prompts: Sequence[Prompt]
    ids: Sequence[list[int]]
    firsts: Sequence[int]
    batches: Sequence[Sequence[Window]]

    @property
    def tokens(self) -> int:
        """Number of input positions of all batches."""
        return sum(window.size for batch in self.batches for window in batch)

    def finished(self, columns: Iterable[tuple[Window, FloatArray]]) -> Iterator[tuple[Prompt, TokenStats]]:
        """Each prompt with its statistics, as soon as its last window is computed.

        Args:
            columns: each window once, in any order, with (3, n) logp, mean and std (nats) of its scored positions.
        """
        waiting: dict[int, tuple[FloatArray, int]] = {}
        for window, values in columns:
            i, first = window.prompt, self.firsts[window.prompt]
            size = len(self.ids[i]) - 1 - first
            statistics, missing = waiting.get(i) or (np.empty((3, size)), size)
            start = window.first - first
            statistics[:, start : start + values.shape[1]] = values
            waiting[i] = statistics, missing - values.shape[1]
            if missing == values.shape[1]:
                del waiting[i]
                token = np.asarray(self.ids[i][first + 1 :], dtype=np.int64)
                yield self.prompts[i], TokenStats(self.prompts[i].text, token, *statistics)
