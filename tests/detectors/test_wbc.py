import pytest

from detectors.wbc import wbc
from fsd.errors import UsageError


def test_by_hand(make):
    text, other = make([-1.0, -2.0, -3.0, -4.0]), make([-2.0, -1.5, -3.25, -3.0])  # differences 1, -.5, .25, -1
    assert wbc(text, other, least=1, most=1, sizes=1) == 2 / 4
    assert wbc(text, other, least=2, most=2, sizes=1) == 1 / 3  # .5, -.25, -.75
    assert wbc(text, other, least=1, most=2, sizes=2) == pytest.approx((2 / 4 + 1 / 3) / 2)
    assert wbc(text, other, least=9, most=40) == 0  # no window fits: the whole text, -.25


def slow(text, other, least, most, sizes):
    difference = list(text.logp - other.logp)
    wanted = {round(least * (most / least) ** (i / max(1, sizes - 1))) for i in range(sizes)}
    fitting = [size for size in wanted if size <= len(difference)] or [len(difference)]
    shares = []
    for size in fitting:
        windows = [difference[at : at + size] for at in range(len(difference) - size + 1)]
        shares.append(sum(sum(window) > 0 for window in windows) / len(windows))
    return sum(shares) / len(shares)


def test_windows_one_by_one(agree):
    agree(wbc, slow, "text", "reference", least=(1, 2), most=(2, 7, 40), sizes=(1, 3, 10))


def test_a_model_beside_itself_has_no_vote_and_the_other_way_round_has_the_rest(random_views):
    views = random_views(5, 60)
    assert wbc(views["text"], views["text"]) == 0
    assert wbc(views["text"], views["reference"]) == pytest.approx(1 - wbc(views["reference"], views["text"]))


def test_impossible_sizes_are_refused(make):
    for settings in ({"least": 0}, {"least": 50}, {"sizes": 0}):
        with pytest.raises(UsageError, match="wbc must have 1 <= least <= most and sizes >= 1"):
            wbc(make([-1.0]), make([-2.0]), **settings)
