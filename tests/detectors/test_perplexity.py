import math

import pytest

from detectors.loss import loss
from detectors.perplexity import perplexity


def test_by_hand(make):
    # three tokens of probability 1/2, 1/4, 1/8: the geometric mean is 1/4, so the perplexity is 4
    assert perplexity(make([math.log(1 / 2), math.log(1 / 4), math.log(1 / 8)])) == pytest.approx(-4, rel=1e-12)


@pytest.mark.parametrize("size", [1, 2, 7, 50])
def test_equals_the_inverse_geometric_mean(random_views, size):
    text = random_views(size, size)["text"]
    product = 1.0
    for value in text.logp:
        product *= math.exp(value) ** (1 / size)
    assert perplexity(text) == pytest.approx(-1 / product, rel=1e-12)


def test_is_minus_exp_of_minus_loss(random_views):
    text = random_views(3, 20)["text"]
    assert perplexity(text) == pytest.approx(-math.exp(-loss(text)), rel=1e-12)


def test_a_certain_text_has_perplexity_one(make):
    assert perplexity(make([0.0])) == -1


def test_its_deviation_is_not_that_of_loss(make):
    # both texts gain 1 nat; the perplexity of the harder one falls from e^3 to e^2, of the other from e^2 to e
    easy = perplexity(make([-2.0])) - perplexity(make([-1.0]))
    hard = perplexity(make([-3.0])) - perplexity(make([-2.0]))
    assert easy == pytest.approx(-(math.e**2 - math.e), rel=1e-12)
    assert hard == pytest.approx(-(math.e**3 - math.e**2), rel=1e-12)
