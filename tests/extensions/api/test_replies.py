"""Replies of a model behind an API: what is sent, what is kept, and what is no reply."""

import json

import pytest

from extensions.extract.replies import Request, replies_of
from fsd.config import APIConfig, ModelConfig
from fsd.scoring.model import open_model

REQUESTS = [Request("Continue this text: One", 50, continues=True), Request("Who?", 50, temperature=0.7, seed=3)]


def answers(message, **more):
    choice = {"message": message, "text": message.get("content"), "finish_reason": "stop"}
    body = json.dumps({"choices": [choice], **more}).encode()
    return {f"/v1/{path}": lambda _: (200, body, {}) for path in ("chat/completions", "completions")}


@pytest.fixture
def ask(tmp_path):
    def run(url, *, plain=False, now=0.0):
        api = APIConfig(base_url=url, concurrency=1)
        model = open_model(ModelConfig("api:x"), api=api, answers=tmp_path / "answers", chat=not plain)
        replies = replies_of(model, plain=plain)
        replies.scorer.scorer.clock = lambda: now
        return list(replies(REQUESTS))

    return run


def test_a_chat_api_gets_a_message_and_its_settings(serve, ask):
    url = serve(answers({"content": "two three"}, model="x-2026"))
    replies = ask(url)
    assert [reply.text for reply in replies] == ["two three"] * 2
    assert [reply.sent for reply in replies] == ["Continue this text: One", "Who?"]
    assert {(reply.form, reply.model, reply.time) for reply in replies} == {
        ("message to a chat API", "x-2026", "1970-01-01T00:00:00Z")
    }
    greedy, drawn = url.requests
    messages = [{"role": "user", "content": "Continue this text: One"}]
    assert greedy == {"model": "x", "max_tokens": 50, "temperature": 0.0, "messages": messages}
    assert (drawn["temperature"], drawn["seed"], drawn["top_p"]) == (0.7, 3, 1.0)


def test_answers_are_kept_with_their_times_and_asked_for_once(serve, ask):
    url = serve(answers({"content": "two"}))
    first = ask(url)
    assert ask(url, now=9e8) == first
    assert len(url.requests) == 2
    (plain, _) = ask(url, plain=True, now=60.0)
    assert (plain.sent, plain.form, plain.time) == (
        "Continue this text: One",
        "text to a completions API",
        "1970-01-01T00:01:00Z",
    )
    assert [request["prompt"] for request in url.requests[2:]] == ["Continue this text: One", "Who?\n\n"]


@pytest.mark.parametrize(
    ("message", "text"),
    [
        ({"content": None}, ""),
        ({"content": ""}, ""),
        ({"content": None, "refusal": "I cannot."}, "I cannot."),
        ({}, ""),
    ],
)
def test_a_model_that_gives_no_text_has_an_empty_reply(message, text, serve, ask):
    assert [reply.text for reply in ask(serve(answers(message)))] == [text] * 2
