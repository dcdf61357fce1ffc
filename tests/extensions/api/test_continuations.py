"""`pipelines.score` with samia and cdd, by a chat API and a completions API that generate text alone."""

import itertools
import json
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest

from extensions.api.client import CONTINUE
from fsd.config import APIConfig, DetectorConfig, ModelConfig, ScoreConfig
from fsd.errors import UsageError
from pipelines.score.job import prepare

KNOWN = [f"the score {n} of a text that every model has seen" for n in range(3)]
TEXTS = [*KNOWN, *(f"an unseen text {n} which nobody has ever read" for n in range(3))]


@pytest.fixture
def job(tmp_path, monkeypatch):
    rows = [{"text": text, "label": int(text in KNOWN), "group": text} for text in TEXTS]
    (tmp_path / "data.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (tmp_path / "short.jsonl").write_text('{"text": "One"}\n')
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("FSD_CACHE", str(tmp_path / "cache"))

    def make(url, *, detectors="samia,cdd", model="api:x", samples=2, data="data.jsonl", chat=True, **api):
        return ScoreConfig(
            data=(data,),
            out="out.csv",
            model=ModelConfig(model=model, samples=samples, device="cpu"),
            api=APIConfig(base_url=url, **api),
            detection=DetectorConfig(detectors=detectors),
            chat=chat,
        )

    return make


REFUSED = 400, b'{"error": {"message": "no temperature here"}}', {}


def remembering():
    """A server that goes on with known texts, and says a new thing each time to others."""
    numbers = itertools.count()

    def answer(request):
        chat = "messages" in request
        start = request["messages"][0]["content"].removeprefix(CONTINUE) if chat else request["prompt"]
        known = (text.removeprefix(start) for text in KNOWN if text.startswith(start))
        end = next(known, f" never {next(numbers)} said")
        choice = {"message": {"content": end.strip()}} if chat else {"text": end}
        return 200, json.dumps({"choices": [choice]}).encode(), {}

    return {f"/v1/{path}": answer for path in ("chat/completions", "completions")}


@pytest.mark.parametrize(("chat", "sent"), [(True, 288), (False, 48)])
def test_texts_that_a_model_repeats_score_1(serve, job, capsys, chat, sent):
    url = serve(remembering())
    prepare(job(url, chat=chat, price=1000.0)).run()
    scores = pd.read_csv("out.csv")
    assert list(scores["samia.base"]) == [1, 1, 1, 0, 0, 0]
    assert list(scores["cdd.base"]) == [1, 1, 1, 0, 0, 0]
    printed = capsys.readouterr().err
    cost = f"about {(sent + 90) / 1000:.2f} at the given price"
    assert f"6 texts: 12 requests, about {sent} tokens sent and at most 90 generated, {cost}" in printed
    assert f"6 texts: 18 requests, about {sent * 3 // 2} tokens sent and at most 1,800 generated" in printed
    asked = sorted((request["temperature"], request["max_tokens"]) for request in url.requests)
    assert asked == [*[(0.0, 100)] * 6, *[(0.8, 100)] * 12, *[(1.0, 7)] * 6, *[(1.0, 8)] * 6]


def test_ids_are_those_of_the_first_half(serve, job, tiny, model):
    url = serve({"/v1/completions": lambda request: (200, b'{"choices": [{"text": "so"}]}', {})})
    prepare(job(url, chat=False, detectors="samia", tokenizer=str(tiny))).run()
    expected = [[model.start, *model.tokens([" ".join(text.split()[: len(text.split()) // 2])])[0]] for text in TEXTS]
    assert sorted(request["prompt"] for request in url.requests) == sorted(expected * 2)


def test_a_service_that_allows_no_temperature_ends_the_command_which_goes_on_later(serve, job, capsys):
    allowed = [0] * 3
    url = serve({"/v1/chat/completions": lambda request: remembered(request) if allowed else REFUSED})
    answer = remembering()["/v1/chat/completions"]

    def remembered(request):
        allowed.pop()
        return answer(request)

    with pytest.raises(UsageError, match=r"^the API must give a completion; .* HTTP 400: .*no temperature here"):
        prepare(job(url, detectors="samia", concurrency=1)).run()
    allowed += [0] * 10
    prepare(job(url, detectors="samia", concurrency=1)).run()
    assert "6 texts: 10 requests" in capsys.readouterr().err
    assert not allowed
    assert not Path("out.csv.partial").exists()


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"choices": []}, "must answer as OpenAI's completions do, with choices; it gives choices"),
        ({"choices": [{"message": {"content": None}}]}, "must give text within 100 tokens; it gives none"),
        ({"choices": [{"message": {"content": ""}, "finish_reason": "length"}]}, "must give text within 100 tokens"),
        ({"choices": [{"text": "x"}]}, "must give text within 100 tokens; it gives none: a model may reason first"),
    ],
)
def test_what_is_no_text_is_refused(serve, job, given, message):
    url = serve({"/v1/chat/completions": lambda request: (200, json.dumps(given).encode(), {})})
    with pytest.raises(UsageError, match=f"^the API {message}"):
        prepare(job(url, detectors="cdd")).run()


def test_mistakes_are_refused_before_any_request(serve, job, tiny):
    url = serve(remembering())
    alone = "a chat API gives text alone, which samia and cdd take$"
    for config, message in (
        (job(url, detectors="auto"), f"^detector combined cannot be computed here: {alone}"),
        (job(url, data="short.jsonl"), "^detector samia .* continued must have at least two words; got 'One'$"),
        (job(url, tokenizer=str(tiny)), "^chat must come with --model api:NAME, and without --tokenizer"),
    ):
        with pytest.raises(UsageError, match=message):
            prepare(config).run()
    assert url.requests == []
    planned = prepare(job(url, detectors="samia")).plan().facts
    assert ("forward passes", "12 texts (12 by base generating about 90 tokens)") in planned
    prepare(replace(job(None, model=str(tiny)), chat=False)).run()
    assert set(pd.read_csv("out.csv")) > {"samia.base", "cdd.base"}
