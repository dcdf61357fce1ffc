import pytest

import detectors
from detectors.combined import combined
from detectors.min_k_deviation import min_k_deviation
from detectors.min_k_reference import min_k_reference
from fsd.errors import UsageError


def test_by_hand(make):
    base, tuned, other = make([-1.0, -6.0, -3.0, -4.0]), make([-2.0, -2.0, -3.0, -4.0]), make([-2.0, -6.0, -1.0, -8.0])
    # c = -1 + .75*2 + .25*2 = 1, -6 + 1.5 + 1.5 = -3, -3 + 2.25 + .25 = -.5, -4 + 3 + 2 = 1
    assert combined(base, tuned, other) == -3
    assert combined(base, tuned, other, k=0.5) == (-3 - 0.5) / 2
    assert combined(base, tuned, other, k=1.0) == (1 - 3 - 0.5 + 1) / 4
    # with equal weights: 1, -2, -1, 2
    assert combined(base, tuned, other, k=0.5, w=0.5) == (-2 - 1) / 2


@pytest.mark.parametrize("size", [1, 4, 5, 17, 50])
@pytest.mark.parametrize(("k", "w"), [(0.1, 0.75), (0.35, 0.25), (1.0, 0.5)])
def test_equals_a_loop(random_views, size, k, w):
    views = random_views(size, size)
    values = []
    for at in range(size):
        value = float(views["text"].logp[at])
        value -= w * float(views["tuned"].logp[at])
        value -= (1 - w) * float(views["reference"].logp[at])
        values.append(value)
    values.sort()
    n = max(1, int(k * size))
    score = combined(views["text"], views["tuned"], views["reference"], k=k, w=w)
    assert score == pytest.approx(sum(values[:n]) / n, rel=1e-12, abs=1e-12)


@pytest.mark.parametrize("k", [0.1, 0.5, 1.0])
def test_its_ends_are_its_two_parts(random_views, k):
    text, tuned, other = (random_views(1, 30)[view] for view in ("text", "tuned", "reference"))
    assert combined(text, tuned, other, k=k, w=0.0) == pytest.approx(min_k_reference(text, other, k=k), rel=1e-12)
    assert combined(text, tuned, other, k=k, w=1.0) == pytest.approx(min_k_deviation(text, tuned, k=k), rel=1e-12)


def test_it_is_a_detector_of_pairs():
    assert detectors.load("combined").paired


@pytest.mark.parametrize("k", [0.0, 1.5])
def test_a_share_outside_its_range_is_refused(make, k):
    with pytest.raises(UsageError, match=r"^combined\.k must be in \(0, 1\]; got "):
        combined(make([-1.0]), make([-1.0]), make([-1.0]), k=k)


@pytest.mark.parametrize("w", [-0.1, 1.5])
def test_a_weight_outside_its_range_is_refused(make, w):
    with pytest.raises(UsageError, match=r"^combined\.w must be in \[0, 1\]; got "):
        combined(make([-1.0]), make([-1.0]), make([-1.0]), w=w)
