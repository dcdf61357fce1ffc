"""The model scorer against transformers' own loss, slow float64 loops, and other batches of the same texts."""

import math
import threading
from unittest.mock import Mock

import numpy as np
import pytest
import torch

from fsd.config import ModelConfig
from fsd.errors import UsageError
from fsd.models.language_model import load
from fsd.scoring import model_scorer
from fsd.scoring.model_scorer import ModelScorer, Window, batched, hidden_states
from fsd.token_stats import Prompt

TEXTS = [
    "a member",
    "the score of an unseen text moves more than the score of a member",
    "x",
    "unseen text, more or less: 0.5 of the score?",
    "the text the text the text",
]
ARCHITECTURES = ("gpt_neox", "llama", "gpt2", "opt", "qwen2", "gptj")


@pytest.fixture(scope="module")
def model(tiny):
    return load(str(tiny), device="cpu")


def score(model, texts, context="", **options):
    return list(ModelScorer(model, **options)([Prompt(text, context) for text in texts]))


def arrays(stats):
    return np.stack([stats.logp, stats.mean, stats.std, stats.top])


def slow(model, context, token):
    """Log p, Σ p log p, the deviation and the largest of log p for one token after its context, in a float64 loop."""
    with torch.inference_mode():
        logits = model.base(input_ids=torch.tensor([list(context)])).logits[0, -1].double().tolist()
    top = max(logits)
    log_total = top + math.log(math.fsum(math.exp(value - top) for value in logits))
    logs = [value - log_total for value in logits]
    mean = math.fsum(math.exp(value) * value for value in logs)
    variance = math.fsum(math.exp(value) * (value - mean) ** 2 for value in logs)
    return logs[token], mean, math.sqrt(variance), top - log_total


def slow_text(model, text, context=""):
    tokens = model.tokens([text])[0]
    ids = [model.start, *(model.tokens([context])[0] if context else []), *tokens]
    first = len(ids) - len(tokens)
    return np.array([slow(model, ids[:i], ids[i]) for i in range(first, len(ids))]).T


@pytest.mark.parametrize("context", ["", "the text"])
def test_without_a_start_token_the_first_token_is_given_and_the_others_are_scored(tiny, context):
    model = load(ModelConfig(str(tiny), device="cpu", first_token="given"))
    text = "the score of an unseen text"
    (stats,) = score(model, [text], context)
    tokens = model.tokens([text])[0]
    ids = [*(model.tokens([context])[0] if context else []), *tokens]
    numbers = [slow(model, ids[:end], ids[end]) for end in range(len(ids) - len(tokens) + 1, len(ids))]
    assert arrays(stats) == pytest.approx(np.array(numbers).T, abs=1e-5)
    assert stats.token.tolist() == tokens[1:]
    with pytest.raises(UsageError, match="at least 2 tokens, the first of which is not scored; got 'x'"):
        score(model, ["x"])


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_numbers_are_the_models_own_loss_a_slow_loops_and_those_of_a_text_alone(make_model, architecture, monkeypatch):
    model = load(str(make_model(architecture)), device="cpu")
    assert model.split_head
    monkeypatch.setattr(model_scorer, "PADDING", 1.0)
    for stats in score(model, TEXTS, max_batch_tokens=10_000):
        ids = torch.tensor([[model.start, *stats.token.tolist()]])
        assert -stats.logp.mean() == pytest.approx(model.base(input_ids=ids, labels=ids).loss.item(), abs=2e-6)
        np.testing.assert_allclose(arrays(stats), arrays(score(model, [stats.text])[0]), atol=5e-6)
        if architecture in ("gpt_neox", "gpt2"):
            expected = slow_text(model, stats.text)
            np.testing.assert_allclose(arrays(stats), expected, atol=3e-6)
            np.testing.assert_allclose(arrays(stats).mean(axis=1), expected.mean(axis=1), atol=1e-6)


def test_a_model_that_caps_its_logits_is_scored_by_its_own_logits(make_model):
    model = load(str(make_model("gemma2")), device="cpu")
    assert not model.split_head
    stats = score(model, TEXTS[1:2])[0]
    np.testing.assert_allclose(arrays(stats), slow_text(model, stats.text), atol=3e-6)
    model.split_head = True
    assert abs(score(model, TEXTS[1:2])[0].logp - stats.logp).max() > 0.01
    assert not load(str(make_model("gemma2", final_logit_softcapping=50.0)), device="cpu").split_head  # a weak cap


def test_a_model_that_computes_all_logits_at_once_gets_smaller_batches(make_model, monkeypatch):
    monkeypatch.setitem(model_scorer.BATCH_TOKENS, "cpu", 10_000)
    monkeypatch.setattr(model_scorer, "WHOLE_LOGITS_BYTES", 50 * 4 * 300)
    budgets = [ModelScorer(load(str(make_model(a)), device="cpu")).budget for a in ("gemma2", "llama")]
    assert budgets == [50, 10_000]


