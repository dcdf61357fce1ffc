"""A model behind a completions or chat API as a scorer: log-probabilities of the text's own tokens, or samples.

The format is that of OpenAI's completions with `echo`, as vLLM has it: `choices[0].logprobs` has `tokens` and
`token_logprobs` of equal length, for the prompt and then for the generated tokens; a start token that the server adds
comes first. A character split between tokens is in the last of them, the others being empty, or comes as U+FFFD.

The key goes into one header of one request. It appears in no message and follows no redirect.
"""

import json
import os
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import suppress
from dataclasses import KW_ONLY, dataclass, field
from functools import partial
from itertools import accumulate
from typing import TYPE_CHECKING, Any, ClassVar
from urllib.parse import SplitResult, urlsplit

import numpy as np
import xxhash

from fsd.api import (
    Clock,
    Continuations,
    Cost,
    Draws,
    HTTPClient,
    Prompt,
    Prompts,
    PromptTokens,
    Scored,
    TokenStats,
    UsageError,
    about_tokens,
    at_least,
    field_of,
    note,
    progress,
)

if TYPE_CHECKING:
    from requests import PreparedRequest

JSON = dict[str, Any]
"""A JSON object."""
KEY = "FSD_API_KEY"
OPENAI_KEY = "OPENAI_API_KEY"
# Statuses of an address that exists on a service that is overloaded. Any other error says that there is no list of
# models, which not every service has, and is no reason to wait.
BUSY = frozenset({429, 503})
REFUSALS = {
    401: "the key is missing or wrong: ",
    402: "the account has no credit: ",
    403: "the key may not use this model: ",
    404: "there is no such model or address; --base-url usually ends in /v1: ",
}


OTHERWISE: Mapping[str, str | None] = {"max_tokens": "max_completion_tokens"} | dict.fromkeys(
    ("temperature", "top_p", "seed")
)
"""Settings that models which reason refuse → by what name they take them; None if they do not, but have their own."""
CONTEXTS = ("max_model_len", "context_length", "context_window")
"""What services call the context of a model, in tokens, in their list of models."""


def key_for(url: str, environment: Mapping[str, str] = os.environ) -> str:
    """The key for an address: $FSD_API_KEY, or $OPENAI_API_KEY for OpenAI itself alone."""
    key = environment.get(KEY, "").strip()
    # Any other service would learn the key of the user's account at OpenAI.
    if not key and urlsplit(url).hostname == "api.openai.com":
        key = environment.get(OPENAI_KEY, "").strip()
    if not all("!" <= sign <= "~" for sign in key):
        raise UsageError(f"the key in {KEY} or {OPENAI_KEY} must be printable ASCII without spaces; it is not")
    return key


