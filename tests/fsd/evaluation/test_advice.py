"""Advice without labels: one table, in the code and on its page, and silence where a run's own table contradicts it."""

from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest

from fsd.data.corpus import Split
from fsd.evaluation.advice import ADVICE, advice, advised
from fsd.evaluation.results import Results
from fsd.evaluation.rows import Row
from fsd.scores import Score
from fsd.statistics.intervals import Estimate
from fsd.text_audit.audited import Audit, Control, Leaks

PAGE = Path(__file__).parents[3] / "docs" / "lab.md"


def run(auc: dict[str, float], best: str, metric: str = "auc") -> Results:
    """A run that printed these AUCs, and chose this base score on validation."""
    rows = [Row(*Score.parse(score), metric, value) for score, value in auc.items()]
    alike = Control(Estimate(0.5, 0.45, 0.55))
    audit = Audit(leaks=Leaks((), 0, 0, 0, 100), blind=alike, date=alike, length=alike)
    return Results(
        parts=Split((), (), ()),
        scores=pd.DataFrame(columns=list(auc)),
        table=pd.DataFrame(rows, columns=list(Row._fields)),
        audit=audit,
        remarks=[],
        control_name=None,
        headline=Score("loss"),
        best_fsd=Score("loss"),
        best_base=Score(best, "base"),
        gain=None,
        calibration=None,
    )


def test_the_first_score_of_the_table_that_was_computed_is_advised() -> None:
    scores = ["loss.base", "min_k.base", "min_k_pp.base", "min_k_reference.base", "loss.fsd", "wbc.base"]
    scores += ["unread_z.base", "adapted_unread_z.base"]
    for row in ADVICE:
        assert advised(scores) == row
        scores.remove(row.score)
    assert advised(scores) is None


def test_the_page_has_the_table_row_by_row() -> None:
    page = PAGE.read_text(encoding="utf-8")
    rows = [f"| {row.having} | `{row.score.removesuffix('.base')}` |" for row in ADVICE]
    assert "\n".join(rows) in page


@pytest.mark.parametrize("metric", ["auc", "auc_members_vs_contemporaries"])
def test_no_advice_that_the_labels_of_the_run_contradict(metric: str) -> None:
    agreeing = run({"wbc.base": 0.8, "loss.base": 0.7, "loss.fsd": 0.9}, "wbc", metric)
    (line,) = advice(agreeing)
    assert line.startswith(
        "advice without labels, within one period: trust wbc, base score: windows of tokens vote between the model and "
        "its reference; against later texts no score is advised"
    )
    # The answer is by a score that labels chose, which need not be the advised one.
    assert line.endswith(f"; here labels chose {agreeing.title(agreeing.headline)}, by which the answer is given")
    assert advice(replace(agreeing, headline=agreeing.best_base))[0].endswith("no score is advised")
    other_choice = replace(agreeing, best_base=Score("loss", "base"))
    assert advice(other_choice) == []
    # Validation chose the advised score, but the printed table has another one above it.
    other_table = run({"wbc.base": 0.7, "loss.base": 0.8}, "wbc", metric)
    assert advice(other_table) == []


def test_what_decides_is_membership_within_one_period() -> None:
    within = run({"wbc.base": 0.8, "loss.base": 0.7}, "wbc", "auc_members_vs_contemporaries")
    overall = run({"wbc.base": 0.7, "loss.base": 0.8}, "wbc")
    assert advice(replace(within, table=pd.concat([within.table, overall.table])))


def test_a_run_without_a_score_to_trust_has_no_advice() -> None:
    assert advice(run({"zlib.base": 0.9}, "zlib")) == []
    (line,) = advice(run({"loss.base": 0.6}, "loss"))
    assert "trust loss, base score: no better detector is in use; against later texts no score is advised" in line
