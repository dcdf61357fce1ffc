import numpy as np
import pytest

from detectors.pac import UNCHANGED, fallback, pac


def test_by_hand(make):
    text = make([-1.0, -0.5, -4.0, -2.0])  # one highest, -.5; one lowest, -4: distance 3.5
    copies = [make([-1.0, -9.0, -5.0, -3.0]), make([-0.5, -7.5])]  # distances 8 and 7
    assert pac(text, copies) == (8 + 7) / 2 - 3.5
    assert pac(text, copies[:1], low=0.5, high=0.5) == ((-1 - 3) / 2 - (-9 - 5) / 2) - ((-0.5 - 1) / 2 - (-4 - 2) / 2)


def slow(text, swapped, low, high):
    distances = []
    for stats in (text, *swapped):
        logp = sorted(map(float, stats.logp), reverse=True)
        top, bottom = (max(1, int(share * len(logp))) for share in (high, low))
        distances.append(sum(logp[:top]) / top - sum(logp[-bottom:]) / bottom)
    return sum(distances[1:]) / len(swapped) - distances[0]


def test_equals_a_loop(agree):
    agree(pac, slow, "text", "swapped", low=(0.05, 0.3, 1.0), high=(0.05, 0.5, 1.0))


def test_copies_that_are_the_text_itself_give_exactly_zero(make):
    rng = np.random.default_rng(0)
    for size in range(1, 40):
        text = make((-rng.exponential(2, size)).tolist())
        assert pac(text, [text] * 5) == 0
        assert fallback(text, [text] * 5, low=0.3, high=0.05) == UNCHANGED
        other = make((-rng.exponential(2, size)).tolist())
        assert fallback(text, [text, other], low=0.3, high=0.05) is None


def test_no_copy_is_refused(make):
    with pytest.raises(ValueError, match="needs at least one copy of the text 'A text', got none"):
        pac(make([-1.0]), [])
