import pytest

from detectors.loss import loss
from detectors.min_k_reference import min_k_reference
from detectors.reference import reference
from fsd.errors import UsageError


def test_by_hand(make):
    text, other = make([-1.0, -6.0, -3.0, -4.0]), make([-1.5, -2.0, -3.0, -2.0])
    # r = -1 + 1.5 = 0.5, -6 + 2 = -4, -3 + 3 = 0, -4 + 2 = -2
    assert min_k_reference(text, other) == -4
    assert min_k_reference(text, other, k=0.5) == (-4 - 2) / 2
    assert min_k_reference(text, other, k=1.0) == (0.5 - 4 + 0 - 2) / 4


@pytest.mark.parametrize("size", [1, 4, 5, 17, 50])
@pytest.mark.parametrize("k", [0.1, 0.35, 1.0])
def test_equals_a_loop(random_views, size, k):
    views = random_views(size, size)
    ratios = []
    for target, other in zip(views["text"].logp, views["reference"].logp, strict=True):
        ratios.append(float(target) - float(other))
    ratios.sort()
    n = max(1, int(k * size))
    expected = sum(ratios[:n]) / n
    assert min_k_reference(views["text"], views["reference"], k=k) == pytest.approx(expected, rel=1e-12, abs=1e-12)


def test_all_tokens_give_the_difference_form_of_reference(random_views):
    text, other = (random_views(1, 30)[view] for view in ("text", "reference"))
    assert min_k_reference(text, other, k=1.0) == pytest.approx(reference(text, other, difference=True), rel=1e-12)
    assert min_k_reference(text, other, k=1.0) == pytest.approx(loss(text) - loss(other), rel=1e-12)


def test_other_tokens_are_refused(make):
    with pytest.raises(ValueError, match="must have the same tokens, got 1 and 2 tokens"):
        min_k_reference(make([-1.0]), make([-1.0, -2.0]))


@pytest.mark.parametrize("k", [0.0, 1.5])
def test_a_share_outside_its_range_is_refused(make, k):
    with pytest.raises(UsageError, match=r"^min_k_reference\.k must be in \(0, 1\]; got "):
        min_k_reference(make([-1.0]), make([-1.0]), k=k)
