"""Canaries: reproducible uniform draws, exact rank tests, and their error rates in simulation."""

import hashlib
from itertools import product

import numpy as np
import pytest
from scipy import stats

from extensions.canary.canaries import Scheme, draw, published_index, repetitions_of, word_pool
from fsd.errors import UsageError
from fsd.statistics.ranks import combined_p, rank_p

WORDS = tuple(f"w{a}{b}" for a, b in product("abcdefghijk", repeat=2))


def test_a_draw_is_the_documented_hash_and_uniform() -> None:
    digest = hashlib.sha256(b"secret\x1fpublished\x1f000001\x1fab12").hexdigest()
    assert published_index("secret", ("000001", "ab12"), 1000) == int(digest, 16) % 1000
    counts = np.bincount([draw(10, "seed", at) for at in range(5000)], minlength=10)
    assert stats.chisquare(counts).pvalue > 0.01


def test_candidates_differ_and_follow_from_seed_number_and_text() -> None:
    scheme = Scheme("seed", 200, 3, WORDS)

    first, again, *others = (scheme.candidates(of) for of in (("1", "a"), ("1", "a"), ("2", "a"), ("1", "b")))

    assert len(set(first)) == 200
    assert first == again
    assert not any(set(first) & set(other) for other in others)
    assert all(set(canary.split()) <= set(WORDS) and len(canary.split()) == 3 for canary in first)
    assert {len(canary) for canary in Scheme("seed", 50, 7).candidates(("1", "a"))} == {7}


def test_schemes_that_cannot_be() -> None:
    with pytest.raises(UsageError, match="length must allow 100,000 different canaries"):
        Scheme("s", 1000, 4).check()
    with pytest.raises(UsageError, match="words must give 50 different canaries"):
        Scheme("s", 50, 20, ("a", "a a")).candidates(("1", "a"))


def test_repetitions_are_shared_equally() -> None:
    first, other = (repetitions_of("seed", [(str(at), text) for at in range(10)], (1, 4)) for text in "ab")

    assert sorted(first.values()) == [1] * 5 + [4] * 5
    assert [first[str(at), "a"] for at in range(10)] != [other[str(at), "b"] for at in range(10)]


def test_word_pool_takes_a_third_by_frequency() -> None:
    text = " ".join(
        f"{word} " * (at + 1) for at, word in enumerate(f"{a}{b}{c}" for a, b, c in product("abcdefg", repeat=3))
    )

    common, medium, rare = (set(word_pool([text], rarity)) for rarity in ("common", "medium", "rare"))

    assert "ggg" in common
    assert "aaa" in rare
    assert not common & medium
    assert not medium & rare
    words = [f"{a}{b}{c}" for a, b, c in product("abcdefg", repeat=3)][:300]
    assert len(word_pool([" ".join(words)], "common")) == 100
    with pytest.raises(UsageError, match=r"at least 300 different words .* got 299"):
        word_pool([" ".join(words[1:])], "common")


def test_p_values_by_hand_and_against_every_choice() -> None:
    assert [rank_p(np.array([3.0, 1.0, 2.0, 2.0]), at) for at in range(4)] == [0.25, 1.0, 0.75, 0.75]
    # of two documents with three variants each there are nine choices; the exact p-value counts them
    scores = [np.array([0.0, 1.0, 5.0]), np.array([2.0, 0.0, 1.0])]
    z = [(values - values.mean()) / values.std() for values in scores]
    for published in product(range(3), repeat=2):
        observed = sum(values[at] for values, at in zip(z, published, strict=True))
        exact = np.mean([z[0][i] + z[1][j] >= observed - 1e-12 for i, j in product(range(3), repeat=2)])
        assert combined_p(scores, published, seed=1) == pytest.approx(exact, abs=0.006)
    one = np.random.default_rng(0).normal(size=50)
    assert combined_p([one], [7], seed=0) == pytest.approx(rank_p(one, 7), abs=0.005)
    assert combined_p([np.zeros(5)] * 3, [0, 1, 2]) == 1.0


def test_error_rate_is_exact_for_any_scores() -> None:
    """Published variants drawn at random, with heavy-tailed and tied scores: P(p ≤ .05) is at most .05."""
    rng = np.random.default_rng(0)
    p = []
    for at in range(400):
        scores = [np.round(rng.standard_t(2, size=20), 1) for _ in range(6)]
        p.append(combined_p(scores, rng.integers(0, 20, 6).tolist(), resamples=999, seed=at))

    assert np.mean(np.array(p) <= 0.05) <= 0.05 + 2.6 * np.sqrt(0.05 * 0.95 / 400)
    assert np.mean(np.array(p) <= 0.05) >= 0.02


def test_no_word_stands_twice_where_words_are_distinct() -> None:
    scheme = Scheme("seed", 300, 8, WORDS, distinct=True)
    scheme.check()
    drawn = [canary.split() for canary in scheme.candidates(("1", "a"))]
    assert all(len(set(words)) == 8 for words in drawn)
    # Those without a repetition are as before: only the others are drawn again.
    plain = [canary.split() for canary in Scheme("seed", 300, 8, WORDS).candidates(("1", "a"))]
    repeated = [len(set(words)) < 8 for words in plain]
    assert 20 < sum(repeated) < 150
    assert [words for words, twice in zip(drawn, repeated, strict=True) if not twice] == [
        words for words, twice in zip(plain, repeated, strict=True) if not twice
    ]
    # Uniform in every place, also in the last, where most words are drawn again.
    few = Scheme("seed", 600, 5, tuple("abcdef"), distinct=True)
    last = [canary.split()[-1] for canary in few.candidates(("1", "a"))]
    assert stats.chisquare(np.unique(last, return_counts=True)[1]).pvalue > 0.01


def test_distinct_words_are_counted_without_repetition() -> None:
    # 6 · 5 · 4 = 120 canaries, where repetition would give 216.
    with pytest.raises(UsageError, match="length must allow 200 different canaries for 2 variants; got 3 out of 6"):
        Scheme("s", 2, 3, tuple("abcdef"), distinct=True).check()
    Scheme("s", 2, 3, tuple("abcdef")).check()
    with pytest.raises(UsageError, match="length must allow"):
        Scheme("s", 2, 7, tuple("abcdef"), distinct=True).check()
