import pytest

from detectors.lowercase import lowercase


def test_by_hand(make):
    # the loss rises from (1 + 3) / 2 = 2 to (2 + 3 + 4) / 3 = 3
    assert lowercase(make([-1.0, -3.0], text="An A"), make([-2.0, -3.0, -4.0], text="an a")) == 3 / 2


@pytest.mark.parametrize("size", [1, 2, 7, 50])
def test_equals_a_loop(random_views, size):
    views = random_views(size, size)
    losses = [-sum(map(float, views[view].logp)) / views[view].logp.size for view in ("text", "lower")]
    assert lowercase(views["text"], views["lower"]) == pytest.approx(losses[1] / losses[0], rel=1e-12)


def test_a_text_in_lower_case_scores_one(random_views):
    text = random_views(0, 12)["text"]
    assert lowercase(text, text) == 1


def test_losing_capitals_that_were_known_scores_higher(make):
    member = lowercase(make([-1.0]), make([-3.0]))
    unseen = lowercase(make([-3.0]), make([-3.5]))
    assert member > unseen > 1


def test_a_loss_of_zero_has_no_ratio(make):
    with pytest.raises(ValueError, match=r"needs a loss above 0, got 0 for the text 'A text'"):
        lowercase(make([0.0]), make([-1.0]))