class Client(HTTPClient):
    """One completions API, at its address up to /v1, with at most `per_minute` requests that start in a minute."""

    name = "the API"
    attempts = 7
    backoff = 1.0
    timeout = (10.0, 600.0)  # a reply may wait in the server's queue
    resume_hint = "the texts scored so far are saved: run the same command again to resume"

    def __init__(
        self, base_url: str, *, key: str = "", per_minute: float | None = None, clock: Clock | None = None
    ) -> None:
        parts = _parts(base_url)
        if not parts or parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment:
            raise UsageError("base-url must look like http://localhost:8000/v1, with nothing after the path")
        if parts.username or parts.password:
            raise UsageError(f"base-url must hold no user and no password; a key goes into the environment as {KEY}")
        if per_minute is not None and not per_minute > 0:
            raise UsageError(f"requests-per-minute must be above 0; got {per_minute}")
        super().__init__(base_url, interval=60 / per_minute if per_minute else 0.0, clock=clock, secret=key)
        self._checked = False
        self.contexts: dict[str, int] = {}
        self.refused: set[str] = set()  # settings that the service has refused
        self._ask = partial(self.request, auth=self._authorise, allow_redirects=False)

    def complete(self, body: JSON, path: str = "completions", *, text: str = "") -> JSON:
        """The JSON object that the service answers to a request for a completion of a text, which a refusal quotes."""
        answer = None
        # None for a setting that is refused, without which it is asked again.
        while answer is None:
            taken = {}
            for setting, value in body.items():
                name = OTHERWISE[setting] if setting in self.refused else setting
                if name:
                    taken[name] = value
            answer = self._ask("POST", f"{self.base_url}/{path}", partial(self._answer, taken, text), json=taken)
        return answer

    def _answer(self, taken: JSON, text: str, reply: Any) -> JSON | None:
        words = self.server_message(reply)
        status = reply.status_code
        answer = _json(reply)
        if status != 200:
            setting = _refused_setting(field_of(answer, "error"))
            if status == 400 and setting in taken:
                # Other threads may have been refused the same.
                if setting not in self.refused:
                    other_name = OTHERWISE[setting]
                    note(f"the API refuses {setting}, and {f'takes {other_name}' if other_name else 'has its own'}")
                self.refused.add(setting)
                return None
            quoted = f" of {text[:40]!r}" if text else ""
            why = REFUSALS.get(status, "") + words
            raise UsageError(f"the API must give a completion{quoted}; {reply.url} answered HTTP {status}: {why}")
        if not isinstance(answer, dict):
            raise UsageError(f"the API must answer with a JSON object; {reply.url} answered {words!r}")
        return answer

    def check_server(self) -> None:
        """Refuse llama-cpp-python's own server, by its list of models, which may name their contexts; asks once."""
        if self._checked:
            return
        rows = field_of(self._ask("GET", f"{self.base_url}/models", _json, retried=BUSY), "data")
        for row in rows if isinstance(rows, list) else ():
            for name in CONTEXTS:
                size = field_of(row, name)
                if isinstance(size, int) and size > 0:
                    self.contexts[str(row.get("id"))] = size
            # The server does not say what it is: only this row of its list tells.
            if field_of(row, "owned_by") == "me" and "permissions" in row:
                raise UsageError(
                    "the API must not be llama-cpp-python's own server, which takes no token ids and, where a model "
                    "puts no start token, pairs log-probabilities with the wrong tokens: serve the model by vLLM"
                )
        self._checked = True

    def _authorise(self, request: "PreparedRequest") -> "PreparedRequest":
        # As `auth`, not as a header: else a password from ~/.netrc would go before it.
        if self._secret:
            request.headers["Authorization"] = f"Bearer {self._secret}"
        return request


def _parts(url: str) -> SplitResult | None:
    """The parts of an address; None if it is none."""
    with suppress(ValueError):
        parts = urlsplit(url)
        parts.port  # noqa: B018 - read for its error: it is parsed here
        return parts
    return None


def _refused_setting(error: Any) -> str:
    """The setting that an error of OpenAI's form names, such as max_tokens for models that reason; "" for none."""
    named = str(field_of(error, "param"))
    words = str(field_of(error, "message"))
    if named in OTHERWISE:
        return named
    # Services in front of others have the words alone.
    quoted = [name for name in OTHERWISE if f"'{name}'" in words and "support" in words]
    return quoted[0] if quoted else ""


def _json(reply: Any) -> Any:
    """The JSON value of a reply; None if it is none."""
    with suppress(ValueError):
        return json.loads(reply.content)
    return None


# Share of the tokens estimated thus that a text of words has at least.
FEWEST_TOKENS = 0.5


