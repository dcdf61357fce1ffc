import math

import pytest

import detectors
from detectors.loss import loss
from detectors.perplexity import perplexity
from detectors.reference import reference


def test_by_hand(make):
    text, other = make([-1.0, -2.0]), make([-2.0, -3.0, -4.0])
    assert reference(text, other) == -((1 + 2) / 2) / ((2 + 3 + 4) / 3)
    assert reference(text, other, difference=True) == -1.5 - -3.0
    text, other = make([math.log(1 / 2), math.log(1 / 8)]), make([math.log(1 / 16)])  # perplexities 4 and 16
    assert reference(text, other, log=False) == pytest.approx(-4 / 16, rel=1e-15)
    assert reference(text, other, log=False, difference=True) == pytest.approx(16 - 4, rel=1e-15)


def slow(text, other, difference, log):
    one, two = ((-loss(view) if log else -perplexity(view)) for view in (text, other))
    return two - one if difference else -one / two


def test_compares_losses_or_perplexities(agree):
    agree(reference, slow, "text", "reference", difference=(True, False), log=(True, False))


def test_a_reference_loss_of_zero_has_a_difference_and_no_ratio(make):
    assert reference(make([-1.0]), make([0.0]), difference=True) == -1
    with pytest.raises(ValueError, match="needs a loss above 0"):
        reference(make([-1.0]), make([0.0]))


def test_the_search_space_is_that_of_existing_studies():
    searched = {name: set(detectors.load(name).search) for name in ("zlib", "lowercase", "reference")}
    assert searched == {"zlib": set(), "lowercase": set(), "reference": {"difference"}}
