"""Replies of a completions API -> token statistics, after a check that the tokens are those of the text.

The format is that of OpenAI's completions with `echo`: `choices[0].logprobs` has `tokens` and `token_logprobs` of equal
length, for the prompt and then for the generated tokens. In vLLM's, a start token added by the server comes first, and
the first entry has no log-probability. A character split between tokens is attributed to the last of them (vLLM,
OpenAI), the others being empty, or comes as U+FFFD.
"""

import math
from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import Any

import numpy as np

from fsd.errors import UsageError
from fsd.token_stats import Prompt, TokenStats

UNKNOWN = -1
"""Vocabulary index of a token whose id is not in the reply."""
SLACK = 1e-3
"""Largest log-probability in nats that is taken for 0 with a rounding error."""
REPLACEMENT = "\ufffd"
"""Character that servers put in place of the bytes of a split character."""
EDGE = " \t\r\n▁"
"""Characters that servers add or leave out at the edges of a token's string."""


def stats_from_string(reply: Mapping[str, Any], prompt: Prompt, start: str = "") -> TokenStats:
    """Statistics of a prompt's text from the reply to the string start + context + text.

    The first token that the server reads has no log-probability: the start token if there is one, else the first token
    of the text, which then is not scored. Token indices are `UNKNOWN`, mean and std are NaN.

    Args:
        reply: JSON of the reply.
        prompt: context and text.
        start: the start token that was put before it.

    Raises:
        UsageError: if the reply has no log-probabilities of the prompt, another format, or other tokens than the
            prompt's.
    """
    tokens, logp = _columns(reply)
    body = prompt.context + prompt.text
    tokens, logp = _without_start(tokens, logp, body, start)
    starts = _token_starts(body, tokens, _generated(reply))
    if starts is None:
        raise UsageError(
            "the API must read the text whole; its tokens are not those of the text "
            f"{prompt.text[:40]!r}: it may truncate long texts, or change them"
        )
    in_text = [value for at, value in zip(starts, logp, strict=False) if at >= len(prompt.context)]
    return text_stats(prompt.text, in_text)


def stats_from_ids(
    reply: Mapping[str, Any], text: str, head: Sequence[int], ids: Sequence[int], body: str
) -> TokenStats:
    """Statistics of a text from the reply to token ids, a log-probability for each of its tokens.

    Args:
        reply: JSON of the reply to head + ids.
        text: the text of the ids.
        head: ids of start token and context.
        ids: (T,) ids of the text.
        body: context and text as the tokenizer decodes them.

    Raises:
        UsageError: if the reply has no log-probabilities of the prompt, another format, another number of tokens, or
            other strings for these ids than the tokenizer.
    """
    tokens, logp = _columns(reply)
    sent, read = len(head) + len(ids), len(tokens) - _generated(reply)
    if sent != read:
        raise UsageError(f"the API must read token ids as they are; of {sent} sent it read {read} in {text[:40]!r}")
    if _token_starts(body, tokens[1:], _generated(reply)) is None:
        raise wrong_tokenizer(text)
    return text_stats(text, logp[len(head) : sent], ids)


def wrong_tokenizer(text: str) -> UsageError:
    """The error if the server decodes the ids of a text into another text."""
    return UsageError(
        "tokenizer must be that of the model behind the API; the API reads other tokens by the ids of the text "
        f"{text[:40]!r}"
    )


def _columns(reply: Mapping[str, Any]) -> tuple[list[str], list[float | None]]:
    """Token strings and their log-probabilities."""
    try:
        logprobs = reply["choices"][0].get("logprobs")
    except (KeyError, IndexError, TypeError, AttributeError) as error:
        names = ", ".join(map(str, reply)) or "nothing"
        raise UsageError(f"the API must answer as OpenAI's completions do, with choices; it gives {names}") from error
    if isinstance(logprobs, dict) and "content" in logprobs and "tokens" not in logprobs:
        raise UsageError(
            "the API must give log-probabilities of the prompt's own tokens (echo); this one gives those of generated "
            "tokens only, as llama.cpp's llama-server does: base-url must be its own, where /v1/models identifies it"
        )
    if not isinstance(logprobs, dict) or not logprobs.get("tokens"):
        raise UsageError(
            "the API must give log-probabilities of the prompt's own tokens (echo with logprobs); this one gives none"
        )
    tokens: Any = logprobs["tokens"]
    values: Any = logprobs.get("token_logprobs")
    valid = (
        isinstance(tokens, list)
        and isinstance(values, list)
        and len(tokens) == len(values)
        and all(isinstance(token, str) for token in tokens)
        and all(
            value is None or type(value) is float or (type(value) is int and abs(value) < 2**63) for value in values
        )
    )
    if not valid:
        raise UsageError(
            "the API must give tokens and token_logprobs, strings and numbers of equal length; it does not"
        )
    return tokens, values


def _generated(reply: Mapping[str, Any]) -> int:
    """Number of generated tokens as the server counts them; by default the one that was requested."""
    usage = reply.get("usage")
    count = usage.get("completion_tokens") if isinstance(usage, dict) else None
    return count if isinstance(count, int) and count >= 0 else 1


def _without_start(
    tokens: list[str], logp: list[float | None], body: str, start: str
) -> tuple[list[str], list[float | None]]:
    """The columns without the start token, which was put before the text or added by the server."""
    if start:
        at = next((i for i, token in enumerate(tokens[:2]) if token == start), None)
        if at is None:
            raise UsageError(
                f"start-token must be one token of the model behind the API; {start!r} came back otherwise"
            )
        return tokens[at + 1 :], logp[at + 1 :]
    first = tokens[0].strip(EDGE)
    if logp[0] is None and first and not body.lstrip().startswith(first.rstrip(REPLACEMENT)):
        return tokens[1:], logp[1:]
    return tokens, logp


def _token_starts(body: str, tokens: Sequence[str], generated: int) -> list[int] | None:
    """Index in `body` at which each of its tokens begins; None if the tokens are not those of `body`."""
    ends = list(accumulate(map(len, tokens)))
    own = len(tokens) - generated
    exact = [count for count, end in enumerate(ends, 1) if end == len(body)]
    if exact and "".join(tokens[: exact[-1]]) == body:
        count = own if own in exact else exact[-1]  # empty tokens may follow the last one
        return [0, *ends[: count - 1]]
    return _approximate_starts(body, tokens[:own])


def _approximate_starts(body: str, tokens: Sequence[str]) -> list[int] | None:
    """The same for tokens decoded one by one, which lose spaces at their edges and the bytes of split characters.

    The readable part of each token must follow the one before, with nothing between but spaces, and at most two
    characters for each unreadable token.
    """
    at, unreadable = 0, 0
    starts = []
    for token in tokens:
        readable = token.strip(REPLACEMENT + EDGE)
        starts.append(at)
        if not readable or REPLACEMENT in readable:
            unreadable += max(2, len(token))
            continue
        begin = body.find(readable, at)
        if begin < 0 or len("".join(body[at:begin].split())) > unreadable + 2 * (REPLACEMENT in token):
            return None
        at, unreadable = begin + len(readable), 2 * token.endswith(REPLACEMENT)
    return starts if len("".join(body[at:].split())) <= unreadable else None


def text_stats(text: str, values: Sequence[float | None], ids: Sequence[int] | None = None) -> TokenStats:
    """Statistics of a text from the log-probabilities of its tokens.

    Args:
        text: the text.
        values: one per token, in nats; without ids the first may be None.
        ids: (T,) vocabulary indices, if they are known.

    Raises:
        UsageError: for no value, or one that is not a log-probability.
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
