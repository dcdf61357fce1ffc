import pytest

from detectors.loss import loss
from detectors.recall import recall


def test_by_hand(make):
    assert recall(make([-1.0, -3.0]), make([-2.0, -4.0])) == ((-2 - 4) / 2) / ((-1 - 3) / 2)


def test_is_a_ratio_of_losses(agree):
    agree(recall, lambda text, primed: loss(primed) / loss(text), "text", "primed")


def test_a_loss_of_zero_has_no_ratio(make):
    with pytest.raises(ValueError, match="needs a loss above 0"):
        recall(make([0.0]), make([-1.0]))
