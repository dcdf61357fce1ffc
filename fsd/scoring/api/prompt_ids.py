"""Prompts -> token ids as a local model reads them, to be sent to a server instead of a string."""

import threading
from collections.abc import Sequence
from typing import Any, NamedTuple

from fsd.errors import UsageError
from fsd.scoring.token_frequencies import fingerprint
from fsd.token_stats import Prompt


class Ids(NamedTuple):
    """Token ids of a prompt: `head` (start token and context) and the (T,) `text` that is scored."""

    head: list[int]
    text: list[int]


class PromptTokens:
    """Start token + context + text as `fsd.scoring.model_scorer` reads them; safe for any number of threads.

    Context and text are tokenised separately, without special tokens.

    Args:
        tokenizer: a fast tokenizer.
        name: its model, for messages.

    Raises:
        UsageError: if it has neither BOS nor EOS, or is no fast tokenizer.
    """

    def __init__(self, tokenizer: Any, name: str) -> None:
        start = tokenizer.bos_token_id if tokenizer.bos_token_id is not None else tokenizer.eos_token_id
        if start is None:
            raise UsageError(f"the tokenizer of {name!r} must have a BOS or EOS token to start a text; it has none")
        self.start: int = start
        self.fingerprint = fingerprint(tokenizer)
        self._tokenizer = tokenizer
        self._lock = threading.Lock()  # fast tokenizers are not thread-safe
        self._contexts: dict[str, list[int]] = {"": []}

    def tokens(self, texts: Sequence[str]) -> list[list[int]]:
        """Token ids of each text, as `fsd.models.language_model.LanguageModel.tokens` gives them.

        Raises:
            UsageError: for a text of no tokens.
        """
        from fsd.models.language_model import token_ids  # imports torch

        with self._lock:
            return token_ids(self._tokenizer, texts)

    def ids(self, prompt: Prompt) -> Ids:
        """The ids of a prompt; see `tokens`."""
        if prompt.context not in self._contexts:  # one prefix is common to all texts
            self._contexts[prompt.context] = self.tokens([prompt.context])[0]
        return Ids([self.start, *self._contexts[prompt.context]], self.tokens([prompt.text])[0])

    def decode(self, ids: list[int]) -> str:
        """The string of token ids."""
        with self._lock:
            text: str = self._tokenizer.decode(ids, skip_special_tokens=False, clean_up_tokenization_spaces=False)
        return text
