import math

import numpy as np
import pytest

from detectors.loss import loss
from detectors.min_k import min_k
from fsd.errors import UsageError


def test_by_hand(make):
    text = make([-1.0, -7.0, -3.0, -2.0, -5.0])
    assert min_k(text) == -7  # int(0.2 · 5) = 1
    assert min_k(text, k=0.4) == (-7 - 5) / 2
    assert min_k(text, k=0.79) == (-7 - 5 - 3) / 3  # int(3.95) = 3


@pytest.mark.parametrize("size", range(1, 51))
@pytest.mark.parametrize("k", [0.05, 0.2, 0.35, 1.0])
def test_equals_taking_the_minimum_away_again_and_again(random_views, size, k):
    text = random_views(size, size)["text"]
    left, total = [float(value) for value in text.logp], 0.0
    n = max(1, int(k * size))
    for _ in range(n):
        lowest = min(left)
        left.remove(lowest)
        total += lowest
    assert min_k(text, k=k) == pytest.approx(total / n, rel=1e-12)


def test_all_tokens_give_loss(random_views):
    text = random_views(4, 33)["text"]
    assert min_k(text, k=1.0) == pytest.approx(loss(text), rel=1e-12)


@pytest.mark.parametrize("size", [1, 2, 3, 4])
def test_a_short_text_has_its_lowest_token(random_views, size):
    text = random_views(size, size)["text"]
    assert min_k(text) == text.logp.min()


def test_rises_with_k(random_views):
    text = random_views(4, 40)["text"]
    scores = [min_k(text, k=k) for k in np.arange(1, 21) / 20]
    assert scores == sorted(scores)


def test_the_order_of_tokens_does_not_show_in_the_last_bit(random_views, make):
    logp = random_views(4, 40)["text"].logp
    shuffled = np.random.default_rng(0).permutation(logp)
    assert min_k(make(logp), k=0.5) == min_k(make(shuffled), k=0.5)


@pytest.mark.parametrize("k", [0, -0.1, 1.01, 20, math.nan, math.inf])
def test_a_share_outside_its_range_is_refused(make, k):
    with pytest.raises(UsageError, match=r"^min_k\.k must be in \(0, 1\]; got "):
        min_k(make([-1.0]), k=k)
