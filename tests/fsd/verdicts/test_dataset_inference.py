import math

import numpy as np
import pytest

from fsd.errors import UsageError
from fsd.statistics.intervals import Estimate
from fsd.text_audit.audit import blind
from fsd.text_audit.audited import Control
from fsd.verdicts.dataset_inference import dataset_verdict, share_used


def _verdict(rng, gap=0.0, **more):
    """Correlated detectors, of which the first two see the gap, with a shared effect per group and heavy tails."""
    sides, names = [], []
    for groups, shift in ((25, gap), (40, 0.0)):
        shared = rng.normal(size=(groups, 1, 1)) + 0.5 * rng.standard_t(4, size=(groups, 1, 4))
        scores = (shared + rng.standard_t(4, size=(groups, 4, 4))).reshape(-1, 4)
        scores[:, :2] += shift
        sides.append({f"d{k}": scores[:, k] for k in range(4)})
        names.append([f"{groups} {at // 4}" for at in range(len(scores))])
    return dataset_verdict(*sides, suspect_groups=names[0], known_groups=names[1], permutations=199, **more)


@pytest.mark.parametrize(("asked", "known"), [((15, 1), (65, 4)), ((65, 4), (15, 1)), ((5, 1), (60, 8))])
def test_the_level_is_kept_where_the_groups_of_the_two_sets_differ_in_size(asked, known):
    """Means of one text scatter more than those of four: with permuted means .11 to .19 were found at .05."""
    rng = np.random.default_rng(3)
    p = []
    for seed in range(150):
        sides, names = [], []
        for groups, size in (asked, known):
            group = np.repeat(np.arange(groups), size)
            sides.append({"loss": 0.5 * rng.standard_t(4, groups)[group] + rng.standard_t(4, group.size)})
            names.append([f"{size} {number}" for number in group])
        verdict = dataset_verdict(*sides, suspect_groups=names[0], known_groups=names[1], permutations=99, seed=seed)
        assert len(verdict.group_p) == asked[0]
        p.append(verdict.p)
    assert np.mean(np.array(p) <= 0.05) <= 0.05 + 2 * np.sqrt(0.05 * 0.95 / 150)


def test_groups_of_one_size_count_with_all_of_their_texts():
    rng = np.random.default_rng(8)
    scores = rng.normal(size=(12, 3))
    names = [f"g{row}" for row in range(12) for _ in range(3)]
    whole = dataset_verdict(
        {"loss": scores[:6].ravel()}, {"loss": scores[6:].ravel()}, suspect_groups=names[:18], known_groups=names[18:]
    )
    means = scores.mean(axis=1)
    by_means = dataset_verdict({"loss": means[:6]}, {"loss": means[6:]})
    assert (whole.p, whole.difference) == pytest.approx((by_means.p, by_means.difference))


def test_a_real_difference_is_detected_and_weighted_but_not_a_lower_score():
    rng = np.random.default_rng(1)
    verdicts = [_verdict(rng, gap=1.0, seed=s) for s in range(40)]
    assert np.mean([v.p <= 0.05 for v in verdicts]) > 0.7
    weights = np.mean([[v.weights[f"d{k}"] for k in range(4)] for v in verdicts], axis=0)
    assert weights[:2].sum() > 0.7
    assert weights.sum() == pytest.approx(1)
    assert _verdict(np.random.default_rng(2), gap=-2.0).p > 0.5


def test_a_shift_that_the_blind_classifier_detects_is_regressed_out():
    rng = np.random.default_rng(4)
    raw, controlled = [], []
    for seed in range(60):
        topic = np.append(rng.normal(0.5, 1, 80), rng.normal(0, 1, 80))
        scores = topic + 0.5 * rng.normal(size=160)
        sides = {"loss": scores[:80]}, {"loss": scores[80:]}
        seen = Control(Estimate(0.6, 0.55, 0.65), scores=topic)
        raw.append(dataset_verdict(*sides, permutations=99, seed=seed).p)
        controlled.append(dataset_verdict(*sides, blind=seen, permutations=99, seed=seed).p)
    assert np.mean(np.array(raw) <= 0.05) > 0.5
    assert np.mean(np.array(controlled) <= 0.05) <= 0.1


