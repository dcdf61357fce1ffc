import numpy as np
import pandas as pd
import pytest

from fsd.data.periods import CONTEMPORARY, LATER, MEMBER
from fsd.errors import UsageError
from fsd.evaluation.contrasts import CONTRASTS, FAMILIARITY, MEMBERSHIP, WITH_LATER, kinds_in, measure, measure_all
from fsd.evaluation.metrics import auc, by_key
from fsd.evaluation.results import evaluate

KIND = np.repeat([MEMBER, CONTEMPORARY, LATER], 2)
SCORES = pd.DataFrame(
    {"loss.base": [1, 2, 3, 0, 2, 2], "loss.fsd": [3, 4, 2, 3.5, 1, 2.5], "pair.fsd": [1, 1, 1, 1, 0, 0]}
)
PLACEBO = {"loss": np.array([1.0, 1, 1, 1, 1, 1]), "gone": np.zeros(6)}
BY_HAND = {WITH_LATER: (0.25, 1.0), FAMILIARITY: (0.5, 0.75), MEMBERSHIP: (0.5, 0.75)}
"""Pairs in order among 2 × 2, ties ½: of base scores and of FSD."""


@pytest.mark.parametrize("contrast", CONTRASTS, ids=lambda one: one.name)
def test_aucs_by_hand(contrast):
    rows = {row[:3]: row for row in measure(contrast, SCORES, KIND, placebo=PLACEBO, resamples=50)}
    base, fsd = BY_HAND[contrast]
    name = contrast.name

    assert rows["loss", "base", f"auc_{name}"].value == base
    assert rows["loss", "fsd", f"auc_{name}"].value == fsd
    assert rows["loss", "", f"auc_gain_{name}"].value == pytest.approx(fsd - base)
    assert rows["loss", "fsd", f"placebo_auc_{name}"].value == 0.5
    assert rows["loss", "fsd", f"placebo_lead_{name}"].value == pytest.approx(fsd - 0.5)
    assert rows["pair", "fsd", f"auc_{name}"].value == (0.5 if contrast is MEMBERSHIP else 1)
    assert {detector for detector, *_ in rows} == {"loss", "pair"}


@pytest.fixture
def drawn():
    """90 texts in 45 groups, 30 of each kind, with scores of two detectors."""
    rng = np.random.default_rng(3)
    kind = np.repeat([MEMBER, CONTEMPORARY, LATER], 30)
    shift = np.repeat([1.0, 0.6, 0.0], 30)
    columns = {f"{d}.{s}": rng.normal(size=90) + shift for d in ("loss", "zlib") for s in ("base", "fsd")}
    return pd.DataFrame(columns), kind, (np.arange(90) // 2).tolist(), {"loss": rng.normal(size=90)}


@pytest.mark.parametrize("contrast", CONTRASTS, ids=lambda one: one.name)
def test_numbers_are_those_of_an_evaluation_of_the_two_kinds_alone(drawn, contrast):
    scores, kind, groups, placebo = drawn
    rows = {row[:3]: row for row in measure(contrast, scores, kind, groups, placebo=placebo, resamples=100, seed=5)}

    at = np.flatnonzero(contrast.among(kind))
    alone = by_key(
        evaluate(
            scores.iloc[at],
            kind[at] == contrast.first,
            [groups[one] for one in at],
            states=("base", "fsd"),
            placebo={name: column[at] for name, column in placebo.items()},
            resamples=100,
            seed=5,
        )
    )
    expected = {key: row for key, row in alone.items() if key[2] in ("auc", "auc_gain", "placebo_auc", "placebo_lead")}
    assert len(rows) == len(expected) == 8
    for (detector, state, metric), row in expected.items():
        np.testing.assert_equal(tuple(rows[detector, state, f"{metric}_{contrast.name}"])[3:], tuple(row)[3:])
    loss = scores["loss.fsd"].to_numpy()[at]
    assert rows["loss", "fsd", f"auc_{contrast.name}"].value == pytest.approx(auc(kind[at] == contrast.first, loss))


def test_what_was_judged_is_not_measured_again(drawn, monkeypatch):
    scores, kind, groups, placebo = drawn
    at = np.flatnonzero(kind != LATER)
    judged = list(by_key(evaluate(scores.iloc[at], kind[at] == MEMBER, [groups[one] for one in at])).values())

    rows = measure_all(scores, kind, groups, judged, placebo=placebo)
    names = {row.metric.partition("_")[2].removeprefix("gain_") for row in rows if row.metric.startswith("auc")}
    assert names == {contrast.name for contrast in CONTRASTS}
    by_name = {row[:3]: row for row in rows}
    assert by_name["loss", "fsd", "auc_members_vs_contemporaries"].value in [row.value for row in judged]

    monkeypatch.setattr("fsd.evaluation.contrasts.measure", lambda *_, **__: pytest.fail("measured again"))
    for second, name in ((CONTEMPORARY, "members_vs_contemporaries"), (LATER, "members_vs_later")):
        alone = np.isin(kind, (MEMBER, second))
        assert {row.metric for row in measure_all(scores[alone], kind[alone], None, judged)} == {
            f"auc_{name}",
            f"auc_gain_{name}",
        }
    unknown = np.where(kind == MEMBER, MEMBER, "non-member")
    assert measure_all(scores, unknown, groups, judged) == []


def test_one_contemporary_has_no_interval():
    kind = np.array([MEMBER, MEMBER, CONTEMPORARY, LATER, LATER, LATER])
    with pytest.raises(UsageError, match="at least 2 groups with members and 2 with non-members; got 1 and 3"):
        measure(FAMILIARITY, SCORES, kind)


def test_kinds_of_a_table_of_scores():
    table = pd.DataFrame({"label": [1, 0, 0], "period": ["2022", "2022", "2024"]})
    assert kinds_in(table).tolist() == [MEMBER, CONTEMPORARY, LATER]
    assert kinds_in(table.drop(columns="period")).tolist() == [MEMBER, "non-member", "non-member"]
