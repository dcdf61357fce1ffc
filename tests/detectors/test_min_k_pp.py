import pytest

from detectors.min_k import min_k
from detectors.min_k_pp import min_k_pp
from fsd.token_stats import STD_FLOOR


def test_by_hand(make):
    text = make([-1.0, -6.0, -2.0], mean=[-2.0, -2.0, -5.0], std=[0.5, 2.0, 1.0])
    # z = (-1 + 2) / 0.5 = 2, (-6 + 2) / 2 = -2, (-2 + 5) / 1 = 3
    assert min_k_pp(text) == -2
    assert min_k_pp(text, k=0.7) == (-2 + 2) / 2  # int(2.1) = 2
    assert min_k_pp(text, k=1.0) == (2 - 2 + 3) / 3


def slow(text, k):
    z = sorted((float(a) - float(b)) / float(c) for a, b, c in zip(text.logp, text.mean, text.std, strict=True))
    n = max(1, int(k * len(z)))
    return sum(z[:n]) / n


def test_equals_a_loop(agree):
    agree(min_k_pp, slow, "text", k=(0.05, 0.2, 0.35, 1.0))


def test_standard_moments_give_min_k(random_views, make):
    logp = random_views(4, 33)["text"].logp
    plain = make(logp, mean=[0.0] * 33, std=[1.0] * 33)
    assert min_k_pp(plain, k=0.3) == min_k(plain, k=0.3)


def test_does_not_change_when_every_token_is_rescaled(random_views, make):
    text = random_views(4, 33)["text"]
    rescaled = make(3 * text.logp - 1, mean=3 * text.mean - 1, std=3 * text.std)
    assert min_k_pp(rescaled) == pytest.approx(min_k_pp(text), rel=1e-12)


def test_the_floor_of_std_keeps_the_score_finite(make):
    assert min_k_pp(make([-1.0], mean=[-1.0], std=[STD_FLOOR])) == 0
    assert min_k_pp(make([-2.0], mean=[-1.0], std=[STD_FLOOR])) == pytest.approx(-1e6)
