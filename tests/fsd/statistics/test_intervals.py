import numpy as np
import pytest
from scipy import stats

from fsd.errors import UsageError
from fsd.evaluation import rows
from fsd.statistics import bootstrap, conformal, delong, intervals, multiplicity
from fsd.statistics.groups import group_index
from fsd.statistics.metrics import METRICS

AUC, TPR_AT_10 = METRICS["auc"].compute, METRICS["tpr_at_10fpr"].compute


def _sample(rng, texts, per_group, gap, detectors=2):
    """Scores with a shared random effect per group, labels pure by group."""
    group = np.repeat(np.arange(texts // per_group), per_group)
    member = group % 2 == 0
    shared = rng.normal(size=group.max() + 1)[group]
    scores = gap * member + 0.7 * shared + rng.normal(size=(detectors, group.size))
    return member, scores, [str(g) for g in group]


def _delong(member, first, second, groups=None):
    return delong.delong_test(bootstrap.Bootstrap.draw(member, groups, resamples=1), first, second)


def _slow_covariance(member, scores):
    """DeLong's covariance by his own definition: every pair, one after the other."""
    placements = []
    for row in scores:
        x, y = row[member], row[~member]
        psi = np.array([[1.0 if a > b else 0.5 if a == b else 0.0 for b in y] for a in x])
        placements.append((psi.mean(axis=1), psi.mean(axis=0)))
    m, n = int(member.sum()), int((~member).sum())
    return np.cov([p[0] for p in placements]) / m + np.cov([p[1] for p in placements]) / n


def test_delong_equals_the_loop_over_pairs():
    rng = np.random.default_rng(1)
    member = rng.random(40) < 0.4
    first, second = scores = rng.integers(0, 9, size=(2, 40)).astype(float)
    covariance = _slow_covariance(member, scores)
    aucs = [np.mean([(a > b) + (a == b) / 2 for a in row[member] for b in row[~member]]) for row in scores]
    test = _delong(member, first, second)
    assert test.difference == pytest.approx(aucs[1] - aucs[0], abs=1e-12)
    assert test.error**2 == pytest.approx(covariance[0, 0] + covariance[1, 1] - 2 * covariance[0, 1], rel=1e-9)


def test_grouped_delong_with_one_text_a_group_is_delong_and_sees_copies_for_what_they_are():
    member, (first, second), groups = _sample(np.random.default_rng(3), 80, 1, 0.5)
    alone, once = _delong(member, first, second), _delong(member, first, second, groups)
    thrice = _delong(np.tile(member, 3), np.tile(first, 3), np.tile(second, 3), groups * 3)
    assert alone == pytest.approx(once)
    assert thrice == pytest.approx(once)


def test_grouped_delong_equals_slow_obuchowski_on_groups_with_both_sides():
    rng = np.random.default_rng(4)
    group = rng.integers(0, 12, size=70)
    member = rng.random(70) < 0.5
    score = rng.normal(size=70) + member
    x, y = score[member], score[~member]
    theta = np.mean([[a > b for b in y] for a in x])
    s10 = s01 = s11 = 0.0
    for g in range(12):
        inside = group == g
        hits = sum(np.mean([a > b for b in y]) - theta for a in score[inside & member])
        alarms = sum(np.mean([a > b for a in x]) - theta for b in score[inside & ~member])
        s10, s01, s11 = s10 + hits**2, s01 + alarms**2, s11 + hits * alarms
    i10, i01, i = len(set(group[member])), len(set(group[~member])), len(set(group))
    m, n = x.size, y.size
    slow = i10 / (i10 - 1) * s10 / m**2 + i01 / (i01 - 1) * s01 / n**2 + 2 * i / (i - 1) * s11 / (m * n)
    constant = np.zeros(70)  # without a variance of its own
    fast = _delong(member, constant, score, [str(g) for g in group])
    assert fast.error**2 == pytest.approx(slow, rel=1e-12)


def test_against_a_constant_delong_is_the_test_of_brunner_and_munzel():
    rng = np.random.default_rng(7)
    for members, others in ((5, 9), (12, 4), (30, 20)):
        member = np.arange(members + others) < members
        score = np.round(rng.normal(size=member.size) * (1 + member), 1)
        test = _delong(member, np.zeros(member.size), score)
        assert test.p == pytest.approx(stats.brunnermunzel(score[member], score[~member]).pvalue, rel=1e-9)


def test_delong_test_without_variance():
    member, scores, groups = _sample(np.random.default_rng(5), 60, 2, 0.5)
    same = _delong(member, scores[0], scores[0] * 3, groups)
    assert (same.difference, same.error, same.p) == (0.0, 0.0, 1.0)
    opposite = rows.compare(bootstrap.Bootstrap.draw(member, groups), {"a": -1.0 * member}, {"a": 1.0 * member})["a"]
    assert opposite.value == 1.0
    assert opposite.p < 0.01


def test_a_resample_is_the_metric_of_its_repeated_texts():
    rng = np.random.default_rng(6)
    member, scores, groups = _sample(rng, 40, 2, 0.4, detectors=1)
    score = np.round(scores[0], 1)
    texts = bootstrap.Bootstrap.draw(member, groups, resamples=20, seed=1)
    drawn = texts.values(score, [AUC, TPR_AT_10, METRICS["accuracy"].compute], threshold=0.2)[:, 1:]
    right = (score >= 0.2) == member
    for r in range(20):
        copies = np.repeat(np.arange(40), texts.counts[texts.group, r])
        x, y = score[copies][member[copies]], score[copies][~member[copies]]
        assert drawn[0, r] == pytest.approx(np.mean([(a > y).mean() + (a == y).mean() / 2 for a in x]))
        best = max((x >= t).mean() for t in [*score, np.inf] if (y >= t).mean() <= 0.1)
        assert drawn[1, r] == pytest.approx(best)
        assert drawn[2, r] == pytest.approx(right[copies].mean())


def test_every_resample_has_both_sides_and_the_same_seed_gives_the_same():
    member = [True, True, False, False]
    first, second, other = (bootstrap.Bootstrap.draw(member, resamples=500, seed=seed) for seed in (7, 7, 8))
    drawn = first.counts[first.group]
    assert (drawn[:2].sum(axis=0) > 0).all()
    assert (drawn[2:].sum(axis=0) > 0).all()
    assert (first.counts == second.counts).all()
    assert (first.counts != other.counts).any()


def test_holm_by_hand():
    corrected = multiplicity.holm({"a": 0.01, "b": 0.04, "c": 0.03, "d": 0.005})
    assert corrected == pytest.approx({"d": 0.02, "a": 0.03, "c": 0.06, "b": 0.06})
    assert list(corrected) == ["a", "b", "c", "d"]
    assert multiplicity.holm({"a": 0.7, "b": 0.8}) == {"a": 1.0, "b": 1.0}


def test_one_group_only_is_refused_in_one_line():
    with pytest.raises(UsageError, match=r"at least 2 groups .* got 1 and 2"):
        bootstrap.Bootstrap.draw([True, True, False, False], ["a", "a", "b", "c"])
    with pytest.raises(ValueError, match="one length"):
        bootstrap.Bootstrap.draw([True, False], ["a", "b", "c"])


def test_groups_may_be_numbers_or_names_and_a_text_without_one_is_by_itself():
    for names, numbers in (
        (["b", "", "b", "", "a"], [0, 1, 0, 2, 3]),
        ([7, 0, 7, 5, 7], [0, 1, 0, 2, 0]),
        (np.array([7, 0, 7, 5, 7]), [0, 1, 0, 2, 0]),
        (None, [0, 1, 2, 3, 4]),
    ):
        assert group_index(names, 5).tolist() == numbers


def test_an_estimate_reads_as_in_a_table():
    for numbers, shown in (
        ((0.916, 0.9, 1.0), ".92 [.90, 1.00]"),
        ((-0.051, -0.1, 0.004), "-.05 [-.10, .00]"),
        ((10.0, 0.5, 80.75), "10.00 [.50, 80.75]"),
    ):
        assert str(intervals.Estimate(*numbers)) == shown
    assert intervals.Estimate(0.916, 0.9, 1.0).short == ".92"
    assert intervals.Estimate(-20.0, -0.5, 0.5).signed == "-20.00 [-.50, +.50]"
    assert intervals.Estimate(-0.001, -0.0, 0.001).signed == "+.00 [+.00, +.00]"


@pytest.mark.parametrize(("calibration", "texts"), [(42, 105), (7, 300), (400, 40)])
def test_valid_p_values_seldom_leave_their_band(calibration, texts):
    rates = np.linspace(0, 1, 201)
    low, high = conformal.conformal_band(calibration, texts, rates)
    rng = np.random.default_rng(1)
    outside = 0
    for _ in range(600):
        known, new = rng.normal(size=calibration), rng.normal(size=texts)
        p = (1 + (known[None, :] >= new[:, None]).sum(axis=1)) / (calibration + 1)
        share = (p[None, :] <= rates[:, None] + 1e-9).mean(axis=1)
        outside += bool(((share < low - 1e-9) | (share > high + 1e-9)).any())
    assert 0.02 <= outside / 600 <= 0.07
    assert low[0] == high[0] == 0
    assert low[-1] == high[-1] == 1


def test_the_p_value_of_resampled_differences_by_hand():
    # among the 100 equally likely places of zero are those beyond all differences, on either side: no p-value is 0
    assert (
        bootstrap.bootstrap_p(np.arange(1.0, 100)) == bootstrap.bootstrap_p(-np.arange(1.0, 100)) == pytest.approx(0.02)
    )
    assert bootstrap.bootstrap_p(np.append(np.full(96, 0.1), [-0.1, -0.2, -0.3])) == pytest.approx(0.08)
    assert bootstrap.bootstrap_p(np.append(np.full(96, 0.1), [0.0, 0.0, -0.3])) == pytest.approx(0.08)
    assert bootstrap.bootstrap_p(np.zeros(99)) == 1.0


def test_an_interval_leaves_out_a_fortieth_on_each_side():
    assert intervals.percentiles(20.0, np.arange(41.0)) == pytest.approx((20, 1, 39))


def test_an_interval_over_seeds_counts_the_texts_that_they_share_by_hand():
    # of .6, .7 and .8 the variance is .01, that of the mean .01 / 3, with two degrees of freedom
    values, alone = np.array([0.6, 0.7, 0.8]), np.sqrt(0.01 / 3)
    assert intervals.standard_error(values, 0.0) == pytest.approx((alone, 2))
    assert intervals.standard_error(values, alone) == pytest.approx((np.sqrt(2) * alone, 2 * 2**2))
    assert intervals.interval(values, 0.0) == pytest.approx((0.7 - 4.302653 * alone, 0.7 + 4.302653 * alone))
    assert np.isnan(intervals.standard_error(np.array([0.6]), 0.1)).all()
