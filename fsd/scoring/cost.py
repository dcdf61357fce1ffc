"""What a model behind a service is asked, in tokens, and what that costs."""

import math
from dataclasses import dataclass

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
