import pytest

from detectors.ez import ez
from fsd.token_stats import TIE


def test_by_hand(make):
    # The target's first choice is right at the second token (and a tie at the fifth), so that 0.5, -2, 1 and -1 count.
    text = make([-1.0, -0.1, -6.0, -3.0, -0.7, -4.0], top=[-0.5, -0.1, -1.0, -1.0, -0.7 + TIE / 2, -1.0])
    other = make([-1.5, -9.0, -4.0, -4.0, -2.0, -3.0])
    assert ez(text, other) == pytest.approx((0.5 + 1.0) / (2.0 + 1.0))


def test_without_a_missed_token_or_a_fall_it_is_zero(make):
    right = make([-0.1, -0.2], top=[-0.1, -0.2])
    assert ez(right, make([-3.0, -0.1])) == 0
    missed = make([-3.0, -2.0], top=[-1.0, -1.0])
    assert ez(missed, make([-4.0, -2.5])) == 0  # rises alone
    assert ez(missed, make([-2.0, -1.5])) == 0  # falls alone
    assert ez(make([-3.0], top=[-1.0]), make([-2.0])) == 0  # one token


def slow(text, other):
    rises = falls = 0.0
    for logp, reference, top in zip(text.logp, other.logp, text.top, strict=True):
        if logp < top - TIE:
            rises += max(logp - reference, 0.0)
            falls += max(reference - logp, 0.0)
    return rises / falls if falls else 0.0


def test_token_by_token(agree):
    agree(ez, slow, "text", "reference")


def test_with_the_models_exchanged_at_the_same_tokens_it_is_its_inverse(make, random_views):
    views = random_views(2, 50)
    text, other = (make(views[name].logp, top=[0.0] * 50) for name in ("text", "reference"))
    assert ez(text, other) == pytest.approx(1 / ez(other, text))
