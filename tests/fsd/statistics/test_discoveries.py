import numpy as np
import pytest

from fsd.errors import UsageError
from fsd.statistics.multiplicity import discoveries


def test_by_hand():
    for p_values, family, expected in (
        ([0.2, 0.01, 0.03, 0.02], None, [False, True, True, True]),  # .01 .02 .03 .2 against .025 .05 .075 .1
        ([0.03, 0.5, 0.9], None, [True, False, False]),
        ([0.04, 0.5, 0.9], None, [False, False, False]),
        ([0.04] * 30 + [0.5, 0.9], None, [True] * 30 + [False] * 2),
        ([0.04] * 30 + [0.5, 0.9], [0] * 30 + [1, 2], [False] * 32),  # copies are one family of three
        ([0.001, 0.9, 0.002, 0.8], [0, 0, 1, 2], [True, False, True, False]),  # in a selected family, by its own p
        ([0.001, 0.06, 0.8, 0.9], [0, 0, 1, 2], [True, False, False, False]),  # .06 against a third of .1
        ([0.001, 0.06], [0, 0], [True, True]),
        ([0.04, 0.5, 0.9], [0, 0, 0], [False] * 3),  # Simes: the smallest of .04 · 3, .5 · 3 / 2 and .9
        # if the first family was called by its .04, the second one would be judged at .1 instead of .05
        ([0.04, 0.5, 0.9, 0.001, 0.09], [0, 0, 0, 1, 1], [False, False, False, True, False]),
        ([0.1], None, [True]),
        ([1 - 0.9 + 1e-12], None, [True]),  # but for rounding
        ([], None, []),
    ):
        np.testing.assert_array_equal(discoveries(p_values, family, fdr=0.1), expected)


def test_storey_finds_more_if_most_texts_are_members():
    assert discoveries([0.105] * 10, fdr=0.1).sum() == 0
    assert discoveries([0.105] * 10, fdr=0.1, storey=True).sum() == 10


def test_storey_by_hand():
    # (1 + number above .5) / (F / 2): 1 / 2 for four families, 2 / 4 for eight of which one is above
    for p_values, family, fdr, expected in (
        ([0.3] * 4, None, 0.149, 0),
        ([0.3] * 4, None, 0.151, 4),
        ([0.1] * 7 + [0.6], None, 0.057, 0),  # .1 * 8 / 7 * 2 / 4
        ([0.1] * 7 + [0.6], None, 0.0572, 7),
        ([0.1] * 7 + [0.5], None, 0.0287, 7),  # .5 is not above .5
        ([0.3] * 40, np.arange(40) // 10, 0.149, 0),  # families of ten count once
        ([0.9] * 4, None, 0.89, 0),  # never above 1
    ):
        assert discoveries(p_values, family, fdr=fdr, storey=True).sum() == expected


def test_a_rate_must_be_between_0_and_1():
    for fdr in (0.0, 1.0, -0.1, float("nan")):
        with pytest.raises(UsageError, match="fdr must be above 0 and below 1; got"):
            discoveries([0.1], fdr=fdr)
