import pytest

import detectors
from detectors.combined import combined
from detectors.loss import loss
from detectors.min_k_pp import min_k_pp
from detectors.min_k_reference import min_k_reference
from fsd.errors import UsageError


def test_by_hand(make):
    base = make([-1.0, -6.0, -3.0, -4.0], mean=[-2.0, -2.0, -1.0, -4.0], std=[1.0, 2.0, 1.0, 0.5])
    tuned, other = make([-2.0, -2.0, -3.0, -4.0]), make([-2.0, -6.0, -1.0, -8.0])
    # log-ratios 1, 0, -2, 4; standardised 1, -2, -2, 0; deviations 1, -4, 0, 0, whose mean is -.75
    assert combined(base, tuned, other) == -2 + 0.5 * -2 + 4 * -0.75
    assert combined(base, tuned, other, k=0.5) == (-2 + 0) / 2 + 0.5 * -2 + 4 * -0.75
    assert combined(base, tuned, other, k=1.0, a=2.0, b=1.0) == 3 / 4 + 2 * -3 / 4 - 0.75


@pytest.mark.parametrize("size", [1, 4, 5, 17, 50])
@pytest.mark.parametrize(("k", "a", "b"), [(0.1, 0.5, 4.0), (0.35, 0.0, 1.0), (1.0, 2.0, 0.0)])
def test_equals_a_loop(random_views, size, k, a, b):
    views = random_views(size, size)
    text, tuned, other = views["text"], views["tuned"], views["reference"]
    ratios, standardised, moved = [], [], 0.0
    for at in range(size):
        ratios.append(float(text.logp[at]) - float(other.logp[at]))
        standardised.append((float(text.logp[at]) - float(text.mean[at])) / float(text.std[at]))
        moved += float(text.logp[at]) - float(tuned.logp[at])
    n = max(1, int(k * size))
    expected = sum(sorted(ratios)[:n]) / n + a * sum(sorted(standardised)[:n]) / n + b * moved / size
    assert combined(text, tuned, other, k=k, a=a, b=b) == pytest.approx(expected, rel=1e-12, abs=1e-12)


@pytest.mark.parametrize("k", [0.1, 0.5, 1.0])
def test_it_is_the_sum_of_three_detectors(random_views, k):
    text, tuned, other = (random_views(1, 30)[view] for view in ("text", "tuned", "reference"))
    parts = min_k_reference(text, other, k=k), min_k_pp(text, k=k), loss(text) - loss(tuned)
    assert combined(text, tuned, other, k=k, a=0.0, b=0.0) == pytest.approx(parts[0], rel=1e-12)
    for a, b in ((0.5, 4.0), (1.0, 0.0), (0.0, 2.0)):
        expected = parts[0] + a * parts[1] + b * parts[2]
        assert combined(text, tuned, other, k=k, a=a, b=b) == pytest.approx(expected, rel=1e-12)


def test_it_is_a_detector_of_pairs():
    assert detectors.load("combined").paired


@pytest.mark.parametrize("k", [0.0, 1.5])
def test_a_share_outside_its_range_is_refused(make, k):
    with pytest.raises(UsageError, match=r"^combined\.k must be in \(0, 1\]; got "):
        combined(make([-1.0]), make([-1.0]), make([-1.0]), k=k)


@pytest.mark.parametrize("name", ["a", "b"])
@pytest.mark.parametrize("weight", [-0.1, float("inf"), float("nan")])
def test_a_weight_out_of_range_is_refused(make, name, weight):
    with pytest.raises(UsageError, match=rf"^combined\.{name} must be at least 0 and finite; got "):
        combined(make([-1.0]), make([-1.0]), make([-1.0]), **{name: weight})
