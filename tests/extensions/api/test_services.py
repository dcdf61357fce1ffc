"""How services answer, and refuse: each is read, or refused for the reason that it is."""

import json
from pathlib import Path

import pytest
import yaml

from extensions.api.client import Client, CompletionsScorer, ContinuationsAPI, stats_from_ids, stats_from_string
from extensions.extract.replies import Request, replies_of
from fsd.config import APIConfig, DetectorConfig, ModelConfig, ScoreConfig
from fsd.errors import UsageError
from fsd.scoring.model import open_model
from fsd.token_stats import Prompt
from fsd.views import DRAWS
from pipelines.score.job import prepare

SERVICES = yaml.safe_load((Path(__file__).parents[2] / "data" / "tokenizers.yaml").read_text(encoding="utf-8"))
TEXT = "a é b"


@pytest.mark.parametrize("row", SERVICES["services"], ids=lambda row: row["name"])
def test_what_a_service_answers_is_read_or_refused_for_what_it_is(completed, row):
    reply = completed(row["tokens"], row["values"])

    def read():
        if row.get("ids"):
            return stats_from_ids(reply, TEXT, 1, [5, 6, 7, 8], TEXT)
        return stats_from_string(reply, Prompt(TEXT))

    if "refused" not in row:
        assert read().logp.tolist() == row["logp"]
        return
    with pytest.raises(UsageError) as raised:
        read()
    assert row["refused"] in str(raised.value)
    assert "\n" not in str(raised.value)


def test_the_first_value_is_no_probability_of_a_text_whatever_stands_before_it(completed):
    tokens = ["a", " é", " b", "!"]
    for value in (None, 0.0, -1e-9, -7.0):
        reply = completed(tokens, [value, -2.0, -3.0, -9.0])
        assert stats_from_string(reply, Prompt(TEXT)).logp.tolist() == [-2.0, -3.0]
        assert stats_from_string(reply, Prompt(" é b", context="a")).logp.tolist() == [-2.0, -3.0]
    # A start token that was sent predicts it.
    reply = completed(["<s>", *tokens], [0.0, -1.0, -2.0, -3.0, -9.0])
    assert stats_from_string(reply, Prompt(TEXT), "<s>").logp.tolist() == [-1.0, -2.0, -3.0]


@pytest.mark.parametrize(
    ("context", "scored"), [("a ", [-2.25, -2.5, -3.0]), ("a é", [-3.0]), ("a", [-2.0, -2.25, -2.5, -3.0])]
)
def test_a_torn_character_is_scored_where_it_begins(completed, context, scored):
    tokens = ["a", " ", "bytes:\\xc3", "bytes:\\xa9", " b", "!"]
    reply = completed(tokens, [None, -2.0, -2.25, -2.5, -3.0, -9.0])
    prompt = Prompt(TEXT.removeprefix(context), context=context)
    assert stats_from_string(reply, prompt).logp.tolist() == scored


def test_a_refusal_names_the_text(serve, scorer, words, error):
    def answer(request):
        if len(request["prompt"]) > 20:
            return error(400, "This model's maximum context length is 20 tokens. However, you requested 31 tokens.")
        return words(request)

    with pytest.raises(UsageError, match=r"a completion of 'x{30}'; .* HTTP 400: This model's maximum context length"):
        list(scorer(serve(answer))([Prompt("short"), Prompt("x" * 30)]))


def models(size, name="max_model_len"):
    return lambda _: (200, json.dumps({"data": [{"id": "tiny", name: size}, {"id": "other"}]}).encode(), {})


@pytest.mark.parametrize("name", ["max_model_len", "context_length", "context_window"])
def test_texts_beyond_the_context_are_named_before_the_first_request(serve, scorer, words, tokens, name):
    url = serve({"/v1/completions": words, "/v1/models": models(9, name)})
    message = r"must fit the context of 9 tokens .* for tiny, with one token more; 1 do not, such as 'x{9}'"
    with pytest.raises(UsageError, match=message):
        list(scorer(url, tokens=tokens)([Prompt("xxxxxxx"), Prompt("x" * 9)]))
    assert not url.requests
    # Eight of its tokens fit with the start token, which no server takes for a ninth.
    assert scorer(url, tokens=tokens).too_long([Prompt("x" * 7), Prompt("x" * 8)]) == [Prompt("x" * 8)]
    # Without a tokenizer a text is too long only where any would say so.
    assert scorer(url).too_long([Prompt("x" * 64), Prompt("x" * 72)]) == [Prompt("x" * 72)]


