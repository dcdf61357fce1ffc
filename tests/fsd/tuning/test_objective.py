import math

import numpy as np
import pytest
from optuna.trial import TrialState, create_trial

import detectors
from detectors.surp import fallback
from fsd.config import TuneConfig
from fsd.errors import UsageError
from fsd.reporting.report import Report
from fsd.scoring.deviation import ViewStatistics
from fsd.search_space import Choice, Range
from fsd.statistics.metrics import METRICS, auc, roc
from fsd.token_stats import TokenStats
from fsd.tuning.objective import (
    MOST_FALLBACKS,
    DetectorTask,
    ValidationSet,
    Winner,
    cross_validated_choice,
    grouped_folds,
    settings_of,
    winner,
)
from fsd.tuning.optuna_study import compare_on_test, create_study, search
from fsd.views import View
from pipelines.tune.report import remarks, with_gains


def tpr_at_5fpr(labels, scores):
    alarms, hits, _ = roc(labels, scores)
    return hits[alarms <= 0.05].max()


MEASURES = {"auc": auc, "tpr_at_5fpr": tpr_at_5fpr}


def validation_set(objective: str = "auc") -> ValidationSet:
    rng = np.random.default_rng(0)
    member = np.arange(60) % 2 == 0

    def stats(shift: float) -> TokenStats:
        size = int(rng.integers(10, 30))
        logp = -rng.gamma(1, 3 - shift, size)
        return TokenStats("t", rng.integers(0, 50, size), logp, -rng.gamma(2, 2, size), np.ones(size))

    base = [stats(0.4 * m) for m in member]
    tuned = [TokenStats(s.text, s.token, 0.9 * s.logp, s.mean, s.std) for s in base]
    statistics = ViewStatistics({View("base", "plain"): base, View("tuned", "plain"): tuned})
    return ValidationSet(statistics, member, grouped_folds(member, None, folds=3, repeats=2), objective)


def test_grids():
    for declared, expected in (
        (Range(0.1, 0.4, step=0.1), [0.1, 0.2, 0.3, 0.4]),
        (Range(1, 4), [1, 2, 3, 4]),
        (Range(0.0, 1.0), [round(i / 20, 12) for i in range(21)]),
        (Choice((True, False)), [True, False]),
    ):
        assert declared.grid == pytest.approx(expected)
        assert [type(value) for value in declared.grid] == [type(value) for value in expected]
    cap = detectors.load("dc_pdd").search["cap"]
    caps = cap.grid  # with the paper's powers of ten
    assert {0.001, 0.01, 0.1, 1.0, 10.0} <= set(caps)
    assert len(caps) == 13
    surp = detectors.load("surp").search  # the paper's grid
    assert surp["entropy"].grid == [0.5 * i for i in range(1, 21)]
    assert surp["k"].grid == [10.0 * i for i in range(1, 11)]
    assert all(setting.finite for setting in surp.values())
    assert not cap.finite
    for declared, value, expected in (
        (Range(0.1, 1.0, step=0.1), 0.1 + 0.2, 0.3),
        (Range(0.1, 1.0), 0.1 + 0.2, 0.1 + 0.2),
        (Range(1, 5), 3, 3),
    ):
        assert declared.tidy(value) == expected


def test_values_are_the_objective_on_each_fold_and_computed_once():
    for objective, measure in MEASURES.items():
        b = validation_set(objective)
        detector, task = detectors.load("min_k", k=0.3), DetectorTask(detectors.load("min_k"), "base", b)
        scores = np.array([detector({"text": text}) for text in b.statistics.columns["base", "plain"]])
        assert task.evaluate({"k": 0.3}) == pytest.approx([measure(b.member[rows], scores[rows]) for rows in b.folds])
        assert task.evaluate({"k": 0.3}) is task.evaluate({"k": 0.3})
    fixed = DetectorTask(detectors.load("surp", k=30.0), "fsd", b)
    assert (fixed.label, fixed.default) == ("surp.fsd", {"entropy": 4.0, "k": 30.0})


def test_each_objective_has_the_rate_in_its_name():
    """Of 100 members each is just above one of 100 non-members: with r of these, r + 1 members are called."""
    member = np.arange(200) >= 100
    scores = np.concatenate([np.arange(100), np.arange(100) + 0.5])
    values = {name: metric.of(member, scores) for name, metric in METRICS.items() if not metric.needs_threshold}
    assert values == pytest.approx({"auc": 0.505, "tpr_at_1fpr": 0.02, "tpr_at_5fpr": 0.06, "tpr_at_10fpr": 0.11})


def test_the_winner_is_the_default_unless_another_is_better():
    task = DetectorTask(detectors.load("min_k"), "fsd", validation_set())
    same, better = np.full(6, 0.6), np.full(6, 0.7)

    def trial(k, values):
        return create_trial(value=values.mean(), user_attrs={"settings": {"k": k}, "folds": values.tolist()})

    unchanged = winner(task, same, [trial(0.9, same)], folds=3)
    assert (unchanged.tuned, unchanged.settings_tried) == ({"k": 0.2}, 2)
    won = winner(task, same, [trial(0.9, same), trial(0.4, better), trial(0.5, better)], folds=3)
    assert won.tuned == {"k": 0.4}
    assert won[4:7] == pytest.approx((0.6, 0.7, 0.7))