def test_logits_that_are_not_finite_are_refused(tiny):
    broken = load(str(tiny), device="cpu")
    with torch.no_grad():
        broken.base.get_output_embeddings().weight[5] = float("nan")
    with pytest.raises(UsageError, match=r"finite log-probabilities; it does not in float32"):
        score(broken, ["a member"])


# Long texts


def test_a_long_text_equals_a_slow_loop_over_its_tokens(model):
    text = "the score of an unseen text moves more than the score of a member. " * 12
    ids = [model.start, *model.tokens([text])[0]]
    assert len(ids) > 3 * model.context
    half, end, expected = model.context // 2, model.context, []
    for i in range(1, len(ids)):  # ids[i] is predicted at position i - 1, in the first window that reaches it
        if i > end:
            end = min(len(ids) - 1, end + half)
        expected.append(slow(model, ids[max(0, end - model.context) : i], ids[i]))
    np.testing.assert_allclose(arrays(score(model, [text])[0]), np.array(expected).T, atol=5e-6)


def test_a_context_is_conditioned_on_not_scored_and_keeps_its_end(model):
    text = "unseen text"
    for context in ("a member", "the score of an unseen text moves more than the score of a member. " * 12):
        (stats,) = score(model, [text], context)
        assert stats.token.tolist() == model.tokens([text])[0]
        ids = [model.start, *model.tokens([context])[0], *stats.token.tolist()]
        begin, first = max(0, len(ids) - 1 - model.context), len(ids) - stats.token.size
        expected = [slow(model, ids[begin:i], ids[i]) for i in range(first, len(ids))]
        np.testing.assert_allclose(arrays(stats), np.array(expected).T, atol=5e-6)


@pytest.mark.parametrize("architecture", ["gpt_neox", "llama", "gpt2", "gemma2", "rwkv"])
def test_keys_and_values_of_a_context_are_computed_once_and_change_no_number(make_model, architecture, monkeypatch):
    model = load(str(make_model(architecture)), device="cpu")
    texts, context, fed = (
        [f"{text[:20]} {number}" for text in TEXTS for number in range(4)],
        "the score of a text. " * 2,
        [],
    )
    embed = model.base.get_input_embeddings()
    embed.register_forward_hook(lambda module, inputs, output: fed.append(inputs[0].numel()))
    monkeypatch.setattr(model_scorer, "SHARED", 8)
    shared = score(model, texts, context)
    tokens, fed[:] = sum(fed), []
    monkeypatch.setattr(model_scorer, "SHARED", 10_000)
    for one, other in zip(shared, score(model, texts, context), strict=True):
        np.testing.assert_allclose(arrays(one), arrays(other), rtol=0, atol=5e-6)
        assert one.logp.mean() == pytest.approx(other.logp.mean(), abs=1e-6)
    assert (tokens < sum(fed)) == (architecture != "rwkv")  # with the two texts by which it is tried


def test_a_prefix_is_read_once_for_all_batches_after_it(tiny, monkeypatch):
    model = load(str(tiny), device="cpu")
    monkeypatch.setattr(model_scorer, "SHARED", 8)
    monkeypatch.setattr(model_scorer, "WORKERS", 1)
    fed = []
    model.base.get_input_embeddings().register_forward_hook(lambda module, inputs, output: fed.append(inputs[0]))
    prompts = [Prompt(text[:20], "the score of a text. " * 2) for text in TEXTS]
    scorer = ModelScorer(model)
    scorer.budget = max(len(model.tokens([prompt.text])[0]) for prompt in prompts)
    together = list(scorer(prompts))
    # Without its last token, which predicts the first one of a text.
    prefix = [model.start, *model.tokens([prompts[0].context])[0][:-1]]
    after_trial = [ids.tolist() for ids in fed[3:]]
    assert after_trial.count([prefix]) == 1
    assert len(after_trial) > 3
    # What a batch appends to the keys and values is not there for the next one.
    monkeypatch.setattr(model_scorer, "SHARED", 10_000)
    for stats, whole in zip(together, ModelScorer(model)(prompts), strict=True):
        np.testing.assert_allclose(arrays(stats), arrays(whole), rtol=0, atol=5e-6)


# Texts


def test_special_tokens_inside_a_text_are_text_and_an_empty_text_is_refused(model):
    stats = score(model, ["a <|endoftext|> b"])[0]
    assert model.start not in stats.token
    assert model.tokenizer.decode(stats.token) == "a <|endoftext|> b"
    with pytest.raises(UsageError, match="at least one token; got ''"):
        score(model, ["a member", ""])


# Batches


