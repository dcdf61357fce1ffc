"""The planted scores by hand, and the share of simulations that find them."""

import numpy as np
import pytest

from fsd.statistics.power import planted_choice, power, raised_above, resamples_for


def test_power_is_the_share_of_p_values_at_most_at_the_level() -> None:
    p_values = iter([0.01, 0.05, 0.05 + 1e-12, 0.051, 0.9])
    assert power(lambda _: next(p_values), 0.05, draws=5).value == 0.6
    # without an effect, the level
    stated = power(lambda rng: rng.uniform(), 0.2, draws=1000, seed=3)
    assert stated.low <= 0.2 <= stated.high
    assert power(lambda rng: rng.uniform(), 0.2, seed=3) == power(lambda rng: rng.uniform(), 0.2, seed=3)


def test_a_simulated_test_can_fall_well_below_the_level() -> None:
    for level in (0.5, 0.05, 0.0125, 0.001):
        assert 1 / (resamples_for(level) + 1) <= level / 4
    assert resamples_for(0.05) == 199


def test_one_variant_of_each_document_is_raised() -> None:
    rng = np.random.default_rng(0)
    values = [rng.standard_normal(5), 10 * rng.standard_normal(9), np.zeros(4)]
    before = [scores.copy() for scores in values]
    drawn = set()
    for _ in range(60):
        planted, indices = planted_choice(values, 2.0, rng)
        drawn.add(indices[0])
        for scores, raised, index in zip(values, planted, indices, strict=True):
            expected = np.zeros(len(scores))
            expected[index] = 2 * scores.std()
            assert raised - scores == pytest.approx(expected)
    assert drawn == set(range(5))
    assert all((left == right).all() for left, right in zip(values, before, strict=True))


def test_share_above_a_threshold() -> None:
    scores = np.array([0.0, 1.0, 2.0, 3.0])
    spread = scores.std()
    assert raised_above(scores, 3.0, 0.0).value == 0.25
    assert raised_above(scores, 2 + spread, 1.0).value == 0.5
    # four texts of one group are one text
    assert raised_above(scores, -1, 0.0, ["a"] * 4).low == pytest.approx(0.025)
