"""A row of statistics is whole or refused."""

import numpy as np
import pytest

from fsd.token_stats import TokenStats


def test_arrays_of_different_lengths_are_refused():
    with pytest.raises(ValueError, match="must share one shape"):
        TokenStats("a b", np.arange(2), np.zeros(2), np.zeros(2), np.ones(3))


def test_a_text_without_tokens_is_refused():
    with pytest.raises(ValueError, match="T >= 1"):
        TokenStats("", np.arange(0), np.zeros(0), np.zeros(0), np.ones(0))