def test_batches_hold_their_budget_with_little_padding():
    rng = np.random.default_rng(0)
    sizes = sorted(rng.integers(5, 90, 400).tolist(), reverse=True)
    order = [Window(i, 0, size, 0) for i, size in enumerate(sizes)]
    for budget in (100, 1000, 5000):
        batches = batched(order, budget)
        areas = [len(batch) * batch[0].size for batch in batches]
        assert [window for batch in batches for window in batch] == order
        assert max(areas) <= budget
        assert 1 - sum(sizes) / sum(areas) < 0.03


def test_identical_prompts_are_computed_once(model, monkeypatch):
    decoder, passes = model.base.get_decoder(), []
    forward = decoder.forward
    monkeypatch.setattr(decoder, "forward", lambda **inputs: passes.append(1) or forward(**inputs))
    stats = score(model, ["a member", "x", "a member", "a member"])
    assert len(passes) == 2
    assert [s.text for s in stats] == ["a member", "x", "a member", "a member"]
    assert score(model, []) == []


def test_batches_at_a_time_give_bitwise_the_numbers_of_one_after_the_other(model, monkeypatch):
    texts = [f"{text} {number}" for text in TEXTS for number in range(8)]
    decoder, seen, threads = model.base.get_decoder(), set(), torch.get_num_threads()
    forward = decoder.forward
    monkeypatch.setattr(decoder, "forward", lambda **inputs: seen.add(threading.get_ident()) or forward(**inputs))
    torch.set_num_threads(4)
    try:
        together = score(model, texts, max_batch_tokens=100)
        assert len(seen) > 1
        assert torch.get_num_threads() == 4
        monkeypatch.setattr(model_scorer, "WORKERS", 1)
        for one, other in zip(together, score(model, texts, max_batch_tokens=100), strict=True):
            assert np.array_equal(arrays(one), arrays(other))
    finally:
        torch.set_num_threads(threads)


def test_a_batch_that_exceeds_memory_is_split_in_halves(model, monkeypatch):
    texts = [f"the text {letter}" for letter in "12345678"]
    expected = score(model, texts)
    decoder = model.base.get_decoder()
    forward, shapes = decoder.forward, []

    def small(*args, **kwargs):
        rows = kwargs["input_ids"].shape[0]
        shapes.append(rows)
        if rows > 3:
            raise torch.OutOfMemoryError("out of memory")
        return forward(*args, **kwargs)

    monkeypatch.setattr(decoder, "forward", small)
    got = score(model, texts, max_batch_tokens=1000)
    assert shapes == [8, 4, 2, 2, 2, 2]
    for one, other in zip(got, expected, strict=True):
        np.testing.assert_allclose(arrays(one), arrays(other), atol=5e-6)


def test_what_cannot_be_computed_is_refused_and_other_errors_are_not_hidden(model, monkeypatch):
    for budget, message in ((0, "at least 1; got 0"), (3, "the length of the longest text; got 3")):
        with pytest.raises(UsageError, match=message):
            score(model, ["a member of the text"], max_batch_tokens=budget)
    for message, error, said in (
        ("DefaultCPUAllocator: can't allocate memory: 9 bytes", UsageError, "must fit the memory of cpu"),
        ("index out of range", RuntimeError, "index out of range"),
    ):
        monkeypatch.setattr(model.base.get_decoder(), "forward", Mock(side_effect=RuntimeError(message)))
        with pytest.raises(error, match=said):
            score(model, ["a member"])


@pytest.mark.parametrize("kind", ["longrope", "dynamic"])
def test_a_texts_numbers_do_not_depend_on_others_where_positions_depend_on_the_length(make_model, kind):
    """Phi-3 encodes all positions of a batch otherwise if one of its rows is longer than the original length."""
    rope = {"rope_type": kind, "rope_theta": 1e4, "factor": 4.0}
    lengths = {"max_position_embeddings": 128}
    if kind == "longrope":
        rope |= {"short_factor": [1.0] * 4, "long_factor": [7.0] * 4, "original_max_position_embeddings": 64}
        lengths["original_max_position_embeddings"] = 64
    folder = make_model("phi3" if kind == "longrope" else "llama", rope_parameters=rope, **lengths)
    model = load(str(folder), device="cpu")
    letters = "".join(np.random.default_rng(0).choice(list("bdfgjklpqvwxz"), 140))
    prompts = [Prompt(letters[:size]) for size in (*range(62, 68), 127, 128, 140)]
    scorer = ModelScorer(model)
    sizes = [sorted({window.size for window in batch}) for batch in scorer.batches(*scorer._tokens(prompts))]
    assert any(len(size) > 1 for size in sizes)
    for prompt, stats in zip(prompts, scorer(prompts), strict=True):
        (alone,) = ModelScorer(model)([prompt])
        np.testing.assert_allclose(stats.logp, alone.logp, rtol=0, atol=1e-5)
    texts = [prompt.text for prompt in prompts]
    for text, states in zip(texts, hidden_states(model, texts), strict=True):
        np.testing.assert_allclose(states, hidden_states(model, [text])[0], rtol=0, atol=1e-5)
