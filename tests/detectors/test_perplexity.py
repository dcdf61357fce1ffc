import math

import pytest

from detectors.loss import loss
from detectors.perplexity import perplexity


def test_by_hand(make):
    # three tokens of probability 1/2, 1/4, 1/8: the geometric mean is 1/4, so the perplexity is 4
    assert perplexity(make([math.log(1 / 2), math.log(1 / 4), math.log(1 / 8)])) == pytest.approx(-4, rel=1e-12)
    assert perplexity(make([0.0])) == -1


def test_equals_the_inverse_geometric_mean_and_minus_exp_of_minus_loss(agree):
    agree(perplexity, lambda text: -math.prod(math.exp(v) ** (-1 / len(text.logp)) for v in text.logp), "text")
    agree(perplexity, lambda text: -math.exp(-loss(text)), "text")
