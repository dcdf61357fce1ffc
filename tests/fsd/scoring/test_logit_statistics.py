"""Statistics of logits: by hand, in float64, and in chunks."""

import math

import pytest
import torch

from fsd.scoring import model_scorer
from fsd.scoring.model_scorer import Reduction, token_statistics
from fsd.token_stats import STD_FLOOR

LN2 = math.log(2)


def compute(logits, target):
    """Logits, which are kept, and targets → float64 statistics."""
    return token_statistics(logits.clone(), target).double()


def slow(logits, target):
    """Float64, by the definition of expectation and variance."""
    logp = logits.double().log_softmax(-1)
    p = logp.exp()
    mean = torch.where(p > 0, p * logp, 0.0).sum(-1)
    std = torch.where(p > 0, p * (logp - mean[:, None]).square(), 0.0).sum(-1).sqrt()
    return torch.stack([logp.gather(-1, target[:, None])[:, 0], mean, std.clamp_min(STD_FLOOR), logp.amax(-1)])


def random_logits(*shape):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(0))


def test_by_hand():
    # p = 1/2, 1/4, 1/8, 1/8: E[log p] = -(1/2 + 2/4 + 3/8 + 3/8) ln 2 = -1.75 ln 2, and
    # E[(log2 p)^2] = 1/2 + 4/4 + 9/8 + 9/8 = 3.75, so that the variance is 3.75 - 3.0625 = 0.6875 (ln 2)^2.
    logits = torch.tensor([[1 / 2, 1 / 4, 1 / 8, 1 / 8]]).log() + 7.0
    got = compute(logits, torch.tensor([1]))[:, 0].tolist()
    assert got == pytest.approx((-2 * LN2, -1.75 * LN2, math.sqrt(0.6875) * LN2, -LN2), rel=1e-6)


def test_all_alike_and_certain():
    alike = compute(torch.full((1, 5000), 3.0), torch.tensor([4]))[:, 0].tolist()
    assert alike == pytest.approx([-math.log(5000), -math.log(5000), STD_FLOOR, -math.log(5000)], abs=1e-4)
    certain = torch.zeros(1, 5000)
    certain[0, 4500] = 1e4
    assert compute(certain, torch.tensor([4500]))[:, 0].tolist() == pytest.approx((0, 0, STD_FLOOR, 0), abs=1e-8)


def test_float64_at_any_offset_and_spread():
    target = torch.randint(5000, (16,), generator=torch.Generator().manual_seed(0))
    for offset in (-1000.0, 0.0, 1000.0):
        for spread in (0.1, 3.0, 30.0):
            logits = (random_logits(16, 5000) * spread + offset).float()
            limit = 2e-5 if spread > 3 else 5e-6
            assert torch.allclose(compute(logits, target), slow(logits, target), rtol=2e-6, atol=limit)


@pytest.mark.parametrize("vocabulary", [5, *(pytest.param(n, marks=pytest.mark.slow) for n in (1, 4096, 4097, 50304))])
def test_float64_for_any_type_and_order(vocabulary):
    target = torch.tensor([0, vocabulary // 2, vocabulary - 1])
    logits = 4 * random_logits(3, vocabulary)
    for order in (logits, logits.sort(-1).values, logits.sort(-1, descending=True).values):
        for dtype in (torch.float32, torch.bfloat16, torch.float16):
            rows = order.to(dtype)
            assert torch.allclose(compute(rows, target), slow(rows, target), rtol=0, atol=5e-6)


def test_tokens_of_probability_zero():
    logits = 5 * random_logits(3, 9000)
    logits[0, 4096:] = -torch.inf
    logits[1, :5000] = -torch.inf
    logits[2, 1::2] = -torch.inf
    target = torch.tensor([5, 6000, 8])
    assert torch.allclose(compute(logits, target), slow(logits, target), rtol=0, atol=5e-6)
    assert compute(logits, torch.tensor([5000, 6000, 8]))[0, 0] == -torch.inf


def test_what_is_no_number_is_not_hidden():
    for bad, place in ((torch.nan, 0), (torch.nan, 4999), (torch.inf, 0), (torch.inf, 4999)):
        logits = random_logits(2, 5000)
        logits[1, place] = bad
        got = token_statistics(logits, torch.tensor([7, 7]))
        assert got[:, 0].isfinite().all()
        assert not got[:, 1].isfinite().any()


def test_chunks_of_any_size_give_the_same_statistics(monkeypatch):
    head = torch.nn.Linear(8, 300, bias=False)
    states, target = torch.randn(23, 8), torch.randint(300, (23,))
    with torch.inference_mode():
        expected = Reduction(head)(states, target)
        monkeypatch.setitem(model_scorer.CHUNK_BYTES, "cpu", 5 * 4 * 300)
        monkeypatch.setitem(model_scorer.BLOCK_BYTES, "cpu", 2 * 4 * 300)
        assert torch.allclose(Reduction(head)(states, target), expected, atol=5e-6)
        assert torch.allclose(Reduction(None)(head(states), target), expected, atol=5e-6)
