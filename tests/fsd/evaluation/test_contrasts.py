import numpy as np
import pandas as pd
import pytest

from fsd.data.periods import CONTEMPORARY, LATER, MEMBER
from fsd.errors import UsageError
from fsd.evaluation.contrasts import CONTRASTS, FAMILIARITY, MEMBERSHIP, WITH_LATER, kinds_in
from fsd.evaluation.metrics import Row
from fsd.evaluation.results import contrast_rows, evaluate

KIND = np.repeat([MEMBER, CONTEMPORARY, LATER], 2)
SCORES = pd.DataFrame(
    {"loss.base": [1, 2, 3, 0, 2, 2], "loss.fsd": [3, 4, 2, 3.5, 1, 2.5], "pair.fsd": [1, 1, 1, 1, 0, 0]}
)
PLACEBO = {"loss": np.array([1.0, 1, 1, 1, 1, 1]), "gone": np.zeros(6)}
BY_HAND = {WITH_LATER: (0.25, 1.0), FAMILIARITY: (0.5, 0.75), MEMBERSHIP: (0.5, 0.75)}
"""Pairs in order among 2 × 2, ties ½: of base scores and of FSD."""
NOTHING = pd.DataFrame([], columns=list(Row._fields))


def test_aucs_by_hand():
    judged = evaluate(SCORES[KIND != LATER], KIND[KIND != LATER] == MEMBER, states=("base", "fsd"), resamples=50)
    rows = {row[:3]: row for row in contrast_rows(SCORES, KIND, None, judged, placebo=PLACEBO, resamples=50)}
    for contrast, (base, fsd) in BY_HAND.items():
        name = contrast.name
        assert rows["loss", "base", f"auc_{name}"].value == base
        assert rows["loss", "fsd", f"auc_{name}"].value == fsd
        assert rows["loss", "", f"auc_gain_{name}"].value == pytest.approx(fsd - base)
        assert rows["pair", "fsd", f"auc_{name}"].value == (0.5 if contrast is MEMBERSHIP else 1)
        if contrast is not MEMBERSHIP:  # which was judged, here without a placebo
            assert rows["loss", "fsd", f"placebo_auc_{name}"].value == 0.5
            assert rows["loss", "fsd", f"placebo_lead_{name}"].value == pytest.approx(fsd - 0.5)
    assert {detector for detector, *_ in rows} == {"loss", "pair"}


def test_what_was_judged_is_not_measured_again(monkeypatch):
    judged = evaluate(SCORES[KIND != LATER], KIND[KIND != LATER] == MEMBER, states=("base", "fsd"), resamples=50)
    monkeypatch.setattr("fsd.evaluation.results.evaluate", lambda *_, **__: pytest.fail("measured again"))
    for second, contrast in ((CONTEMPORARY, MEMBERSHIP), (LATER, WITH_LATER)):
        among = np.isin(KIND, (MEMBER, second))
        rows = contrast_rows(SCORES[among], KIND[among], None, judged)
        assert {row.metric for row in rows} == {f"auc_{contrast.name}", f"auc_gain_{contrast.name}"}
    unknown = np.where(KIND == MEMBER, MEMBER, "non-member")
    assert contrast_rows(SCORES, unknown, None, judged) == []


def test_one_contemporary_has_no_interval():
    kind = np.array([MEMBER, MEMBER, CONTEMPORARY, LATER, LATER, LATER])
    with pytest.raises(UsageError, match="at least 2 groups with members and 2 with non-members; got 1 and 3"):
        contrast_rows(SCORES, kind, None, NOTHING)


def test_kinds_of_a_table_of_scores():
    table = pd.DataFrame({"label": [1, 0, 0], "period": ["2022", "2022", "2024"]})
    assert kinds_in(table).tolist() == [MEMBER, CONTEMPORARY, LATER]
    assert kinds_in(table.drop(columns="period")).tolist() == [MEMBER, "non-member", "non-member"]
    assert {contrast.first for contrast in CONTRASTS} | {contrast.second for contrast in CONTRASTS} == {*KIND}
