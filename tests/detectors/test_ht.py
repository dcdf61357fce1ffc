import numpy as np
import pytest

from detectors.ht import ht
from detectors.reference import reference


def test_by_hand(make):
    text, other = make([-1.0, -6.0, -3.0, -4.0, -2.5]), make([-1.5, -2.0, -3.5, -5.0, -2.5])
    # hardest for the reference: the fourth, then the third token, with log-ratios 1 and 0.5, then the fifth with 0
    assert ht(text, other) == (1.0 + 0.5) / 2  # int(.4 · 5) = 2
    assert ht(text, other, k=0.6) == (1.0 + 0.5 + 0.0) / 3
    assert ht(text, other, k=0.6, sign=True) == (1 + 1 + 0) / 3
    assert ht(text, other, k=1.0, sign=True) == (1 - 1 + 1 + 1 + 0) / 5
    assert ht(make([-2.0]), make([-1.0])) == -1  # one token


def slow(text, other, k, sign):
    order = sorted(range(len(text.logp)), key=lambda place: other.logp[place])
    ratios = [text.logp[place] - other.logp[place] for place in order[: max(1, int(k * len(order)))]]
    if sign:
        ratios = [int(ratio > 0) - int(ratio < 0) for ratio in ratios]
    return sum(ratios) / len(ratios)


def test_tokens_in_order(agree):
    agree(ht, slow, "text", "reference", k=(0.05, 0.4, 1.0), sign=(False, True))


def test_with_all_tokens_it_is_the_difference_form_of_reference(random_views):
    views = random_views(4, 30)
    text, other = views["text"], views["reference"]
    assert ht(text, other, k=1.0) == pytest.approx(reference(text, other, difference=True))
    assert ht(text, other, k=1.0, sign=True) == pytest.approx(2 * np.mean(text.logp > other.logp) - 1)
