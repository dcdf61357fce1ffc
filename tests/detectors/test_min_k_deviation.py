import detectors
from detectors.min_k_deviation import min_k_deviation


def test_by_hand(make):
    base, tuned = make([-1.0, -6.0, -3.0, -4.0]), make([-1.5, -2.0, -3.0, -2.0])
    # d = -1 + 1.5 = 0.5, -6 + 2 = -4, -3 + 3 = 0, -4 + 2 = -2
    assert min_k_deviation(base, tuned) == -4
    assert min_k_deviation(base, tuned, k=0.5) == (-4 - 2) / 2
    assert min_k_deviation(base, tuned, k=1.0) == (0.5 - 4 + 0 - 2) / 4
    assert min_k_deviation(base, base) == 0


def slow(text, tuned, k):
    deviations = sorted(float(a) - float(b) for a, b in zip(text.logp, tuned.logp, strict=True))
    n = max(1, int(k * len(deviations)))
    return sum(deviations[:n]) / n


def test_equals_a_loop(agree):
    agree(min_k_deviation, slow, "text", "tuned", k=(0.1, 0.35, 1.0))


def test_it_is_a_detector_of_pairs():
    assert [name for name in detectors.names() if detectors.load(name).paired] == ["combined", "min_k_deviation"]
