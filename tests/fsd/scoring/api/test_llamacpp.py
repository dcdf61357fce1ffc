"""llama.cpp's llama-server, token by token, against the model behind it."""

import json

import numpy as np
import pytest

from fsd.errors import UsageError
from fsd.scoring.api.llamacpp import LEAST, is_llama_server
from fsd.scoring.model_scorer import ModelScorer
from fsd.token_stats import Prompt

END = "<|endoftext|>"
TEXTS = ["the score of an unseen text", "Größe 🙂 天 and more", "x y", " member\n\nof the text \n"]
PROMPTS = [*(Prompt(text) for text in TEXTS), Prompt(f"quoted {END} text"), Prompt("ber", context="mem")]


def test_log_probabilities_are_the_model_s_own(serve, scorer, llama_server, model, tokens) -> None:
    url = serve(llama_server().answers)

    results = list(scorer(url, tokens=tokens)(PROMPTS))

    for one, other in zip(results, ModelScorer(model)(PROMPTS), strict=True):
        assert one.text == other.text
        np.testing.assert_array_equal(one.token, other.token)
        np.testing.assert_allclose(one.logp, other.logp, rtol=0, atol=1e-5)
        assert np.isnan(one.mean).all()


@pytest.mark.parametrize(("bos", "start"), [(True, ""), (False, END)])
def test_without_a_tokenizer_the_server_s_own_is_used(serve, scorer, llama_server, model, bos, start) -> None:
    results = list(scorer(serve(llama_server(bos=bos).answers), start=start)(PROMPTS))

    for one, other in zip(results, ModelScorer(model)(PROMPTS), strict=True):
        np.testing.assert_allclose(one.logp, other.logp, rtol=0, atol=1e-5)


def test_without_a_start_token_the_first_token_only_conditions(serve, scorer, llama_server, backed) -> None:
    results = list(scorer(serve(llama_server(bos=False).answers))(PROMPTS))

    for one, prompt in zip(results, PROMPTS, strict=True):
        context = backed.ids(prompt.context) if prompt.context else []
        ids = context + backed.ids(prompt.text)
        own = [backed.next(ids[:t])[ids[t]] for t in range(len(context) or 1, len(ids))]
        np.testing.assert_allclose(one.logp, own, rtol=0, atol=1e-5)


def test_a_text_is_read_on_one_slot_whose_cache_holds_what_came_before(serve, scorer, llama_server, tokens) -> None:
    server = llama_server(slots=2)
    url = serve(server.answers)

    list(scorer(url, tokens=tokens)([Prompt(f"the text {i}") for i in range(6)]))

    forced = [request for request in url.requests if "logit_bias" in request]
    assert {request["id_slot"] for request in forced} == {0, 1}
    assert max(server.cached) == 1  # tokens read anew for a request
    assert all(request["cache_prompt"] for request in forced)


def test_without_slots_in_props_none_is_requested(serve, scorer, llama_server, tokens) -> None:
    answers = llama_server().answers
    answers.pop("GET /props")
    url = serve(answers)

    assert len(list(scorer(url, tokens=tokens)(PROMPTS))) == len(PROMPTS)
    assert not any("id_slot" in request for request in url.requests)


def test_it_is_recognised_by_its_list_of_models(serve, scorer, llama_server, words) -> None:
    assert is_llama_server(scorer(serve(llama_server().answers)).client)
    assert not is_llama_server(scorer(serve(words)).client)
    assert not is_llama_server(scorer(serve({"GET /v1/models": lambda _: (200, b'{"data": 5}', {})})).client)


def test_llama_cpp_python_s_server_is_refused(serve, scorer, words) -> None:
    row = {"id": "model.gguf", "object": "model", "owned_by": "me", "permissions": []}  # as 0.3.36 answers
    models = json.dumps({"object": "list", "data": [row]}).encode()
    url = serve({"GET /v1/models": lambda _: (200, models, {}), "POST /v1/completions": words})
    with pytest.raises(UsageError, match=r"^the API must not be llama-cpp-python's own server, .* llama-server$"):
        list(scorer(url)([Prompt("a b")]))
    assert url.requests == []


def test_behind_a_service_that_hides_it_the_reply_is_refused(serve, scorer, llama_server) -> None:
    answers = llama_server().answers
    answers.pop("GET /v1/models")
    with pytest.raises(UsageError, match=r"^the API must give log-probabilities of the prompt's own .* llama-server"):
        list(scorer(serve(answers))([Prompt("a b")]))


def test_mistakes_are_refused_in_one_line(serve, scorer, llama_server, tokens) -> None:
    url = serve(llama_server().answers)
    with pytest.raises(UsageError, match=r"^a text must fit the server's context of 48 tokens; 'x x x .* has 100 "):
        list(scorer(url, tokens=tokens)([Prompt("x " * 49 + "x")]))
    with pytest.raises(UsageError, match=r"^start-token must be one token .*; 'no such' is \d+$"):
        list(scorer(url, start="no such")([Prompt("a b")]))
    with pytest.raises(UsageError, match=r"^a text must have at least two tokens"):
        list(scorer(serve(llama_server(bos=False).answers))([Prompt("a")]))


def test_another_tokenizer_is_refused(serve, scorer, llama_server, tokens, monkeypatch) -> None:
    url = serve(llama_server().answers)
    ids = tokens.tokens
    monkeypatch.setattr(tokens, "tokens", lambda texts: [[i + 1 for i in row] for row in ids(texts)])
    monkeypatch.setattr(tokens, "decode", lambda ids: "a text")
    with pytest.raises(UsageError, match=r"^tokenizer must be that of the model behind the API; .* 'a text'$"):
        list(scorer(url, tokens=tokens)([Prompt("a text")]))
    monkeypatch.setattr(tokens, "tokens", lambda texts: [[7, 300] for _ in texts])
    with pytest.raises(UsageError, match=r"^tokenizer must be that of the model behind the API; .* 'a text'$"):
        list(scorer(url, tokens=tokens)([Prompt("a text")]))


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"tokens_evaluated": 1}, r"^llama-server must read the text whole; of \d tokens it read 1$"),
        ({"truncated": True}, "must read the text whole"),
        ({"completion_probabilities": []}, "must give the log-probability of every token"),
        ({"completion_probabilities": "no"}, "must give completion_probabilities as a list of objects"),
        (
            {"completion_probabilities": [{"content": "a", "probs": []}]},
            "as it does since December 2024; .* content, p",
        ),
    ],
)
def test_another_format_is_refused(serve, scorer, llama_server, tokens, changed, message) -> None:
    server = llama_server()

    def answer(request):
        status, content, headers = server.completion(request)
        return status, json.dumps({**json.loads(content), **changed}).encode(), headers

    with pytest.raises(UsageError, match=message):
        list(scorer(serve({**server.answers, "POST /completion": answer}), tokens=tokens)([Prompt("a b")]))


def test_a_probability_below_float32_counts_as_its_smallest(serve, scorer, llama_server, tokens) -> None:
    server = llama_server()

    def answer(request):
        status, content, headers = server.completion(request)
        entry = {**json.loads(content)["completion_probabilities"][0], "logprob": -3.4028234663852886e38}
        read = len(request["prompt"])
        return status, json.dumps({"completion_probabilities": [entry], "tokens_evaluated": read}).encode(), headers

    (stats,) = scorer(serve({**server.answers, "POST /completion": answer}), tokens=tokens)([Prompt("a b")])

    assert stats.logp.tolist() == [LEAST] * stats.logp.size
    assert pytest.approx(-103.28, abs=0.01) == LEAST
