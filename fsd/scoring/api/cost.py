"""What a job will ask an API for, before it does."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from fsd.errors import UsageError
from fsd.scoring.api.prompt_ids import Ids, PromptTokens
from fsd.token_stats import Prompt

BYTES_PER_TOKEN = 4
"""UTF-8 bytes of a token, about, where there is no tokenizer."""


@dataclass(frozen=True)
class Estimate:
    """What a job will ask for, about.

    Attributes:
        requests: one per distinct prompt, or per token of its text.
        tokens: of all prompts, each counted once, and one generated token per request.
        cost: at the price given, in its currency; None without one.
        a_token: whether a request gives one token only, as llama.cpp's server does.
    """

    requests: int
    tokens: int
    cost: float | None
    a_token: bool = False

    def __str__(self) -> str:
        """One line for the user."""
        about = "about " if self.a_token else ""
        how = " (llama.cpp's server: one a token)" if self.a_token else ""
        line = f"{about}{self.requests:,} requests{how}, about {self.tokens:,} tokens"
        return line if self.cost is None else f"{line}, about {self.cost:,.2f} at the price given"


def estimate(
    prompts: Sequence[Prompt],
    price: float | None = None,
    *,
    tokens: PromptTokens | None = None,
    a_token: bool = False,
) -> Estimate:
    """Requests, tokens and cost of scoring the prompts, each distinct one once.

    Args:
        prompts: what will be asked about.
        price: of a million prompt tokens.
        tokens: makes the ids; without it, tokens are UTF-8 bytes over four.
        a_token: whether a request gives one token only; what it read before is in the server's cache.

    Raises:
        UsageError: for a price below 0, or a text of no tokens.
    """
    if price is not None and not price >= 0:
        raise UsageError(f"price must be at least 0; got {price}")
    distinct = set(prompts)
    if tokens:
        sizes = [_sizes(tokens.ids(prompt)) for prompt in distinct]
    else:
        sizes = [(_guess(prompt.context + prompt.text), _guess(prompt.text)) for prompt in distinct]
    requests = sum(text for _, text in sizes) if a_token else len(distinct)
    total = sum(whole for whole, _ in sizes) + requests
    return Estimate(requests, total, None if price is None else total * price / 1e6, a_token)


def _sizes(ids: Ids) -> tuple[int, int]:
    return len(ids.head) + len(ids.text), len(ids.text)


def _guess(text: str) -> int:
    return math.ceil(len(text.encode("utf-8")) / BYTES_PER_TOKEN)
