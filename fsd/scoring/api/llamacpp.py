"""Scoring through llama.cpp's llama-server, which returns no log-probabilities of a prompt: one request per token.

`POST /completion` takes a prompt of token ids and returns, with `n_probs`, the log-probability of the generated token
from the raw logits, which neither `logit_bias` nor a sampler changes (server-context.cpp, populate_token_probs). So
each token of a text is forced by a bias, to read its log-probability. The requests for one text follow each other on
one slot, whose cache holds all but the last token: a text takes as many forward steps as generating it.

A token that ends within a character is missing in the reply (server-context.cpp, process_token). It is looked up among
the most likely tokens at its position, which come with any other token that is forced there.
"""

import contextlib
import math
import queue
import unicodedata
from collections.abc import Iterator
from typing import Any

from fsd.errors import UsageError
from fsd.scoring.api.client import Client
from fsd.scoring.api.prompt_ids import Ids, PromptTokens
from fsd.scoring.api.response import text_stats, wrong_tokenizer
from fsd.token_stats import Prompt, TokenStats

OWNER = "llamacpp"
"""Owner of llama-server's models in /v1/models."""
BIAS = 1e9
"""Added to the logit of the forced token."""
LIKELY = 1000
"""Number of most likely tokens among which a split token is looked up first; then the whole vocabulary."""
VOCABULARY = 1_000_000
"""Number of tokens to request if the size of the vocabulary is unknown; the server returns no more than exist."""
LEAST = math.log(2.0**-149)
"""Log of the smallest float32 number; smaller probabilities are reported as the lowest float."""
FIELDS = ["completion_probabilities", "tokens_evaluated", "truncated"]


def is_llama_server(client: Client) -> bool:
    """Whether the server is llama-server, by the owner of its models.

    Raises:
        UsageError: if it cannot be reached, or is llama-cpp-python's server.
    """
    models = _models(client)
    if any(row.get("owned_by") == "me" and "permissions" in row for row in models):
        raise UsageError(
            "the API must not be llama-cpp-python's own server, which takes no token ids and, where a model puts no "
            "start token, pairs log-probabilities with the wrong tokens: serve the model by llama.cpp's llama-server"
        )
    return any(row.get("owned_by") == OWNER for row in models)


def _models(client: Client) -> list[dict[str, Any]]:
    data = client.get_optional(f"{client.base_url}/models").get("data")
    return [row for row in data if isinstance(row, dict)] if isinstance(data, list) else []


