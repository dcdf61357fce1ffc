import numpy as np

from detectors.min_k import min_k


def test_by_hand(make):
    text = make([-1.0, -7.0, -3.0, -2.0, -5.0])
    assert min_k(text) == -7  # int(0.2 · 5) = 1
    assert min_k(text, k=0.4) == (-7 - 5) / 2
    assert min_k(text, k=0.79) == (-7 - 5 - 3) / 3  # int(3.95) = 3


def slow(text, k):
    left, total = [float(value) for value in text.logp], 0.0
    n = max(1, int(k * len(left)))
    for _ in range(n):
        lowest = min(left)
        left.remove(lowest)
        total += lowest
    return total / n


def test_equals_taking_the_minimum_away_again_and_again(agree):
    agree(min_k, slow, "text", k=(0.05, 0.2, 0.35, 1.0))


def test_the_order_of_tokens_does_not_show_in_the_last_bit(random_views, make):
    logp = random_views(4, 40)["text"].logp
    shuffled = np.random.default_rng(0).permutation(logp)
    assert min_k(make(logp), k=0.5) == min_k(make(shuffled), k=0.5)
