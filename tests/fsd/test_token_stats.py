"""A row of statistics is whole or refused."""

import numpy as np
import pytest

from fsd.token_stats import TokenStats


def test_arrays_of_different_lengths_or_of_none_are_refused():
    for sizes, message in (((2, 2, 2, 3), "must share one shape"), ((0, 0, 0, 0), "T >= 1")):
        with pytest.raises(ValueError, match=message):
            TokenStats("a b", *map(np.zeros, sizes))
