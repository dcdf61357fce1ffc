import numpy as np
import pytest

import detectors
from fsd.data.documents import Document
from fsd.evaluation.metrics import auc, tpr_at_fpr
from fsd.scoring.deviation import ViewStatistics
from fsd.search_space import Choice, Range
from fsd.token_stats import TokenStats
from fsd.tuning.folds import grouped_folds
from fsd.tuning.objective import OBJECTIVES, Bench, DetectorTask, digest, finite, grid, tidy, whole_grid, winner
from fsd.views import View


def bench(texts: int = 60, objective: str = "auc", seed: int = 0) -> Bench:
    rng = np.random.default_rng(seed)
    member = np.arange(texts) % 2 == 0

    def stats(shift: float) -> TokenStats:
        size = int(rng.integers(10, 30))
        logp = -rng.gamma(1, 3 - shift, size)
        return TokenStats("t", rng.integers(0, 50, size), logp, -rng.gamma(2, 2, size), np.ones(size))

    base = [stats(0.4 * m) for m in member]
    tuned = [TokenStats(s.text, s.token, 0.9 * s.logp, s.mean, s.std) for s in base]
    return Bench(
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


def test_the_grid_of_the_cap_holds_the_papers_powers_of_ten():
    caps = grid(detectors.load("dc_pdd").search["cap"])
    assert {0.001, 0.01, 0.1, 1.0, 10.0} <= set(caps)
    assert len(caps) == 13


@pytest.mark.parametrize(
    ("search", "expected"),
    [
        (Range(0.1, 0.4, step=0.1), [0.1, 0.2, 0.3, 0.4]),
        (Range(1, 4), [1, 2, 3, 4]),
        (Range(0.0, 1.0), [round(i / 20, 12) for i in range(21)]),
        (Choice((True, False)), [True, False]),
    ],
)
def test_grids(search, expected):
    assert grid(search) == pytest.approx(expected)
    assert [type(value) for value in grid(search)] == [type(value) for value in expected]


def test_steps_lose_their_dust():
    assert tidy(Range(0.1, 1.0, step=0.1), 0.1 + 0.2) == 0.3
    assert tidy(Range(0.1, 1.0), 0.1 + 0.2) == 0.1 + 0.2
    assert tidy(Range(1, 5), 3) == 3


def test_a_space_is_finite_when_a_grid_holds_it_all():
    assert finite(detectors.load("surp").search)
    assert not finite(detectors.load("dc_pdd").search)


def test_values_are_the_objective_on_each_fold():
    for objective, measure in (("auc", auc), ("tpr_at_5fpr", lambda y, s: tpr_at_fpr(y, s, 0.05))):
        b = bench(objective=objective)
        detector = detectors.load("min_k", k=0.3)
        scores = np.array([detector({"text": text}) for text in b.readings.columns["base", "plain"]])
        found = DetectorTask(detectors.load("min_k"), "base", b).judge({"k": 0.3})
        assert found == pytest.approx([measure(b.member[rows], scores[rows]) for rows in b.folds])
    assert set(OBJECTIVES) == {"auc", "tpr_at_1fpr", "tpr_at_5fpr", "tpr_at_10fpr"}


def test_the_winner_is_the_default_unless_another_is_better():
    task = DetectorTask(detectors.load("min_k"), "fsd", bench())
    same, better = np.full(6, 0.6), np.full(6, 0.7)
    kept = winner(task, same, [({"k": 0.9}, same)], folds=3)
    assert (kept.settings, kept.tried) == ({"k": 0.2}, 2)
    won = winner(task, same, [({"k": 0.9}, same), ({"k": 0.4}, better), ({"k": 0.5}, better)], folds=3)
    assert won.settings == {"k": 0.4}
    assert (won.default_value, won.value, won.elsewhere) == pytest.approx((0.6, 0.7, 0.7))


def test_fixed_settings_stay_and_are_the_default():
    task = DetectorTask(detectors.load("surp", k=30.0), "fsd", bench())
    assert task.default == {"entropy": 2.0, "k": 30.0}
    assert task.label == "surp.fsd"


def test_settings_that_come_again_are_looked_up():
    task = DetectorTask(detectors.load("min_k"), "fsd", bench())
    assert task.judge({"k": 0.3}) is task.judge({"k": 0.3})


def test_the_digest_tells_texts_labels_and_groups():
    documents = [Document("a", True, group="g"), Document("b", False)]
    changed = [documents[:1], documents[::-1], [documents[0], Document("b", True)], [Document("a", True), documents[1]]]
    assert len({digest(documents), *(digest(other) for other in changed)}) == 5