@dataclass(eq=False)
class CompletionsScorer:
    """Scores prompts through a completions API, several requests at a time, as token ids if `tokens` are given."""

    client: Client
    model: str
    _: KW_ONLY
    start: str = ""  # what strings begin with, if the server adds no start token
    tokens: PromptTokens | None = None  # the model's own tokenizer
    concurrency: int = 8
    description: str = ""
    version: ClassVar = 4  # of the numbers, part of the key of stored results

    def __post_init__(self) -> None:
        if not self.model:
            raise UsageError("the model behind an API must be named, as api:NAME; got api:")
        at_least(1, concurrency=self.concurrency)
        if self.start and self.tokens:
            raise UsageError(f"start-token must not come with a tokenizer, which has its own; got {self.start!r}")

    @property
    def lacks(self) -> frozenset[str]:
        """Fields of `TokenStats` that no API gives; detectors that need them are left out."""
        absent = frozenset({"mean", "std", "top"})
        if self.tokens:
            return absent
        return absent | {"token"}

    @property
    def key(self) -> str:
        """Hash of all that the numbers depend on, as far as it is known: address, model, start token, tokenizer."""
        tokenizer = self.tokens.fingerprint if self.tokens else ""
        parts = (self.version, self.client.base_url, self.model, self.start, tokenizer)
        return xxhash.xxh3_128_hexdigest(repr(parts).encode())

    def cost(self, prompts: Prompts) -> Cost:
        """What scoring each distinct prompt once costs."""
        distinct = set(prompts)
        sent = sum(sum(self._sizes(prompt)) for prompt in distinct)
        # Every request makes the server generate a token, which is paid for, too.
        return Cost(len(distinct), sent, len(distinct))

    def _sizes(self, prompt: Prompt) -> tuple[int, int]:
        """Number of tokens of context, and of text, about."""
        if self.tokens:
            head, ids = self.tokens.ids(prompt)
            return len(head), len(ids)
        return about_tokens(prompt.context), about_tokens(prompt.text)

    def __call__(self, prompts: Prompts) -> Iterator[TokenStats]:
        """Statistics of each prompt's text, in order; after a final failure nothing that waits is sent."""
        answers = dict(self.as_read(prompts))
        yield from (answers[prompt] for prompt in prompts)

    def as_read(self, prompts: Prompts) -> Iterator[Scored]:
        """Each distinct prompt with its statistics, in order of completion; those completed come before a failure."""
        distinct = list(dict.fromkeys(prompts))
        if not distinct:
            return
        self._check(distinct)
        pool = ThreadPoolExecutor(self.concurrency, thread_name_prefix="completions")
        failure: UsageError | None = None
        with progress(len(distinct), self.description, "text") as bar:
            try:
                submitted = {pool.submit(self._stats, prompt): prompt for prompt in distinct}
                for future in as_completed(submitted):
                    try:
                        stats = future.result()
                    except UsageError as error:
                        # Requests under way may still succeed, and are paid for: they are handed on before the error.
                        failure = failure or UsageError(self.client.redact(str(error)))  # it may quote the server
                        self.client.stop()
                        continue
                    bar.update()
                    yield submitted[future], stats
            except BaseException:  # also if the caller stops iterating
                self.client.stop()
                raise
            finally:
                pool.shutdown(wait=True, cancel_futures=True)
        if failure:
            raise failure

    def _check(self, prompts: Prompts) -> None:
        """Refuse a server, and texts, that cannot be scored."""
        long = self.too_long(prompts)
        if long:
            context = self.client.contexts[self.model]
            raise UsageError(
                f"texts must fit the context of {context:,} tokens that the API names for {self.model}, with one token "
                f"more; {len(long):,} do not, such as {long[0].text[:40]!r}: shorten them, or leave them out by fsd "
                "score --too-long drop"
            )

    def too_long(self, prompts: Prompts) -> list[Prompt]:
        """The prompts that do not fit the context of the model, where the list of models names it.

        Without a tokenizer they are those that no tokenizer could make fit.
        """
        self.client.check_server()
        context = self.client.contexts.get(self.model)
        if context is None:
            return []
        scale = 1 if self.tokens else FEWEST_TOKENS
        return [prompt for prompt in prompts if scale * sum(self._sizes(prompt)) >= context]

    def _stats(self, prompt: Prompt) -> Any:
        """Statistics of a prompt's text from one request."""
        request: JSON = {
            "model": self.model,
            "echo": True,
            "logprobs": 1,
            "max_tokens": 1,  # not every server accepts 0
            "temperature": 1.0,  # the model's own distribution, not the server's default
            "top_p": 1.0,
        }
        if self.tokens is None:
            request["prompt"] = self.start + prompt.context + prompt.text
            reply = self.client.complete(request, text=prompt.text)
            return stats_from_string(reply, prompt, self.start)
        head, ids = self.tokens.ids(prompt)
        sent = head + ids
        request["prompt"] = sent
        reply = self.client.complete(request, text=prompt.text)
        return stats_from_ids(reply, prompt.text, len(head), ids, self.tokens.decode(sent[1:]))


# What a chat model is asked to do, before the text.
CONTINUE = "Continue this text where it breaks off. Answer with the continuation alone.\n\n"


