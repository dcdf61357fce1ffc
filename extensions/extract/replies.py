"""Replies of a model to prompts, as a user gets them: here, with or without a chat template, or by an API."""

import json
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from fsd.config import APIConfig, ModelConfig
from fsd.errors import UsageError
from fsd.files import JSON
from fsd.progress import progress
from fsd.token_stats import Prompt, Prompts, TokenIds

if TYPE_CHECKING:
    from fsd.models.language_model import LanguageModel, ReadsChats

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

    def settings(self) -> JSON:
        """How the reply is generated, as it stands in a transcript."""
        return {"temperature": self.temperature, "top_k": self.top_k, "seed": self.seed, "max_tokens": self.max_tokens}

    @property
    def as_text(self) -> str:
        """The beginning of a text that the reply continues, for a model that is not asked by messages."""
        if self.continues:
            return self.prompt
        return self.prompt + PARAGRAPH


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
    refused: tuple[str, ...] = ()
    """Settings that the API does not take, in whose place it has its own."""

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


class Sent(NamedTuple):
    """What a model on this machine reads of a request: a text, its token ids, and whether a chat template wrote it.

    A start token before plain text is none of the ids.
    """

    text: str
    ids: TokenIds
    templated: bool


def sent(chats: "ReadsChats", request: Request, *, plain: bool) -> Sent:
    """The prompt in the chat template of a model, if it has one, or as it is."""
    from fsd.models.language_model import token_ids

    if not plain and chats.has_template:
        # The template writes the special tokens itself, the start token among them.
        text, prompt_ids = chats.asked(request.prompt)
        return Sent(text, prompt_ids, templated=True)
    text = request.as_text
    return Sent(text, token_ids(chats.tokenizer, [text])[0], templated=False)


def all_sent(chats: "ReadsChats", context: int, requests: Sequence[Request], *, plain: bool) -> list[Sent]:
    """The prompts of all requests; refuse those that do not fit a context of so many tokens with their replies."""
    prompts = []
    for request in requests:
        prompt = sent(chats, request, plain=plain)
        # The start token before plain text counts, too.
        length = len(prompt.ids) + 1
        if length + request.max_tokens > context:
            raise UsageError(
                f"prompt and reply must fit the model's context of {context} tokens together; got {length} and "
                f"{request.max_tokens} (--max-tokens) for {request.prompt[:40]!r}: a shorter opening (--prefix) or "
                "reply would fit"
            )
        prompts.append(prompt)
    return prompts


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
        prompts = all_sent(model.chats, model.context, requests, plain=self.plain)
        with progress(len(requests), self.description, "answer") as bar:
            for request, prompt in zip(requests, prompts, strict=True):
                yield self._reply(request, prompt)
                bar.update()

    def _reply(self, request: Request, prompt: Sent) -> Reply:
        from fsd.scoring.sampling import Sampling, generated, seeded

        model = self.language_model
        head = prompt.ids
        if not prompt.templated:
            head = model.opening + head
        begun = self.clock()
        sampling = Sampling(request.temperature, request.top_k)
        with model.state(tuned=False) as network, seeded(model, request.seed, request.prompt):
            # Chat models end a turn by other tokens than a text.
            ends = _ends(network) if prompt.templated else []
            (text,) = generated(model, network, [head], request.max_tokens, sampling, ends=ends)
        form = TEMPLATE if prompt.templated else PLAIN
        identity = model.identity
        return Reply(text, prompt.text, form, utc(begun), identity.id, identity.fingerprint)


def _ends(network: Any) -> TokenIds:
    # One id, a list of them, or none, as the model's folder has it.
    ends = network.generation_config.eos_token_id
    if ends is None:
        return []
    if isinstance(ends, list):
        return list(ends)
    return [ends]


@dataclass(eq=False)
class RemoteReplies:
    """Replies of an API, by a scorer whose answers are kept; the time is the one at which each was asked for."""

    scorer: Callable[[Prompts], Iterable[Any]]
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
            refused = tuple(answer.get("refused", ()))
            yield Reply(answer["reply"], prompt.context, form, utc(answer["time"]), answer["model"], refused=refused)


def _settings(request: Request) -> str:
    settings = {"max_tokens": request.max_tokens, "temperature": request.temperature}
    # Greedy decoding draws nothing, and not every service takes a seed.
    if request.temperature:
        settings |= {"top_p": 1.0, "seed": request.seed}
    return json.dumps(settings)


def utc(seconds: float) -> str:
    """A time as it stands in a transcript: 2026-01-31T12:00:00Z."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def open_replies(
    config: ModelConfig, api: APIConfig, answers: str | Path, *, adapter: Path | None = None, plain: bool = False
) -> Replies:
    """The model under test, to be asked; `answers` keeps those of an API, so that an interrupted command goes on.

    An `adapter` in a folder is part of a model on this machine.
    `plain` leaves out the chat template; of an API it asks for completions.
    """
    from fsd.scoring.model import open_model

    if config.by_api:
        opened = open_model(config, api=api, answers=answers, chat=not plain)
        return RemoteReplies(opened.scorers["replies"], plain)
    model = open_model(config, states=("base",), adapter=adapter).language_model
    return LocalReplies(model, plain)
