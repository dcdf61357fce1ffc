"""The planted scores by hand, and the share of simulations that find them."""

import numpy as np
import pytest

from fsd.statistics import power as module
from fsd.statistics.power import (
    planted_choice,
    planted_number,
    planted_passages,
    planted_sets,
    power,
    raised_above,
    resamples_for,
)


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


def test_sets_are_drawn_from_unread_texts_and_one_is_raised(monkeypatch) -> None:
    scores = np.array([[0.0, 10.0], [2.0, 30.0], [4.0, 50.0]])
    monkeypatch.setattr(module, "SMOOTHED", 0.0)
    read, unread = planted_sets(scores, (40, 70), 0.5, np.random.default_rng(0))
    assert (read.shape, unread.shape) == ((40, 2), (70, 2))
    rows = set(map(tuple, scores.tolist()))
    assert set(map(tuple, unread.tolist())) == rows
    lowered = read - 0.5 * scores.std(axis=0)
    assert set(map(tuple, lowered.round(9).tolist())) == rows
    monkeypatch.setattr(module, "MOST", 8)
    assert [len(side) for side in planted_sets(scores, (5, 70), 0.5, np.random.default_rng(0))] == [5, 8]


def test_smoothed_sets_have_no_copies_and_the_moments_of_the_scores() -> None:
    rng = np.random.default_rng(0)
    scores = rng.standard_normal((30, 1)) + 0.3 * rng.standard_normal((30, 3)) + [0.0, 5.0, -5.0]
    read, unread = planted_sets(scores, (2000, 2000), 0.5, rng)
    assert len(set(map(tuple, unread.tolist()))) == 2000
    assert unread.mean(axis=0) == pytest.approx(scores.mean(axis=0), abs=0.1)
    assert np.cov(unread.T) == pytest.approx(np.cov(scores.T, bias=True), abs=0.1)
    assert read.mean(axis=0) - unread.mean(axis=0) == pytest.approx(0.5 * scores.std(axis=0), abs=0.1)
    # Detectors may be copies of one another, and one alone is a column.
    assert np.isfinite(planted_sets(scores[:, [0, 0]], (5, 5), 0.5, rng)[0]).all()
    assert planted_sets(scores[:, :1], (5, 5), 0.5, rng)[0].shape == (5, 1)


def test_numbers_of_sets_are_like_those_of_unread_sets() -> None:
    rng = np.random.default_rng(0)
    numbers = rng.standard_normal(400) * 3 + 7
    value, others = planted_number(numbers, 2.0, rng)
    assert others.shape == (400,)
    assert others.mean() == pytest.approx(7, abs=0.6)
    assert others.std() == pytest.approx(3, abs=0.4)
    values = [planted_number(numbers[:20], 2.0, rng)[0] for _ in range(400)]
    assert np.mean(values) == pytest.approx(numbers[:20].mean() + 2 * numbers[:20].std(ddof=1), abs=0.6)
    assert value != others[0]


def test_blocks_of_passages_stay_together() -> None:
    log_p = np.array([-1.0, -2.0, -3.0, -4.0, -5.0])
    blocks = np.array([0, 0, 1, 3, 3])
    pieces = {0: [-1.0, -2.0], 1: [-3.0], 3: [-4.0, -5.0]}
    planted, of_block = planted_passages(log_p, blocks, 6, 10.0, np.random.default_rng(1))
    assert sorted(set(of_block.tolist())) == list(range(6))
    for number in range(6):
        assert (planted[of_block == number] - 10).tolist() in pieces.values()


def test_share_above_a_threshold() -> None:
    scores = np.array([0.0, 1.0, 2.0, 3.0])
    spread = scores.std()
    assert raised_above(scores, 3.0, 0.0).value == 0.25
    assert raised_above(scores, 2 + spread, 1.0).value == 0.5
    # four texts of one group are one text
    assert raised_above(scores, -1, 0.0, ["a"] * 4).low == pytest.approx(0.025)
