"""A completions API against a server on this machine: backed by a tiny model, in several dialects, and failing."""

import json
import math
import threading
from collections.abc import Callable, Iterator, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import detectors
from fsd.completions import Client, CompletionsScorer, KeptCompletions, estimate, key_for, reading
from fsd.config import APIConfig, DetectorConfig, ModelConfig, ScoreConfig
from fsd.deviation import usable
from fsd.domains._sources import Clock
from fsd.errors import UsageError
from fsd.models import LanguageModel, load
from fsd.scoring import ModelScorer
from fsd.stats import Prompt
from fsd.views import Material
from pipelines.score import main

END = "<|endoftext|>"
KEY = "sk-secret-0123456789"
TEXTS = ["the score of an unseen text", "Größe 🙂 天 and more", "x y", " member\n\nof the text \n"]
Reply = tuple[int, bytes, dict[str, str]]


def ok(body: object) -> Reply:
    return 200, json.dumps(body).encode(), {}


def error(status: int, said: str = "no", **headers: str) -> Reply:
    return status, json.dumps({"error": {"message": said, "type": "x"}}).encode(), headers


def completion(tokens: Sequence[str], logp: Sequence[float | None], generated: int = 1) -> dict[str, Any]:
    """As vLLM and OpenAI answer."""
    return {
        "object": "text_completion",
        "choices": [
            {
                "text": "".join(tokens),
                "index": 0,
                "logprobs": {
                    "tokens": list(tokens),
                    "token_logprobs": list(logp),
                    "text_offset": [len("".join(tokens[:i])) for i in range(len(tokens))],
                    "top_logprobs": None,
                },
                "finish_reason": "length",
            }
        ],
        "usage": {"prompt_tokens": len(tokens) - generated, "completion_tokens": generated},
    }


def llama_server(_: dict[str, Any]) -> Reply:
    """As llama.cpp's llama-server answers where it does not refuse echo."""
    entry = {"id": 5, "token": " a", "bytes": [32, 97], "logprob": -0.3, "top_logprobs": []}
    return ok({"choices": [{"text": " a", "index": 0, "logprobs": {"content": [entry]}, "finish_reason": "length"}]})


def words(request: dict[str, Any]) -> Reply:
    """A server whose tokens are letters; the first has no log-probability."""
    letters = list(request["prompt"])
    return ok(completion([*letters, "!"], [None, *(-ord(c) / 100 for c in letters[1:]), -0.1]))


@pytest.fixture
def serve(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Any]]:
    """Starts a server that answers by a function of the request's JSON; gives its base URL, with what it was asked."""
    servers = []
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")

    class Url(str):
        asked: list[dict[str, Any]]
        headers: list[dict[str, str]]

    def start(answer: Callable[[dict[str, Any]], Reply]) -> Url:
        asked: list[dict[str, Any]] = []
        headers: list[dict[str, str]] = []

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                asked.append(body)
                headers.append(dict(self.headers))
                status, content, extra = answer(body) if self.path == "/v1/completions" else error(404, "no such path")
                self.send_response(status)
                for name, value in {"Content-Length": str(len(content)), **extra}.items():
                    self.send_header(name.replace("_", "-"), value)
                self.end_headers()
                self.wfile.write(content)

            def log_message(self, *_: object) -> None:
                pass

        server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        server.daemon_threads = True
        servers.append(server)
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
        url = Url(f"http://127.0.0.1:{server.server_port}/v1")
        url.asked, url.headers = asked, headers
        return url

    yield start
    for server in servers:
        server.shutdown()
        server.server_close()


