"""Two models compared at each position: by hand, in float64, beside each model alone, in any state, chunk and store."""

import json
import math
import threading
from dataclasses import replace

import numpy as np
import pytest
import torch
from peft import get_peft_model

import detectors
from fsd.config import AdapterConfig, ModelConfig
from fsd.models.adapters import peft_config, quiet_peft
from fsd.models.finetuning import finetune
from fsd.models.language_model import load
from fsd.scoring import model as scoring
from fsd.scoring import model_scorer, pair_scorer
from fsd.scoring import scorers as scorers_of
from fsd.scoring.cache import FILE, MemoizedScorer, SQLiteStore, model_key
from fsd.scoring.model_scorer import ModelScorer, token_statistics
from fsd.scoring.pair_scorer import PairMember, PairScorer, pair_statistics
from fsd.token_stats import STD_FLOOR, PairStats, Prompt

LN2 = math.log(2)
TEXTS = ["a member", "the score of an unseen text moves more than the score of a member", "x", "the text: 0.5"]
PROMPTS = [*map(Prompt, TEXTS), Prompt("the text", "a member of the text ")]


def compute(logits, reference):
    """Two times logits, which are kept → float64 moments of their difference."""
    return pair_statistics(logits.clone(), reference.clone(), torch.zeros(len(logits), dtype=int))[8:].double()


def slow(logits, reference):
    """Float64, by the definition of expectation and variance, over the ids that both have."""
    common = min(logits.shape[1], reference.shape[1])
    difference = (logits.double().log_softmax(-1)[:, :common] - reference.double().log_softmax(-1)[:, :common])[:, :]
    p, q = (rows.double()[:, :common].softmax(-1) for rows in (logits, reference))
    mean = torch.where(p > 0, p * difference, 0.0).sum(-1)
    std = torch.where(p > 0, p * (difference - mean[:, None]).square(), 0.0).sum(-1).sqrt()
    reference_mean = torch.where(q > 0, q * difference, 0.0).sum(-1)
    return torch.stack([mean, std.clamp_min(STD_FLOOR), reference_mean])


