"""Prompts -> token ids as a local model gets them, to be sent to a server instead of a string."""

import threading
from collections.abc import Sequence
from typing import Any

from fsd.errors import UsageError
from fsd.scoring.token_frequencies import fingerprint
from fsd.token_stats import Prompt


class PromptTokens:
    """Start token + context + text as in `fsd.scoring.model_scorer`; safe for any number of threads.

    Context and text are tokenised separately, without special tokens.
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
        """Token ids of each text, as `fsd.models.language_model.LanguageModel.tokens` gives them."""
        from fsd.models.language_model import token_ids  # imports torch

        with self._lock:
            return token_ids(self._tokenizer, texts)

    def ids(self, prompt: Prompt) -> tuple[list[int], list[int]]:
        """The ids of start token and context, and those of the text that is scored."""
        if prompt.context not in self._contexts:  # one prefix is common to all texts
            self._contexts[prompt.context] = self.tokens([prompt.context])[0]
        return [self.start, *self._contexts[prompt.context]], self.tokens([prompt.text])[0]

    def decode(self, ids: list[int]) -> str:
        """The string of token ids."""
        with self._lock:
            text: str = self._tokenizer.decode(ids, skip_special_tokens=False, clean_up_tokenization_spaces=False)
        return text