class Waiting:
    """A clock that waits in no time, and remembers how long."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.slept: list[float] = []

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds

    @property
    def clock(self) -> Clock:
        return Clock(monotonic=lambda: self.now, wall=lambda: self.now, sleep=self.sleep)


@pytest.fixture(scope="module")
def model(tiny: Path) -> LanguageModel:
    return load(str(tiny), device="cpu")


def vllm(model: LanguageModel, *, bos: bool, one_by_one: bool = False) -> Callable[[dict[str, Any]], Reply]:
    """A server backed by the model; `bos`: it puts a start token; `one_by_one`: torn characters come as U+FFFD."""
    lock = threading.Lock()
    numbers = ModelScorer(model)

    def answer(request: dict[str, Any]) -> Reply:
        assert request["echo"] is True
        assert request["logprobs"] == 1
        assert request["max_tokens"] == 1
        prompt, given = request["prompt"], False
        if prompt.startswith(END):
            prompt, given = prompt.removeprefix(END), True
        with lock:
            (stats,) = numbers([Prompt(prompt)])
        ids = stats.token.tolist()
        if one_by_one:
            strings = [model.tokenizer.decode([i]) for i in ids]
        else:  # as OpenAI does: a torn character stands with the token that completes it
            whole = [model.tokenizer.decode(ids[: n + 1]).rstrip("\ufffd") for n in range(len(ids))]
            strings = [w[len(before) :] for w, before in zip(whole, ["", *whole], strict=False)]
        logp: list[float | None] = list(stats.logp)
        if bos or given:
            strings, logp = [END, *strings], [None, *logp]
        else:
            logp[0] = None
        return ok(completion([*strings, " the"], [*logp, -1.0]))

    return answer


def scorer(url: str, *, waiting: Waiting | None = None, start: str = "", **options: Any) -> CompletionsScorer:
    clock = (waiting or Waiting()).clock
    return CompletionsScorer(Client(url, clock=clock, **options), "tiny", start=start, concurrency=4)


@pytest.mark.parametrize("one_by_one", [False, True])
@pytest.mark.parametrize(("bos", "start", "lost"), [(True, "", 0), (False, END, 0), (False, "", 1)])
def test_log_probabilities_are_the_model_s_own(serve, model, bos, start, lost, one_by_one) -> None:
    url = serve(vllm(model, bos=bos, one_by_one=one_by_one))

    found = list(scorer(url, start=start)([Prompt(text) for text in [*TEXTS, TEXTS[0]]]))
    own = list(ModelScorer(model)([Prompt(text) for text in [*TEXTS, TEXTS[0]]]))

    for one, other in zip(found, own, strict=True):
        assert one.text == other.text
        np.testing.assert_allclose(one.logp, other.logp[lost:], rtol=0, atol=1e-5)
        assert (one.token == -1).all()
        assert np.isnan(one.mean).all()
        assert np.isnan(one.std).all()
    assert len(url.asked) == len(TEXTS)  # the text that comes twice is sent once


def test_a_context_is_read_and_not_scored(serve) -> None:
    (found,) = scorer(serve(words))([Prompt("bcd", context="aa ")])

    assert found.logp.tolist() == [-0.98, -0.99, -1.0]


def test_by_hand_with_and_without_a_start_token_of_the_server() -> None:
    prompt = Prompt("a b")
    with_start = completion(["<s>", "a", " b", " c"], [None, -1.0, -2.0, -3.0])
    without = completion(["a", " b", " c"], [None, -2.0, -3.0])
    spaces_lost = completion(["<s>", "▁a", "b", "c"], [None, -1.0, -2.0, -3.0])
    nothing_generated = completion(["a", " b"], [None, -2.0], generated=0)

    assert reading(with_start, prompt).logp.tolist() == [-1.0, -2.0]
    assert reading(without, prompt).logp.tolist() == [-2.0]
    assert reading(spaces_lost, prompt).logp.tolist() == [-1.0, -2.0]
    assert reading(nothing_generated, prompt).logp.tolist() == [-2.0]
    without.pop("usage")
    assert reading(without, prompt).logp.tolist() == [-2.0]


@pytest.mark.parametrize(
    "tokens",
    [
        ["the", " quick", " brown"],  # the end is cut
        ["brown", " fox", " jumps"],  # the beginning is cut
        ["the", " quick", " fox", " jumps"],  # a word is left out
        ["the", " quick", " brown", " fox", " runs"],
        ["\ufffd", "\ufffd", " jumps"],
    ],
)
def test_tokens_that_are_not_the_text_s_are_refused(tokens) -> None:
    reply = completion([*tokens, "!"], [None, *[-1.0] * len(tokens)])
    with pytest.raises(UsageError, match=r"^the API must read the text whole; .* 'the quick brown fox jumps'"):
        reading(reply, Prompt("the quick brown fox jumps"))


def test_a_start_token_of_several_tokens_is_refused() -> None:
    reply = completion(["<|", "end", "|>", "a", " b", "!"], [None, *[-1.0] * 5])
    with pytest.raises(UsageError, match=r"^start-token must be one token .*; '<\|end\|>' came back otherwise$"):
        reading(reply, Prompt("a b"), "<|end|>")


@pytest.mark.parametrize(
    ("reply", "message"),
    [
        ({}, "must answer as OpenAI's completions do, with choices; it gives nothing"),
        ({"choices": []}, "with choices; it gives choices"),
        ({"choices": [{"text": "a b", "logprobs": None}]}, "this one gives none"),
        ({"choices": [{"text": "a b", "logprobs": {"tokens": []}}]}, "this one gives none"),
        ({"choices": [{"logprobs": {"content": [{"token": "a"}]}}]}, "of generated tokens only, as llama.cpp's"),
        ({"choices": [{"logprobs": {"tokens": ["a", "b"], "token_logprobs": [None]}}]}, "of equal length"),
        ({"choices": [{"logprobs": {"tokens": ["a"], "token_logprobs": ["-1"]}}]}, "strings and numbers"),
        (completion(["a", " b", "!"], [None, 0.5, -1.0]), "at most 0; got 0.5 in 'a b'"),
        (completion(["a", " b", "!"], [None, -math.inf, -1.0]), "got -inf"),
        (completion(["a", " ", "b", "!"], [None, -1.0, None, -1.0]), "got None"),
        (completion(["a b", "!"], [None, -1.0]), "a text must have at least two tokens"),
    ],
)
def test_a_reply_in_another_format_is_refused_in_one_line(reply, message) -> None:
    with pytest.raises(UsageError) as raised:
        reading(reply, Prompt("a b"))
    assert message in str(raised.value)
    assert "\n" not in str(raised.value)


def test_llama_server_is_refused_at_once(serve) -> None:
    with pytest.raises(UsageError, match=r"as llama\.cpp's llama-server does: serve the model by vLLM"):
        list(scorer(serve(llama_server))([Prompt("a b")]))
    refusing = serve(lambda _: error(400, "Only no echo is supported"))
    with pytest.raises(UsageError, match="HTTP 400: Only no echo is supported"):
        list(scorer(refusing)([Prompt("a b")]))
    assert len(refusing.asked) == 1


def in_turn(*replies: Reply) -> Callable[[dict[str, Any]], Reply]:
    left = list(replies)
    return lambda request: left.pop(0) if left else words(request)


@pytest.mark.parametrize("status", [429, 500, 503])
def test_a_busy_server_is_asked_again_after_longer_and_longer_waits(serve, status) -> None:
    waiting = Waiting()
    url = serve(in_turn(error(status), error(status), error(status)))

    (found,) = scorer(url, waiting=waiting)([Prompt("ab")])

    assert found.logp.tolist() == [-0.98]
    assert sum(waiting.slept) == pytest.approx(1 + 2 + 4)


def test_retry_after_is_honoured_in_seconds_and_as_a_date(serve) -> None:
    waiting = Waiting()
    url = serve(in_turn(error(429, Retry_After="37"), error(503, Retry_After="Thu, 01 Jan 1970 00:20:00 GMT")))

    list(scorer(url, waiting=waiting)([Prompt("ab")]))

    assert waiting.now == pytest.approx(1200)  # 1000 + 37, then until 20 minutes past


def test_too_long_a_wait_and_too_many_failures_end_in_one_line(serve) -> None:
    with pytest.raises(
        UsageError, match=r"must be asked again in 5000 s \(HTTP 429: quota\), not now; what was scored"
    ):
        list(scorer(serve(lambda _: error(429, "quota", Retry_After="5000")))([Prompt("ab")]))
    url = serve(lambda _: error(500, "down"))
    with pytest.raises(UsageError, match=r"7 attempts at .* failed: HTTP 500: down; what was scored is kept"):
        list(scorer(url)([Prompt("ab")]))
    assert len(url.asked) == 7


@pytest.mark.parametrize(
    ("status", "hint"), [(401, "the key is missing or wrong"), (404, "no such model or address"), (307, "HTTP 307")]
)
def test_a_refusal_ends_at_once_and_asks_for_no_more(serve, status, hint) -> None:
    url = serve(lambda _: error(status, f"bad key {KEY}\nand more", Location="http://127.0.0.1:9/elsewhere"))
    with pytest.raises(UsageError) as raised:
        list(scorer(url, key=KEY)([Prompt(f"text {i}") for i in range(100)]))

    said = str(raised.value)
    assert hint in said
    assert "\n" not in said
    assert KEY not in said
    assert "[key]" in said
    assert len(url.asked) <= 8  # those that were open already


def test_an_answer_that_is_no_json_and_a_server_that_is_not_there(serve) -> None:
    with pytest.raises(UsageError, match=r"must answer with a JSON object; .* answered '<html>'$"):
        list(scorer(serve(lambda _: (200, b"<html>", {})))([Prompt("ab")]))
    waiting = Waiting()
    with pytest.raises(UsageError, match=r"must be within reach; http://127.0.0.1:9/v1 does not answer$"):
        list(scorer("http://127.0.0.1:9/v1", waiting=waiting)([Prompt("ab")]))
    assert waiting.slept == []


def test_requests_begin_no_faster_than_the_rate(serve) -> None:
    waiting = Waiting()
    url = serve(words)
    client = Client(url, per_minute=30, clock=waiting.clock)
    list(CompletionsScorer(client, "m", concurrency=1)([Prompt(f"text {i}") for i in range(5)]))

    assert waiting.now - 1000 == pytest.approx(4 * 2.0)


def test_requests_are_open_together_up_to_the_concurrency(serve) -> None:
    meeting = threading.Barrier(4, timeout=20)

    def answer(request: dict[str, Any]) -> Reply:
        meeting.wait()  # answers only when four are there
        return words(request)

    found = list(scorer(serve(answer))([Prompt(f"text {i}") for i in range(8)]))

    assert [stats.text for stats in found] == [f"text {i}" for i in range(8)]


def test_the_key_goes_to_its_own_service_only() -> None:
    both = {"FSD_API_KEY": " mine ", "OPENAI_API_KEY": "openai"}
    assert key_for("https://api.openai.com/v1", both) == "mine"
    assert key_for("https://api.openai.com/v1", {"OPENAI_API_KEY": "openai"}) == "openai"
    assert key_for("http://localhost:8000/v1", {"OPENAI_API_KEY": "openai"}) == ""
    assert key_for("https://api.openai.com.example/v1", {"OPENAI_API_KEY": "openai"}) == ""
    with pytest.raises(UsageError, match="must be printable ASCII") as raised:
        key_for("http://localhost/v1", {"FSD_API_KEY": f"{KEY}\nx"})
    assert KEY not in str(raised.value)


@pytest.mark.parametrize("url", ["localhost:8000", "ftp://a/v1", "http://a/v1?key=1", "http:///v1"])
def test_an_address_that_is_none_is_refused(url) -> None:
    with pytest.raises(UsageError, match=r"^base-url must look like http"):
        Client(url)


def test_a_password_in_the_address_is_refused_and_not_repeated() -> None:
    with pytest.raises(UsageError, match=r"^base-url must hold no user and no password") as raised:
        Client(f"http://user:{KEY}@localhost/v1")
    assert KEY not in str(raised.value)


def test_settings_out_of_range_are_refused() -> None:
    with pytest.raises(UsageError, match=r"^requests-per-minute must be above 0; got 0"):
        Client("http://a/v1", per_minute=0)
    with pytest.raises(UsageError, match=r"^concurrency must be at least 1; got 0"):
        CompletionsScorer(Client("http://a/v1"), "m", concurrency=0)
    with pytest.raises(UsageError, match="must be named, as api:NAME"):
        CompletionsScorer(Client("http://a/v1"), "")
    with pytest.raises(UsageError, match=r"^price must be at least 0"):
        estimate([], -1.0)


def test_estimate_by_hand() -> None:
    # 9 bytes -> 3 tokens, 6 bytes ("天" has 3) -> 2; a generated one each; the double counts once
    found = estimate([Prompt("12345678", "c"), Prompt("天天"), Prompt("天天")], 2.0)

    assert (found.requests, found.tokens, found.cost) == (2, 7, pytest.approx(14e-6))
    assert (
        str(estimate([Prompt("x" * 4_000_000)], 2.0))
        == "1 requests, about 1,000,001 tokens, about 2.00 at the price given"
    )


def test_an_interrupted_job_goes_on_where_it_was(serve, tmp_path) -> None:
    prompts = [Prompt(f"text {i}") for i in range(30)]
    failing = threading.Event()
    failing.set()

    def answer(request: dict[str, Any]) -> Reply:
        return error(401) if failing.is_set() and request["prompt"] == "text 20" else words(request)

    url = serve(answer)
    with pytest.raises(UsageError, match="HTTP 401"):
        list(KeptCompletions(scorer(url), tmp_path)(prompts))
    failing.clear()
    asked = len(url.asked)
    again = KeptCompletions(scorer(url), tmp_path)
    assert len(again.unknown(prompts)) <= 30 - (asked - 1)
    found = list(again(prompts))

    assert [stats.text for stats in found] == [prompt.text for prompt in prompts]
    assert len(url.asked) == 31  # each once, and the one that failed once more
    assert list(KeptCompletions(scorer(url), tmp_path)(prompts))[3].logp.tolist() == found[3].logp.tolist()
    assert len(url.asked) == 31
    assert KeptCompletions(scorer(url, start="<s>"), tmp_path).unknown(prompts) == prompts


def test_detectors_that_need_more_are_left_out_with_the_reason() -> None:
    scorers = {"target": CompletionsScorer(Client("http://a/v1"), "m"), "unigram": lambda _: []}
    every = [detectors.load(name) for name in detectors.names()]

    kept, left_out = usable(every, ["A text"], scorers, Material(prefix="p"))

    assert {detector.name for detector in kept} >= {"loss", "perplexity", "zlib", "lowercase", "min_k", "recall"}
    assert left_out["min_k_pp"] == "the API does not give what it reads: mean, std"
    assert left_out["surp"] == "the API does not give what it reads: mean"
    assert left_out["dc_pdd"] == "the API does not give what it reads: token"
    assert left_out["min_k_deviation"] == "no tuned model is given"


@pytest.fixture
def job(tmp_path, monkeypatch) -> Callable[..., ScoreConfig]:
    rows = [{"text": f"The score {i} of a text {i * i}", "label": i % 2, "group": f"g{i}"} for i in range(12)]
    rows.append({"text": "A text of unknown origin", "label": None, "group": "g"})
    (tmp_path / "data.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    monkeypatch.chdir(tmp_path)

    def make(url: str | None, *, model: str = "api:tiny", out: str = "scores.parquet", **options: Any) -> ScoreConfig:
        api = APIConfig(base_url=url, **options)
        settings = ModelConfig(model=model, device="cpu")
        return ScoreConfig(data=("data.jsonl",), out=out, model=settings, api=api)

    return make


def test_the_pipeline_gives_what_the_model_itself_gives(serve, model, tiny, job, tmp_path, capsys, monkeypatch) -> None:
    from fsd import tracking

    monkeypatch.setenv("FSD_API_KEY", KEY)
    monkeypatch.setenv("FSD_CACHE", str(tmp_path / "cache"))
    url = serve(vllm(model, bos=True))
    main(job(url, price=1000.0))
    told = capsys.readouterr()
    main(job(None, model=str(tiny), out="own.csv"))
    by_api, own = pd.read_parquet("scores.parquet"), pd.read_csv("own.csv")

    scored = [name for name in by_api if name.endswith(".base")]
    assert scored == [f"{name}.base" for name in ("loss", "lowercase", "min_k", "perplexity", "zlib")]
    assert "min_k_pp.base" in own
    np.testing.assert_allclose(by_api[scored], own[scored], rtol=1e-4)
    assert by_api["label"].isna().sum() == 1
    assert "13 texts: 26 requests, about" in told.err
    assert "at the price given" in told.err
    assert "surp left out: the API does not give what it reads: mean" in told.out
    assert "base AUC" in told.out
    assert "blind: a classifier of words" in told.out
    assert {header["Authorization"] for header in url.headers} == {f"Bearer {KEY}"}
    assert not Path("scores.parquet.partial").exists()
    run = tracking.find_runs("fsd-arxiv", {"task": "score"})[-1]
    assert {"auc/loss.base", "tpr_at_5fpr/zlib.base", "audit/blind_auc"} <= set(run.metrics)
    assert KEY not in told.out + told.err
    kept = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert kept
    assert not any(KEY.encode() in path.read_bytes() for path in kept)


def test_the_pipeline_resumes(serve, job, capsys) -> None:
    url = serve(in_turn(words({"prompt": "not what was asked"})))
    with pytest.raises(UsageError, match="must read the text whole"):
        main(job(url, concurrency=2))
    first = len(url.asked)
    assert not Path("scores.parquet").exists()
    capsys.readouterr()
    main(job(url, concurrency=2))

    assert f"{26 - (first - 1)} requests" in capsys.readouterr().err
    assert len(pd.read_parquet("scores.parquet")) == 13
    assert len(url.asked) == 26 + 1
    assert not Path("scores.parquet.partial").exists()


def test_the_pipeline_refuses_mistakes_before_it_asks(serve, job, capsys) -> None:
    from dataclasses import replace

    from pipelines.fsd import FSDConfig
    from pipelines.fsd import main as fsd

    url = serve(words)
    with pytest.raises(UsageError, match=r"^model api:tiny must come with --base-url"):
        main(job(None))
    with pytest.raises(UsageError, match=r"^detector surp cannot be computed here: the API does not give .* mean$"):
        main(replace(job(url), detection=DetectorConfig(detectors="surp")))
    with pytest.raises(UsageError, match=r"^out must end in"):
        main(job(url, out="scores.xls"))
    with pytest.raises(UsageError, match=r"api:tiny can only be scored: pipelines\.score$"):
        fsd(FSDConfig(model=ModelConfig(model="api:tiny")))
    assert url.asked == []
