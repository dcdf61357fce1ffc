"""summed_unread_z: by hand, and against a slow version; either reference has its own unread texts."""

import numpy as np
import pytest

import detectors
from tests.detectors.test_unread_z import pair, scores_of, slow, unread_of

summed = detectors.load("summed_unread_z").function


def test_it_is_the_sum_of_a_slow_version_against_either_reference():
    rng = np.random.default_rng(5)
    plain = [pair(rng, size) for size in range(20, 45)]
    adapted = [pair(rng, size) for size in range(20, 41)]
    for alpha in (1.0, 100.0):
        one, other = pair(rng, 12), pair(rng, 12)
        expected = slow(one, plain, alpha) + slow(other, adapted, alpha)
        assert summed(one, unread_of(plain), other, unread_of(adapted), alpha=alpha) == pytest.approx(expected)


def test_by_hand_where_nothing_predicts_the_scores():
    """Of two kinds of unread text a first one is half of their difference from the mean, and a text left out 10/19."""
    rng = np.random.default_rng(1)
    expected = 0.0
    given = []
    for _ in range(2):
        kinds = [pair(rng, 30), pair(rng, 30)]
        scores = np.array(list(map(scores_of, kinds)))
        expected += ((scores[0] - scores[1]) / 2 / (np.abs(scores[0] - scores[1]) * 10 / 19)).sum()
        given += [kinds[0], unread_of(kinds * 10)]
    assert summed(*given, alpha=1e15) == pytest.approx(expected, rel=1e-6)