@dataclass(eq=False)
class GeneratingAPI(CompletionsScorer):
    """What an API generates: a chat API gets a message of the user's, another the beginning of a text."""

    version: ClassVar = 3
    chat: bool = field(default=False, kw_only=True)

    def _check(self, prompts: Prompts) -> None:
        """Any server's generated text will do."""

    def _generated(self, settings: JSON, asked: str | list[int]) -> tuple[JSON, str | None]:
        """The answer, and the text that it gives, if any."""
        if self.chat:
            answer = self.client.complete(
                settings | {"messages": [{"role": "user", "content": asked}]}, "chat/completions"
            )
            return answer, _said(_choice(answer))
        answer = self.client.complete(settings | {"prompt": asked})
        return answer, _choice(answer).get("text")


@dataclass(eq=False)
class ContinuationsAPI(GeneratingAPI):
    """Continuations of each prompt's context by an API, one request each; none samples from the likeliest alone."""

    draws: Draws = field(kw_only=True)

    @property
    def key(self) -> str:
        """As of the class above, and the way of sampling."""
        return f"{super().key} {self.draws} {self.chat}"

    def cost(self, prompts: Prompts) -> Cost:
        """What continuing each distinct prompt costs."""
        total = Cost()
        draws = self.draws.total
        for prompt in set(prompts):
            context, text = self._sizes(self._asked(prompt))
            total = total.plus(Cost(draws, draws * context, draws * (self.draws.tokens or text)))
        return total

    def _stats(self, prompt: Prompt) -> Continuations:
        draws = self.draws
        greedy = self._text(prompt, 0.0) if draws.greedy else ""
        samples = [self._text(prompt, draws.temperature) for _ in range(draws.samples)]
        return Continuations(prompt.text, tuple(samples), greedy)

    def _asked(self, prompt: Prompt) -> Prompt:
        opening = CONTINUE if self.chat else self.start
        return prompt._replace(context=opening + prompt.context)

    def _text(self, prompt: Prompt, temperature: float) -> str:
        """One continuation."""
        limit = self.draws.tokens or self._sizes(prompt)[1]
        asked = self.tokens.ids(prompt)[0] if self.tokens else self._asked(prompt).context
        settings = {"model": self.model, "max_tokens": limit, "temperature": temperature, "top_p": 1.0}
        answer, text = self._generated(settings, asked)
        # Without a temperature the likeliest continuation is drawn like any other, and says nothing of its own.
        if temperature == 0 and "temperature" in self.client.refused:
            raise UsageError(
                f"model {self.model} must take a temperature for cdd, which reads the likeliest text: take samia"
            )
        # A model that reasons spends all of its tokens before the first one of its answer.
        if not isinstance(text, str) or (not text and _choice(answer).get("finish_reason") == "length"):
            raise UsageError(f"the API must give text within {limit} tokens; it gives none: a model may reason first")
        return text


@dataclass(eq=False)
class RepliesAPI(GeneratingAPI):
    """Replies of an API to what stands in a prompt's `context`; its `text` is the settings of the request as JSON.

    The one sample of a result is JSON: the reply, empty where the model gives no text, the time (UTC, seconds since
    1970) at which it was asked for, and the model that the service names.
    """

    clock: Callable[[], float] = field(default=time.time, kw_only=True)

    @property
    def key(self) -> str:
        """As of the class above, and the kind of API."""
        return f"{super().key} replies {self.chat}"

    def _stats(self, prompt: Prompt) -> Continuations:
        begun = self.clock()
        settings = {"model": self.model, **json.loads(prompt.text)}
        answer, text = self._generated(settings, prompt.context)
        name = str(answer.get("model") or self.model)
        # What a setting was is not told of a reply that was made without it.
        refused = sorted(self.client.refused.intersection(settings))
        result = json.dumps({"reply": text or "", "time": begun, "model": name, "refused": refused})
        return Continuations(prompt.text, (result,))


def _said(choice: JSON) -> Any:
    """What a chat model says, in one piece or in parts; a service may put what it declines into a field of its own."""
    message = choice.get("message")
    content = field_of(message, "content") or field_of(message, "refusal")
    if isinstance(content, list):
        # A part that is no text, such as the reasoning before it, is not said.
        return "".join(part["text"] for part in content if isinstance(field_of(part, "text"), str))
    return content


