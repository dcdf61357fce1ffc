import pytest

import detectors
from detectors.loss import loss
from detectors.min_k_deviation import min_k_deviation
from fsd.errors import UsageError


def test_by_hand(make):
    base, tuned = make([-1.0, -6.0, -3.0, -4.0]), make([-1.5, -2.0, -3.0, -2.0])
    # d = -1 + 1.5 = 0.5, -6 + 2 = -4, -3 + 3 = 0, -4 + 2 = -2
    assert min_k_deviation(base, tuned) == -4
    assert min_k_deviation(base, tuned, k=0.5) == (-4 - 2) / 2
    assert min_k_deviation(base, tuned, k=1.0) == (0.5 - 4 + 0 - 2) / 4


@pytest.mark.parametrize("size", range(1, 51))
@pytest.mark.parametrize("k", [0.1, 0.35, 1.0])
def test_equals_a_loop(random_views, size, k):
    views = random_views(size, size)
    deviations = []
    for base, tuned in zip(views["text"].logp, views["tuned"].logp, strict=True):
        deviations.append(float(base) - float(tuned))
    deviations.sort()
    n = max(1, int(k * size))
    expected = sum(deviations[:n]) / n
    assert min_k_deviation(views["text"], views["tuned"], k=k) == pytest.approx(expected, rel=1e-12, abs=1e-12)


@pytest.mark.parametrize("size", [1, 9, 30])
def test_an_identical_pair_scores_zero(random_views, size):
    text = random_views(1, size)["text"]
    assert min_k_deviation(text, text) == 0


def test_all_tokens_give_the_deviation_of_loss(random_views):
    base, tuned = (random_views(1, 30)[view] for view in ("text", "tuned"))
    assert min_k_deviation(base, tuned, k=1.0) == pytest.approx(loss(base) - loss(tuned), rel=1e-12)


def test_a_text_that_fine_tuning_raised_scores_lower_than_one_left_alone(make):
    unseen = min_k_deviation(make([-5.0, -2.0]), make([-3.0, -2.0]))
    member = min_k_deviation(make([-5.0, -2.0]), make([-4.9, -2.0]))
    assert unseen < member < 0


def test_it_is_a_detector_of_pairs():
    assert detectors.load("min_k_deviation").paired
    assert not detectors.load("min_k").paired


def test_pairs_of_other_tokens_are_refused(make):
    with pytest.raises(ValueError, match="must have the same tokens, got 1 and 2 tokens"):
        min_k_deviation(make([-1.0]), make([-1.0, -2.0]))


@pytest.mark.parametrize("k", [0.0, 1.5])
def test_a_share_outside_its_range_is_refused(make, k):
    with pytest.raises(UsageError, match=r"^min_k_deviation\.k must be in \(0, 1\]; got "):
        min_k_deviation(make([-1.0]), make([-1.0]), k=k)