def test_texts_beyond_the_context_are_left_out_by_a_flag(serve, words, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    rows = [{"text": "short one", "label": 1}, {"text": "w " * 200, "label": 0}, {"text": "another one", "label": 0}]
    Path("data.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    url = serve({"/v1/completions": words, "/v1/models": models(40)})

    def job(**options):
        return prepare(
            ScoreConfig(
                data=("data.jsonl",),
                out="out.jsonl",
                model=ModelConfig("api:tiny"),
                api=APIConfig(base_url=url),
                detection=DetectorConfig(detectors="loss"),
                **options,
            )
        )

    with pytest.raises(UsageError, match=r"1 of 3 texts are longer than .* \(data.jsonl:2\): shorten them, or"):
        job().run()
    assert not url.requests
    job(too_long="drop").run()
    table = [json.loads(line) for line in Path("out.jsonl").read_text().splitlines()]
    assert [row["text"] for row in table] == ["short one", "another one"]
    assert table[0]["loss.base"] == pytest.approx(sum(-ord(letter) for letter in "hort one") / 800)
    assert "1 of 3 texts are longer than the context that the API names (data.jsonl:2), and were left out" in (
        capsys.readouterr().out
    )
    with pytest.raises(UsageError, match="too-long drop must come with --model api:NAME"):
        prepare(ScoreConfig(data=("data.jsonl",), out="out.jsonl", too_long="drop"))


@pytest.mark.parametrize("variable", ["HTTP_PROXY", "http_proxy", "ALL_PROXY"])
def test_a_server_of_this_machine_is_asked_without_a_proxy(serve, scorer, words, monkeypatch, variable):
    url = serve(words)
    for name in ("NO_PROXY", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv(variable, "http://127.0.0.1:9")
    for host in ("127.0.0.1", "localhost"):
        (stats,) = scorer(url.replace("127.0.0.1", host))([Prompt("abc")])
        assert len(stats.logp) == 2


# Chat models that reason


def reasoning(error, *, named=True):
    """A server that refuses what OpenAI's models that reason refuse, one at a time."""

    def answer(request):
        wanted = "max_completion_tokens"
        for name in ("max_tokens", "temperature", "top_p"):
            if name in request:
                kind = "parameter" if name == "max_tokens" else "value"
                said = f"Unsupported {kind}: '{name}' is not supported with this model. Use '{wanted}' instead."
                status, body, headers = error(400, said)
                if named:
                    body = json.dumps({"error": {"message": "no", "param": name, "code": "unsupported"}}).encode()
                return status, body, headers
        assert request[wanted] == 50
        parts = [
            {"type": "reasoning", "summary": []},
            {"type": "text", "text": "two "},
            {"type": "text", "text": "three"},
        ]
        return 200, json.dumps({"choices": [{"message": {"content": parts}}]}).encode(), {}

    return {"/v1/chat/completions": answer}


@pytest.mark.parametrize("named", [True, False])
def test_models_that_reason_are_asked_as_they_take_it_and_it_is_recorded(serve, error, tmp_path, capsys, named):
    url = serve(reasoning(error, named=named))
    requests = [Request("One", 50), Request("Two", 50, temperature=0.7, seed=3)]
    api = APIConfig(base_url=url, concurrency=1)
    model = open_model(ModelConfig("api:gpt-5"), api=api, answers=tmp_path / "a", chat=True)
    replies = list(replies_of(model)(requests))
    assert [reply.text for reply in replies] == ["two three"] * 2
    assert [reply.refused for reply in replies] == [
        ("max_tokens", "temperature"),
        ("max_tokens", "temperature", "top_p"),
    ]
    # What was refused once is not sent again.
    assert len(url.requests) == 5
    lines = capsys.readouterr().err
    assert "the API refuses max_tokens, and takes max_completion_tokens\n" in lines
    assert "the API refuses temperature, and has its own\n" in lines


def test_a_model_without_temperature_has_no_likeliest_continuation(serve, error, fake_time):
    def sampler(form):
        url = serve(reasoning(error))
        way = DRAWS[form]._replace(tokens=50, samples=2)
        return ContinuationsAPI(Client(url, clock=fake_time.clock), "o3", draws=way, chat=True, concurrency=1)

    (answer,) = sampler("continuations")([Prompt("a text", context="one")])
    assert answer.samples == ("two three", "two three")
    with pytest.raises(UsageError, match="must take a temperature for cdd"):
        list(sampler("outputs")([Prompt("a text", context="one")]))


def test_another_refusal_is_a_refusal(serve, error):
    scorer = CompletionsScorer(
        Client(serve(lambda _: error(400, "the parameter 'temperature' is of no interest"))), "m"
    )
    with pytest.raises(UsageError, match="of no interest"):
        list(scorer([Prompt("abc")]))
