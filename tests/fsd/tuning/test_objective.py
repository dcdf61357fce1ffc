import numpy as np
import pytest

import detectors
from fsd.errors import UsageError
from fsd.evaluation.metrics import auc, tpr_at_fpr
from fsd.scoring.deviation import ViewStatistics
from fsd.search_space import Choice, Range
from fsd.token_stats import TokenStats
from fsd.tuning.objective import (
    OBJECTIVES,
    DetectorTask,
    TrialRecord,
    ValidationSet,
    cross_validated_choice,
    finite,
    grid,
    grouped_folds,
    tidy,
    whole_grid,
    winner,
)
from fsd.views import View


def validation_set(texts: int = 60, objective: str = "auc", seed: int = 0) -> ValidationSet:
    rng = np.random.default_rng(seed)
    member = np.arange(texts) % 2 == 0

    def stats(shift: float) -> TokenStats:
        size = int(rng.integers(10, 30))
        logp = -rng.gamma(1, 3 - shift, size)
        return TokenStats("t", rng.integers(0, 50, size), logp, -rng.gamma(2, 2, size), np.ones(size))

    base = [stats(0.4 * m) for m in member]
    tuned = [TokenStats(s.text, s.token, 0.9 * s.logp, s.mean, s.std) for s in base]
    return ValidationSet(
        ViewStatistics({View("base", "plain"): base, View("tuned", "plain"): tuned}),
        member,
        grouped_folds(member, None, folds=3, repeats=2),
        objective,
    )


def test_the_grid_of_surp_is_the_papers():
    cells = whole_grid(detectors.load("surp").search)
    assert len(cells) == 200
    assert cells[0] == {"entropy": 0.5, "k": 10.0}
    assert cells[-1] == {"entropy": 10.0, "k": 100.0}
    assert {"entropy": 2.0, "k": 40.0} in cells
    assert sorted({cell["entropy"] for cell in cells}) == [0.5 * i for i in range(1, 21)]


def test_grids():
    for search, expected in (
        (Range(0.1, 0.4, step=0.1), [0.1, 0.2, 0.3, 0.4]),
        (Range(1, 4), [1, 2, 3, 4]),
        (Range(0.0, 1.0), [round(i / 20, 12) for i in range(21)]),
        (Choice((True, False)), [True, False]),
    ):
        assert grid(search) == pytest.approx(expected)
        assert [type(value) for value in grid(search)] == [type(value) for value in expected]
    caps = grid(detectors.load("dc_pdd").search["cap"])  # with the paper's powers of ten
    assert {0.001, 0.01, 0.1, 1.0, 10.0} <= set(caps)
    assert len(caps) == 13
    assert finite(detectors.load("surp").search)
    assert not finite(detectors.load("dc_pdd").search)


def test_steps_lose_their_dust():
    assert tidy(Range(0.1, 1.0, step=0.1), 0.1 + 0.2) == 0.3
    assert tidy(Range(0.1, 1.0), 0.1 + 0.2) == 0.1 + 0.2
    assert tidy(Range(1, 5), 3) == 3


def test_values_are_the_objective_on_each_fold():
    for objective, measure in (("auc", auc), ("tpr_at_5fpr", lambda y, s: tpr_at_fpr(y, s, 0.05))):
        b = validation_set(objective=objective)
        detector = detectors.load("min_k", k=0.3)
        scores = np.array([detector({"text": text}) for text in b.statistics.columns["base", "plain"]])
        values = DetectorTask(detectors.load("min_k"), "base", b).evaluate({"k": 0.3})
        assert values == pytest.approx([measure(b.member[rows], scores[rows]) for rows in b.folds])
    assert set(OBJECTIVES) == {"auc", "tpr_at_1fpr", "tpr_at_5fpr", "tpr_at_10fpr"}


def test_the_winner_is_the_default_unless_another_is_better():
    task = DetectorTask(detectors.load("min_k"), "fsd", validation_set())
    same, better = np.full(6, 0.6), np.full(6, 0.7)

    def trial(k, values):
        return TrialRecord(0, "complete", {"k": k}, tuple(values), float(values.mean()), 0.0)

    unchanged = winner(task, same, [trial(0.9, same)], folds=3)
    assert (unchanged.settings, unchanged.tried) == ({"k": 0.2}, 2)
    won = winner(task, same, [trial(0.9, same), trial(0.4, better), trial(0.5, better)], folds=3)
    assert won.settings == {"k": 0.4}
    assert (won.default_value, won.value, won.cross_validated) == pytest.approx((0.6, 0.7, 0.7))


def test_fixed_settings_stay_and_are_the_default():
    task = DetectorTask(detectors.load("surp", k=30.0), "fsd", validation_set())
    assert task.default == {"entropy": 2.0, "k": 30.0}
    assert task.label == "surp.fsd"
    again = DetectorTask(detectors.load("min_k"), "fsd", validation_set())
    assert again.evaluate({"k": 0.3}) is again.evaluate({"k": 0.3})


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
        places = [{groups[row] for row in part} for part in division]
        assert sum(len(p) for p in places) == len(set(groups))
        shares = [member[part].mean() for part in division]
        assert max(shares) - min(shares) < 0.15
    assert any(not np.array_equal(a, b) for a, b in zip(folds[:4], folds[4:8], strict=True))


def test_folds_depend_on_nothing_but_the_seed():
    member = np.arange(40) % 2 == 0
    for seed, same in ((3, True), (4, False)):
        pairs = zip(grouped_folds(member, None, seed=3), grouped_folds(member, None, seed=seed), strict=True)
        assert all(np.array_equal(a, b) for a, b in pairs) is same


def test_too_few_families_are_refused():
    for member, groups, message in (
        ([True] * 20, None, "5 families with members and 5 with non-members.*got 20 and 0"),
        ([True] * 10 + [False] * 10, ["m"] * 10 + [f"n{i}" for i in range(10)], "got 1 and 10"),
        ([True, False] * 3, None, "got 3 and 3"),
        ([True, False] * 5, ["a"] * 10, "got 1 and 1"),
    ):
        with pytest.raises(UsageError, match=message):
            grouped_folds(member, groups)
    with pytest.raises(UsageError, match="at least 2 and repeats at least 1; got 1 and 4"):
        grouped_folds([True, False] * 9, None, folds=1)


def test_the_choice_is_made_on_other_folds_than_it_is_measured_on():
    # fold 1: the others (fold 2) prefer b, which has .2 there; fold 2: fold 1 prefers a, which has .4 there
    values = np.array([[0.9, 0.4], [0.2, 0.8]])
    assert cross_validated_choice(values, folds=2) == pytest.approx((0.2 + 0.4) / 2)
    assert values.mean(axis=1).max() == pytest.approx(0.65)
    assert cross_validated_choice(np.array([[0.5, 0.5], [0.5, 0.5]]), folds=2) == 0.5


def test_settings_of_pure_noise_earn_no_bonus():
    draws = [np.random.default_rng(seed).normal(0.5, 0.1, size=(200, 20)) for seed in range(100)]
    assert np.mean([values.mean(axis=1).max() for values in draws]) > 0.55
    assert abs(np.mean([cross_validated_choice(values, folds=5) for values in draws]) - 0.5) < 0.01
