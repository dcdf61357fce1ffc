"""Requests to a completions API: retried, spaced, refused, and the key that goes to nobody else."""

import json
import threading
import time
from email.utils import formatdate

import pytest

from extensions.api.client import Client, CompletionsScorer, key_for
from fsd.errors import UsageError
from fsd.token_stats import Prompt

KEY = "sk-secret-0123456789"
ONE = [Prompt("ab")]


def test_a_busy_server_is_retried_with_growing_waits_or_those_it_asks_for(serve, scorer, words, error, fake_time):
    date = formatdate(time.time() + 163, usegmt=True)
    replies = [error(429), error(500), error(503), error(429, Retry_After="37"), error(503, Retry_After=date)]
    (stats,) = scorer(serve(lambda request: replies.pop(0) if replies else words(request)))(ONE)
    assert stats.logp.tolist() == [-0.98]
    assert sum(fake_time.waits[:-2]) == pytest.approx(1 + 2 + 4)
    assert fake_time.waits[-2:] == pytest.approx([37, 163], abs=5)


def test_too_long_a_wait_and_too_many_failures_end_in_one_line(serve, scorer, error):
    with pytest.raises(UsageError, match=r"within 900 s; it demands a pause of 5000 s \(HTTP 429: quota\); the texts"):
        list(scorer(serve(lambda _: error(429, "quota", Retry_After="5000")))(ONE))
    url = serve(lambda _: error(500, "down"))
    with pytest.raises(UsageError, match=r"7 attempts at .* failed: HTTP 500: down; the texts scored so far are saved"):
        list(scorer(url)(ONE))
    assert len(url.requests) == 7


@pytest.mark.parametrize(
    ("status", "hint"), [(401, "the key is missing or wrong"), (404, "no such model or address"), (307, "HTTP 307")]
)
def test_a_refusal_ends_the_job_at_once_without_the_key(serve, scorer, error, status, hint):
    url = serve(lambda _: error(status, f"bad key {KEY}\nand more", Location="http://127.0.0.1:9/elsewhere"))
    with pytest.raises(UsageError) as raised:
        list(scorer(url, key=KEY)([Prompt(f"text {i}") for i in range(100)]))
    said = str(raised.value)
    assert hint in said
    assert "[key]" in said
    assert "\n" not in said
    assert KEY not in said
    assert len(url.requests) <= 8  # those that were open already


def test_a_reply_that_repeats_the_key_does_not_bring_it_into_a_message(serve, scorer):
    for said in (KEY, KEY.upper()):
        reply = 200, f'{{"{said}": 1}}'.encode(), {}
        with pytest.raises(UsageError, match=r"with choices; it gives \[key\]$"):
            list(scorer(serve(lambda _, reply=reply: reply), key=KEY)(ONE))


def test_a_password_in_netrc_is_not_sent(serve, words, scorer, tmp_path, monkeypatch):
    (tmp_path / "netrc").write_text("machine 127.0.0.1 login me password mine\n")
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    for key, sent in ((KEY, f"Bearer {KEY}"), ("", None)):
        url = serve(words)
        list(scorer(url, key=key)(ONE))
        assert url.headers[0].get("Authorization") == sent


def test_an_answer_that_is_no_json_and_a_server_that_is_not_there(serve, scorer, fake_time):
    with pytest.raises(UsageError, match=r"must answer with a JSON object; .* answered '<html>'$"):
        list(scorer(serve(lambda _: (200, b"<html>", {})))(ONE))
    with pytest.raises(UsageError, match=r"must be within reach; http://127.0.0.1:9/v1 does not answer$"):
        list(scorer("http://127.0.0.1:9/v1")(ONE))
    assert fake_time.waits == []


def test_requests_begin_no_faster_than_the_rate(serve, words, fake_time):
    client = Client(serve(words), per_minute=30, clock=fake_time.clock)
    list(CompletionsScorer(client, "m", concurrency=1)([Prompt(f"text {i}") for i in range(5)]))
    assert sum(fake_time.waits) == pytest.approx(5 * 2.0)  # the first asks which server it is


def test_requests_are_open_together_up_to_the_concurrency(serve, words, scorer):
    meeting = threading.Barrier(4, timeout=20)
    url = serve(lambda request: meeting.wait() < 4 and words(request))  # answers only when four are there
    results = list(scorer(url)([Prompt(f"text {i}") for i in range(8)]))
    assert [stats.text for stats in results] == [f"text {i}" for i in range(8)]


def test_the_openai_key_goes_to_openai_only():
    openai = {"OPENAI_API_KEY": "openai"}
    assert key_for("https://api.openai.com/v1", {"FSD_API_KEY": " mine ", **openai}) == "mine"
    assert key_for("https://api.openai.com/v1", openai) == "openai"
    for elsewhere in ("http://localhost:8000/v1", "https://api.openai.com.example/v1"):
        assert key_for(elsewhere, openai) == ""
    with pytest.raises(UsageError, match="must be printable ASCII") as raised:
        key_for("http://localhost/v1", {"FSD_API_KEY": f"{KEY}\nx"})
    assert KEY not in str(raised.value)


def test_an_invalid_address_is_refused_and_a_password_in_it_not_repeated():
    for url in ("localhost:8000", "ftp://a/v1", "http://a/v1?key=1", "http:///v1", "http://a:port/v1"):
        with pytest.raises(UsageError, match=r"^base-url must look like http"):
            Client(url)
    with pytest.raises(UsageError, match=r"^base-url must hold no user and no password") as raised:
        Client(f"http://user:{KEY}@localhost/v1")
    assert KEY not in str(raised.value)


def test_the_list_of_models_is_asked_for_once_and_a_busy_server_is_asked_again(serve, error, words, fake_time):
    left = [error(503, "Loading model"), error(429), error(404)]
    url = serve({"/v1/models": lambda _: left.pop(0), "/v1/completions": words})
    scorer = CompletionsScorer(Client(url, clock=fake_time.clock), "m")
    for text in ("ab", "cd"):
        list(scorer([Prompt(text)]))
    assert sum(fake_time.waits) == pytest.approx(1 + 2)
    assert left == []


def test_llama_cpp_python_s_server_is_refused_and_no_other(serve, scorer, words):
    def server(models):
        reply = 200, json.dumps(models).encode(), {}
        return serve({"/v1/models": lambda _: reply, "/v1/completions": words})

    for models in ({"data": 5}, {"data": [3, {"owned_by": "me"}]}, [1], {}):
        assert len(list(scorer(server(models))(ONE))) == 1
    row = {"id": "model.gguf", "object": "model", "owned_by": "me", "permissions": []}  # as 0.3.36 answers
    url = server({"object": "list", "data": [row]})
    with pytest.raises(UsageError, match=r"^the API must not be llama-cpp-python's own server, .* by vLLM$"):
        list(scorer(url)(ONE))
    assert url.requests == []
