import pytest

from detectors.recall import recall


def test_by_hand(make):
    assert recall(make([-1.0, -3.0]), make([-2.0, -4.0])) == ((-2 - 4) / 2) / ((-1 - 3) / 2)


@pytest.mark.parametrize("size", [1, 2, 7, 50])
def test_equals_a_loop(random_views, size):
    views = random_views(size, size)
    plain, primed = (sum(map(float, views[view].logp)) / size for view in ("text", "primed"))
    assert recall(views["text"], views["primed"]) == pytest.approx(primed / plain, rel=1e-12)


def test_a_prefix_that_changes_nothing_scores_one(random_views):
    text = random_views(0, 12)["text"]
    assert recall(text, text) == 1


def test_a_text_disturbed_by_the_prefix_scores_above_one_that_it_helps(make):
    assert recall(make([-1.0]), make([-1.5])) > 1 > recall(make([-3.0]), make([-2.5]))


def test_a_loss_of_zero_has_no_ratio(make):
    with pytest.raises(ValueError, match="needs a loss above 0"):
        recall(make([0.0]), make([-1.0]))
