"""Models behind a service, `api:NAME`: the scorers that ask it, its tokens, and what that costs."""

import math
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from fsd.config import APIConfig, ModelConfig
from fsd.plugs import needed
from fsd.scoring.token_frequencies import fingerprint
from fsd.token_stats import Prompt, TokenIds

# Approximate number of UTF-8 bytes of a token, where there is no tokenizer.
BYTES_PER_TOKEN = 4


def about_tokens(text: str) -> int:
    """Number of tokens of a text, estimated from its bytes."""
    return math.ceil(len(text.encode()) / BYTES_PER_TOKEN)


@dataclass(frozen=True)
class Cost:
    """What a service is asked: requests, tokens that are sent, about, and those that it generates at most."""

    requests: int = 0
    sent: int = 0
    generated: int = 0

    def plus(self, further: "Cost") -> "Cost":
        """The sum of both."""
        return Cost(self.requests + further.requests, self.sent + further.sent, self.generated + further.generated)

    def amount(self, price: float) -> float:
        """The cost at a price of a million tokens."""
        return (self.sent + self.generated) * price / 1e6

    def priced(self, price: float) -> str:
        """The cost at a price of a million tokens, in words."""
        return f"about {self.amount(price):,.2f} at the given price"

    def line(self, price: float | None = None) -> str:
        """All of it, with the cost where there is a price."""
        noun = "request" if self.requests == 1 else "requests"
        line = f"{self.requests:,} {noun}, about {self.sent:,} tokens sent and at most {self.generated:,} generated"
        if price is None:
            return line
        return f"{line}, {self.priced(price)}"


class PromptTokens:
    """Start token + context + text as ids, as `ModelScorer` has them; safe for any number of threads."""

    def __init__(self, tokenizer: Any, name: str) -> None:
        from fsd.models.language_model import start_token  # imports torch

        self.start = start_token(tokenizer, name)
        # Of all of it: answers that are paid for have been kept under this hash.
        self.fingerprint = fingerprint(tokenizer, special=True)
        self._tokenizer = tokenizer
        self._lock = threading.Lock()  # fast tokenizers are not thread-safe
        self._contexts: dict[str, TokenIds] = {"": []}

    def tokens(self, texts: Sequence[str]) -> list[TokenIds]:
        """Token ids of each text, as `fsd.models.language_model.LanguageModel.tokens` gives them."""
        from fsd.models.language_model import token_ids

        with self._lock:
            return token_ids(self._tokenizer, texts)

    def ids(self, prompt: Prompt) -> tuple[TokenIds, TokenIds]:
        """The ids of start token and context, and those of the text that is scored."""
        context = prompt.context
        if context not in self._contexts:  # one prefix is common to all texts
            self._contexts[context] = self.tokens([context])[0]
        return [self.start, *self._contexts[context]], self.tokens([prompt.text])[0]

    def decode(self, ids: TokenIds) -> str:
        """The string of token ids."""
        with self._lock:
            text: str = self._tokenizer.decode(ids, skip_special_tokens=False, clean_up_tokenization_spaces=False)
        return text


def service_scorers(
    config: ModelConfig, api: APIConfig, tokens: PromptTokens | None = None, *, chat: bool = False
) -> dict[str, Any]:
    """Scorers by name that ask a service, which is not asked yet; a UsageError for settings that make no sense.

    `tokens` are those of its tokenizer, and a `chat` gives no token statistics.
    """
    scorers: dict[str, Any] = needed("service", config, api, tokens, chat)
    return scorers
