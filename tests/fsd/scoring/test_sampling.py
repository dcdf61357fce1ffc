"""Probabilities of generated tokens against the definition of each way of sampling, and against generation itself."""

import math
from collections import Counter

import numpy as np
import pytest
import torch
from peft import get_peft_model

import detectors
from extensions.extract.sampling import log_probability, suffix_log_probabilities
from fsd.config import AdapterConfig, ModelConfig
from fsd.models.adapters import peft_config, quiet_peft
from fsd.models.language_model import load
from fsd.scores import of_state
from fsd.scoring.deviation import score_texts
from fsd.scoring.model import open_model
from fsd.scoring.model_scorer import ModelScorer
from fsd.scoring.sampling import (
    OPENINGS,
    OWN,
    ContinuationScorer,
    Sampling,
    _to_a_sentence,
    generated,
    own_texts,
    seeded,
)
from fsd.token_stats import Prompt
from fsd.views import Draws

SAMPLINGS = [Sampling(), Sampling(0.5), Sampling(1.0, 4), Sampling(2.0, 3), Sampling(0.0)]


@pytest.fixture(scope="module")
def model(tiny):
    return load(ModelConfig(model=str(tiny), device="cpu", cache="none"))


def computed(model, windows, prefix, samplings=SAMPLINGS[:1]):
    return suffix_log_probabilities(model, np.array(windows), prefix, samplings)


def slow(logits, target, sampling):
    """Log-probability of one token by the definition, in float64."""
    if sampling.temperature == 0:
        return 0.0 if int(logits.argmax()) == target else -math.inf
    order = np.argsort(-logits, kind="stable")
    allowed = set(order[: sampling.top_k or logits.size].tolist())
    weights = {v: math.exp(float(logits[v]) / sampling.temperature) for v in allowed}
    return math.log(weights[target] / sum(weights.values())) if target in allowed else -math.inf


def test_one_token_against_the_definition():
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(40, 12, generator=generator) * 2
    target = torch.arange(40) % 12
    alike = torch.randn(1, 30, generator=generator).expand(30, 30)
    for sampling in SAMPLINGS:
        expected = [slow(row.double().numpy(), int(t), sampling) for row, t in zip(logits, target, strict=True)]
        assert log_probability(sampling, logits, target).tolist() == pytest.approx(expected, abs=1e-5)
        assert float(log_probability(sampling, alike, torch.arange(30)).exp().sum()) == pytest.approx(1, abs=1e-5)


def test_plain_sampling_is_the_sum_of_the_scorer(model):
    context, text = "the quick brown fox", " jumps over the lazy dog"
    (stats,) = ModelScorer(model)([Prompt(text, context)])
    prefix, suffix = model.tokens([context, text])
    assert computed(model, [prefix + suffix], len(prefix))[0, 0] == pytest.approx(stats.logp.sum(), abs=1e-4)


def test_windows_do_not_depend_on_each_other(model):
    windows = np.random.default_rng(0).integers(0, 200, (150, 20))
    together = computed(model, windows, 8, SAMPLINGS)
    assert together.shape == (5, 150)
    for at in (0, 99, 149):
        alone = computed(model, windows[at : at + 1], 8, SAMPLINGS)
        assert together[:, [at]] == pytest.approx(alone, abs=1e-3)


def generate(model, prefix, **how):
    ids = torch.tensor(prefix)
    return model.base.generate(ids, attention_mask=torch.ones_like(ids), pad_token_id=model.start, **how)


def test_greedy_finds_what_greedy_decoding_generates(model):
    generated = generate(model, [[model.start, 5, 6, 7, 8]], max_new_tokens=6, do_sample=False)[0, 1:].numpy()
    changed = [*generated[:-1], (generated[-1] + 1) % 200]
    assert computed(model, [generated, changed], 4, [Sampling(0.0)]).tolist() == [[0.0, -math.inf]]


def test_names_and_limits(model):
    names = ["plain", "temperature 0.5", "top 4", "temperature 2, top 3", "greedy"]
    assert list(map(str, SAMPLINGS)) == names


CONTINUED = [Prompt(" of a text", "the score"), Prompt(" text that is new", "an unseen"), Prompt(" end", "the " * 200)]


def continued(model, prompts, **how):
    way = Draws(3, 1.0, top_k=20, tokens=6, greedy=True)
    return list(ContinuationScorer(model, way._replace(**how.pop("way", {})), **how)(prompts))


