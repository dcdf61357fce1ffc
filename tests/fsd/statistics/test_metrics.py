import numpy as np
import pytest
from scipy.stats import norm
from sklearn.metrics import roc_auc_score

from fsd.errors import UsageError
from fsd.evaluation import rows
from fsd.statistics import intervals, metrics
from fsd.statistics.bootstrap import Bootstrap

LABELS = [1, 1, 0, 1, 0, 0]
SCORES = [3.0, 2.0, 2.0, 1.0, 0.0, -1.0]


def _accuracy(labels, scores, threshold):
    return float(((np.asarray(scores) >= threshold) == np.asarray(labels, bool)).mean())


def test_auc_equals_the_loop_over_pairs_and_sklearn():
    rng = np.random.default_rng(0)
    labels, scores = rng.random(80) < 0.3, rng.integers(0, 10, 80).astype(float)
    pairs = [(a > b) + (a == b) / 2 for a in scores[labels] for b in scores[~labels]]
    assert metrics.auc(labels, scores) == pytest.approx(np.mean(pairs), abs=1e-12)
    assert metrics.auc(labels, scores) == pytest.approx(roc_auc_score(labels, scores), abs=1e-12)
    assert metrics.auc(labels, -scores) == pytest.approx(1 - metrics.auc(labels, scores), abs=1e-12)
    assert metrics.auc(LABELS, SCORES) == pytest.approx(7.5 / 9)  # 3, 2, 1 against 2, 0, -1: 3 + 2.5 + 2 of 9 pairs


def tpr_at(labels, scores, fpr):
    """Of the points of the curve, in place of the counts by which the metrics are made."""
    alarms, hits, _ = metrics.roc(labels, scores)
    return hits[alarms <= fpr + metrics.FPR_SLACK].max()


def found_at(labels, scores, fpr):
    return metrics.Metric("", metrics.tpr_at(fpr)).of(labels, scores)


def test_a_share_found_at_a_rate_by_hand():
    # thresholds 3: (0, 1/3); 2: (1/3, 2/3); 1: (1/3, 1); 0: (2/3, 1)
    assert found_at(LABELS, SCORES, 0.0) == pytest.approx(1 / 3)
    assert found_at(LABELS, SCORES, 0.33) == pytest.approx(1 / 3)
    assert found_at(LABELS, SCORES, 1 / 3) == 1.0
    assert found_at([1, 1, 0, 0], [5, 1, 5, 0], 0.1) == 0.0  # a non-member shares the top score
    labels = np.append(np.ones(10, bool), np.zeros(100, bool))
    scores = np.append(np.full(10, 71.5), np.arange(100.0))
    assert found_at(labels, scores, 0.28) == 1.0
    assert found_at(labels, scores - 1, 0.29) == 1.0  # 0.29 * 100 < 29 in floating point


def test_roc_runs_from_corner_to_corner():
    fpr, tpr, threshold = metrics.roc(LABELS, SCORES)
    np.testing.assert_allclose(fpr, [0, 0, 1 / 3, 1 / 3, 2 / 3, 1])
    np.testing.assert_allclose(tpr, [0, 1 / 3, 2 / 3, 1, 1, 1])
    np.testing.assert_array_equal(threshold, [np.inf, 3, 2, 1, 0, -1])
    assert np.trapezoid(tpr, fpr) == pytest.approx(metrics.auc(LABELS, SCORES))


def test_best_threshold_by_hand():
    everything_above = np.nextafter(3.0, 4.0)
    for labels, scores, thresholds, accuracy in (
        (LABELS, SCORES, [0.5], 5 / 6),
        ([1, 0, 1, 0], [4.0, 3.0, 1.0, 0.0], [3.5, 0.5], 3 / 4),  # the highest of equals comes first
        ([1, 0, 1, 0, 0], [5.0, 4.0, 3.0, 2.0, 1.0], [4.5, 2.5], 4 / 5),
        ([0, 0, 1], [3.0, 2.0, 1.0], [everything_above], 2 / 3),
        ([0, 1, 1], [3.0, 2.0, 1.0], [1.0], 2 / 3),
        ([0, 1], [2.0, 1.0], [np.nextafter(2.0, 3.0), 1.0], 1 / 2),
        ([1, 0], [np.nextafter(1.0, 2.0), 1.0], [np.nextafter(1.0, 2.0)], 1.0),
    ):
        assert metrics.best_thresholds(labels, scores).tolist() == thresholds
        assert _accuracy(labels, scores, thresholds[0]) == pytest.approx(accuracy)


