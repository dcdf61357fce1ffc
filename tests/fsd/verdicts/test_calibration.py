import json
import math
from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from fsd.errors import UsageError
from fsd.files import from_json
from fsd.scores import Score
from fsd.statistics.intervals import observed_rate
from fsd.verdicts.calibration import Calibration, NonMembers, calibrate, family_aucs
from fsd.verdicts.domain_check import Reference

LOSS = Score("loss")
REFERENCE = Reference(("one text", "another"), (0, 1), ("", ""), {"novels": 0.97})


def _calibrated(scores, labels=None, groups=None):
    scores = np.asarray(scores, dtype=float)
    labels = np.zeros(scores.size, bool) if labels is None else labels
    return calibrate(labels, {LOSS: scores}, groups, reference=REFERENCE, settings={LOSS: {"k": 0.2}})


def test_p_values_equal_the_loop():
    rng = np.random.default_rng(0)
    scores, groups = rng.integers(0, 12, 60).astype(float), [str(g) for g in rng.integers(0, 15, 60)]
    calibration = _calibrated(scores, groups=groups)
    for s in range(-1, 14):
        votes = [np.mean([x >= s for x, g in zip(scores, groups, strict=True) if g == one]) for one in set(groups)]
        assert calibration.p_values([s])[0] == pytest.approx((1 + sum(votes)) / (len(votes) + 1))


def test_no_p_value_exceeds_one_by_rounding():
    for size in (3, 6, 7, 11):
        calibration = _calibrated(np.arange(20.0 * size), groups=[str(i % 20) for i in range(20 * size)])
        assert calibration.p_values([-1.0])[0] <= 1


