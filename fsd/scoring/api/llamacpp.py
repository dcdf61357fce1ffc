"""llama.cpp's llama-server, which tells no log-probabilities of a prompt: each token is forced, one request a token.

`POST /completion` takes a prompt of token ids and gives, with `n_probs`, the log-probability of the token it generates,
out of the raw logits: neither `logit_bias` nor a sampler changes it (server-context.cpp, populate_token_probs). So the
next token of a text is forced by a bias, and its log-probability read. Requests for one text come one after another on
one slot, whose cache holds all but the last token: a text costs as many forward steps as to generate it.

A token that ends within a character is left out of the reply (server-context.cpp, process_token). It is found among
the most likely ones at its place, which come with any other token that is forced there.
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
from fsd.scoring.api.response import foreign, statistics
from fsd.token_stats import Prompt, TokenStats

OWNER = "llamacpp"
"""How llama-server names itself in /v1/models."""
BIAS = 1e9
"""Added to the logit of the token that is to come."""
LIKELY = 1000
"""Tokens to look among first for one that is torn; then the whole vocabulary."""
VOCABULARY = 1_000_000
"""Size of the vocabulary where the server does not tell it; it gives no more than there are."""
LEAST = math.log(2.0**-149)
"""Log of the smallest number of float32. A smaller probability comes as the lowest float there is."""
FIELDS = ["completion_probabilities", "tokens_evaluated", "truncated"]


def is_llama_server(client: Client) -> bool:
    """Whether it is llama-server that answers, by what it says of its models.

    Raises:
        UsageError: if nothing answers, or llama-cpp-python's server does.
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
    """Reads a prompt token by token.

    Args:
        client: the server.
        model: the model's name there, which matters only where several are served.
        start: start token to put before every text; "" takes what the server puts there by itself, if anything.
        tokens: makes ids of prompts; None leaves that to the server.

    Raises:
        UsageError: if the server does not answer, or the start token is none of the model's.
    """

    a_token = True
    """Whether a request gives one token only."""

    def __init__(self, client: Client, model: str, *, start: str = "", tokens: PromptTokens | None = None) -> None:
        self.client = client
        self.model = model
        self.tokens = tokens
        props = client.get_optional(f"{client.root}/props")
        metas = (row.get("meta") for row in _models(client))
        meta: dict[str, Any] = next((found for found in metas if isinstance(found, dict)), {})
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
        self._whole = (self._tokenised("a") or [0])[-1]  # a token that ends no character half way

    def __call__(self, prompt: Prompt) -> TokenStats:
        """Statistics of the prompt's text.

        Raises:
            UsageError: if the server does not answer, or not as it must, or the text does not fit its context.
        """
        head, ids = self._ids(prompt)
        if max([*head, *ids], default=0) >= self.vocabulary:
            raise UsageError(foreign(prompt.text))
        if self.context and len(head) + len(ids) > self.context:
            raise UsageError(
                f"a text must fit the server's context of {self.context} tokens; {prompt.text[:40]!r} has "
                f"{len(head) + len(ids)} with what comes before it"
            )
        logp, read = [], b""
        with self._slot() as place:
            for t, token in enumerate(ids):
                value, piece = self._next([*head, *ids[:t]], token, place)
                logp.append(value)
                read += piece
        said = self.tokens.decode(ids) if self.tokens else prompt.text
        if not _bare(said).endswith(_bare(read.decode("utf-8", "ignore"))):
            raise UsageError(foreign(prompt.text))
        return statistics(prompt.text, logp, ids)

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
        """A slot for one text at a time; another text in between would take its cache."""
        if self._slots is None:
            yield {}
            return
        slot = self._slots.get()
        try:
            yield {"id_slot": slot}
        finally:
            self._slots.put(slot)

    def _next(self, before: list[int], token: int, place: dict[str, int]) -> tuple[float, bytes]:
        """Log-probability and bytes of a token after those before it."""
        entry = self._forced(before, token, place, 1)
        if entry:
            return _row(entry, token)
        for most in (LIKELY, self.vocabulary):
            entry = self._forced(before, self._whole, place, most)
            rows: Any = entry.get("top_logprobs")
            for row in rows if isinstance(rows, list) else ():
                if isinstance(row, dict) and row.get("id") == token:
                    return _row(row, token)
        raise UsageError(f"llama-server must give the log-probability of every token; it gives none of token {token}")

    def _forced(self, before: list[int], token: int, place: dict[str, int], most: int) -> dict[str, Any]:
        """What the server says of the token that was forced; nothing of a torn one."""
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
            **place,
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
    return max(float(value), LEAST), bytes(piece)


def _count(value: Any) -> int:
    return value if type(value) is int and value > 0 else 0


def _bare(text: str) -> str:
    """Without spaces, which tokenizers add and take away at the edges, and in one form of composed characters."""
    return "".join(unicodedata.normalize("NFC", text).split())