def test_no_p_value_if_a_blind_classifier_separates_the_sets():
    rng = np.random.default_rng(5)
    old = [" ".join(rng.choice(["alpha", "beta", "gamma", "delta"], 20)) for _ in range(30)]
    new = [" ".join(rng.choice(["alpha", "beta", "gamma", "covid"], 20)) for _ in range(30)]
    control = blind(old + new, [True] * 30 + [False] * 30, repeats=1)
    scores = {"loss": rng.normal(size=30) + 3}, {"loss": rng.normal(size=30)}
    verdict = dataset_verdict(*scores, blind=control, permutations=99)
    assert verdict.p is None
    assert "differ in more than membership" in verdict.reason
    assert dataset_verdict(*scores, permutations=99).p == 0.01
    for low, withheld in ((0.59, False), (0.61, True)):
        control = Control(Estimate(0.7, low, 0.8), scores=None)
        verdict = dataset_verdict({"loss": np.arange(9.0)}, {"loss": np.arange(9.0)}, blind=control, permutations=9)
        assert (verdict.p is None) is withheld


def test_difference_by_hand():
    # the same detector twice: halves agree, standard deviation of 5 ones and 5 zeros is 1/2
    verdict = dataset_verdict({"loss": np.ones(5)}, {"loss": np.zeros(5)}, permutations=99)
    assert verdict.difference == pytest.approx(2.0)
    assert (verdict.suspect_groups, verdict.known_groups) == (5, 5)
    flat = dataset_verdict({"loss": np.ones(5)}, {"loss": np.ones(5)}, permutations=99)
    assert (flat.p, flat.difference) == (1.0, 0.0)


def test_bad_input_is_refused():
    five = np.arange(5.0)
    with pytest.raises(UsageError, match="at least 5 groups of texts; got 1 suspect and 5 known"):
        dataset_verdict({"loss": five}, {"loss": five}, suspect_groups=["a"] * 5)
    with pytest.raises(UsageError, match="'b' in both"):
        dataset_verdict({"a": five}, {"a": five}, suspect_groups=list("abcde"), known_groups=list("vwxyb"))


def test_detectors_are_weighted_on_other_texts_than_they_are_tested_on():
    """Of twenty detectors of noise some separate few texts by chance: on other texts the difference is zero."""
    rng, differences = np.random.default_rng(6), []
    for seed in range(60):
        suspect, known = ({f"d{k}": rng.normal(size=12) for k in range(20)} for _ in range(2))
        differences.append(dataset_verdict(suspect, known, permutations=1, seed=seed).difference)
    assert np.mean(differences) == pytest.approx(0, abs=3 * np.std(differences) / np.sqrt(60))
    assert np.mean(differences) < 0.3


def test_texts_without_a_group_are_in_both_sets():
    eight = np.arange(8.0)
    verdict = dataset_verdict({"a": eight}, {"a": eight}, suspect_groups=[""] * 8, known_groups=[""] * 8)
    assert (verdict.suspect_groups, verdict.known_groups) == (8, 8)


def _unused(low, suspects, known, rank):
    """Fewest and most unused texts by which so many scores are plausible at the rank-th of the known ones."""
    plausible = []
    for unused in range(suspects + 1):
        orders = math.comb(unused + known, unused)  # all orders of these and the known texts are equally likely
        chances = [
            math.comb(k + rank - 1, k) * math.comb(unused - k + known - rank, unused - k) / orders
            for k in range(unused + 1)
        ]
        if sum(chances[: low + 1]) >= 0.025 and sum(chances[low:]) >= 0.025:
            plausible.append(unused)
    return plausible[0], plausible[-1]


def test_the_interval_of_the_share_equals_the_slow_count_of_all_orders():
    for suspects, known, low in ((12, 9, 3), (20, 14, 7), (30, 25, 5), (10, 30, 1)):
        found = share_used(np.r_[np.zeros(low), np.full(suspects - low, 99.0)], np.arange(1.0, known + 1))
        fewest, most = _unused(low, suspects, known, -(-known // 2))
        assert (found.low, found.high) == pytest.approx((1 - most / suspects, 1 - fewest / suspects))


def test_share_by_hand() -> None:
    known = np.arange(1.0, 10.0)  # the median is 5
    for low, expected in ((0, 1), (2, 0.6), (5, 0), (8, 0)):
        found = share_used(np.r_[np.zeros(low), np.full(10 - low, 20.0)], known)
        assert found.value == pytest.approx(expected)  # 1 - (low / 10) / (5 / 10)
        assert found.low <= found.value <= found.high
    assert share_used(np.zeros(10), known).low == 0


def test_the_verdict_has_the_share_unless_the_texts_explain_it() -> None:
    found = _verdict(np.random.default_rng(1), gap=6.0)
    assert found.share.low > 0.5
    assert _verdict(np.random.default_rng(1), blind=Control(Estimate(0.9, 0.8, 0.95))).share is None
