"""What a language model says about a text: one row of numbers per token, from one forward pass."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fsd.errors import UsageError

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]

STD_FLOOR = 1e-6
"""Smallest standard deviation of log-probability (nats) that a model may report; below it, it is noise."""


class Prompt(NamedTuple):
    """A text to be scored; `context` is conditioned on and not scored."""

    text: str
    context: str = ""


@dataclass(frozen=True, slots=True)
class TokenStats:
    """Statistics of the T ≥ 1 tokens of `text`, all in nats.

    A start token precedes the first one, so that the first token counts too (DC-PDD §3.2). A completions API does not
    tell the whole distribution, so `mean` and `std` are NaN, and where it does not tell ids, `token` is −1.

    Attributes:
        text: the text itself, without its context.
        token: (T,) vocabulary index x_t.
        logp: (T,) log p(x_t | x_<t).
        mean: (T,) expectation of log p(v | x_<t) over the model's own p, i.e. minus the entropy.
        std: (T,) standard deviation of log p(v | x_<t) over the model's own p, at least `STD_FLOOR`.
    """

    text: str
    token: IntArray
    logp: FloatArray
    mean: FloatArray
    std: FloatArray

    def __post_init__(self) -> None:
        shapes = {array.shape for array in (self.token, self.logp, self.mean, self.std)}
        if len(shapes) != 1 or self.token.ndim != 1 or self.token.size == 0:
            raise ValueError(f"token, logp, mean and std must share one shape (T,) with T >= 1, got {shapes}")


Scorer = Callable[[Sequence[Prompt]], Iterable[TokenStats]]
"""Anything that reads prompts and gives their statistics in the same order: the target model with the adapter
off or on, a reference model, a table of token frequencies, a completions API."""

Scores = dict[str, FloatArray]
"""Detector name → (N,) scores of N texts, higher = more likely a member."""


def lowest_mean(values: FloatArray, k: float, setting: str = "k") -> float:
    """Mean of the n lowest of T ≥ 1 values, n = max(1, int(k·T)).

    At least one value counts, so that short texts have a score too (with n = int(k·T) alone, k = 0.2 gives no
    number below five tokens). The lowest are added in ascending order, so that the order of the tokens never
    shows.

    Args:
        values: (T,) one number per token.
        k: share of the tokens, in (0, 1].
        setting: what the user calls `k`, for the message.

    Raises:
        UsageError: if k is not in (0, 1].
    """
    if not 0 < k <= 1:
        raise UsageError(f"{setting} must be in (0, 1]; got {k!r}")
    n = max(1, int(k * values.size))
    return float(np.sort(values)[:n].sum()) / n


def loss_ratio(above: TokenStats, below: TokenStats) -> float:
    """loss(above) / loss(below), where loss is minus the mean log-probability of the tokens.

    Raises:
        ValueError: if loss(below) is zero, i.e. every token of it has probability one: no ratio exists.
    """
    denominator = float(below.logp.mean())
    if denominator == 0:
        raise ValueError(f"a ratio of losses needs a loss above 0, got 0 for the text {below.text[:40]!r}")
    return float(above.logp.mean()) / denominator


def check_same_tokens(one: TokenStats, other: TokenStats) -> None:
    """Two readings that are compared token by token must have the same tokens.

    Raises:
        ValueError: if they do not, as when two tokenizers were at work.
    """
    if not np.array_equal(one.token, other.token):
        sizes = f"{one.token.size} and {other.token.size} tokens"
        raise ValueError(f"two readings of a text must have the same tokens, got {sizes} for {one.text[:40]!r}")
