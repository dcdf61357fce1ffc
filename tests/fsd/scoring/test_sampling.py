"""Probabilities of generated tokens against the definition of each way of sampling, and against generation itself."""

import math

import numpy as np
import pytest
import torch

from fsd.config import ModelConfig
from fsd.errors import UsageError
from fsd.models.language_model import load
from fsd.scoring.model_scorer import ModelScorer
from fsd.scoring.sampling import Sampling, suffix_log_probabilities
from fsd.token_stats import Prompt

SAMPLINGS = [Sampling(), Sampling(0.5), Sampling(1.0, 4), Sampling(2.0, 3), Sampling(0.0)]


@pytest.fixture(scope="module")
def model(tiny):
    return load(ModelConfig(model=str(tiny), device="cpu", cache="none"))


def computed(model, windows, prefix, samplings=SAMPLINGS[:1]):
    return suffix_log_probabilities(model, np.array(windows), prefix, samplings, shown=False)


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
        assert sampling.log_probability(logits, target).tolist() == pytest.approx(expected, abs=1e-5)
        assert float(sampling.log_probability(alike, torch.arange(30)).exp().sum()) == pytest.approx(1, abs=1e-5)


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


def test_sampling_returns_the_suffix_as_often_as_computed(model):
    """One token is generated 4,000 times; its share agrees with p_z."""
    torch.manual_seed(0)
    how = {"max_new_tokens": 1, "do_sample": True, "temperature": 0.7, "top_k": 5, "top_p": 1.0}
    drawn = generate(model, [[model.start, 5, 6, 7]] * 4000, **how)[:, -1]
    token = int(drawn.mode().values)
    ((log_p,),) = computed(model, [[5, 6, 7, token]], 3, [Sampling(0.7, 5)])
    share = float((drawn == token).float().mean())
    assert math.exp(log_p) == pytest.approx(share, abs=4 * math.sqrt(share * (1 - share) / 4000))


def test_names_and_limits(model):
    names = ["plain", "temperature 0.5", "top 4", "temperature 2, top 3", "greedy"]
    assert list(map(str, SAMPLINGS)) == names
    for sampling, message in ((Sampling(-1), "temperature must be"), (Sampling(1, 0), "top-k must be at least 1")):
        with pytest.raises(UsageError, match=message):
            sampling.check()
    with pytest.raises(UsageError, match="must fit the model's context of 48 tokens"):
        computed(model, np.zeros((1, 49)), 10)
