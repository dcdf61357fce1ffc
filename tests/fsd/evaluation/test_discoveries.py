import numpy as np
import pytest
from scipy import stats

from fsd.errors import UsageError
from fsd.evaluation.verdicts import discoveries


def test_by_hand():
    # sorted .01 .02 .03 .2 against .025 .05 .075 .1
    np.testing.assert_array_equal(discoveries([0.2, 0.01, 0.03, 0.02], fdr=0.1), [False, True, True, True])
    np.testing.assert_array_equal(discoveries([0.03, 0.5, 0.9], fdr=0.1), [True, False, False])
    np.testing.assert_array_equal(discoveries([0.04, 0.5, 0.9], fdr=0.1), [False, False, False])
    assert discoveries([], fdr=0.1).size == 0


def test_a_family_counts_once():
    """Thirty copies of a non-member with p = .04 are one family of three, not thirty of thirty-two."""
    p_values = [0.04] * 30 + [0.5, 0.9]
    assert discoveries(p_values, fdr=0.1).sum() == 30
    assert not discoveries(p_values, [0] * 30 + [1, 2], fdr=0.1).any()


def test_within_a_selected_family_texts_are_selected_by_their_own_p_value():
    p_values, family = [0.001, 0.9, 0.002, 0.8], [0, 0, 1, 2]
    np.testing.assert_array_equal(discoveries(p_values, family, fdr=0.1), [True, False, True, False])


def test_storey_finds_more_if_most_texts_are_members():
    p_values = [0.06] * 9 + [0.9]
    assert not discoveries([*p_values[:4], *[0.9] * 6], fdr=0.1).any()
    assert discoveries([0.105] * 10, fdr=0.1).sum() == 0
    assert discoveries([0.105] * 10, fdr=0.1, storey=True).sum() == 10


def test_the_rate_holds_for_conformal_p_values_that_share_a_calibration():
    rng = np.random.default_rng(0)
    for storey in (False, True):
        wrong, found = [], []
        for _ in range(150):
            known, new = np.sort(rng.normal(size=199)), rng.normal(size=60) + 3 * (np.arange(60) < 20)
            p = (1 + 199 - np.searchsorted(known, new)) / 200
            chosen = discoveries(p, fdr=0.2, storey=storey)
            wrong.append(chosen[20:].sum() / max(1, chosen.sum()))
            found.append(chosen[:20].mean())
        assert np.mean(wrong) <= 0.2 + 3 * stats.sem(wrong)
        assert np.mean(found) > 0.5


@pytest.mark.parametrize("fdr", [0.0, 1.0, -0.1, float("nan")])
def test_a_rate_must_be_between_0_and_1(fdr):
    with pytest.raises(UsageError, match="fdr must be above 0 and below 1; got"):
        discoveries([0.1], fdr=fdr)
