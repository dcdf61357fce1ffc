"""Replies of a completions API → statistics: by hand, in the formats that servers answer in, and in none."""

import math
from collections.abc import Sequence
from typing import Any

import pytest

from fsd.errors import UsageError
from fsd.scoring.api import stats_from_ids, stats_from_string
from fsd.token_stats import Prompt


def completion(tokens: Sequence[str], logp: Sequence[float | None], generated: int = 1) -> dict[str, Any]:
    choice = {"text": "".join(tokens), "logprobs": {"tokens": list(tokens), "token_logprobs": list(logp)}}
    return {"choices": [choice], "usage": {"completion_tokens": generated}}


def test_by_hand_with_and_without_a_start_token_of_the_server() -> None:
    prompt = Prompt("a b")
    with_start = completion(["<s>", "a", " b", " c"], [None, -1.0, -2.0, -3.0])
    without = completion(["a", " b", " c"], [None, -2.0, -3.0])
    spaces_lost = completion(["<s>", "▁a", "b", "c"], [None, -1.0, -2.0, -3.0])
    nothing_generated = completion(["a", " b"], [None, -2.0], generated=0)

    assert stats_from_string(with_start, prompt).logp.tolist() == [-1.0, -2.0]
    assert stats_from_string(without, prompt).logp.tolist() == [-2.0]
    assert stats_from_string(spaces_lost, prompt).logp.tolist() == [-1.0, -2.0]
    assert stats_from_string(nothing_generated, prompt).logp.tolist() == [-2.0]
    without.pop("usage")
    assert stats_from_string(without, prompt).logp.tolist() == [-2.0]


def test_tokens_of_another_text_are_refused() -> None:
    for tokens in (
        ["the", " quick", " brown"],  # the end is cut
        ["brown", " fox", " jumps"],  # the beginning is cut
        ["the", " quick", " fox", " jumps"],  # a word is left out
        ["the", " quick", " brown", " fox", " runs"],
        ["\ufffd", "\ufffd", " jumps"],
    ):
        reply = completion([*tokens, "!"], [None, *[-1.0] * len(tokens)])
        with pytest.raises(UsageError, match=r"^the API must read the text whole; .* 'the quick brown fox jumps'"):
            stats_from_string(reply, Prompt("the quick brown fox jumps"))


def test_a_start_token_of_several_tokens_is_refused() -> None:
    reply = completion(["<|", "end", "|>", "a", " b", "!"], [None, *[-1.0] * 5])
    with pytest.raises(UsageError, match=r"^start-token must be one token .*; '<\|end\|>' came back otherwise$"):
        stats_from_string(reply, Prompt("a b"), "<|end|>")


@pytest.mark.parametrize(
    ("reply", "message"),
    [
        ({}, "must answer as OpenAI's completions do, with choices; it gives nothing"),
        ({"choices": []}, "with choices; it gives choices"),
        ({"choices": [{"text": "a b", "logprobs": None}]}, "this one gives none"),
        ({"choices": [{"text": "a b", "logprobs": {"tokens": []}}]}, "this one gives none"),
        ({"choices": [{"logprobs": {"content": [{"token": "a"}]}}]}, "of generated tokens only, as llama-server does"),
        ({"choices": [{"logprobs": {"tokens": ["a", "b"], "token_logprobs": [None]}}]}, "of equal length"),
        ({"choices": [{"logprobs": {"tokens": ["a"], "token_logprobs": ["-1"]}}]}, "strings and numbers"),
        (
            completion(["a", " b", "!"], [None, 0.5, -1.0]),
            "must give log-probabilities from -10,000 to 0; got 0.5 in 'a b'",
        ),
        (completion(["a", " b", "!"], [None, -math.inf, -1.0]), "got -inf"),
        (completion(["a", " b", "!"], [None, math.nan, -1.0]), "got nan"),
        (completion(["a", " b", "!"], [None, -1e308, -1.0]), "got -1e+308"),
        (completion(["a", " b", "!"], [None, -(10**400), -1.0]), "got -1000"),
        (completion(["a", " ", "b", "!"], [None, -1.0, None, -1.0]), "got None"),
        (completion(["a b", "!"], [None, -1.0]), "a text must have at least two tokens"),
    ],
)
def test_a_reply_in_another_format_is_refused_in_one_line(reply, message) -> None:
    with pytest.raises(UsageError) as raised:
        stats_from_string(reply, Prompt("a b"))
    assert message in str(raised.value)
    assert "\n" not in str(raised.value)


def test_ids_by_hand() -> None:
    # as vLLM 0.32.0 answers to [0, 7, 8, 9], of which 8 and 9 are two bytes of one character
    reply = completion(["<|end|>", "a", "", "ß", "!"], [None, -1.0, -2.0, -3.0, -4.0])

    stats = stats_from_ids(reply, "aß", 1, [7, 8, 9], "aß")
    assert stats.logp.tolist() == [-1.0, -2.0, -3.0]
    assert stats.token.tolist() == [7, 8, 9]
    after = stats_from_ids(reply, "ß", 2, [8, 9], "aß")
    assert after.logp.tolist() == [-2.0, -3.0]


def test_ids_that_the_server_reads_differently_are_refused() -> None:
    cut = completion(["<|end|>", "a", "!"], [None, -1.0, -4.0])
    added = completion(["<s>", "<|end|>", "a", "b", "!"], [None, -1.0, -1.0, -1.0, -4.0])
    other = completion(["<|end|>", " cat", "dog", "!"], [None, -1.0, -1.0, -4.0])
    nothing = completion(["<|end|>", "a", "b", "!"], [None, -1.0, None, -4.0])

    for reply, message in (
        (cut, r"^the API must read token ids as they are; of 3 sent it read 2 in 'ab'$"),
        (added, "of 3 sent it read 4"),
        (other, r"^tokenizer must be that of the model behind the API; .* 'ab'$"),
        (nothing, "got None in 'ab'"),
    ):
        with pytest.raises(UsageError, match=message):
            stats_from_ids(reply, "ab", 1, [7, 8], "ab")
