"""Prompts through a completions API that echoes, against the model behind it; interruption, and what it is to cost."""

import json
import threading

import numpy as np
import pytest
from tokenizers import Tokenizer
from transformers import PreTrainedTokenizerFast

import detectors
from extensions.api.client import Client, CompletionsScorer
from fsd.errors import UsageError
from fsd.scoring.cache import MemoizedScorer, SQLiteStore
from fsd.scoring.model_scorer import ModelScorer
from fsd.scoring.services import PromptTokens
from fsd.token_stats import Prompt
from fsd.views import ViewInputs, usable

END = "<|endoftext|>"
TEXTS = ["the score of an unseen text", "Größe 🙂 天 and more", "x y", " member\n\nof the text \n"]


@pytest.mark.parametrize("decoded", ["last", "each"])
@pytest.mark.parametrize(("bos", "start"), [(True, ""), (False, END)])
def test_log_probabilities_are_the_model_s_own(serve, scorer, vllm, model, bos, start, decoded):
    url = serve(vllm(bos=bos, decoded=decoded))
    results = list(scorer(url, start=start)([Prompt(text) for text in [*TEXTS, TEXTS[0]]]))
    own = list(ModelScorer(model)([Prompt(text) for text in [*TEXTS, TEXTS[0]]]))
    for one, other in zip(results, own, strict=True):
        assert one.text == other.text
        np.testing.assert_allclose(one.logp, other.logp, rtol=0, atol=1e-5)
        assert (one.token == -1).all()
        assert np.isnan(one.mean).all()
        assert np.isnan(one.std).all()
    assert len(url.requests) == len(TEXTS)  # the text that comes twice is sent once


@pytest.mark.parametrize("decoded", ["last", "each"])
def test_without_a_start_token_the_first_token_only_conditions(serve, scorer, vllm, backed, decoded):
    results = list(scorer(serve(vllm(decoded=decoded)))([Prompt(text) for text in TEXTS]))
    for one, text in zip(results, TEXTS, strict=True):
        ids = backed.ids(text)
        own = [backed.next(ids[:t])[ids[t]] for t in range(1, len(ids))]
        np.testing.assert_allclose(one.logp, own, rtol=0, atol=1e-5)


@pytest.mark.parametrize("decoded", ["last", "each"])
@pytest.mark.parametrize("bos", [True, False])
def test_sent_as_ids_every_token_is_the_model_s_own(serve, scorer, vllm, model, tokens, bos, decoded):
    prompts = [*(Prompt(text) for text in TEXTS), Prompt(f"quoted {END} text"), Prompt("ber", context="mem")]
    url = serve(vllm(bos=bos, decoded=decoded))
    results = list(scorer(url, tokens=tokens)(prompts))
    for one, other in zip(results, ModelScorer(model)(prompts), strict=True):
        assert one.text == other.text
        np.testing.assert_array_equal(one.token, other.token)
        np.testing.assert_allclose(one.logp, other.logp, rtol=0, atol=1e-5)
    assert sorted(request["prompt"][:1] for request in url.requests) == [[0]] * len(prompts)


def test_another_tokenizer_is_refused(serve, scorer, vllm, model):
    state = json.loads(model.tokenizer.backend_tokenizer.to_str())
    known = state["model"]["vocab"]
    first, second = model.tokenizer.tokenize("the text")[:2]
    known[first], known[second] = known[second], known[first]
    other = PreTrainedTokenizerFast(tokenizer_object=Tokenizer.from_str(json.dumps(state)), eos_token=END)
    with pytest.raises(UsageError, match=r"^tokenizer must be that of the model behind the API; .* 'the text'$"):
        list(scorer(serve(vllm()), tokens=PromptTokens(other, "other"))([Prompt("the text")]))


def test_a_context_is_read_and_not_scored(serve, scorer, words):
    (stats,) = scorer(serve(words))([Prompt("bcd", context="aa ")])
    assert stats.logp.tolist() == [-0.98, -0.99, -1.0]


