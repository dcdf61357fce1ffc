import pytest

from detectors.loss import loss


def test_is_the_mean_by_hand(make):
    assert loss(make([-1.0, -2.0, -6.0])) == (-1 - 2 - 6) / 3


@pytest.mark.parametrize("size", [1, 2, 7, 50])
def test_equals_a_loop(random_views, size):
    text = random_views(size, size)["text"]
    total = 0.0
    for value in text.logp:
        total += float(value)
    assert loss(text) == pytest.approx(total / size, rel=1e-12)
