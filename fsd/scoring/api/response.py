"""Replies of a completions API -> token statistics, after a check that the tokens are those of the text.

The format is that of OpenAI's completions with `echo`: `choices[0].logprobs` has `tokens` and `token_logprobs` of equal
length, for the prompt and then for the generated tokens. In vLLM's, a start token added by the server comes first, and
the first entry has no log-probability. A character split between tokens is attributed to the last of them (vLLM,
OpenAI), the others being empty, or comes as U+FFFD.
"""

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
LEAST = -1e4
"""Least log-probability in nats that a model may give; vLLM gives -9999 for a probability of 0."""
REPLACEMENT = "\ufffd"
"""Character that servers put in place of the bytes of a split character."""
EDGE = " \t\r\n▁"
"""Characters that servers add or leave out at the edges of a token's string."""
LogProbs = Sequence[float | None]


def stats_from_string(reply: Mapping[str, Any], prompt: Prompt, start: str = "") -> TokenStats:
    """Statistics of a prompt's text from the reply to the string start + context + text.

    The first token that the server gets has no log-probability: the start token if there is one, else the first token
    of the text, which then is not scored. Token indices are `UNKNOWN`, mean and std are NaN.
    """
    tokens, logp = _columns(reply)
    body = prompt.context + prompt.text
    skipped = _start_tokens(tokens, logp, body, start)
    starts = _token_starts(body, tokens[skipped:], _generated(reply))
    if starts is None:
        raise UsageError(
            "the API must read the text whole; its tokens are not those of the text "
            f"{prompt.text[:40]!r}: it may truncate long texts, or change them"
        )
    in_text = [value for at, value in zip(starts, logp[skipped:], strict=False) if at >= len(prompt.context)]
    return _text_stats(prompt.text, in_text[1:] if in_text and in_text[0] is None else in_text)


def stats_from_ids(reply: Mapping[str, Any], text: str, head: int, ids: Sequence[int], body: str) -> TokenStats:
    """Statistics of a text from the reply to its ids after `head` others, which the tokenizer decodes as `body`."""
    tokens, logp = _columns(reply)
    sent, read = head + len(ids), len(tokens) - _generated(reply)
    if sent != read:
        raise UsageError(f"the API must read token ids as they are; of {sent} sent it read {read} in {text[:40]!r}")
    if _token_starts(body, tokens[1:], _generated(reply)) is None:
        raise UsageError(
            "tokenizer must be that of the model behind the API; the API reads other tokens by the ids of the text "
            f"{text[:40]!r}"
        )
    return _text_stats(text, logp[head:sent], ids)


def _columns(reply: Mapping[str, Any]) -> tuple[list[str], list[float | None]]:
    """Token strings and their log-probabilities."""
    try:
        logprobs = reply["choices"][0].get("logprobs")
    except (KeyError, IndexError, TypeError, AttributeError) as error:
        names = ", ".join(map(str, reply)) or "nothing"
        raise UsageError(f"the API must answer as OpenAI's completions do, with choices; it gives {names}") from error
    if not isinstance(logprobs, dict) or not logprobs.get("tokens"):
        generated = isinstance(logprobs, dict) and "content" in logprobs
        given = "those of generated tokens only, as llama-server does: serve the model by vLLM" if generated else "none"
        raise UsageError(
            "the API must give log-probabilities of the prompt's own tokens (echo with logprobs); "
            f"this one gives {given}"
        )
    tokens: Any = logprobs["tokens"]
    values: Any = logprobs.get("token_logprobs")
    valid = (
        isinstance(tokens, list)
        and isinstance(values, list)
        and len(tokens) == len(values)
        and all(isinstance(token, str) for token in tokens)
        and all(value is None or type(value) in (float, int) for value in values)
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


def _start_tokens(tokens: Sequence[str], logp: LogProbs, body: str, start: str) -> int:
    """Number of tokens before the body: a start token that was put there or that the server added."""
    if start:
        if start not in tokens[:2]:
            raise UsageError(
                f"start-token must be one token of the model behind the API; {start!r} came back otherwise"
            )
        return tokens.index(start) + 1
    first = tokens[0].strip(EDGE)
    return int(logp[0] is None and bool(first) and not body.lstrip().startswith(first.rstrip(REPLACEMENT)))


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


def _text_stats(text: str, logp: LogProbs, ids: Sequence[int] | None = None) -> TokenStats:
    """Statistics of a text from the log-probabilities and, if they are known, the ids of its tokens."""
    if not logp:
        raise UsageError(
            "a text must have at least two tokens where the API gives no log-probability of the first (or give a "
            f"start-token); got {text[:40]!r}"
        )
    wrong = [value for value in logp if value is None or not LEAST <= value <= SLACK]
    if wrong:
        got = str(wrong[0])[:20]
        raise UsageError(f"the API must give log-probabilities from {LEAST:,.0f} to 0; got {got} in {text[:40]!r}")
    unknown = np.full(len(logp), np.nan)
    token = np.full(len(logp), UNKNOWN, np.int64) if ids is None else np.asarray(ids, dtype=np.int64)
    return TokenStats(text, token, np.array(logp, dtype=np.float64), unknown, unknown)