def test_threshold_and_p_value_agree():
    rng = np.random.default_rng(1)
    calibration = _calibrated(rng.integers(0, 30, 60) / 7, groups=[str(i // 2) for i in range(60)])
    new = np.append(np.arange(-1, 32) / 7, rng.normal(2, 2, 50))
    for fpr in (0.05, 0.1, 0.3, 0.9):
        np.testing.assert_array_equal(new >= calibration.threshold_at(fpr), calibration.p_values(new) <= fpr + 1e-9)


def test_threshold_by_hand_and_the_finest_rate():
    calibration = _calibrated(np.arange(19.0))
    assert calibration.finest == pytest.approx(0.05)
    assert [calibration.threshold_at(fpr) for fpr in (0.05, 0.1)] == [np.nextafter(x, np.inf) for x in (18.0, 17.0)]
    for fpr, message in ((0.01, r"at least 0.05 = 1/\(19\+1\).*got 0.01"), (1.0, "below 1; got 1")):
        with pytest.raises(UsageError, match=message):
            calibration.threshold_at(fpr)


def test_members_are_left_out_and_non_members_required():
    assert _calibrated([0.0, 1.0, 2.0, 3.0], labels=[False, False, True, True]).test.scores == (0.0, 1.0)
    with pytest.raises(UsageError, match="2 texts, all members"):
        _calibrated([0.0, 1.0], labels=[True, True])


def test_json_round_trip_is_exact_and_other_json_is_refused_in_one_line():
    calibration = _calibrated(np.random.default_rng(2).normal(size=30), groups=[str(i // 3) for i in range(30)])
    assert from_json(Calibration, calibration.to_json(), "") == calibration
    legacy = {"version": 1, "detector": "loss", "state": "fsd", "settings": {}, "scores": [0.0], "weights": [1.0]}
    with pytest.raises(UsageError, match=r"register the adapter again with fsd run --adapter or adapter-audit"):
        from_json(Calibration, json.dumps(legacy), "")
    content = json.loads(calibration.to_json())
    others = [
        {"version": 0},
        {"state": "another"},
        {"test": {**content["test"], "families": [0]}},
        {"reference": {**content["reference"], "texts": ["a"]}},
        {"validation": {**content["validation"], "scores": [math.nan]}},
    ]
    for text in ("", "[]", "{}", *(json.dumps({**content, **other}) for other in others)):
        with pytest.raises(
            UsageError, match=r"^file must be; .*(version|detector|state|scores|families|content)"
        ) as raised:
            from_json(Calibration, text, "file must be")
        assert "\n" not in str(raised.value)


def test_the_rate_of_a_threshold_and_the_number_of_false_alarms():
    rng = np.random.default_rng(0)
    calibration = _calibrated(rng.uniform(size=39))
    rates = [1 - _calibrated(rng.uniform(size=39)).threshold_at(0.1) for _ in range(2000)]
    rate = calibration.rate(0.1)
    assert rate.value == pytest.approx(4 / 40)
    assert np.mean(rates) == pytest.approx(0.1, abs=0.004)
    assert np.quantile(rates, [0.025, 0.975]) == pytest.approx([rate.low, rate.high], abs=0.012)
    alarms = rng.binomial(50, rng.beta(4, 36, size=20_000))
    most = calibration.false_alarms(0.1, 50)
    assert (alarms > most).mean() <= 0.05 + 0.005
    assert (alarms > most - 1).mean() > 0.05 - 0.005


def test_the_validation_texts_choose_and_the_test_non_members_calibrate():
    """By validation alone `late` is the best; its own non-members there, who score low by it, calibrate nothing."""
    labels = np.array([True, False, True, False, False, False])
    is_test = np.array([False, False, True, True, True, True])
    scores = {LOSS: np.array([0.0, 1, 9, 1, 2, 3]), Score("late"): np.array([5.0, -4, 0, 6, 7, 8])}
    calibration = calibrate(labels, scores, reference=REFERENCE, is_test=is_test)
    assert calibration.score == Score("late")
    assert (calibration.test.scores, calibration.validation.scores) == ((6, 7, 8), (-4,))
    # a third above 7 in the test, and 2 of 5 with the others: the larger one counts
    np.testing.assert_allclose(calibration.p_values([7.5, -5.0]), [2 / 4, 1])
    assert calibration.n_families == 3
    high = replace(calibration, validation=NonMembers((9.0, 9.5), (7, 8), ("", "")))
    np.testing.assert_allclose(high.p_values([8.5]), [3 / 6])
    assert high.threshold_at(0.4) == np.nextafter(9.0, np.inf)
    with pytest.raises(UsageError, match="texts that choose among its scores; got none for 2"):
        calibrate(labels, scores, reference=REFERENCE)


def test_the_rate_is_tried_on_non_members_that_do_not_calibrate():
    """Of 20 validation non-members 5 are above all of the test: .25 [.09, .49] contradicts a rate of .05."""
    calm = _calibrated(np.arange(40.0))
    assert (calm.tried(0.05), calm.contradiction(0.05), calm.judged_at(0.05)) == (None, "", [""])
    others = NonMembers((50.0,) * 5 + (1.0,) * 15, tuple(range(100, 120)), ("",) * 20)
    loud = replace(calm, validation=others)
    assert loud.tried(0.05).value == 0.25
    assert "contradict the rate of 5.0%: 25.0% [8.7%, 49.1%] of 20 in validation" in loud.contradiction(0.05)
    assert (loud.judged_at(0.05), loud.judged) == ([], [""])
    # one family of five may be so by chance
    of_one = replace(loud, validation=replace(others, families=(100,) * 5 + tuple(range(101, 116))))
    assert of_one.contradiction(0.05) == ""
    assert loud.contradiction(0.3) == ""


def _divided(rng, detectors, members=0.0):
    """A calibration by the best of some detectors that see a shift of the members: 43 and 107 non-members."""
    labels = np.repeat([True, False, False], [43, 43, 107])
    is_test = np.repeat([False, True], [86, 107])
    noise = {Score(f"d{k}"): rng.standard_t(3, labels.size) + members * labels for k in range(detectors)}
    return calibrate(labels, noise, reference=REFERENCE, is_test=is_test)


def test_of_forty_calibrations_the_rate_among_honest_texts_is_kept():
    """Heavy tails, thirty detectors, and a score that was chosen on a few: rates as a text of the kind meets them."""
    rng = np.random.default_rng(11)
    rates = []
    found = []
    for _ in range(40):
        calibration = _divided(rng, 30, members=2.5)
        if calibration.judged_at(0.05):
            threshold = calibration.threshold_at(0.05)
            rates.append(stats.t.sf(threshold, 3))
            found.append(stats.t.sf(threshold - 2.5, 3))
    assert len(rates) >= 36
    assert np.mean(rates) <= 0.06
    assert np.sum(np.array(rates) > 0.1) <= 1
    # a threshold that is known exactly, 2.35, finds .55 of the members
    assert np.mean(found) > 0.45


def test_the_rate_is_exact_for_a_detector_chosen_on_other_texts():
    """The best of thirty detectors of noise ranks the non-members that chose it low: by them it calls too many."""
    rng = np.random.default_rng(6)
    honest, naive = [], []
    for _ in range(200):
        calibration = _divided(rng, 30)
        honest.append(stats.t.sf(calibration.threshold_at(0.1), 3))
        naive.append(stats.t.sf(replace(calibration, test=calibration.validation).threshold_at(0.1), 3))
    assert np.mean(honest) <= 10 / 108 + 0.003
    assert np.mean(naive) > 0.11


def test_a_family_of_non_members_counts_once_by_its_mean():
    # the means .5, 5.5 and 0 against 3 and 6: 3 is above two of three, 6 above all; .5 means chance
    labels, groups = [True, True, False, False, False, False, False], ["m", "n", "a", "a", "b", "b", "c"]
    scores = {LOSS: np.array([3.0, 6.0, 0.0, 1.0, 2.0, 9.0, 0.0])}
    assert family_aucs(labels, scores, groups)[LOSS] == pytest.approx(5 / 6)
    assert family_aucs([False] * 7, scores, groups) == {LOSS: 0.5}


def test_each_source_has_a_calibration_of_its_own():
    labels, names = np.array([True, False, False, False, False]), ["a", "a", "a", "b", "b"]
    calibration = calibrate(labels, {LOSS: np.array([9.0, 1, 2, 11, 12])}, reference=REFERENCE, sources=names)
    assert calibration.source_families == {"a": 2, "b": 2}
    p_values = calibration.p_values(np.full(3, 3.0), ["a", "b", "c"])
    np.testing.assert_allclose(p_values, [1 / 3, 3 / 3, np.nan])
    # files of registered adapters have this key
    assert json.loads(calibration.to_json())["test"]["collections"] == ["a", "a", "b", "b"]


def test_the_observed_rate_has_an_exact_interval_that_accounts_for_groups():
    called, pairs = np.array([True] * 3 + [False] * 17), [str(i // 2) for i in range(40)]
    exact, none = (stats.binomtest(hits, 20).proportion_ci(method="exact") for hits in (3, 0))
    for rate in (observed_rate(called), observed_rate(np.repeat(called, 2), pairs)):
        assert rate == pytest.approx((0.15, exact.low, exact.high), abs=1e-9)
    assert observed_rate(np.zeros(40, dtype=bool), pairs) == pytest.approx((0, 0, none.high))
