"""Batching: prompts cut into context windows, windows grouped into batches, and token statistics reassembled."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from fsd.token_stats import FloatArray, Prompt, TokenStats

PADDING = 0.03
"""Largest share of padding in a batch."""


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

    Position t of a prompt predicts token t + 1. A prompt that fits `context` positions is a single window.
    """
    step = max(1, context // 2)
    done, end = first, min(length, max(context, first + step))
    while done < length:
        yield Window(prompt, max(0, end - context), end, done)
        done, end = end, min(length, end + step)


def batched(order: Sequence[Window], max_tokens: int, alike: int | None = None) -> list[Sequence[Window]]:
    """Windows, the longest first, in batches with rows × longest row ≤ `max_tokens` and little padding.

    A window is part of a batch at any length; those longer than `alike` share one with windows of their length only.
    """
    batches: list[Sequence[Window]] = []
    begin = 0
    while begin < len(order):
        longest, used, end = order[begin].size, 0, begin
        while end < len(order):
            used += order[end].size
            padded = (end + 1 - begin) * longest
            apart = alike is not None and longest > alike and order[end].size < longest
            if end > begin and (apart or padded > max_tokens or used < (1 - PADDING) * padded):
                break
            end += 1
        batches.append(order[begin:end])
        begin = end
    return batches


@dataclass(frozen=True)
class Plan:
    """The forward passes of N distinct prompts.

    `ids` are those of start token, context and text; `firsts` are the positions that predict the first token of a text;
    `batches` hold the windows of each forward pass, the longest first.
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

        `columns` holds each window once, in any order, with (3, n) logp, mean and std (nats) of its scored positions.
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
