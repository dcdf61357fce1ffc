import numpy as np
import pytest

from fsd.errors import UsageError
from fsd.tuning.folds import chosen_elsewhere, grouped_folds


def test_every_division_holds_every_text_once_and_no_family_twice():
    rng = np.random.default_rng(0)
    groups = [f"g{n}" for n in rng.integers(0, 60, 200)]
    label_of = {group: bool(rng.random() < 0.5) for group in sorted(set(groups))}
    member = np.array([label_of[group] for group in groups])
    found = grouped_folds(member, groups, folds=4, repeats=3, seed=1)
    assert len(found) == 12
    for start in range(0, 12, 4):
        division = found[start : start + 4]
        assert sorted(np.concatenate(division)) == list(range(200))
        places = [{groups[row] for row in part} for part in division]
        assert sum(len(p) for p in places) == len(set(groups))
        shares = [member[part].mean() for part in division]
        assert max(shares) - min(shares) < 0.15
    assert any(not np.array_equal(a, b) for a, b in zip(found[:4], found[4:8], strict=True))


def test_folds_depend_on_nothing_but_the_seed():
    member = np.arange(40) % 2 == 0
    for seed, same in ((3, True), (4, False)):
        pairs = zip(grouped_folds(member, None, seed=3), grouped_folds(member, None, seed=seed), strict=True)
        assert all(np.array_equal(a, b) for a, b in pairs) is same


@pytest.mark.parametrize(
    ("member", "groups", "message"),
    [
        ([True] * 20, None, "5 families with members and 5 with non-members.*got 20 and 0"),
        ([True] * 10 + [False] * 10, ["m"] * 10 + [f"n{i}" for i in range(10)], "got 1 and 10"),
        ([True, False] * 3, None, "got 3 and 3"),
        ([True, False] * 5, ["a"] * 10, "got 1 and 1"),
    ],
)
def test_too_few_families_are_refused(member, groups, message):
    with pytest.raises(UsageError, match=message):
        grouped_folds(member, groups)


def test_impossible_numbers_are_refused():
    with pytest.raises(UsageError, match="at least 2 and repeats at least 1; got 1 and 4"):
        grouped_folds([True, False] * 9, None, folds=1)


def test_the_choice_is_made_on_other_folds_than_it_is_measured_on():
    # fold 1: the others (fold 2) prefer b, which has .2 there; fold 2: fold 1 prefers a, which has .4 there
    values = np.array([[0.9, 0.4], [0.2, 0.8]])
    assert chosen_elsewhere(values, folds=2) == pytest.approx((0.2 + 0.4) / 2)
    assert values.mean(axis=1).max() == pytest.approx(0.65)


def test_settings_of_pure_noise_earn_no_bonus():
    draws = [np.random.default_rng(seed).normal(0.5, 0.1, size=(200, 20)) for seed in range(100)]
    assert np.mean([values.mean(axis=1).max() for values in draws]) > 0.55
    assert abs(np.mean([chosen_elsewhere(values, folds=5) for values in draws]) - 0.5) < 0.01


def test_of_equals_the_first_is_chosen():
    assert chosen_elsewhere(np.array([[0.5, 0.5], [0.5, 0.5]]), folds=2) == 0.5
