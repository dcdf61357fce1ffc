"""Replies of a model to prompts, as a user gets them: here, with or without a chat template, or by an API."""

import json
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, NamedTuple

from fsd.api import Prompt, UsageError, progress

if TYPE_CHECKING:
    from fsd.api import LanguageModel, Model

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

    @property
    def settings(self) -> dict[str, Any]:
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


class Sent(NamedTuple):
    """What a model on this machine reads of a request: a text and its token ids, without a start token before it."""

    text: str
    ids: list[int]
    form: str


def sent(chats: Any, context: int, request: Request, *, plain: bool) -> Sent:
    """The prompt in the chat template of a model, if it has one, or as it is.

    `chats` reads them as the model does; a UsageError if the reply would not fit the context of so many tokens.
    """
    from fsd.api import token_ids

    if not plain and chats.has_template:
        # The template writes the special tokens itself, the start token among them.
        text, ids = chats.asked(request.prompt)
        prompt = Sent(text, ids, TEMPLATE)
    else:
        prompt = Sent(request.as_text, token_ids(chats.tokenizer, [request.as_text])[0], PLAIN)
    # The start token before plain text counts, too.
    length = len(prompt.ids) + 1
    if length + request.max_tokens > context:
        raise UsageError(
            f"prompt and reply must fit the model's context of {context} tokens together; got {length} and "
            f"{request.max_tokens} (--max-tokens) for {request.prompt[:40]!r}: a shorter opening (--prefix) or "
            "reply would fit"
        )
    return prompt


@dataclass(eq=False)
class LocalReplies:
    """Replies of a model on this machine, by prompt and seed."""

    model: "LanguageModel"
    plain: bool = False
    clock: Callable[[], float] = time.time
    description: str = "replies"

    def __call__(self, requests: Sequence[Request]) -> Iterator[Reply]:
        """The reply to each request, in their order."""
        model = self.model
        prompts = [sent(model.chats, model.context, request, plain=self.plain) for request in requests]
        with progress(len(requests), self.description, "answer") as bar:
            for request, prompt in zip(requests, prompts, strict=True):
                yield self._reply(request, prompt)
                bar.update()

    def _reply(self, request: Request, prompt: Sent) -> Reply:
        from fsd.api import Sampling, generated, seeded

        model = self.model
        head = prompt.ids
        begun = self.clock()
        sampling = Sampling(request.temperature, request.top_k)
        with model.state(tuned=False) as network, seeded(model, request.seed, request.prompt):
            # Chat models end a turn by other tokens than a text: an id, a list of them, or none.
            ends = network.generation_config.eos_token_id or []
            if prompt.form == PLAIN:
                head = model.opening + head
                ends = []
            if isinstance(ends, int):
                ends = [ends]
            (text,) = generated(model, network, [head], request.max_tokens, sampling, ends=ends)
        return Reply(text, prompt.text, prompt.form, utc(begun), model.identity.id, model.identity.fingerprint)


@dataclass(eq=False)
class RemoteReplies:
    """Replies of an API, by a scorer whose answers are kept; the time is the one at which each was asked for."""

    scorer: Callable[[Sequence[Prompt]], Iterable[Any]]
    plain: bool = False

    def __call__(self, requests: Sequence[Request]) -> Iterator[Reply]:
        """The reply to each request, in their order."""
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


def replies_of(model: "Model", *, plain: bool = False) -> LocalReplies | RemoteReplies:
    """What asks a model that is open; `plain` leaves out the chat template, and asks an API for completions."""
    if model.config.by_api:
        return RemoteReplies(model.scorers["replies"], plain)
    return LocalReplies(model.language_model, plain)
