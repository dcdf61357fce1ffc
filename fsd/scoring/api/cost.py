"""Requests, tokens and cost of a job, estimated before it starts."""

import math
from collections.abc import Sequence
from typing import NamedTuple

from fsd.scoring.api.prompt_ids import PromptTokens
from fsd.token_stats import Prompt

BYTES_PER_TOKEN = 4
"""Approximate number of UTF-8 bytes of a token, where there is no tokenizer."""


class Estimate(NamedTuple):
    """Size of a job: requests, one per distinct prompt, prompt and generated tokens, and cost if there is a price."""

    requests: int
    tokens: int
    cost: float | None

    def __str__(self) -> str:
        """One line for the user."""
        line = f"{self.requests:,} requests, about {self.tokens:,} tokens"
        return line if self.cost is None else f"{line}, about {self.cost:,.2f} at the given price"


def estimate(prompts: Sequence[Prompt], price: float | None = None, *, tokens: PromptTokens | None = None) -> Estimate:
    """Requests, tokens and cost of scoring each distinct prompt once.

    Args:
        prompts: to be scored.
        price: of a million prompt tokens.
        tokens: tokenizer; without it the number of tokens is a fourth of the UTF-8 bytes.

    Raises:
        UsageError: for a text of no tokens.
    """
    distinct = set(prompts)
    if tokens:
        sizes = [sum(map(len, tokens.ids(prompt))) for prompt in distinct]
    else:
        sizes = [math.ceil(len("".join(prompt).encode()) / BYTES_PER_TOKEN) for prompt in distinct]
    total = sum(sizes) + len(distinct)
    return Estimate(len(distinct), total, None if price is None else total * price / 1e6)