def test_settings_that_fall_back_on_most_texts_are_no_candidates(tmp_path):
    """Of tokens with entropies of about 4 nats, one below .5 is rarely among the lowest tenth."""
    surp = detectors.load("surp", entropy=0.5, k=10.0)
    b = validation_set()
    task = DetectorTask(surp, "base", b)
    texts = b.statistics.columns["base", "plain"]

    def share(settings):
        return np.mean([fallback(text, **settings) is not None for text in texts])

    config = TuneConfig(storage=f"journal:{tmp_path}/trials.log", trials=200)
    create_study("s", {}, config.storage)
    trials = search(task, "s", {}, config)
    assert len(trials) == 200
    shares = {(trial.state, share(settings_of(trial)) > MOST_FALLBACKS) for trial in trials}
    assert shares == {(TrialState.COMPLETE, False), (TrialState.PRUNED, True)}
    values = task.evaluate(task.default)
    assert len(values) == len(b.folds)
    assert share(task.default) == task.fallback_share(task.default) > MOST_FALLBACKS
    # The default is none either, however good it is; but there must be one.
    best = np.full(len(values), 1.0)
    assert share(winner(task, best, trials, folds=3, default_may_win=False).tuned) <= MOST_FALLBACKS
    assert winner(task, best, trials, folds=3).tuned == task.default
    assert winner(task, values, [], folds=3, default_may_win=False).tuned == task.default


def test_where_all_settings_fall_back_the_default_stays(tmp_path):
    task = DetectorTask(detectors.load("surp"), "base", validation_set())
    task.space = {"entropy": Range(0.001, 0.002, step=0.001)}
    config = TuneConfig(storage=f"journal:{tmp_path}/trials.log", trials=2)
    create_study("s", {}, config.storage)
    trials = search(task, "s", {}, config)
    assert winner(task, task.evaluate(task.default), trials, folds=3).settings_tried == 1


def test_every_division_holds_every_text_once_and_no_family_twice():
    rng = np.random.default_rng(0)
    groups = [f"g{n}" for n in rng.integers(0, 60, 200)]
    label_of = {group: bool(rng.random() < 0.5) for group in sorted(set(groups))}
    member = np.array([label_of[group] for group in groups])
    folds = grouped_folds(member, groups, folds=4, repeats=3, seed=1)
    assert len(folds) == 12
    for start in range(0, 12, 4):
        division = folds[start : start + 4]
        assert sorted(np.concatenate(division)) == list(range(200))
        assert sum(len({groups[row] for row in part}) for part in division) == len(set(groups))
        shares = [member[part].mean() for part in division]
        assert max(shares) - min(shares) < 0.15
    assert any(not np.array_equal(a, b) for a, b in zip(folds[:4], folds[4:8], strict=True))
    for seed, same in ((1, True), (4, False)):  # they depend on nothing but the seed
        again = grouped_folds(member, groups, folds=4, repeats=3, seed=seed)
        assert all(np.array_equal(a, b) for a, b in zip(folds, again, strict=True)) is same


def test_too_few_families_are_refused():
    for member, groups, message in (
        ([True] * 20, None, "5 families with members and 5 with non-members.*got 20 and 0"),
        ([True] * 10 + [False] * 10, ["m"] * 10 + [f"n{i}" for i in range(10)], "got 1 and 10"),
        ([True, False] * 5, ["a"] * 10, "got 1 and 1"),
    ):
        with pytest.raises(UsageError, match=message):
            grouped_folds(member, groups)


def test_the_choice_is_made_on_other_folds_than_it_is_measured_on():
    # fold 1: the others (fold 2) prefer b, which has .2 there; fold 2: fold 1 prefers a, which has .4 there
    assert cross_validated_choice(np.array([[0.9, 0.4], [0.2, 0.8]]), folds=2) == pytest.approx((0.2 + 0.4) / 2)
    # settings of pure noise earn no bonus
    draws = [np.random.default_rng(seed).normal(0.5, 0.1, size=(200, 20)) for seed in range(100)]
    assert np.mean([values.mean(axis=1).max() for values in draws]) > 0.55
    assert abs(np.mean([cross_validated_choice(values, folds=5) for values in draws]) - 0.5) < 0.01


def test_gains_are_paired_differences_of_the_objective():
    member, noise = np.arange(60) % 2 == 0, np.random.default_rng(0).normal(size=60)
    default = {"a.fsd": noise, "b.base": noise + member}
    tuned = {"a.fsd": noise + 2 * member, "b.base": noise + member}
    winners = [
        Winner("a.fsd", {"k": 0.2}, {"k": 0.05}, 20, 0.6, 0.8, 0.7, 0.12),
        Winner("b.base", {"cap": 0.01}, {"cap": 0.01}, 1, 0.7, 0.7, math.nan),
    ]
    for objective, measure in MEASURES.items():
        gains = compare_on_test(winners, list(member), range(60), default, tuned, objective=objective)
        for (_, gain), task in zip(gains.iterrows(), default, strict=True):
            values = measure(member, default[task]), measure(member, tuned[task])
            assert (gain.test_default, gain.test_tuned) == pytest.approx(values)
            assert gain.test_gain == pytest.approx(values[1] - values[0])
            assert gain.validation_test_gap == pytest.approx(gain.validation_tuned - values[1])
        (_, first), (_, second) = gains.iterrows()
        assert (second.test_gain, second.test_gain_low, second.test_gain_high) == (0, 0, 0)
        assert first.test_gain_low > 0
        assert first.p < 0.05 < second.p
        assert first.p_holm == pytest.approx(2 * first.p)
        # A share of fallbacks stands beside the settings.
        assert with_gains(Report(), gains, objective).brief.rows[0][1] == "k=0.05 (fallback 12%)"
        assert remarks(gains)[::2] == [
            "gain on test texts with an interval above 0: a.fsd",
            "optimism of the selection: +0.100 compared with the cross-validated choice",
        ]