# Vocabulary index of a token whose id is not in the reply.
UNKNOWN = -1
# Largest log-probability in nats that is taken for 0 with a rounding error.
SLACK = 1e-3
# Least log-probability in nats that a model may give; vLLM gives -9999 for a probability of 0.
LEAST = -1e4
# Character that servers put in place of the bytes of a split character.
REPLACEMENT = "\ufffd"
# Characters that servers add or leave out at the edges of a token's string.
EDGE = " \t\r\n▁"
# A token as vLLM gives it with --return-tokens-as-token-ids, and the bytes of one as OpenAI does.
TOKEN_ID = re.compile(r"token_id:(\d+)")
TORN = re.compile(r"bytes:((?:\\x[0-9a-f]{2})+)")
LogProbs = Sequence[float | None]


def stats_from_string(reply: JSON, prompt: Prompt, start: str = "") -> TokenStats:
    """Statistics of a text from the reply to start + context + text, whose first token has no log-probability."""
    tokens, logp, generated = _echo(reply)
    if all(map(TOKEN_ID.fullmatch, tokens)):
        raise UsageError(
            "the API must give tokens as strings where texts are sent as strings; it gives ids: give --tokenizer, or "
            "serve the model without --return-tokens-as-token-ids"
        )
    # Nothing predicts it, whatever a server gives in place of null.
    logp = [None, *logp[1:]]
    if start:
        # The server may put a start token of its own before the one that was sent.
        if start not in tokens[:2]:
            raise UsageError(
                f"start-token must be one token of the model behind the API; {start!r} came back otherwise"
            )
        skips = [tokens.index(start) + 1]
    else:
        # The first token is one that the server added where the text does not begin with it.
        skips = [0, 1]
    for skipped in skips:
        in_text = _in_text(prompt.context, prompt.text, tokens[skipped:], generated)
        if in_text is not None:
            break
    else:
        raise UsageError(
            "the API must read the text whole; its tokens are not those of the text "
            f"{prompt.text[:40]!r}: it may truncate long texts, or change them"
        )
    places = zip(in_text, logp[skipped:], strict=False)
    values = [value for scored, value in places if scored]
    if values and values[0] is None:
        values = values[1:]
    return _text_stats(prompt.text, values)


def stats_from_ids(reply: JSON, text: str, head: int, ids: Sequence[int], body: str) -> TokenStats:
    """Statistics of a text from the reply to its ids after `head` others, which the tokenizer decodes as `body`."""
    tokens, logp, generated = _echo(reply)
    sent = head + len(ids)
    read = len(tokens) - generated
    if sent != read:
        why = ""
        if read == sent + 1:
            why = ": it may put a start token of its own before them: leave out --tokenizer"
        raise UsageError(
            f"the API must read token ids as they are; of {sent} sent it read {read} in {text[:40]!r}{why}"
        )
    named = list(map(TOKEN_ID.fullmatch, tokens[head:sent]))
    if all(named):
        alike = [int(match[1]) for match in named if match] == list(ids)
    else:
        alike = _in_text("", body, tokens[1:], generated) is not None
    # The same ids are other words in another vocabulary, with numbers that look like any others.
    if not alike:
        raise UsageError(
            "tokenizer must be that of the model behind the API; the API reads other tokens by the ids of the text "
            f"{text[:40]!r}"
        )
    return _text_stats(text, logp[head:sent], ids)


def _choice(reply: JSON) -> JSON:
    try:
        choice = reply["choices"][0]
    except (KeyError, IndexError, TypeError):
        choice = None
    if not isinstance(choice, dict):
        names = ", ".join(map(str, reply)) or "nothing"
        raise UsageError(f"the API must answer as OpenAI's completions do, with choices; it gives {names}")
    return choice