class LlamaServer:
    """Scores a prompt token by token.

    Args:
        client: the server.
        model: name of the model there, needed only if the server has several.
        start: start token to put before every text; "" uses the server's own, if any.
        tokens: tokenizer of the prompts; None uses the server's.

    Raises:
        UsageError: if the server cannot be reached, or the start token is not a token of the model.
    """

    per_token = True
    """Whether each token needs its own request."""

    def __init__(self, client: Client, model: str, *, start: str = "", tokens: PromptTokens | None = None) -> None:
        self.client = client
        self.model = model
        self.tokens = tokens
        props = client.get_optional(f"{client.root}/props")
        metas = (row.get("meta") for row in _models(client))
        meta: dict[str, Any] = next((row for row in metas if isinstance(row, dict)), {})
        settings = props.get("default_generation_settings")
        self.context = _count(settings.get("n_ctx") if isinstance(settings, dict) else None)
        self.vocabulary = _count(meta.get("n_vocab")) or VOCABULARY
        self._slots: queue.SimpleQueue[int] | None = None
        slots = _count(props.get("total_slots"))
        if slots:
            self._slots = queue.SimpleQueue()
            for slot in range(slots):
                self._slots.put(slot)
        self._start = [] if tokens else self._start_of(start)
        self._whole = (self._tokenised("a") or [0])[-1]  # a token that splits no character

    def __call__(self, prompt: Prompt) -> TokenStats:
        """Statistics of the prompt's text.

        Raises:
            UsageError: if the server fails or replies in another format, or the text does not fit its context.
        """
        head, ids = self._ids(prompt)
        if max([*head, *ids], default=0) >= self.vocabulary:
            raise wrong_tokenizer(prompt.text)
        if self.context and len(head) + len(ids) > self.context:
            raise UsageError(
                f"a text must fit the server's context of {self.context} tokens; {prompt.text[:40]!r} has "
                f"{len(head) + len(ids)} with the tokens before it"
            )
        logp, read = [], b""
        with self._slot() as slot:
            for t, token in enumerate(ids):
                value, piece = self._next([*head, *ids[:t]], token, slot)
                logp.append(value)
                read += piece
        expected = self.tokens.decode(ids) if self.tokens else prompt.text
        if not _bare(expected).endswith(_bare(read.decode("utf-8", "ignore"))):
            raise wrong_tokenizer(prompt.text)
        return text_stats(prompt.text, logp, ids)

    def _ids(self, prompt: Prompt) -> Ids:
        if self.tokens:
            return self.tokens.ids(prompt)
        context = self._tokenised(prompt.context) if prompt.context else []
        ids = self._tokenised(prompt.text)
        head = [*self._start, *context]
        return Ids(head, ids) if head else Ids(ids[:1], ids[1:])

    def _start_of(self, start: str) -> list[int]:
        if not start:
            return self._tokenised("", add_special=True)
        ids = self._tokenised(start, parse_special=True)
        if len(ids) != 1:
            raise UsageError(f"start-token must be one token of the model behind the API; {start!r} is {len(ids)}")
        return ids

    def _tokenised(self, text: str, *, add_special: bool = False, parse_special: bool = False) -> list[int]:
        body = {"content": text, "add_special": add_special, "parse_special": parse_special, "model": self.model}
        ids = self.client.post(body, f"{self.client.root}/tokenize").get("tokens")
        if not isinstance(ids, list) or not all(type(token) is int for token in ids):
            raise UsageError("llama-server must answer /tokenize with token ids; it does not")
        return ids

    @contextlib.contextmanager
    def _slot(self) -> Iterator[dict[str, int]]:
        """A slot for one text at a time; another text in between would overwrite its cache."""
        if self._slots is None:
            yield {}
            return
        slot = self._slots.get()
        try:
            yield {"id_slot": slot}
        finally:
            self._slots.put(slot)

    def _next(self, before: list[int], token: int, slot: dict[str, int]) -> tuple[float, bytes]:
        """Log-probability and bytes of a token after those before it."""
        entry = self._forced(before, token, slot, 1)
        if entry:
            return _row(entry, token)
        for most in (LIKELY, self.vocabulary):
            entry = self._forced(before, self._whole, slot, most)
            rows: Any = entry.get("top_logprobs")
            for row in rows if isinstance(rows, list) else ():
                if isinstance(row, dict) and row.get("id") == token:
                    return _row(row, token)
        raise UsageError(f"llama-server must give the log-probability of every token; it gives none of token {token}")

    def _forced(self, before: list[int], token: int, slot: dict[str, int], most: int) -> dict[str, Any]:
        """The entry of the forced token in the reply; {} for a token that splits a character."""
        body = {
            "model": self.model,
            "prompt": before,
            "n_predict": 1,
            "n_probs": most,
            "logit_bias": [[token, BIAS]],
            "samplers": [],
            "temperature": 0.0,
            "cache_prompt": True,
            "response_fields": FIELDS,
            **slot,
        }
        reply = self.client.post(body, f"{self.client.root}/completion")
        if reply.get("truncated") or reply.get("tokens_evaluated") != len(before):
            read = reply.get("tokens_evaluated")
            raise UsageError(f"llama-server must read the text whole; of {len(before)} tokens it read {read}")
        rows = reply.get("completion_probabilities", [])
        if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
            raise UsageError("llama-server must give completion_probabilities as a list of objects; it does not")
        return rows[0] if rows else {}


def _row(row: dict[str, Any], token: int) -> tuple[float, bytes]:
    value, piece = row.get("logprob"), row.get("bytes")
    if row.get("id") != token or not isinstance(value, float | int) or not isinstance(piece, list):
        raise UsageError(
            "llama-server must give id, bytes and logprob of the token that is forced, as it does since December "
            f"2024; it gives {', '.join(row) or 'nothing'}"
        )
    try:
        return max(float(value), LEAST), bytes(piece)
    except (TypeError, ValueError, OverflowError) as error:
        raise UsageError("llama-server must give bytes as numbers from 0 to 255, and finite logprobs") from error


def _count(value: Any) -> int:
    return value if type(value) is int and value > 0 else 0


def _bare(text: str) -> str:
    """The text without spaces, which tokenizers add or strip at edges, in Unicode normal form C."""
    return "".join(unicodedata.normalize("NFC", text).split())