def test_samples_depend_on_text_and_seed_alone(model):
    state = torch.random.get_rng_state()
    found = continued(model, CONTINUED)
    assert continued(model, CONTINUED[::-1]) == found[::-1]
    assert continued(model, CONTINUED, seed=1) != found
    assert torch.equal(torch.random.get_rng_state(), state)
    assert [len(each.samples) for each in found] == [3, 3, 3]
    model.base.generation_config.repetition_penalty = 9.0  # of the model's folder, as chat models have it
    assert continued(model, CONTINUED) == found
    assert model.base.generation_config.repetition_penalty == 9.0
    for prompt in CONTINUED:  # by default as long as the text's own
        size = min(len(model.tokens([prompt.text])[0]), model.context // 2)
        assert continued(model, [prompt], way={"tokens": None}) == continued(model, [prompt], way={"tokens": size})


def test_the_most_likely_continuation_by_hand_and_temperature_0(model):
    (found,) = continued(model, CONTINUED[:1])
    ids = [model.start, *model.tokens([CONTINUED[0].context])[0]]
    for _ in range(6):
        with model.state(tuned=False) as network:
            ids.append(int(network(input_ids=torch.tensor([ids])).logits[0, -1].argmax()))
    assert found.greedy == model.tokenizer.decode(ids[-6:])
    for way in ({"temperature": 0.0}, {"top_k": 1}):
        (cold,) = continued(model, CONTINUED[:1], way=way)
        assert set(cold.samples) == {cold.greedy} == {found.greedy}
        assert detectors.load("cdd")({"outputs": cold}) == 1


def test_tokens_are_drawn_as_often_as_their_probability_says(model):
    way = {"samples": 4000, "temperature": 0.5, "top_k": 3, "tokens": 1}
    (found,) = continued(model, CONTINUED[:1], way=way)
    with model.state(tuned=False) as network:
        ids = [model.start, *model.tokens([CONTINUED[0].context])[0]]
        logits = network(input_ids=torch.tensor([ids])).logits[0, -1]
    best = logits.topk(3)
    expected = Counter[str]()  # by text: half a character is � whatever its token
    for token, share in zip(best.indices, (best.values / 0.5).softmax(-1).tolist(), strict=True):
        expected[model.tokenizer.decode(token)] += share
    shares = {text: found.samples.count(text) / 4000 for text in found.samples}
    assert shares == pytest.approx(dict(expected), abs=0.03)  # four standard deviations


def test_a_fresh_adapter_says_the_same(tiny):
    model, chosen = load(str(tiny), device="cpu"), [detectors.load("samia"), detectors.load("cdd")]
    with quiet_peft():
        model.model = get_peft_model(model.model, peft_config(model, AdapterConfig(), steps=10))
    scorers = open_model(ModelConfig(str(tiny), samples=2, cache="none"), local=model).scorers
    found = score_texts(["the score of an unseen text"], chosen, scorers)
    assert of_state(found.columns, "fsd") == {"samia": [0], "cdd": [0]}


def test_a_model_continues_the_openings_of_texts_to_their_length(model):
    texts = [
        "the quick brown fox jumps over the lazy dog and the cat sees it all from a wall",
        "one two three four five",
    ]
    texts += ["a b c d e f g h i j k l m n o p", "no"]
    state = torch.get_rng_state()
    written = own_texts(model, texts)
    assert torch.equal(state, torch.get_rng_state())
    assert written == own_texts(model, texts)
    assert list(written) == [str(Sampling(temperature)) for temperature in OWN]
    tokens = model.tokens(texts)
    for found in written.values():
        assert len(found) == len(texts)
        for turn, size in enumerate(OPENINGS):
            rows = range(turn, len(texts), len(OPENINGS))
            given = max(1, min(size, *(len(tokens[row]) // 3 for row in rows)))
            for row in rows:
                opening = tokens[row][: max(given, len(tokens[row]) - model.context // 2)]
                assert found[row].startswith(model.tokenizer.decode(opening))
                assert len(found[row]) > len(model.tokenizer.decode(opening)) or len(tokens[row]) == 1
    assert own_texts(model, texts[:1]) != own_texts(model, ["another text of the same length, or nearly"])


def test_a_model_that_ends_at_once_has_written_the_openings(model, monkeypatch):
    monkeypatch.setattr("fsd.scoring.sampling.generated", lambda _, __, heads, *more, **further: [""] * len(heads))
    texts = ["the score of an unseen text moves more", "a member of the corpus"]
    for written in own_texts(model, texts).values():
        assert all(text.startswith(opening) for text, opening in zip(texts, written, strict=True))
        assert all(written)


def test_each_text_is_written_at_the_temperature_of_its_own(model):
    head = [model.start, *model.tokens(["the score of an unseen"])[0]]
    with model.state(tuned=False) as network:
        drawn = {}
        for temperature in (0.01, 1.0):
            with seeded(model, 0):
                drawn[temperature] = generated(model, network, [head] * 3, 5, Sampling(temperature))
        with seeded(model, 0):
            mixed = generated(model, network, [head] * 3, 5, Sampling(), temperatures=[0.01, 1.0, 0.01])
    assert mixed == [drawn[0.01][0], drawn[1.0][1], drawn[0.01][2]]


def test_a_text_that_ends_with_a_sentence_is_cut_where_one_ends():
    for text, cut in (
        ("One. Two and", "One. Two and"),
        ("One is here. Two is", "One is here."),
        ('He said "One." Two', 'He said "One."'),
        ("A value of 3.14 and more", "A value of 3.14 and more"),
        ("他在家。她", "他在家。她"),
    ):
        assert _to_a_sentence(text) == cut
