import pytest

from detectors.con_recall import con_recall
from detectors.recall import recall


def test_by_hand(make):
    text, primed, member_primed = make([-1.0, -3.0]), make([-2.0, -4.0]), make([-1.0, -1.0])
    assert con_recall(text, primed, member_primed) == (3 - 0.5 * 1) / 2
    assert con_recall(text, primed, member_primed, gamma=1.0) == (3 - 1) / 2


def slow(text, primed, member_primed, gamma):
    x, p, q = (sum(map(float, stats.logp)) / stats.logp.size for stats in (text, primed, member_primed))
    return (p - gamma * q) / x


def test_equals_a_loop(agree):
    agree(con_recall, slow, "text", "primed", "member_primed", gamma=(0.1, 0.5, 1.0))


def test_without_a_member_prefix_it_is_recall(agree):
    agree(lambda *views: con_recall(*views, gamma=0.0), lambda x, p, _: recall(x, p), "text", "primed", "member_primed")


def test_a_loss_of_zero_has_no_ratio(make):
    with pytest.raises(ValueError, match="needs a loss above 0"):
        con_recall(make([0.0]), make([-1.0]), make([-1.0]))
