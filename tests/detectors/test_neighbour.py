import pytest

from detectors.neighbour import neighbour


def test_by_hand(make):
    # neighbours weigh alike: mean of -3 and (-4 - 6) / 2 = -5 is -4, not the mean of the three tokens
    assert neighbour(make([-1.0, -2.0]), [make([-3.0]), make([-4.0, -6.0])]) == -1.5 - (-3 - 5) / 2


@pytest.mark.parametrize("size", [1, 2, 7, 50])
def test_equals_a_loop(random_views, size):
    views = random_views(size, size)
    means = [sum(map(float, copy.logp)) / copy.logp.size for copy in views["neighbours"]]
    expected = sum(map(float, views["text"].logp)) / size - sum(means) / len(means)
    assert neighbour(views["text"], views["neighbours"]) == pytest.approx(expected, rel=1e-12)


def test_a_text_among_copies_of_itself_scores_zero(random_views):
    text = random_views(2, 9)["text"]
    assert neighbour(text, [text] * 25) == pytest.approx(0, abs=1e-12)


def test_the_order_of_neighbours_does_not_matter(random_views):
    views = random_views(2, 9)
    forward, backward = (neighbour(views["text"], views["neighbours"][::step]) for step in (1, -1))
    assert forward == pytest.approx(backward, rel=1e-12)


def test_no_neighbour_is_refused(make):
    with pytest.raises(ValueError, match="needs at least one neighbour of the text 'A text', got none"):
        neighbour(make([-1.0]), [])