def random_logits(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


# Logits


def test_by_hand():
    # p = 1/2, 1/4, 1/4 and q = 1/4, 1/2, 1/4: Δ = ln 2 · (1, -1, 0). E_p = 1/4, E_p[Δ²] = 3/4, so that the variance is
    # 3/4 - 1/16 = 11/16, and E_q = -1/4.
    logits, reference = (torch.tensor([rows]).log() + 5 for rows in ([1 / 2, 1 / 4, 1 / 4], [1 / 4, 1 / 2, 1 / 4]))
    got = compute(logits, reference - 9)[:, 0].tolist()
    assert got == pytest.approx((LN2 / 4, math.sqrt(11 / 16) * LN2, -LN2 / 4), rel=1e-6)


@pytest.mark.parametrize("vocabulary", [5, pytest.param(4097, marks=pytest.mark.slow)])
def test_float64_for_any_type_spread_and_order(vocabulary):
    for spread in (0.1, 3.0, 10.0):
        logits, reference = (spread * random_logits(3, vocabulary, seed=seed) for seed in (0, 1))
        for order in (logits, logits.sort(-1).values, logits.sort(-1, descending=True).values):
            for dtype in (torch.float32, torch.bfloat16):
                rows = order.to(dtype), (reference - 100).to(dtype)
                assert torch.allclose(compute(*rows), slow(*rows), rtol=1e-5, atol=2e-5)


def test_a_small_spread_beside_a_large_mean_is_kept():
    """Where p is nearly certain of a token that q finds unlikely, the rest of the vocabulary makes the spread."""
    logits, reference = random_logits(2, 300), random_logits(2, 300, seed=1)
    logits[:, 7] += 20
    reference[:, 7] -= 20
    mean, std, _ = expected = slow(logits, reference)
    assert (std < mean / 200).all()
    assert torch.allclose(compute(logits, reference), expected, rtol=1e-4, atol=1e-5)


def test_ids_that_one_model_alone_has_are_left_out():
    logits, reference = 3 * random_logits(3, 900), 3 * random_logits(3, 1000, seed=1)
    assert torch.allclose(compute(logits, reference), slow(logits, reference), rtol=1e-5, atol=2e-5)
    assert torch.allclose(compute(reference, logits), slow(reference, logits), rtol=1e-5, atol=2e-5)


def test_tokens_that_a_model_excludes_have_finite_differences():
    logits, reference = 2 * random_logits(2, 50), 2 * random_logits(2, 50, seed=1)
    logits[:, 10:20] = -torch.inf
    reference[0, 10:20] = -torch.inf
    got = compute(logits, reference)
    assert got.isfinite().all()
    assert torch.allclose(got[:2], slow(logits, reference)[:2], atol=2e-5)
    reference[:, 30] = -torch.inf  # Δ is bounded by 200 bits from the likeliest tokens
    assert 0 < compute(logits, reference)[0, 0] < 200 * LN2


def test_what_is_no_number_is_not_hidden():
    for side in (0, 1):
        rows = [random_logits(2, 5000, seed=seed) for seed in (0, 1)]
        rows[side][1, 4500] = torch.nan
        got = compute(*rows)
        assert got[:, 0].isfinite().all()
        assert not got[:2, 1].isfinite().any()


def test_both_models_statistics_come_with_their_difference():
    logits, reference = 3 * random_logits(6, 400), 3 * random_logits(6, 400, seed=1)
    target = torch.arange(6)
    got = pair_statistics(logits.clone(), reference.clone(), target)
    assert torch.equal(got[:4], token_statistics(logits.clone(), target))
    assert torch.equal(got[4:8], token_statistics(reference.clone(), target))
    assert torch.equal(got[8:].double(), compute(logits, reference))


# Models


@pytest.fixture(scope="module")
def models(tiny, make_model):
    """A target with an adapter that changes it, and a reference of the same tokenizer."""
    target, reference = load(str(tiny), device="cpu"), load(str(make_model("gpt_neox", seed=7)), device="cpu")
    with quiet_peft():
        target.model = get_peft_model(target.model, peft_config(target, AdapterConfig(), steps=10))
    with torch.no_grad():
        for name, weight in target.model.named_parameters():
            if "lora_B" in name:
                weight += 0.5
    return target, reference


def arrays(stats):
    return np.array([stats.logp, stats.mean, stats.std, stats.top])


def whole(model, tuned, prompt):
    """(T, V) log-probabilities of a prompt's text in float64, from one plain pass."""
    context, text = (model.tokens([part])[0] if part else [] for part in (prompt.context, prompt.text))
    with model.state(tuned=tuned) as network:
        logits = network(input_ids=torch.tensor([[model.start, *context, *text]])).logits[0]
    return logits.double().log_softmax(-1)[len(context) : -1].numpy()


@pytest.mark.parametrize("states", [(False, None), (True, None), (True, False), (False, True)])
def test_whole_distributions_are_compared_in_every_state(models, states):
    target, reference = models
    tuned, other_tuned = states
    # Without a state of its own, the other model is the reference; else it is the target in that state.
    other, other_tuned = (reference, False) if other_tuned is None else (target, other_tuned)
    scorer = PairScorer(target, tuned=tuned, reference=other, reference_tuned=other_tuned)
    alone = [ModelScorer(model, tuned=state) for model, state in ((target, tuned), (other, other_tuned))]
    for prompt, stats in zip(PROMPTS, scorer(PROMPTS), strict=True):
        log_p, log_q = whole(target, tuned, prompt), whole(other, other_tuned, prompt)
        p, q, difference = np.exp(log_p), np.exp(log_q), log_p - log_q
        mean = (p * difference).sum(-1)
        np.testing.assert_allclose(stats.mean, mean, atol=5e-6)
        np.testing.assert_allclose(stats.reference_mean, (q * difference).sum(-1), atol=5e-6)
        variance = (p * (difference - mean[:, None]) ** 2).sum(-1)
        np.testing.assert_allclose(stats.std, np.sqrt(variance), atol=5e-6)
        assert stats.alone
        for part, single in zip((stats.target, stats.reference), alone, strict=True):
            (expected,) = single([prompt])
            np.testing.assert_allclose(arrays(part), arrays(expected), atol=5e-6)
    assert np.abs(difference).max() > 0.01


def test_threads_take_batches_of_two_models_and_never_of_two_states_of_one(models, monkeypatch):
    target, reference = models
    prompts = [Prompt(f"{text} {number}") for text in TEXTS for number in range(8)]
    decoder, seen, threads = target.base.get_decoder(), set(), torch.get_num_threads()
    forward = decoder.forward
    monkeypatch.setattr(decoder, "forward", lambda **inputs: seen.add(threading.get_ident()) or forward(**inputs))
    torch.set_num_threads(4)
    try:
        list(PairScorer(target, reference=reference, max_batch_tokens=100)(prompts))
        assert len(seen) > 1
        seen.clear()
        list(PairScorer(target, tuned=True, reference=target, max_batch_tokens=100)(prompts))
        assert seen == {threading.get_ident()}
    finally:
        torch.set_num_threads(threads)


def test_a_reference_is_read_once_for_both_states_bitwise(models, monkeypatch):
    target, reference = models
    read = []
    hook = reference.body.register_forward_hook(lambda *_: read.append(1))
    kept = pair_scorer.KeptStates()
    try:
        base = list(PairScorer(target, reference=reference, kept=kept)(PROMPTS))
        passes = len(read)
        tuned = list(PairScorer(target, tuned=True, reference=reference, kept=kept)(PROMPTS))
        assert len(read) == passes
        for state, together in ((False, base), (True, tuned)):
            alone = PairScorer(target, tuned=state, reference=reference)(PROMPTS)
            for stats, expected in zip(together, alone, strict=True):
                assert np.array_equal(arrays(stats.target), arrays(expected.target))
                assert np.array_equal(arrays(stats.reference), arrays(expected.reference))
                assert np.array_equal(stats.mean, expected.mean)
        # Another text is another batch, and without room nothing is kept.
        kept.room = 0
        for _ in range(2):
            list(PairScorer(target, reference=reference, kept=kept)([Prompt("another text")]))
        assert len(read) >= passes + 2
    finally:
        hook.remove()


def test_logits_that_are_overwritten_are_not_kept(models):
    # A head that cannot be split off, such as one with a soft cap, gives logits in place of states.
    target, reference = (replace(model, split_head=False) for model in models)
    kept = pair_scorer.KeptStates()
    for tuned in (False, True):
        together = PairScorer(target, tuned=tuned, reference=reference, kept=kept)(PROMPTS)
        alone = PairScorer(target, tuned=tuned, reference=reference)(PROMPTS)
        for stats, expected in zip(together, alone, strict=True):
            assert np.array_equal(arrays(stats.reference), arrays(expected.reference))
            assert np.array_equal(stats.mean, expected.mean)


def test_a_model_beside_itself_gives_every_score_zero(tiny):
    model = load(str(tiny), device="cpu")
    other = load(str(tiny), device="cpu")
    for reference in (model, other):
        for stats in PairScorer(model, reference=reference)(PROMPTS):
            assert (stats.ratio == 0).all()
            for name in ("info_rmia", "standardised_ratio"):
                assert detectors.load(name)({"difference": stats}) == 0


def test_chunks_of_any_size_give_the_same_statistics(models, monkeypatch):
    target, reference = models
    expected = list(PairScorer(target, reference=reference)(PROMPTS))
    vocabulary = target.base.get_output_embeddings().weight.shape[0]
    monkeypatch.setitem(model_scorer.CHUNK_BYTES, "cpu", 5 * 4 * vocabulary)
    monkeypatch.setitem(model_scorer.BLOCK_BYTES, "cpu", 2 * pair_scorer.LOGIT_BYTES * vocabulary)
    for got, one in zip(PairScorer(target, reference=reference)(PROMPTS), expected, strict=True):
        for name in ("mean", "std", "reference_mean", "ratio"):
            np.testing.assert_allclose(getattr(got, name), getattr(one, name), atol=5e-6)


def test_a_text_beyond_the_shorter_context_is_not_that_of_each_model_alone(tiny, make_model):
    short = load(str(tiny), device="cpu")
    long = load(str(make_model("gpt_neox", seed=7, max_position_embeddings=2 * short.context)), device="cpu")
    assert long.context == 2 * short.context
    prompts = [Prompt("the text " * count) for count in (2, short.context)]
    for target, reference in ((short, long), (long, short)):
        first, second = PairScorer(target, reference=reference)(prompts)
        assert first.alone
        assert not second.alone
        assert np.isfinite(second.mean).all()
        assert second.target.token.size == len(target.tokens([prompts[1].text])[0])


def test_statistics_come_back_bitwise_from_the_cache_and_depend_on_both_models(models, tmp_path):
    target, reference = models
    scorer = PairScorer(target, reference=reference)
    memoized = MemoizedScorer(scorer, SQLiteStore(tmp_path / FILE), scorer.key)
    first = list(memoized(PROMPTS))
    assert memoized.unknown(PROMPTS) == []
    for one, other in zip(MemoizedScorer(None, memoized.store, memoized.key)(PROMPTS), first, strict=True):
        assert isinstance(one, PairStats)
        assert np.array_equal(arrays(one.target), arrays(other.target))
        assert np.array_equal(arrays(one.reference), arrays(other.reference))
        for name in ("token", "mean", "std", "reference_mean"):
            assert np.array_equal(getattr(one, name), getattr(other, name))
        assert one.alone == other.alone
    exchanged = PairScorer(reference, reference=target)
    tuned = PairScorer(target, tuned=True, reference=reference)
    assert len({one.key() for one in (scorer, exchanged, tuned)}) == 3


def test_the_cache_keeps_each_model_alone_too_and_what_it_had(models, tmp_path):
    target, reference = models
    config = ModelConfig(target.identity.id, device="cpu", cache="none")
    store = SQLiteStore(tmp_path / FILE)
    single = MemoizedScorer(ModelScorer(target), store, lambda: model_key(target, tuned=False))
    (before,) = single(PROMPTS[:1])
    before = replace(before, logp=before.logp - 0.25)  # as if by another batch, but further apart
    store.save(model_key(target, tuned=False), [(PROMPTS[0], before)])
    scorer = pair_scorer.pair_scorer(
        PairMember(lambda: target), PairMember(lambda: reference), config, store, description=""
    )
    pairs = list(scorer(PROMPTS))
    assert single.unknown(PROMPTS) == []
    alone = list(single(PROMPTS))
    assert np.array_equal(arrays(alone[0]), arrays(before))
    for one, pair in zip(alone[1:], pairs[1:], strict=True):
        assert np.array_equal(arrays(one), arrays(pair.target))
    other = MemoizedScorer(ModelScorer(reference), store, lambda: model_key(reference, tuned=False))
    assert other.unknown(PROMPTS) == []


def test_a_text_read_in_other_windows_is_marked_in_the_cache(models, tmp_path):
    (stats,) = PairScorer(models[0], reference=models[1])(PROMPTS[:1])
    store = SQLiteStore(tmp_path / FILE)
    for alone in (False, True):
        store.save("key", [(PROMPTS[0], replace(stats, alone=alone))])
        assert store.load("key", PROMPTS[:1])[PROMPTS[0]].alone == alone


# The choice of a model's scorers


def test_a_run_loads_the_reference_once_and_compares_both_states(models, tiny, make_model, monkeypatch):
    target, _ = models
    config = ModelConfig(str(tiny), device="cpu", cache="none", reference_model=str(make_model("gpt_neox", seed=7)))
    loaded = []
    monkeypatch.setattr("fsd.models.language_model.load", lambda *args, **how: loaded.append(how) or load(*args, **how))
    scorers = scorers_of.ScorerMaker(config, target, scorers_of.reference_loader(config)).scorers()
    assert loaded == []
    assert set(scorers) >= {"base.difference", "tuned.difference", "base.change", "tuned.change"}
    assert set(scorers_of.ScorerMaker(config).makers(scorers_of.STATES)) == set(scorers)
    base, tuned = (next(iter(scorers[f"{state}.difference"](PROMPTS[:1]))) for state in ("base", "tuned"))
    (plain,) = scorers["reference"](PROMPTS[:1])
    assert len(loaded) == 1
    for stats in (base, tuned):
        np.testing.assert_allclose(arrays(stats.reference), arrays(plain), atol=5e-6)
    (change,) = scorers["tuned.change"](PROMPTS[:1])
    np.testing.assert_allclose(change.ratio, tuned.ratio - base.ratio, atol=2e-5)


def test_the_reference_is_as_it_was_beside_its_own_fine_tuning(models, tiny, make_model):
    """One network in memory is both: with its adapter off bitwise the model that was loaded, as if there were none."""
    target, _ = models
    config = ModelConfig(str(tiny), device="cpu", cache="none", reference_model=str(make_model("gpt_neox", seed=7)))
    load_reference = scorers_of.reference_loader(config)
    scorers = scorers_of.ScorerMaker(config, target, load_reference).scorers()
    before = list(scorers["reference"](PROMPTS))
    finetune(load_reference(), [prompt.text for prompt in PROMPTS], AdapterConfig(epochs=2), seed=1, shown=False)
    pairs = list(scorers["base.adapted_difference"](PROMPTS))
    for was, stays, adapted, pair in zip(
        before, scorers["reference"](PROMPTS), scorers["adapted_reference"](PROMPTS), pairs, strict=True
    ):
        np.testing.assert_array_equal(was.logp, stays.logp)
        assert np.abs(adapted.logp - was.logp).max() > 1e-3
        np.testing.assert_allclose(pair.reference.logp, adapted.logp, atol=1e-5)


def test_a_reference_of_another_vocabulary_is_refused_though_it_divides_these_texts_alike(tiny, make_model):
    folder = make_model("gpt_neox", seed=8)
    file = folder / "tokenizer.json"
    state = json.loads(file.read_text())
    vocabulary = state["model"]["vocab"]
    # Two tokens that the text does not have change their ids.
    (used,) = load(str(tiny), device="cpu").tokens(["a member"])
    ids = [number for number in sorted(vocabulary.values()) if number not in used][-2:]
    swapped = {name: {ids[0]: ids[1], ids[1]: ids[0]}.get(number, number) for name, number in vocabulary.items()}
    state["model"]["vocab"] = swapped
    file.write_text(json.dumps(state))
    config = ModelConfig(str(tiny), device="cpu", cache="none", reference_model=str(folder))
    model = scoring.open_model(config)
    texts = ["a member"]
    plan = model.plan([detectors.load(name) for name in ("standardised_ratio", "wbc")], texts, strict=False)
    assert [detector.name for detector in plan.detectors] == ["wbc"]
    assert plan.remarks == ["standardised_ratio left out: the reference model has another tokenizer"]
