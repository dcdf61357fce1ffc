"""A reply of a completions API → statistics of the text's tokens, once it is sure that they are the text's.

The format is that of OpenAI's completions with `echo`: `choices[0].logprobs` holds `tokens` and `token_logprobs` of
equal length, those of the prompt and then of what was generated. vLLM gives it; a start token of the server's own
comes first, and the first entry has no log-probability. A character that is torn between tokens stands with the last
of them (vLLM, OpenAI), the others being empty, or comes as U+FFFD.
"""

import math
from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import Any

import numpy as np

from fsd.errors import UsageError
from fsd.token_stats import Prompt, TokenStats

UNKNOWN = -1
"""Vocabulary index of a token of which only the string is known."""
SLACK = 1e-3
"""How far above 0 rounding may lift a log-probability, nats."""
LOST = "\ufffd"
"""Stands in a token's string for the bytes of a character that is torn between tokens."""
EDGE = " \t\r\n▁"
"""What servers add to the edges of a token's string, or leave out there."""


def reading(reply: Mapping[str, Any], prompt: Prompt, start: str = "") -> TokenStats:
    """Log-probabilities of the tokens of a prompt's text, out of the reply to start + context + text.

    The first token that the server reads has no log-probability: that is the start token where there is one, else
    the first token of the text, which then is not scored. Token indices are `UNKNOWN`, mean and std are NaN.

    Args:
        reply: the JSON of the reply.
        prompt: what was asked about.
        start: the start token that was put before it.

    Raises:
        UsageError: if the reply holds no log-probabilities of the prompt, breaks the format, or its tokens are not
            those of the prompt.
    """
    tokens, logp = _columns(reply)
    tokens, logp = _without_start(tokens, logp, prompt.context + prompt.text, start)
    places = _places(prompt.context + prompt.text, tokens, _generated(reply))
    if places is None:
        raise UsageError(
            "the API must read the text whole; its tokens are not those of the text "
            f"{prompt.text[:40]!r}: it may cut long texts, or change them"
        )
    kept = [value for place, value in zip(places, logp, strict=False) if place >= len(prompt.context)]
    return statistics(prompt.text, kept)


def reading_of_ids(
    reply: Mapping[str, Any], text: str, head: Sequence[int], ids: Sequence[int], body: str
) -> TokenStats:
    """Log-probabilities of a text whose token ids were sent, so that each of its tokens has one.

    Args:
        reply: the JSON of the reply to head + ids.
        text: what the ids stand for.
        head: start token and context.
        ids: (T,) the text.
        body: what the tokenizer makes of the ids, after the start token.

    Raises:
        UsageError: if the reply holds no log-probabilities of the prompt, breaks the format, or its tokens are not as
            many, or not the ones that the tokenizer knows by these ids.
    """
    tokens, logp = _columns(reply)
    sent, read = len(head) + len(ids), len(tokens) - _generated(reply)
    if sent != read:
        raise UsageError(f"the API must read token ids as they are; of {sent} sent it read {read} in {text[:40]!r}")
    if _places(body, tokens[1:], _generated(reply)) is None:
        raise UsageError(foreign(text))
    return statistics(text, logp[len(head) : sent], ids)


def foreign(text: str) -> str:
    """What to say if the server knows other tokens by the ids."""
    return (
        "tokenizer must be that of the model behind the API; the API reads other tokens by the ids of the text "
        f"{text[:40]!r}"
    )


def _columns(reply: Mapping[str, Any]) -> tuple[list[str], list[float | None]]:
    """Token strings and their log-probabilities."""
    try:
        logprobs = reply["choices"][0].get("logprobs")
    except (KeyError, IndexError, TypeError, AttributeError) as error:
        there = ", ".join(map(str, reply)) or "nothing"
        raise UsageError(f"the API must answer as OpenAI's completions do, with choices; it gives {there}") from error
    if isinstance(logprobs, dict) and "content" in logprobs and "tokens" not in logprobs:
        raise UsageError(
            "the API must give log-probabilities of the prompt's own tokens (echo); this one gives those of generated "
            "tokens only, as llama.cpp's llama-server does: base-url must be its own, where /v1/models tells it apart"
        )
    if not isinstance(logprobs, dict) or not logprobs.get("tokens"):
        raise UsageError(
            "the API must give log-probabilities of the prompt's own tokens (echo with logprobs); this one gives none"
        )
    tokens: Any = logprobs["tokens"]
    values: Any = logprobs.get("token_logprobs")
    right = (
        isinstance(tokens, list)
        and isinstance(values, list)
        and len(tokens) == len(values)
        and all(isinstance(token, str) for token in tokens)
        and all(value is None or type(value) in (int, float) for value in values)
    )
    if not right:
        raise UsageError(
            "the API must give tokens and token_logprobs, strings and numbers of equal length; it does not"
        )
    return tokens, values


