import math

import pytest

import detectors
from detectors.loss import loss
from detectors.perplexity import perplexity
from detectors.reference import reference


def test_ratio_by_hand(make):
    assert reference(make([-1.0, -2.0]), make([-2.0, -3.0, -4.0])) == -((1 + 2) / 2) / ((2 + 3 + 4) / 3)


def test_difference_by_hand(make):
    assert reference(make([-1.0, -2.0]), make([-2.0, -3.0, -4.0]), difference=True) == -1.5 - -3.0


@pytest.mark.parametrize("size", [1, 2, 7, 50])
def test_equals_a_loop(random_views, size):
    views = random_views(size, size)
    text, other = (sum(map(float, views[view].logp)) / views[view].logp.size for view in ("text", "reference"))
    assert reference(views["text"], views["reference"]) == pytest.approx(-text / other, rel=1e-12)
    assert reference(views["text"], views["reference"], difference=True) == pytest.approx(text - other, rel=1e-12)


def test_the_deviation_of_the_difference_is_that_of_loss(random_views):
    views = random_views(5, 20)
    base, tuned, other = views["text"], views["tuned"], views["reference"]
    deviation = reference(base, other, difference=True) - reference(tuned, other, difference=True)
    assert deviation == pytest.approx(loss(base) - loss(tuned), abs=1e-12)


def test_a_model_beside_itself_scores_minus_one_or_zero(random_views):
    text = random_views(5, 20)["text"]
    assert reference(text, text) == -1
    assert reference(text, text, difference=True) == 0


def test_a_reference_loss_of_zero_has_a_difference_and_no_ratio(make):
    assert reference(make([-1.0]), make([0.0]), difference=True) == -1
    with pytest.raises(ValueError, match="needs a loss above 0"):
        reference(make([-1.0]), make([0.0]))


def test_perplexities_by_hand(make):
    text, other = make([math.log(1 / 2), math.log(1 / 8)]), make([math.log(1 / 16)])  # perplexities 4 and 16
    assert reference(text, other, log=False) == pytest.approx(-4 / 16, rel=1e-15)
    assert reference(text, other, log=False, difference=True) == pytest.approx(16 - 4, rel=1e-15)


@pytest.mark.parametrize("size", [1, 2, 7, 50])
def test_perplexities_equal_those_of_their_detector(random_views, size):
    views = random_views(size, size)
    text, other = perplexity(views["text"]), perplexity(views["reference"])
    assert reference(views["text"], views["reference"], log=False) == pytest.approx(-text / other, rel=1e-12)
    difference = reference(views["text"], views["reference"], log=False, difference=True)
    assert difference == pytest.approx(text - other, rel=1e-12)


def test_the_deviation_of_the_difference_of_perplexities_is_that_of_perplexity(random_views):
    views = random_views(5, 20)
    base, tuned, other = views["text"], views["tuned"], views["reference"]
    settings = {"difference": True, "log": False}
    deviation = reference(base, other, **settings) - reference(tuned, other, **settings)
    assert deviation == pytest.approx(perplexity(base) - perplexity(tuned), rel=1e-12)


def test_the_search_space_is_that_of_existing_studies():
    assert {name: set(detectors.load(name).search) for name in ("zlib", "lowercase", "reference")} == {
        "zlib": set(),
        "lowercase": set(),
        "reference": {"difference"},
    }
