import numpy as np
import pytest

from detectors.wbc import wbc


def test_by_hand(make):
    text, other = make([-1.0, -2.0, -3.0, -4.0]), make([-2.0, -1.5, -3.25, -3.0])  # differences 1, -.5, .25, -1
    assert wbc(text, other, sizes=(1,)) == 2 / 4
    assert wbc(text, other, sizes=(2,)) == 1 / 3  # .5, -.25, -.75
    assert wbc(text, other, sizes=(1, 2)) == pytest.approx((2 / 4 + 1 / 3) / 2)
    assert wbc(text, other, sizes=(9, 40)) == 0  # no window fits: the whole text, -.25
    assert wbc(text, other, sizes=(1, 9, 40)) == pytest.approx((2 / 4 + 0 + 0) / 3)  # once for each such size


def slow(text, other, sizes):
    difference = list(text.logp - other.logp)
    shares = []
    for size in sizes:
        size = min(size, len(difference))
        windows = [difference[at : at + size] for at in range(len(difference) - size + 1)]
        shares.append(sum(sum(window) > 0 for window in windows) / len(windows))
    return sum(shares) / len(shares)


def test_windows_one_by_one(agree):
    sizes = ((1,), (2, 7, 40), (2, 3, 4, 6, 9, 13, 18, 25, 32, 40), (5, 5, 1))
    agree(wbc, slow, "text", "reference", sizes=sizes)


def test_a_model_beside_itself_has_no_vote_and_the_other_way_round_has_the_rest(random_views):
    views = random_views(5, 60)
    assert wbc(views["text"], views["text"]) == 0
    assert wbc(views["text"], views["reference"]) == pytest.approx(1 - wbc(views["reference"], views["text"]))


def test_windows_of_one_token_count_the_rises(random_views):
    views = random_views(3, 40)
    rises = views["text"].logp > views["reference"].logp
    assert wbc(views["text"], views["reference"], sizes=(1,)) == np.mean(rises)
