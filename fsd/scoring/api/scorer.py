"""Prompts -> token statistics through a completions API that echoes, as vLLM does, several requests at a time."""

import math
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from typing import Any

import xxhash

from fsd.errors import UsageError
from fsd.progress import progress
from fsd.scoring.api.client import Client
from fsd.scoring.api.prompt_ids import PromptTokens
from fsd.scoring.api.response import stats_from_ids, stats_from_string
from fsd.token_stats import Prompt, TokenStats

BYTES_PER_TOKEN = 4
"""Approximate number of UTF-8 bytes of a token, where there is no tokenizer."""
FORMAT = 2
"""Version of the numbers, part of the key of stored results."""


class CompletionsScorer:
    """Scores prompts through a completions API.

    An API returns the log-probabilities of a text's tokens and, with a tokenizer, their ids. `lacks` names the other
    fields of `TokenStats`; detectors that need them are left out. Given the model's own tokenizer in `tokens`,
    token ids are sent, with its start token; else strings that begin with `start`, "" if the server adds its own.
    """

    def __init__(
        self,
        client: Client,
        model: str,
        *,
        start: str = "",
        tokens: PromptTokens | None = None,
        concurrency: int = 8,
        description: str = "",
    ) -> None:
        if not model:
            raise UsageError("the model behind an API must be named, as api:NAME; got api:")
        if concurrency < 1:
            raise UsageError(f"concurrency must be at least 1; got {concurrency}")
        if start and tokens:
            raise UsageError(f"start-token must not come with a tokenizer, which has its own; got {start!r}")
        self.client = client
        self.model = model
        self.start = start
        self.tokens = tokens
        self.lacks = frozenset({"mean", "std"} if tokens else {"token", "mean", "std"})
        self.concurrency = concurrency
        self.description = description

    @property
    def key(self) -> str:
        """Hash of all that the numbers depend on, as far as it is known: address, model, start token, tokenizer."""
        tokenizer = self.tokens.fingerprint if self.tokens else ""
        parts = (FORMAT, self.client.base_url, self.model, self.start, tokenizer)
        return xxhash.xxh3_128_hexdigest(repr(parts).encode())

    def estimate(self, prompts: Sequence[Prompt], price: float | None = None) -> str:
        """Requests, tokens and, at a price of a million tokens, cost of scoring each distinct prompt once: one line."""
        distinct = set(prompts)
        if self.tokens:
            sizes = [sum(map(len, self.tokens.ids(prompt))) for prompt in distinct]
        else:
            sizes = [math.ceil(len("".join(prompt).encode()) / BYTES_PER_TOKEN) for prompt in distinct]
        total = sum(sizes) + len(distinct)
        cost = "" if price is None else f", about {total * price / 1e6:,.2f} at the given price"
        return f"{len(distinct):,} requests, about {total:,} tokens{cost}"

    def __call__(self, prompts: Sequence[Prompt]) -> Iterator[TokenStats]:
        """Statistics of each prompt's text, in order; after a final failure nothing that waits is sent."""
        answers = dict(self.as_read(prompts))
        yield from (answers[prompt] for prompt in prompts)

    def as_read(self, prompts: Sequence[Prompt]) -> Iterator[tuple[Prompt, TokenStats]]:
        """Each distinct prompt with its statistics, in order of completion; those completed come before a failure."""
        distinct = list(dict.fromkeys(prompts))
        if not distinct:
            return
        self.client.check_server()
        pool = ThreadPoolExecutor(self.concurrency, thread_name_prefix="completions")
        failure: UsageError | None = None
        with progress(len(distinct), self.description, "text", shown=bool(self.description)) as bar:
            try:
                submitted = {pool.submit(self._read, prompt): prompt for prompt in distinct}
                for future in as_completed(submitted):
                    try:
                        stats = future.result()
                    except UsageError as error:
                        failure = failure or UsageError(self.client.redact(str(error)))  # it may quote the server
                        self.client.limiter.stop()
                        continue
                    bar.update()
                    yield submitted[future], stats
            except BaseException:  # also if the caller stops iterating
                self.client.limiter.stop()
                raise
            finally:
                pool.shutdown(wait=True, cancel_futures=True)
        if failure:
            raise failure

    def _read(self, prompt: Prompt) -> TokenStats:
        """Statistics of a prompt's text from one request."""
        if self.tokens is None:
            return stats_from_string(self._ask(self.start + prompt.context + prompt.text), prompt, self.start)
        head, ids = self.tokens.ids(prompt)
        body = self.tokens.decode([*head[1:], *ids])
        return stats_from_ids(self._ask([*head, *ids]), prompt.text, len(head), ids, body)

    def _ask(self, prompt: str | list[int]) -> dict[str, Any]:
        return self.client.complete(
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
