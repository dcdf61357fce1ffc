"""A server that tells the log-probabilities of the prompt itself (`echo`), as vLLM does: one request a prompt."""

from typing import Any

from fsd.scoring.api.client import Client
from fsd.scoring.api.prompt_ids import PromptTokens
from fsd.scoring.api.response import reading, reading_of_ids
from fsd.token_stats import Prompt, TokenStats


class Echo:
    """Reads a prompt in one request, sent as a string or, with a tokenizer, as token ids.

    Args:
        client: the API.
        model: the model's name there.
        start: start token to put before every string; "" where the server puts one.
        tokens: makes ids of prompts; None sends strings.
    """

    a_token = False
    """Whether a request gives one token only."""

    def __init__(self, client: Client, model: str, *, start: str = "", tokens: PromptTokens | None = None) -> None:
        self.client = client
        self.model = model
        self.start = start
        self.tokens = tokens

    def __call__(self, prompt: Prompt) -> TokenStats:
        """Statistics of the prompt's text.

        Raises:
            UsageError: if the API does not answer, or not as it must.
        """
        if self.tokens is None:
            return reading(self._ask(self.start + prompt.context + prompt.text), prompt, self.start)
        head, ids = self.tokens.ids(prompt)
        body = self.tokens.decode([*head[1:], *ids])
        return reading_of_ids(self._ask([*head, *ids]), prompt.text, head, ids, body)

    def _ask(self, prompt: str | list[int]) -> dict[str, Any]:
        return self.client.post(
            {
                "model": self.model,
                "prompt": prompt,
                "echo": True,
                "logprobs": 1,
                "max_tokens": 1,  # not every server takes 0
                "temperature": 1.0,  # the model's own distribution, whatever the server's default
                "top_p": 1.0,
            }
        )
