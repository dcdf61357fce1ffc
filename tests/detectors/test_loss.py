from detectors.loss import loss


def test_is_the_mean_by_hand(make):
    assert loss(make([-1.0, -2.0, -6.0])) == (-1 - 2 - 6) / 3


def test_equals_a_loop(agree):
    agree(loss, lambda text: sum(map(float, text.logp)) / len(text.logp), "text")
