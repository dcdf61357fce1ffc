"""Extraction: passages, queries and shares by hand, and against slow loops."""

import math

import numpy as np
import pytest
from scipy.stats import binomtest

from extensions.extract.extraction import Side, Work, lead, passages, queries, ratio
from extensions.extract.powers import planted_passages
from fsd.errors import UsageError
from fsd.statistics.intervals import Estimate


def work(log_p: list[float], *, tokens: int = 20, prefix: int = 2, suffix: int = 3, stride: int = 4) -> Work:
    starts = passages(np.arange(tokens), prefix, suffix, stride)
    return Work("book", np.arange(tokens), starts, np.array(log_p), prefix, suffix)


def test_passages_by_hand_and_those_that_cannot_be() -> None:
    book = work([0.0, 0.0, 0.0], tokens=10, stride=2)
    assert book.starts.tolist() == [0, 2, 4]
    assert book.passages.tolist() == [[0, 1, 2, 3, 4], [2, 3, 4, 5, 6], [4, 5, 6, 7, 8]]
    with pytest.raises(UsageError, match="must have at least 5 tokens, prefix and suffix; got 4"):
        passages(np.arange(4), 2, 3, 1)


def test_queries_by_hand_and_by_trying() -> None:
    assert queries(math.log(0.5)) == 1
    assert queries(math.log(0.25)) == 3  # .75² = .56 still fails half of the time, .75³ = .42 does not
    assert queries(math.log(0.001)) == 693
    assert queries(math.log(0.001), 0.95) == math.ceil(math.log(0.05) / math.log(0.999))
    assert queries(-math.inf) == math.inf
    assert queries(-2000.0) == math.inf
    for p in (0.3, 0.04, 0.0007):
        n = queries(math.log(p), 0.9)
        assert 1 - (1 - p) ** n >= 0.9 > 1 - (1 - p) ** (n - 1)


def test_coverage_against_a_loop() -> None:
    rng = np.random.default_rng(0)
    starts = passages(np.arange(3000), 50, 50, 7)
    log_p = rng.uniform(-12, 0, starts.size)
    book = Work("book", np.arange(3000), starts, log_p, 50, 50)

    inside, covered = set(), set()
    for start, value in zip(starts.tolist(), log_p, strict=True):
        inside |= set(range(start + 50, start + 100))
        if value >= math.log(0.01):
            covered |= set(range(start + 50, start + 100))

    share = Side([book]).coverage(0.01)
    assert share.value == pytest.approx(len(covered) / len(inside))
    assert share.low < share.value < share.high


def test_a_passage_at_exactly_the_level_counts() -> None:
    book = work([math.log(0.5), math.log(0.4999), -20.0, math.log(0.5)])
    assert book.suffixes(math.log(0.5)).nonzero()[0].tolist() == [2, 3, 4, 14, 15, 16]


def test_nothing_extractable_has_an_upper_bound_by_blocks() -> None:
    tokens = 20 * 2 * 100  # 20 blocks of two passages
    starts = passages(np.arange(tokens), 50, 50, 10)
    none = Side([Work("w", np.arange(tokens), starts, np.full(starts.size, -50.0), 50, 50)]).coverage(0.001)

    assert (none.value, none.low) == (0, 0)
    assert none.high == pytest.approx(binomtest(0, 20).proportion_ci(method="exact").high)


def test_best_passages_do_not_overlap_and_the_profile_shows_the_highest_of_each_part() -> None:
    book = work([-3.0, -1.0, -0.5, -math.inf], stride=2, tokens=11)
    assert [int(book.starts[at]) for at in book.best(3)] == [4, 0]
    assert work([-1.0, -2.0, -30.0, 0.0]).profile(2).tolist() == pytest.approx([-1 / math.log(10), 0.0])


def test_ratio_is_conservative() -> None:
    assert ratio(Estimate(0.4, 0.3, 0.5), Estimate(0.1, 0.05, 0.2)) == pytest.approx((4.0, 1.5, 10.0))
    assert ratio(Estimate(0.4, 0.3, 0.5), Estimate(0.0, 0.0, 0.1)) == (math.inf, pytest.approx(3.0), math.inf)
    assert math.isnan(ratio(Estimate(0, 0, 0.1), Estimate(0, 0, 0.1)).value)


def test_the_lead_of_a_work_by_hand():
    # The two highest of 3 + 2 blocks are of the work: 3/5 · 2/4.
    assert lead(np.array([-1.0, -2.0, -9.0]), np.array([-3.0, -4.0])) == (2, pytest.approx(0.3))
    assert lead(np.array([-5.0]), np.array([-3.0])) == (0, 1.0)
    assert lead(np.array([-np.inf]), np.array([-np.inf])) == (0, 1.0)


def test_the_chance_of_a_lead_is_at_most_its_p_among_blocks_that_are_alike():
    rng = np.random.default_rng(0)
    ps = np.array([lead(*np.split(rng.normal(size=50), [20]))[1] for _ in range(4000)])
    for level in (0.05, 0.1, 0.3):
        assert (ps <= level).mean() <= level + 0.015


def test_blocks_of_passages_stay_together() -> None:
    tokens = np.arange(40)
    works = [
        Work("a", tokens, np.array([0, 4, 10]), np.array([-1.0, -2.0, -3.0]), 2, 3),
        Work("b", tokens, np.array([0, 30]), np.array([-4.0, -5.0]), 2, 3),
    ]
    unread = Side(works)
    assert unread.blocks.tolist() == [0, 0, 1, 2, 3]
    assert unread.highest.tolist() == [-1.0, -3.0, -4.0, -5.0]
    planted, of_block = planted_passages(unread, 6, 10.0, np.random.default_rng(1))
    assert sorted(set(of_block.tolist())) == list(range(6))
    for number in range(6):
        assert (planted[of_block == number] - 10).tolist() in ([-1.0, -2.0], [-3.0], [-4.0], [-5.0])
