import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from detectors import load
from detectors.surp import FALLBACK, fallback, surp, surprising
from fsd.token_stats import TokenStats

LOGP = [-1.0, -5.0, -2.0, -4.0, -3.0]
MEAN = [-0.5, -1.0, -3.0, -2.5, -1.5]  # entropies 0.5, 1, 3, 2.5, 1.5


@pytest.fixture
def text(make):
    return make(LOGP, mean=MEAN)


def slow(text, entropy, k):
    logp, entropies = [float(v) for v in text.logp], [-float(v) for v in text.mean]
    threshold = float(np.percentile(text.logp, k))
    unlikely = [t for t in range(len(logp)) if logp[t] < threshold]
    both = [t for t in unlikely if entropies[t] < entropy]
    for chosen, name in ((both, None), (unlikely, FALLBACK)):
        if chosen:
            return sum(logp[t] for t in chosen) / len(chosen), name
    return min(logp), FALLBACK


def test_by_hand(text):
    # k = 40: 1.6 steps above -5 is -3.4, so S_p = {-5, -4}; entropy < 2 leaves -5
    assert surp(text, entropy=2.0) == -5
    assert surp(text, entropy=2.6, k=40.0) == (-5 - 4) / 2
    # k = 60: 2.4 steps above -5 is -2.6, so S_p = {-5, -4, -3}; entropy < 2 leaves -5 and -3
    assert surp(text, entropy=2.0, k=60.0) == (-5 - 3) / 2


def test_both_limits_are_strict(text):
    # k = 50 is the token -3 itself: not below itself
    assert surp(text, entropy=9.0, k=50.0) == (-5 - 4) / 2
    # entropy 1 is not below 1: nothing is left of S_p = {-5, -4}
    assert fallback(text, entropy=1.0, k=40.0) == FALLBACK
    assert surp(text, entropy=1.0, k=40.0) == (-5 - 4) / 2


def test_equals_a_loop_over_the_grid(random_views):
    for size in (*range(1, 21), 50, 101):
        text = random_views(size, size)["text"]
        for entropy in (0.5, 2.0, 4.5, 10.0):
            for k in (10.0, 40.0, 70.0, 100.0):
                score, name = slow(text, entropy, k)
                assert surp(text, entropy=entropy, k=k) == pytest.approx(score, rel=1e-12)
                assert fallback(text, entropy=entropy, k=k) == name


@given(st.lists(st.integers(-4000, 0), min_size=1, max_size=40), st.integers(1, 100))
def test_the_unlikely_tokens_are_those_below_numpys_percentile(values, k):
    logp = np.array(values) / 64
    text = TokenStats("", np.zeros(len(values), int), logp, np.zeros(len(values)), np.ones(len(values)))
    assert surprising(text, entropy=np.inf, k=k).tolist() == (logp < np.percentile(logp, k)).tolist()


def test_without_a_lower_token_the_lowest_counts(make):
    for same in (make([-2.5]), make([-2.5, -2.5, -2.5])):
        assert surp(same, k=100.0) == -2.5
        assert fallback(same, entropy=2.0, k=100.0) == FALLBACK


def test_the_default_is_surp_where_the_papers_best_settings_are_not():
    """Entropies of the embedded model are about 5 nats, so that 2.0 and 2.5 leave nothing of most texts."""
    assert load("surp").settings == {"entropy": 4.0, "k": 40.0}
