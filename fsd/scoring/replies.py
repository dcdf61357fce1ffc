"""Replies of a model to prompts, as a user gets them: here, with or without a chat template, or by an API."""

import json
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from fsd.config import APIConfig, ModelConfig
from fsd.errors import UsageError, first_line
from fsd.progress import progress
from fsd.scoring.model_checks import check_api
from fsd.scoring.scorers import API
from fsd.token_stats import Prompt

if TYPE_CHECKING:
    from fsd.models.language_model import LanguageModel

PARAGRAPH = "\n\n"
"""What parts a plain prompt from its reply, unless the reply is to go on where the prompt breaks off."""
TEMPLATE = "chat template"
PLAIN = "plain text"
CHAT_API = "message to a chat API"
COMPLETIONS_API = "text to a completions API"


@dataclass(frozen=True)
class Request:
    """A prompt, and how its reply is generated: temperature 0 takes the likeliest tokens, at most `max_tokens`."""

    prompt: str
    max_tokens: int
    temperature: float = 0.0
    seed: int = 0
    top_k: int | None = None
    continues: bool = False
    """Whether the reply goes on where the prompt breaks off, so that plain text has no break between them."""

    def settings(self) -> dict[str, Any]:
        """How the reply is generated, as it stands in a transcript."""
        return {
            "temperature": self.temperature,
            "top_k": self.top_k,
            "seed": self.seed,
            "max_tokens": self.max_tokens,
        }

    @property
    def as_text(self) -> str:
        """The beginning of a text that the reply continues, for a model that is not asked by messages."""
        return self.prompt if self.continues else self.prompt + PARAGRAPH


@dataclass(frozen=True)
class Reply:
    """What came, and from whom: the prompt as it was sent, and in which form, and the time (UTC)."""

    text: str
    sent: str
    form: str
    time: str
    model: str
    fingerprint: str = ""
    """Hash of the weights; empty behind an API."""

    def record(self) -> dict[str, str]:
        """The reply as it stands in a transcript."""
        return {
            "form": self.form,
            "request": self.sent,
            "time": self.time,
            "model": self.model,
            "fingerprint": self.fingerprint,
            "reply": self.text,
        }


class Replies(Protocol):
    """Answers requests in their order."""

    def __call__(self, requests: Sequence[Request]) -> Iterator[Reply]:
        """The reply to each request."""


def has_template(tokenizer: Any) -> bool:
    """Whether a tokenizer says how a chat is written for its model."""
    return bool(getattr(tokenizer, "chat_template", None))


def sent(tokenizer: Any, request: Request, *, plain: bool) -> str:
    """The text that a model on this machine reads: the prompt in its chat template, if it has one, or as it is."""
    if plain or not has_template(tokenizer):
        return request.as_text
    message = {"role": "user", "content": request.prompt}
    try:
        # A template is a program of whoever made the model; transformers renders it in a sandbox.
        text = tokenizer.apply_chat_template(
            [message],
            add_generation_prompt=True,
            tokenize=False,
        )
    except Exception as error:  # a template may raise whatever it wants
        raise UsageError(
            f"the model's chat template must take a message of the user's; it says: {first_line(error)}; --plain asks "
            "without it"
        ) from error
    return str(text)


def head_of(tokenizer: Any, request: Request, *, plain: bool) -> list[int]:
    """The token ids of what is sent, without a start token before plain text."""
    from fsd.models.language_model import token_ids

    text = sent(tokenizer, request, plain=plain)
    if plain or not has_template(tokenizer):
        return token_ids(tokenizer, [text])[0]
    # The template writes the special tokens itself, the start token among them.
    ids: list[int] = tokenizer(text, add_special_tokens=False)["input_ids"]
    return ids


def check_lengths(
    tokenizer: Any,
    context: int,
    requests: Sequence[Request],
    *,
    plain: bool,
) -> None:
    """Refuse prompts that do not fit a model's context of so many tokens together with their replies."""
    for request in requests:
        # The start token before plain text counts, too.
        length = len(head_of(tokenizer, request, plain=plain)) + 1
        if length + request.max_tokens > context:
            raise UsageError(
                f"prompt and reply must fit the model's context of {context} tokens together; got {length} and "
                f"{request.max_tokens} (--max-tokens) for {request.prompt[:40]!r}: a shorter opening (--prefix) or "
                "reply would fit"
            )


