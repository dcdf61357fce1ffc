import pytest

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


def test_the_floor_of_std_keeps_the_score_finite(make):
    assert min_k_pp(make([-1.0], mean=[-1.0], std=[STD_FLOOR])) == 0
    assert min_k_pp(make([-2.0], mean=[-1.0], std=[STD_FLOOR])) == pytest.approx(-1e6)
