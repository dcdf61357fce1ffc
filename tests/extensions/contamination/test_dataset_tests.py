"""Tests of whole data sets: by hand, by slow loops, and their error rates under the null hypothesis."""

import itertools
import math
from collections.abc import Callable, Sequence

import numpy as np
import pytest

from extensions.contamination.dataset_tests import (
    BREAK,
    check_order,
    codec,
    equal_sets,
    exchangeability,
    kernel_divergence,
)
from fsd.errors import UsageError
from fsd.statistics.ranks import rank_among
from fsd.token_stats import Prompt, Scorer, TokenStats


def scorer_of(logp: Callable[[Prompt], float]) -> Scorer:
    """A scorer that gives every prompt one token of the log-probability."""

    def score(prompts: Sequence[Prompt]) -> list[TokenStats]:
        return [
            TokenStats(p.text, np.zeros(1, np.int64), np.array([logp(p)]), np.full(1, -1.0), np.ones(1))
            for p in prompts
        ]

    return score


TEXTS = [f"text {at}" for at in range(30)]


def test_a_model_that_knows_the_order_is_found() -> None:
    def neighbours(prompt: Prompt) -> float:
        numbers = [int(part.removeprefix("text ")) for part in prompt.text.split(BREAK)]
        return float(sum(b - a == 1 for a, b in itertools.pairwise(numbers)))

    p, z, _ = exchangeability(TEXTS, scorer_of(neighbours), shard=5, orders=19)
    assert p <= 1e-4
    assert z > 1
    assert exchangeability(TEXTS, scorer_of(lambda prompt: -float(len(prompt.text))))[:2] == (1.0, 0.0)
    for shard, orders in ((1, 19), (5, 0), (20, 19)):
        with pytest.raises(UsageError, match=r"must be at least|must fill 2 shards"):
            check_order(len(TEXTS), shard=shard, orders=orders)


@pytest.mark.slow
def test_the_test_of_order_holds_its_level() -> None:
    """Random preferences for orders: P(p ≤ .1) is .1."""
    rng = np.random.default_rng(0)
    p = [exchangeability(TEXTS, scorer_of(lambda _: rng.standard_cauchy()), seed=at)[0] for at in range(200)]
    assert abs(np.mean(np.array(p) <= 0.1) - 0.1) <= 3 * math.sqrt(0.1 * 0.9 / 200)


def test_sets_are_disjoint_and_equally_large() -> None:
    known = [f"known {at}" for at in range(45)]
    many = [f"text {at}" for at in range(100)]
    sets = equal_sets(many, known, 4, seed=1)
    assert {len(part) for part in sets} == {11}
    assert set(sets[0]) < set(many)
    assert len({text for part in sets[1:] for text in part} & set(known)) == 44
    assert {len(part) for part in equal_sets(many[:7], known, 4, seed=1)} == {7}
    assert len(equal_sets(many, known, 9)) == 10
    for texts, number, message in (
        (many, 19, r"at least 5 suspect texts and 95 known .* got 100 and 45: --sets 9 works, but .* below 1/10$"),
        (many[:4], 19, r"got 4 and 45$"),
        (many, 0, "sets must be at least 1"),
    ):
        with pytest.raises(UsageError, match=message):
            equal_sets(texts, known, number)


def test_ranks_by_hand() -> None:
    for value, others, p in ((3.0, [1.0, 2.0, 4.0], 0.5), (5.0, [1.0] * 19, 0.05), (1.0, [1.0] * 3, 1.0)):
        assert rank_among(value, others) == p


def test_codec_counts_the_texts_that_lose_after_others_of_the_set() -> None:
    losing, contexts = set(TEXTS[::3]), {}

    def score(prompt: Prompt) -> float:
        if not prompt.context:
            return -1.0
        contexts[prompt.text] = prompt.context
        return -2.0 if prompt.text in losing else -0.5

    assert codec(TEXTS, scorer_of(score), shots=3) == pytest.approx(10 / 30)
    assert set(contexts) == set(TEXTS)
    for text, context in contexts.items():
        parts = context.split(BREAK)[:-1]
        assert len(set(parts)) == 3
        assert set(parts) <= set(TEXTS) - {text}


def test_kernel_divergence_against_a_loop() -> None:
    rng = np.random.default_rng(0)
    before = rng.normal(size=(6, 4))
    after = before + 0.1 * rng.normal(size=(6, 4))
    squares = [
        sum((a - b) ** 2 for a, b in zip(before[i], before[j], strict=True))
        for i in range(6)
        for j in range(6)
        if i != j
    ]
    gamma = 1 / float(np.median(squares))
    total = normal = 0.0
    for i in range(6):
        for j in range(6):
            phi = math.exp(-gamma * float(((before[i] - before[j]) ** 2).sum()))
            new = math.exp(-gamma * float(((after[i] - after[j]) ** 2).sum()))
            total += abs(phi * math.log(phi / new))
            normal += phi
    assert kernel_divergence(before, after) == pytest.approx(-total / math.sqrt(normal), rel=1e-9)
    assert kernel_divergence(before, before) == 0
    assert kernel_divergence(before, before + 5) == pytest.approx(0, abs=1e-9)
    with pytest.raises(ValueError, match="different embeddings"):
        kernel_divergence(np.ones((3, 2)), np.ones((3, 2)))
