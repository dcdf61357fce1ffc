"""A row of statistics is whole or refused."""

import numpy as np
import pytest

from fsd.token_stats import TokenStats


def test_arrays_of_different_lengths_or_of_none_are_refused():
    for sizes, message in (((2, 2, 2, 3), "must share one shape"), ((0, 0, 0, 0), "T >= 1")):
        with pytest.raises(ValueError, match=message):
            TokenStats("a b", *map(np.zeros, sizes))


def test_the_typicality_of_a_text_by_hand():
    """What is drawn is as probable as expected; the first tokens of a text that is long enough do not count."""
    logp, mean, std = np.array([-1.0, -3.0]), np.array([-2.0, -2.5]), np.array([0.5, 1.5])
    assert TokenStats("", np.arange(2), logp, mean, std).typicality == pytest.approx((1.0 - 0.5) / 2.0)
    long = TokenStats("", np.arange(33), np.r_[[-9.0] * 16, [-1.0] * 17], np.full(33, -2.0), np.ones(33))
    assert long.typicality == pytest.approx(1.0)
    assert long.take(np.arange(33) < 32).typicality == pytest.approx((-7 * 16 + 16) / 32)
