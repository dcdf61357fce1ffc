import pytest

from detectors.neighbour import neighbour


def test_by_hand(make):
    # neighbours weigh alike: mean of -3 and (-4 - 6) / 2 = -5 is -4, not the mean of the three tokens
    assert neighbour(make([-1.0, -2.0]), [make([-3.0]), make([-4.0, -6.0])]) == -1.5 - (-3 - 5) / 2


def slow(text, neighbours):
    means = [sum(map(float, copy.logp)) / copy.logp.size for copy in (text, *neighbours)]
    return means[0] - sum(means[1:]) / len(neighbours)


def test_equals_a_loop(agree):
    agree(neighbour, slow, "text", "neighbours")


def test_no_neighbour_is_refused(make):
    with pytest.raises(ValueError, match="needs at least one neighbour of the text 'A text', got none"):
        neighbour(make([-1.0]), [])