def test_impossible_settings_are_refused(tokens, model):
    client = Client("http://a/v1")
    with pytest.raises(UsageError, match="must be named, as api:NAME"):
        CompletionsScorer(client, "")
    with pytest.raises(UsageError, match=r"^start-token must not come with a tokenizer, which has its own; got '<s>'$"):
        CompletionsScorer(client, "m", start="<s>", tokens=tokens)
    bare = PreTrainedTokenizerFast(tokenizer_object=model.tokenizer.backend_tokenizer)
    with pytest.raises(UsageError, match=r"^the tokenizer of 'bare' must have a BOS or EOS token"):
        PromptTokens(bare, "bare")


def test_estimate_by_hand(tokens):
    strings, ids = (CompletionsScorer(Client("http://a/v1"), "m", tokens=each) for each in (None, tokens))
    # 9 bytes -> 3 tokens, 6 bytes ("天" has 3) -> 2; a generated one each; the double counts once
    job = strings.cost([Prompt("12345678", "c"), Prompt("天天"), Prompt("天天")])
    line = "2 requests, about 5 tokens sent and at most 2 generated, about 0.00 at the given price"
    assert job.line(2.0) == line
    line = "1 request, about 1,000,000 tokens sent and at most 1 generated, about 2.00 at the given price"
    assert strings.cost([Prompt("x" * 4_000_000)]).line(2.0) == line
    # of the tiny tokenizer: a start token, 1 byte of context, 8 of the text, each a token, and a generated one
    assert ids.cost([Prompt("12345678", "c")]).line() == "1 request, about 10 tokens sent and at most 1 generated"


def stored(scorer, folder):
    return MemoizedScorer(scorer, SQLiteStore(folder / "answers"), scorer.key)


def test_an_interrupted_job_resumes(serve, scorer, words, error, tokens, tmp_path):
    prompts = [Prompt(f"text {i}") for i in range(30)]
    failing = threading.Event()
    failing.set()

    def answer(request):
        return error(401) if failing.is_set() and request["prompt"] == "text 20" else words(request)

    url = serve(answer)
    with pytest.raises(UsageError, match="HTTP 401"):
        list(stored(scorer(url), tmp_path)(prompts))
    failing.clear()
    requests = len(url.requests)
    again = stored(scorer(url), tmp_path)
    assert len(again.unknown(prompts)) <= 30 - (requests - 1)
    results = list(again(prompts))
    assert [stats.text for stats in results] == [prompt.text for prompt in prompts]
    assert len(url.requests) == 31  # each once, and the one that failed once more
    assert list(stored(scorer(url), tmp_path)(prompts))[3].logp.tolist() == results[3].logp.tolist()
    assert len(url.requests) == 31
    assert stored(scorer(url, start="<s>"), tmp_path).unknown(prompts) == prompts
    assert stored(scorer(url, tokens=tokens), tmp_path).unknown(prompts) == prompts


def test_detectors_that_need_more_are_left_out_with_the_reason(tokens):
    scorers = {"base": CompletionsScorer(Client("http://a/v1"), "m"), "unigram": lambda _: []}
    every = [detectors.load(name) for name in detectors.names()]
    kept, left_out = usable(every, ["A text"], scorers, ViewInputs(primed="p"))
    assert {detector.name for detector in kept} >= {"loss", "perplexity", "zlib", "lowercase", "min_k", "recall"}
    assert left_out["min_k_pp"] == "the API does not give what it needs: mean, std"
    assert left_out["surp"] == "the API does not give what it needs: mean"
    assert left_out["dc_pdd"] == "it needs token ids, which --tokenizer MODEL gives"
    scorers["base"] = CompletionsScorer(Client("http://a/v1"), "m", tokens=tokens)
    assert "dc_pdd" in {detector.name for detector in usable(every, ["A text"], scorers, ViewInputs())[0]}