def test_best_threshold_is_as_accurate_as_any():
    rng = np.random.default_rng(1)
    for _ in range(50):
        labels = np.append([True, False], rng.random(20) < 0.5)
        scores = rng.integers(0, 8, 22).astype(float)
        best = _accuracy(labels, scores, metrics.best_thresholds(labels, scores)[0])
        assert best == max(_accuracy(labels, scores, t) for t in [*scores, 99.0])


def _two(seed=0, texts=120):
    rng = np.random.default_rng(seed)
    labels = np.arange(texts) % 2 == 0
    groups = [str(i // 4) for i in range(texts)]
    base = {"loss": rng.normal(size=texts) + labels, "zlib": rng.normal(size=texts)}
    return labels, base, {"loss": base["loss"] + labels, "zlib": base["zlib"]}, groups


def test_comparison_of_any_metric():
    labels, base, fsd, groups = _two()
    bootstrap = Bootstrap.draw(labels, groups)
    by_auc, by_tpr = (rows.compare(bootstrap, base, fsd, metric=name) for name in ("auc", "tpr_at_5fpr"))
    assert by_auc["loss"].p < by_auc["loss"].p_holm < 0.05
    values = (tpr_at(labels, scores["loss"], 0.05) for scores in (fsd, base))
    assert by_tpr["loss"].value == np.subtract(*values)
    assert by_tpr["zlib"].p == 1.0


def test_the_metrics_of_the_table_are_those_of_the_plain_functions():
    labels, base, _, groups = _two(1)
    measured = metrics.estimates(Bootstrap.draw(labels, groups), base["loss"], 0.5)
    assert {name: estimate.value for name, estimate in measured.items()} == {
        "auc": metrics.auc(labels, base["loss"]),
        "tpr_at_1fpr": tpr_at(labels, base["loss"], 0.01),
        "tpr_at_5fpr": tpr_at(labels, base["loss"], 0.05),
        "tpr_at_10fpr": tpr_at(labels, base["loss"], 0.10),
        "accuracy": _accuracy(labels, base["loss"], 0.5),
    }
    assert all(estimate.low <= estimate.value <= estimate.high for estimate in measured.values())
    none_called = metrics.estimates(Bootstrap.draw([1, 0, 0, 0, 1]), np.arange(5.0), 9.0)
    assert none_called["accuracy"].value == 0.6


def test_ties_at_the_top_and_a_score_at_the_threshold():
    labels, scores = np.array([1, 1, 0, 1, 0, 0], bool), np.array([2.0, 2.0, 2.0, 1.0, 1.0, 0.0])
    measured = metrics.estimates(Bootstrap.draw(labels), scores, 2.0)
    assert measured["auc"].value == pytest.approx((2 * 2.5 + 1.5) / 9)  # a tie counts half
    assert measured["accuracy"].value == pytest.approx(4 / 6)  # those of 2 are called; of none, 3 / 6 are right
    equal = metrics.estimates(Bootstrap.draw(labels), np.zeros(6))
    assert equal["auc"] == pytest.approx((0.5, 0.5, 0.5))


def test_a_rate_that_was_rounded_allows_as_many_false_alarms():
    labels = np.append(np.ones(10, bool), np.zeros(100, bool))
    scores = np.append(np.full(10, 89.5), np.arange(100.0))
    for rate, hits in ((1 - 0.9, 1.0), (0.1, 1.0), (0.0999, 0.0)):  # 1 - 0.9 is .09999999999999998
        assert found_at(labels, scores, rate) == hits
        (values,) = Bootstrap.draw(labels, resamples=2).values(scores, [metrics.tpr_at(rate)])
        assert values[0] == hits


def test_an_interval_of_a_rate_is_trusted_from_two_and_a_half_false_alarms_on():
    for name, rate in (("tpr_at_1fpr", 0.01), ("tpr_at_5fpr", 0.05), ("tpr_at_10fpr", 0.10)):
        assert metrics.METRICS[name].needs * rate == pytest.approx(2.5)


def test_perfect_scores_do_not_claim_certainty():
    labels = np.arange(20) < 10
    up = metrics.estimates(Bootstrap.draw(labels), labels.astype(float))["auc"]
    down = metrics.estimates(Bootstrap.draw(labels), -labels.astype(float))["auc"]
    assert (up.value, up.high) == (1.0, 1.0)
    assert 0.5 < up.low < 0.95
    assert down == pytest.approx((0.0, 0.0, 1 - up.low))
    assert 0.5 < intervals.interval_of_auc(1, 5, 5)[0] < 0.9 < 0.99 < intervals.interval_of_auc(1, 500, 500)[0] < 1
    for members, others in ((5, 5), (10, 40)):
        # by the error of Hanley and McNeil (1982) of equally many on both sides, an AUC of 1 is just not rejected
        (bound, highest), each = intervals.interval_of_auc(1, members, others), (members + others) / 2
        assert highest == 1
        two_above_one, one_above_two = bound / (2 - bound), 2 * bound**2 / (1 + bound)
        variance = bound * (1 - bound) + (each - 1) * (two_above_one - bound**2 + one_above_two - bound**2)
        assert bound + norm.ppf(0.975) * np.sqrt(variance / (members * others)) == pytest.approx(1)


@pytest.mark.parametrize(("few", "others"), [(3, 210), (5, 210)])
@pytest.mark.parametrize("turned", [False, True])
def test_the_interval_of_an_auc_with_few_of_a_side_holds_the_true_value(few, others, turned):
    """The bootstrap alone covers 75 and 86 of 100; here, at least 92 of 100 in 200 draws with an AUC of .71."""
    rng = np.random.default_rng(few)
    labels = (np.arange(few + others) < few) ^ turned
    true = norm.cdf(0.8 / np.sqrt(2))
    covered = []
    for seed in range(200):
        bootstrap = Bootstrap.draw(labels, resamples=100, seed=seed)
        interval = metrics.estimates(bootstrap, rng.normal(size=labels.size) + 0.8 * labels)["auc"]
        covered.append(interval.low <= true <= interval.high)
        assert 0 <= interval.low <= interval.value <= interval.high <= 1
    assert np.mean(covered) >= 0.92


def test_rates_without_an_exception_do_not_claim_certainty():
    """Of ten families with members all are found: with a chance of .69 each, that happens in one of 40 cases."""
    labels, groups = np.arange(40) < 20, np.arange(40) // 2
    measured = metrics.estimates(Bootstrap.draw(labels, groups.tolist()), labels.astype(float), 0.5)
    for name in ("tpr_at_1fpr", "tpr_at_10fpr"):
        assert measured[name] == pytest.approx((1, 0.025 ** (1 / 10), 1))
    assert measured["accuracy"] == pytest.approx((1, 0.025 ** (1 / 20), 1))
    turned = metrics.estimates(Bootstrap.draw(labels, groups.tolist()), -labels.astype(float), 0.5)
    assert turned["tpr_at_5fpr"] == pytest.approx((0, 0, 1 - 0.025 ** (1 / 10)))


def test_bad_input_is_refused():
    for labels, scores, error, message in (
        ([1, 1], [0.0, 1.0], UsageError, "got 2 members among 2 texts"),
        ([1, 0], [np.nan, 1.0], ValueError, "finite"),
        ([1, 0], [1.0], ValueError, "alike"),
    ):
        with pytest.raises(error, match=message):
            metrics.auc(labels, scores)


def _paired(seed, groups, per_group, gap):
    """Two correlated detectors, the second better by `gap` standard deviations, on groups with a shared effect."""
    rng = np.random.default_rng(seed)
    group = np.repeat(np.arange(groups), per_group)
    member = group % 2 == 0
    mixed = np.linalg.cholesky([[1, 0.5], [0.5, 1]])
    shared = 0.7 * (mixed @ rng.normal(size=(2, groups)))[:, group]
    scores = mixed @ rng.normal(size=(2, group.size)) + shared
    scores[1] += gap * np.sqrt(2 * 1.49) * member
    bootstrap = Bootstrap.draw(member, group.tolist(), resamples=2, seed=seed)
    return rows.compare(bootstrap, {"d": scores[0]}, {"d": scores[1]})["d"]


def test_an_interval_of_a_difference_excludes_zero_exactly_if_its_p_value_is_below_a_twentieth():
    found = [_paired(seed, 30, 2, 0.2) for seed in range(200)]
    excluded = [not each.low <= 0 <= each.high for each in found]
    assert 20 < sum(excluded) < 180
    assert [each.p < 0.05 for each in found] == excluded


@pytest.mark.slow
@pytest.mark.parametrize(("groups", "per_group"), [(210, 1), (20, 10)])
def test_intervals_of_differences_cover_the_truth_and_agree_with_their_p_values(groups, per_group):
    truth = norm.cdf(0.45) - 0.5
    found = [_paired(seed, groups, per_group, 0.45) for seed in range(500)]
    assert 0.93 <= np.mean([each.low <= truth <= each.high for each in found]) <= 0.97
    assert all((each.p < 0.05) == (not each.low <= 0 <= each.high) for each in found)
