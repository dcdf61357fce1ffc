import math

import numpy as np
import pytest

from fsd.evaluation.metrics import auc, tpr_at_fpr
from fsd.tuning.objective import Winner
from fsd.tuning.optuna_study import HEADINGS, compare_on_test, metrics, remarks, rows

MEMBER = np.arange(60) % 2 == 0
NOISE = np.random.default_rng(0).normal(size=60)
DEFAULT = {"a.fsd": NOISE, "b.base": NOISE + MEMBER}
TUNED = {"a.fsd": NOISE + 2 * MEMBER, "b.base": NOISE + MEMBER}
WINNERS = [
    Winner("a.fsd", {"k": 0.2, "first": False}, {"k": 0.05, "first": True}, 0.6, 0.8, 0.7, 20),
    Winner("b.base", {"cap": 0.01}, {"cap": 0.01}, 0.7, 0.7, math.nan, 1),
]


@pytest.mark.parametrize(
    ("objective", "measure"), [("auc", auc), ("tpr_at_5fpr", lambda labels, scores: tpr_at_fpr(labels, scores, 0.05))]
)
def test_gains_are_paired_differences_of_the_objective(objective, measure):
    gains = compare_on_test(WINNERS, list(MEMBER), range(60), DEFAULT, TUNED, objective=objective)
    values = [(measure(MEMBER, DEFAULT[w.label]), measure(MEMBER, TUNED[w.label])) for w in WINNERS]
    (_, first), (_, second) = gains.iterrows()
    for gain, (default, tuned) in zip((first, second), values, strict=True):
        assert (gain.test_default, gain.test_tuned) == pytest.approx((default, tuned))
        assert gain.test_gain == pytest.approx(tuned - default)
    assert first.test_gain_low > 0
    assert (second.test_gain, second.test_gain_low, second.test_gain_high) == (0, 0, 0)
    assert first.p < 0.05 < second.p
    assert first.p_holm == pytest.approx(2 * first.p)
    assert first.validation_test_gap == pytest.approx(0.8 - values[0][1])


def test_the_table_the_metrics_and_the_terminal_agree():
    gains = compare_on_test(WINNERS, list(MEMBER), range(60), DEFAULT, TUNED)
    values = metrics(gains)
    assert values["tuning_test_gain/a.fsd"] == gains.test_gain[0]
    assert values["tuning_validation_chosen_elsewhere/a.fsd"] == 0.7
    assert len(values) == 16
    first, second = rows(gains)
    assert len(first) == len(second) == len(HEADINGS)
    assert first[:4] == ["a.fsd", "k=0.05 first=True", "0.600 → 0.800", "0.700"]
    assert second[1:4] == ["default", "0.700 → 0.700", "–"]
    assert remarks(gains)[0] == "gain on test texts with an interval above 0: a.fsd"
    assert remarks(gains)[2] == "optimism of the selection: +0.100 compared with the cross-validated choice"
