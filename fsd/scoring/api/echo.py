"""Scoring through a server that returns log-probabilities of the prompt itself (`echo`), as vLLM does."""

from typing import Any

from fsd.scoring.api.client import Client
from fsd.scoring.api.prompt_ids import PromptTokens
from fsd.scoring.api.response import stats_from_ids, stats_from_string
from fsd.token_stats import Prompt, TokenStats


class Echo:
    """Scores a prompt in one request, sent as a string or, with a tokenizer, as token ids.

    Args:
        client: the API.
        model: name of the model there.
        start: start token to put before every string; "" if the server adds one.
        tokens: tokenizer of the prompts; None sends strings.
    """

    per_token = False
    """Whether each token needs its own request."""

    def __init__(self, client: Client, model: str, *, start: str = "", tokens: PromptTokens | None = None) -> None:
        self.client = client
        self.model = model
        self.start = start
        self.tokens = tokens

    def __call__(self, prompt: Prompt) -> TokenStats:
        """Statistics of the prompt's text.

        Raises:
            UsageError: if the API fails, or replies in another format.
        """
        if self.tokens is None:
            return stats_from_string(self._request(self.start + prompt.context + prompt.text), prompt, self.start)
        head, ids = self.tokens.ids(prompt)
        body = self.tokens.decode([*head[1:], *ids])
        return stats_from_ids(self._request([*head, *ids]), prompt.text, head, ids, body)

    def _request(self, prompt: str | list[int]) -> dict[str, Any]:
        return self.client.post(
            {
                "model": self.model,
                "prompt": prompt,
                "echo": True,
                "logprobs": 1,
                "max_tokens": 1,  # not every server accepts 0
                "temperature": 1.0,  # the model's own distribution, not the server's default
                "top_p": 1.0,
            }
        )