def _echo(reply: JSON) -> tuple[list[str], list[float | None], int]:
    """Token strings, their log-probabilities, and how many of them, at the end, were generated."""
    must = "the API must give log-probabilities of the prompt's own tokens (echo with logprobs); this one"
    logprobs = _choice(reply).get("logprobs")
    tokens = field_of(logprobs, "tokens")
    values = field_of(logprobs, "token_logprobs")
    if not tokens and field_of(logprobs, "content"):
        raise UsageError(f"{must} gives those of generated tokens only, as llama-server does: serve the model by vLLM")
    if not tokens:
        raise UsageError(f"{must} gives none")
    if not isinstance(values, list) or len(tokens) != len(values):
        raise UsageError("the API must give tokens and token_logprobs of equal length; it does not")
    generated = field_of(reply.get("usage"), "completion_tokens")
    if not isinstance(generated, int) or generated < 0:
        # By default the one that was requested.
        generated = 1
    if len(tokens) <= generated:
        raise UsageError(f"{must} ignores echo, and gives those of generated tokens alone: serve the model by vLLM")
    return tokens, values, generated


def _in_text(context: str, text: str, tokens: Sequence[str], generated: int) -> list[bool] | None:
    """Which of the tokens of context and text begin in the text; None if the tokens are not theirs.

    A token on the border between the two begins in the context.
    """
    read = len(tokens) - generated
    pieces = list(map(_bytes, tokens))
    border = len(context.encode(errors="surrogatepass"))
    body = (context + text).encode(errors="surrogatepass")
    starts = _exact_starts(body, pieces, read)
    if not starts:
        readable = [piece.decode(errors="replace") for piece in pieces[:read]]
        starts = _approximate_starts(context + text, readable)
        border = len(context)
    if starts is None:
        return None
    return [start >= border for start in starts]


def _bytes(token: str) -> bytes:
    r"""The bytes of a token; OpenAI writes those of a torn character as bytes:\xe2\x80."""
    torn = TORN.fullmatch(token)
    if torn:
        return bytes.fromhex(torn[1].replace("\\x", ""))
    return token.encode(errors="surrogatepass")


def _exact_starts(body: bytes, tokens: Sequence[bytes], read: int) -> list[int] | None:
    """The starts where the tokens make up the text; the first `read` tokens should be its."""
    ends = list(accumulate(map(len, tokens)))
    counts = [count for count, end in enumerate(ends, 1) if end == len(body)]
    if not counts or b"".join(tokens[: counts[-1]]) != body:
        return None
    count = read if read in counts else counts[-1]  # empty tokens may follow the last one
    return [0, *ends[: count - 1]]


def _approximate_starts(body: str, tokens: Sequence[str]) -> list[int] | None:
    """The starts where tokens were decoded one by one.

    Such tokens lose spaces at their edges and the bytes of split characters: the readable part of each must follow the
    one before, with nothing between but spaces, and at most two characters for an unreadable token.
    """
    end = unreadable = 0
    starts = []
    for token in tokens:
        readable = token.strip(REPLACEMENT + EDGE)
        starts.append(end)
        if not readable or REPLACEMENT in readable:
            unreadable += max(2, len(token))
            continue
        begin = body.find(readable, end)
        if begin < 0 or _visible(body[end:begin]) > unreadable + 2 * (REPLACEMENT in token):
            return None
        end = begin + len(readable)
        unreadable = 2 * token.endswith(REPLACEMENT)
    if _visible(body[end:]) <= unreadable:
        return starts
    return None


def _visible(text: str) -> int:
    """Number of characters that are no spaces."""
    return len("".join(text.split()))


def _text_stats(text: str, logp: LogProbs, ids: Sequence[int] | None = None) -> TokenStats:
    """Statistics of a text from the log-probabilities and, if they are known, the ids of its tokens."""
    if not logp:
        raise UsageError(
            "a text must have at least two tokens where the API gives no log-probability of the first (or give a "
            f"start-token); got {text[:40]!r}"
        )
    for value in logp:
        # Not a number passes no comparison.
        if value is None or not LEAST <= value <= SLACK:
            raise UsageError(
                f"the API must give log-probabilities from {LEAST:,.0f} to 0; got {str(value)[:20]} in {text[:40]!r}"
            )
    values = np.array(logp, dtype=np.float64)
    token = np.full(values.shape, UNKNOWN) if ids is None else np.array(ids)
    unknown = np.full(values.shape, np.nan)
    return TokenStats(text, token, values, unknown, unknown)
