"""A reading of many prompts laid out: windows of token ids, in batches, and statistics put together again."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from fsd.token_stats import FloatArray, Prompt, TokenStats


class Window(NamedTuple):
    """Input ids[begin:end] of one prompt; positions from `first` on predict a token that is to be scored."""

    prompt: int
    begin: int
    end: int
    first: int

    @property
    def size(self) -> int:
        """Positions that are read."""
        return self.end - self.begin


def windows(prompt: int, length: int, first: int, context: int) -> Iterator[Window]:
    """Windows that score every position from `first` to `length` once, each with at least half a context before it.

    Args:
        prompt: index of the prompt.
        length: number of input positions; position t predicts token t + 1.
        first: first position whose prediction is scored.
        context: most positions that one forward pass may read.

    Yields:
        A single window where the prompt fits; else windows that overlap by at least half a context.
    """
    step = max(1, context // 2)
    done, end = first, min(length, max(context, first + step))
    while done < length:
        yield Window(prompt, max(0, end - context), end, done)
        done, end = end, min(length, end + step)


@dataclass(frozen=True)
class Plan:
    """What is to be read, in which forward passes.

    Attributes:
        prompts: N distinct prompts.
        ids: token ids of each, with start token and context.
        firsts: of each, the position that predicts the first token of its text.
        batches: windows of one forward pass each, the longest first.
    """

    prompts: Sequence[Prompt]
    ids: Sequence[list[int]]
    firsts: Sequence[int]
    batches: Sequence[Sequence[Window]]

    @property
    def tokens(self) -> int:
        """Positions that are read."""
        return sum(span.size for batch in self.batches for span in batch)

    def finished(self, columns: Iterable[tuple[Window, FloatArray]]) -> Iterator[tuple[Prompt, TokenStats]]:
        """Each prompt with its statistics, as soon as its last window is there.

        Args:
            columns: each window once, in any order, with the (3, n) logp, mean and std of its scored positions.
        """
        waiting: dict[int, tuple[FloatArray, int]] = {}
        for span, values in columns:
            i, first = span.prompt, self.firsts[span.prompt]
            size = len(self.ids[i]) - 1 - first
            sums, missing = waiting.get(i) or (np.empty((3, size)), size)
            start = span.first - first
            sums[:, start : start + values.shape[1]] = values
            waiting[i] = sums, missing - values.shape[1]
            if missing == values.shape[1]:
                del waiting[i]
                token = np.asarray(self.ids[i][first + 1 :], dtype=np.int64)
                yield self.prompts[i], TokenStats(self.prompts[i].text, token, *sums)
