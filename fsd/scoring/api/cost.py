"""Requests, tokens and cost of a job, estimated before it starts."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from fsd.errors import UsageError
from fsd.scoring.api.prompt_ids import PromptTokens
from fsd.token_stats import Prompt

BYTES_PER_TOKEN = 4
"""Approximate number of UTF-8 bytes of a token, where there is no tokenizer."""


@dataclass(frozen=True)
class Estimate:
    """Size of a job.

    Attributes:
        requests: one per distinct prompt, or one per token of its text.
        tokens: of all distinct prompts, and one generated token per request.
        cost: at the given price, in its currency; None without one.
        per_token: whether each token needs its own request, as with llama.cpp's server.
    """

    requests: int
    tokens: int
    cost: float | None
    per_token: bool = False

    def __str__(self) -> str:
        """One line for the user."""
        about = "about " if self.per_token else ""
        how = " (llama.cpp's server: one per token)" if self.per_token else ""
        line = f"{about}{self.requests:,} requests{how}, about {self.tokens:,} tokens"
        return line if self.cost is None else f"{line}, about {self.cost:,.2f} at the given price"


def estimate(
    prompts: Sequence[Prompt],
    price: float | None = None,
    *,
    tokens: PromptTokens | None = None,
    per_token: bool = False,
) -> Estimate:
    """Requests, tokens and cost of scoring each distinct prompt once.

    Args:
        prompts: to be scored.
        price: of a million prompt tokens.
        tokens: tokenizer; without it the number of tokens is a fourth of the UTF-8 bytes.
        per_token: whether each token needs its own request; the tokens before it come from the server's cache.

    Raises:
        UsageError: for a price below 0, or a text of no tokens.
    """
    if price is not None and not price >= 0:
        raise UsageError(f"price must be at least 0; got {price}")
    distinct = set(prompts)
    if tokens:
        ids = [tokens.ids(prompt) for prompt in distinct]
        sizes = [(len(one.head) + len(one.text), len(one.text)) for one in ids]
    else:
        sizes = [(_approximate(prompt.context + prompt.text), _approximate(prompt.text)) for prompt in distinct]
    requests = sum(text for _, text in sizes) if per_token else len(distinct)
    total = sum(whole for whole, _ in sizes) + requests
    return Estimate(requests, total, None if price is None else total * price / 1e6, per_token)


def _approximate(text: str) -> int:
    return math.ceil(len(text.encode("utf-8")) / BYTES_PER_TOKEN)