@dataclass(eq=False)
class LocalReplies:
    """Replies of a model on this machine, by prompt and seed."""

    language_model: "LanguageModel"
    plain: bool = False
    clock: Callable[[], float] = time.time
    description: str = "replies"

    def __call__(self, requests: Sequence[Request]) -> Iterator[Reply]:
        """The reply to each request."""
        model = self.language_model
        check_lengths(model.tokenizer, model.context, requests, plain=self.plain)
        with progress(
            len(requests),
            self.description,
            "answer",
            shown=bool(self.description),
        ) as bar:
            for request in requests:
                yield self._reply(request)
                bar.update()

    def _reply(self, request: Request) -> Reply:
        from fsd.scoring.sampling import Sampling, generated, seeded

        model = self.language_model
        chat = has_template(model.tokenizer) and not self.plain
        head = head_of(model.tokenizer, request, plain=self.plain)
        if not chat:
            head = [model.start, *head]
        begun = self.clock()
        sampling = Sampling(request.temperature, request.top_k)
        with (
            model.state(tuned=False) as network,
            seeded(
                model,
                request.seed,
                request.prompt,
            ),
        ):
            # Chat models end a turn by other tokens than a text.
            ends = _ends(network) if chat else []
            (text,) = generated(
                model,
                network,
                [head],
                request.max_tokens,
                sampling,
                ends=ends,
            )
        asked = sent(model.tokenizer, request, plain=self.plain)
        form = TEMPLATE if chat else PLAIN
        identity = model.identity
        return Reply(
            text,
            asked,
            form,
            utc(begun),
            identity.id,
            identity.fingerprint,
        )


def _ends(network: Any) -> list[int]:
    # One id, a list of them, or none, as the model's folder has it.
    ends = network.generation_config.eos_token_id
    if ends is None:
        return []
    return list(ends) if isinstance(ends, list) else [ends]


@dataclass(eq=False)
class RemoteReplies:
    """Replies of an API, by a scorer whose answers are kept; the time is the one at which each was asked for."""

    scorer: Callable[[Sequence[Prompt]], Iterator[Any]]
    plain: bool = False

    def __call__(self, requests: Sequence[Request]) -> Iterator[Reply]:
        """The reply to each request."""
        # Answers are kept by `text` and `context`: another setting, such as a seed, makes another answer. What is asked
        # is the context, as it is of continuations, so that the settings are what is left for the text.
        prompts = [
            Prompt(_settings(request), request.as_text if self.plain else request.prompt) for request in requests
        ]
        form = COMPLETIONS_API if self.plain else CHAT_API
        for prompt, result in zip(prompts, self.scorer(prompts), strict=True):
            answer = json.loads(result.samples[0])
            yield Reply(
                answer["reply"],
                prompt.context,
                form,
                utc(answer["time"]),
                answer["model"],
            )


def _settings(request: Request) -> str:
    settings: dict[str, Any] = {"max_tokens": request.max_tokens, "temperature": request.temperature}
    # Greedy decoding draws nothing, and not every service takes a seed.
    if request.temperature:
        settings |= {"top_p": 1.0, "seed": request.seed}
    return json.dumps(settings)


def utc(seconds: float) -> str:
    """A time as it stands in a transcript: 2026-01-31T12:00:00Z."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def open_replies(
    config: ModelConfig,
    api: APIConfig,
    answers: str | Path,
    *,
    plain: bool = False,
    clock: Callable[[], float] = time.time,
) -> Replies:
    """The model under test, to be asked; `answers` keeps those of an API, so that an interrupted command goes on.

    `plain` leaves out the chat template; of an API it asks for completions.
    """
    if not config.model.startswith(API):
        from fsd.models.language_model import load

        return LocalReplies(load(config), plain, clock)
    from fsd.scoring.api import Client, RepliesAPI, key_for
    from fsd.scoring.cache import MemoizedScorer, SQLiteStore

    check_api(config, api)
    assert api.base_url is not None  # as just checked
    client = Client(
        api.base_url,
        key=key_for(api.base_url),
        per_minute=api.requests_per_minute,
    )
    scorer = RepliesAPI(
        client,
        config.model.removeprefix(API),
        concurrency=api.concurrency,
        description="API",
        chat=not plain,
        clock=clock,
    )
    # Answers cost money: they are never thrown away for space, and a file that cannot keep them is refused.
    store = SQLiteStore(Path(answers), limit=None, required=True)
    return RemoteReplies(MemoizedScorer(scorer, store, scorer.key), plain)
