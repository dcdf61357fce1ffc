"""Replies of a completions API → statistics: by hand, in the formats that servers answer in, and in none."""

import math

import pytest

from extensions.api.client import stats_from_ids, stats_from_string
from fsd.errors import UsageError
from fsd.token_stats import Prompt


def test_by_hand_with_and_without_a_start_token_of_the_server(completed):
    without = completed(["a", " b", " c"], [None, -2.0, -3.0])
    for reply, expected in (
        (completed(["<s>", "a", " b", " c"], [None, -1.0, -2.0, -3.0]), [-1.0, -2.0]),
        (completed(["<s>", "▁a", "b", "c"], [None, -1.0, -2.0, -3.0]), [-1.0, -2.0]),  # spaces are lost
        (completed(["a", " b"], [None, -2.0], generated=0), [-2.0]),
        (without, [-2.0]),
        ({"choices": without["choices"]}, [-2.0]),
    ):
        assert stats_from_string(reply, Prompt("a b")).logp.tolist() == expected
    # The text itself quotes the token that the server puts before it.
    quoted = completed(["<s>", "<", "s>", " b", "!"], [None, -1.0, -2.0, -3.0, -4.0])
    assert stats_from_string(quoted, Prompt("<s> b")).logp.tolist() == [-1.0, -2.0, -3.0]


def test_tokens_of_another_text_and_a_start_of_several_tokens_are_refused(completed):
    for tokens in (
        ["the", " quick", " brown"],  # the end is cut
        ["brown", " fox", " jumps"],  # the beginning is cut
        ["the", " quick", " fox", " jumps"],  # a word is left out
        ["the", " quick", " brown", " fox", " runs"],
        ["\ufffd", "\ufffd", " jumps"],
    ):
        reply = completed([*tokens, "!"], [None, *[-1.0] * len(tokens)])
        with pytest.raises(UsageError, match=r"^the API must read the text whole; .* 'the quick brown fox jumps'"):
            stats_from_string(reply, Prompt("the quick brown fox jumps"))
    reply = completed(["<|", "end", "|>", "a", " b", "!"], [None, *[-1.0] * 5])
    with pytest.raises(UsageError, match=r"^start-token must be one token .*; '<\|end\|>' came back otherwise$"):
        stats_from_string(reply, Prompt("a b"), "<|end|>")


def test_a_reply_in_another_format_is_refused_in_one_line(completed):
    replies = [
        ({}, "must answer as OpenAI's completions do, with choices; it gives nothing"),
        ({"choices": []}, "with choices; it gives choices"),
        ({"choices": [{"text": "a b", "logprobs": None}]}, "this one gives none"),
        ({"choices": [{"text": "a b", "logprobs": {"tokens": []}}]}, "this one gives none"),
        ({"choices": [{"logprobs": {"content": [{"token": "a"}]}}]}, "of generated tokens only, as llama-server does"),
        ({"choices": [{"logprobs": {"tokens": ["a", "b"], "token_logprobs": [None]}}]}, "of equal length"),
        (completed(["a", " ", "b", "!"], [None, -1.0, None, -1.0]), "got None"),
        (completed(["a b", "!"], [None, -1.0]), "a text must have at least two tokens"),
    ]
    values = {0.5: "from -10,000 to 0; got 0.5 in 'a b'", -math.inf: "got -inf", math.nan: "got nan", -1e308: "got -1e"}
    values[-(10**400)] = "got -1000"
    replies += [(completed(["a", " b", "!"], [None, value, -1.0]), says) for value, says in values.items()]
    for reply, message in replies:
        with pytest.raises(UsageError) as raised:
            stats_from_string(reply, Prompt("a b"))
        assert message in str(raised.value)
        assert "\n" not in str(raised.value)


def test_ids_by_hand(completed):
    # as vLLM 0.32.0 answers to [0, 7, 8, 9], of which 8 and 9 are two bytes of one character
    reply = completed(["<|end|>", "a", "", "ß", "!"], [None, -1.0, -2.0, -3.0, -4.0])
    stats = stats_from_ids(reply, "aß", 1, [7, 8, 9], "aß")
    assert (stats.logp.tolist(), stats.token.tolist()) == ([-1.0, -2.0, -3.0], [7, 8, 9])
    assert stats_from_ids(reply, "ß", 2, [8, 9], "aß").logp.tolist() == [-2.0, -3.0]
    for tokens, logp, message in (
        (["<|end|>", "a", "!"], [None, -1.0, -4.0], r"^the API must read token ids .*; of 3 sent it read 2 in 'ab'$"),
        (["<s>", "<|end|>", "a", "b", "!"], [None, -1.0, -1.0, -1.0, -4.0], "of 3 sent it read 4"),
        (["<|end|>", " cat", "dog", "!"], [None, -1.0, -1.0, -4.0], r"^tokenizer must be that of the model .* 'ab'$"),
        (["<|end|>", "a", "b", "!"], [None, -1.0, None, -4.0], "got None in 'ab'"),
    ):
        with pytest.raises(UsageError, match=message):
            stats_from_ids(completed(tokens, logp), "ab", 1, [7, 8], "ab")
