"""Prompts → token statistics by a completions API, several requests at a time."""

import math
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path

import xxhash

from fsd.cache import CachedScorer, StatsCache
from fsd.completions.client import Client
from fsd.completions.reading import reading
from fsd.errors import UsageError
from fsd.progress import progress
from fsd.stats import Prompt, TokenStats

FORMAT = 1
"""Raised whenever a reading's numbers change; older numbers are not found then."""
BYTES_PER_TOKEN = 4
"""UTF-8 bytes of a token, about, for an estimate before anything is sent."""


@dataclass(frozen=True)
class Estimate:
    """What a job will ask for, about.

    Attributes:
        requests: one per distinct prompt.
        tokens: UTF-8 bytes over four, and one generated token per request.
        cost: at the price given, in its currency; None without one.
    """

    requests: int
    tokens: int
    cost: float | None

    def __str__(self) -> str:
        """One line for the user."""
        line = f"{self.requests:,} requests, about {self.tokens:,} tokens"
        return line if self.cost is None else f"{line}, about {self.cost:,.2f} at the price given"


def estimate(prompts: Sequence[Prompt], price: float | None = None) -> Estimate:
    """Requests, tokens and cost of scoring the prompts, each distinct one once.

    Args:
        prompts: what will be asked about.
        price: of a million prompt tokens.

    Raises:
        UsageError: for a price below 0.
    """
    if price is not None and not price >= 0:
        raise UsageError(f"price must be at least 0; got {price}")
    distinct = set(prompts)
    tokens = sum(
        1 + math.ceil(len((prompt.context + prompt.text).encode("utf-8")) / BYTES_PER_TOKEN) for prompt in distinct
    )
    return Estimate(len(distinct), tokens, None if price is None else tokens * price / 1e6)


class CompletionsScorer:
    """Reads prompts through a completions API.

    It gives log-probabilities of the text's tokens alone: `lacks` names what else `TokenStats` has, and detectors
    that need it are left out.

    Args:
        client: the API.
        model: the model's name there.
        start: start token to put before every prompt, so that the first token counts; "" where the server puts one.
        concurrency: requests open at once.
        description: what the progress bar says; empty for none.

    Raises:
        UsageError: for no name, or a concurrency below 1.
    """

    lacks = frozenset({"token", "mean", "std"})

    def __init__(
        self, client: Client, model: str, *, start: str = "", concurrency: int = 8, description: str = ""
    ) -> None:
        if not model:
            raise UsageError("the model behind an API must be named, as api:NAME; got api:")
        if concurrency < 1:
            raise UsageError(f"concurrency must be at least 1; got {concurrency}")
        self.client = client
        self.model = model
        self.start = start
        self.concurrency = concurrency
        self.description = description

    @property
    def key(self) -> str:
        """What the numbers are made of, as far as an API lets one know: address, model, start token."""
        parts = (FORMAT, self.client.base_url, self.model, self.start)
        return xxhash.xxh3_128_hexdigest(repr(parts).encode())

    def __call__(self, prompts: Sequence[Prompt]) -> Iterator[TokenStats]:
        """Statistics of each prompt's text, in order; a prompt that comes twice is sent once.

        Raises:
            UsageError: at the first text that fails for good; what waits is not sent then.
        """
        answers = dict(self.as_read(prompts))
        yield from (answers[prompt] for prompt in prompts)

    def as_read(self, prompts: Sequence[Prompt]) -> Iterator[tuple[Prompt, TokenStats]]:
        """Each distinct prompt with its statistics, as they come in; what was answered is given before a failure.

        Raises:
            UsageError: as above.
        """
        distinct = list(dict.fromkeys(prompts))
        pool = ThreadPoolExecutor(self.concurrency, thread_name_prefix="completions")
        failure: UsageError | None = None
        with progress(len(distinct), self.description, "text", shown=bool(self.description)) as bar:
            try:
                asked = {pool.submit(self._one, prompt): prompt for prompt in distinct}
                for done in as_completed(asked):
                    try:
                        found = done.result()
                    except UsageError as error:
                        failure = failure or error
                        self.client.stop()
                        continue
                    bar.update()
                    yield asked[done], found
            except BaseException:  # also if nobody asks for more
                self.client.stop()
                raise
            finally:
                pool.shutdown(wait=True, cancel_futures=True)
        if failure:
            raise failure

    def _one(self, prompt: Prompt) -> TokenStats:
        body = {
            "model": self.model,
            "prompt": self.start + prompt.context + prompt.text,
            "echo": True,
            "logprobs": 1,
            "max_tokens": 1,  # not every server takes 0
            "temperature": 1.0,  # the model's own distribution, whatever the server's default
            "top_p": 1.0,
        }
        return reading(self.client.post(body), prompt, self.start)


class KeptCompletions(CachedScorer):
    """A completions API whose answers are kept in a folder until the job is done: no text is paid for twice.

    The folder belongs to one job. A model behind a name may change any day, so answers are not kept beyond it.

    Args:
        scorer: the API.
        folder: where answers are kept.
    """

    lacks = CompletionsScorer.lacks

    def __init__(self, scorer: CompletionsScorer, folder: Path) -> None:
        super().__init__(scorer, StatsCache(folder, limit=2**62), scorer.key)

    def unknown(self, prompts: Sequence[Prompt]) -> list[Prompt]:
        """The distinct prompts that were not answered yet."""
        known = self.cache.find(str(self.key), prompts)
        return [prompt for prompt in dict.fromkeys(prompts) if prompt not in known]
