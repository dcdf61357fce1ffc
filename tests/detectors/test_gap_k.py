import pytest

from detectors.gap_k import gap_k


def test_by_hand(make):
    text = make([-1.0, -3.0, -2.0, -5.0], top=[-1.0, -1.0, -0.5, -1.0], std=[1.0, 2.0, 0.5, 1.0])
    # gaps 0, -1, -3, -4; windows of 3: -4/3 and -8/3; of 2: -.5, -2, -3.5
    assert gap_k(text) == pytest.approx(-8 / 3)
    assert gap_k(text, window=2, k=0.7) == pytest.approx((-3.5 - 2) / 2)
    assert gap_k(text, window=5, k=0.5) == (-4 - 3) / 2  # no window fits: single tokens


def slow(text, k, window):
    gaps = [(float(a) - float(b)) / float(c) for a, b, c in zip(text.logp, text.top, text.std, strict=True)]
    if len(gaps) >= window:
        gaps = [sum(gaps[at : at + window]) / window for at in range(len(gaps) - window + 1)]
    n = max(1, int(k * len(gaps)))
    return sum(sorted(gaps)[:n]) / n


def test_windows_one_by_one(agree):
    agree(gap_k, slow, "text", k=(0.05, 0.2, 1.0), window=(1, 3, 6))