def _generated(reply: Mapping[str, Any]) -> int:
    """How many tokens were generated, as the server counts them, or as it was asked for."""
    usage = reply.get("usage")
    count = usage.get("completion_tokens") if isinstance(usage, dict) else None
    return count if isinstance(count, int) and count >= 0 else 1


def _without_start(
    tokens: list[str], logp: list[float | None], body: str, start: str
) -> tuple[list[str], list[float | None]]:
    """Without the start token: the one that was put first, or one that the server adds by itself."""
    if start:
        at = next((i for i, token in enumerate(tokens[:2]) if token == start), None)
        if at is None:
            raise UsageError(
                f"start-token must be one token of the model behind the API; {start!r} came back otherwise"
            )
        return tokens[at + 1 :], logp[at + 1 :]
    first = tokens[0].strip(EDGE)
    if logp[0] is None and first and not body.lstrip().startswith(first.rstrip(LOST)):
        return tokens[1:], logp[1:]
    return tokens, logp


def _places(body: str, tokens: Sequence[str], generated: int) -> list[int] | None:
    """Where in `body` each of its tokens begins; None if the tokens are not those of `body`."""
    ends = list(accumulate(map(len, tokens)))
    own = len(tokens) - generated
    exact = [count for count, end in enumerate(ends, 1) if end == len(body)]
    if exact and "".join(tokens[: exact[-1]]) == body:
        count = own if own in exact else exact[-1]  # tokens without a sign of their own may follow the last
        return [0, *ends[: count - 1]]
    return _loose_places(body, tokens[:own])


def _loose_places(body: str, tokens: Sequence[str]) -> list[int] | None:
    """The same for tokens decoded one by one: spaces at their edges are lost, and bytes of torn characters too.

    The readable part of each token must follow upon the one before, with nothing between but spaces, and at most two
    characters for each unreadable token.
    """
    at, lost = 0, 0
    places = []
    for token in tokens:
        readable = token.strip(LOST + EDGE)
        places.append(at)
        if not readable or LOST in readable:
            lost += max(2, len(token))
            continue
        found = body.find(readable, at)
        if found < 0 or len("".join(body[at:found].split())) > lost + 2 * (LOST in token):
            return None
        at, lost = found + len(readable), 2 * token.endswith(LOST)
    return places if len("".join(body[at:].split())) <= lost else None


def statistics(text: str, values: Sequence[float | None], ids: Sequence[int] | None = None) -> TokenStats:
    """The statistics of a text from the log-probabilities of its tokens, checked.

    Args:
        text: the text.
        values: one per token, in nats; the first may be missing where the ids are not known.
        ids: (T,) vocabulary indices, where they are known.

    Raises:
        UsageError: for no value, or one that is no log-probability.
    """
    logp = values[1:] if ids is None and values and values[0] is None else values
    if not logp:
        raise UsageError(
            "a text must have at least two tokens where the API gives no log-probability of the first (or give a "
            f"start-token); got {text[:40]!r}"
        )
    numbers = np.array([math.nan if value is None else value for value in logp], dtype=np.float64)
    if not np.isfinite(numbers).all() or (numbers > SLACK).any():
        wrong = next(v for v, number in zip(logp, numbers, strict=True) if not -math.inf < number <= SLACK)
        raise UsageError(f"the API must give finite log-probabilities of at most 0; got {wrong} in {text[:40]!r}")
    unknown = np.full(numbers.size, math.nan)
    token = np.full(numbers.size, UNKNOWN, np.int64) if ids is None else np.asarray(ids, dtype=np.int64)
    return TokenStats(text, token, numbers, unknown, unknown)
