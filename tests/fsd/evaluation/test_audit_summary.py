import json

import pytest

from fsd.errors import UsageError
from fsd.evaluation.audit_summary import AuditSummary
from fsd.evaluation.intervals import Estimate

AUC = Estimate(0.92, 0.90, 0.94)


@pytest.mark.parametrize(
    ("blind", "explains", "said"),
    [
        (
            Estimate(0.99, 0.98, 1.0),
            True,
            "reaches .99 [.98, 1.00] on the adapter's benchmark, loss FSD .92 [.90, .94]",
        ),
        (Estimate(0.70, 0.65, 0.75), False, "part of the result may be the difference"),
        (Estimate(0.52, 0.47, 0.57), False, "reaches .52 [.47, .57] on the adapter's benchmark"),
        (None, False, "no blind classifier could be trained on the adapter's benchmark (too few groups)"),
    ],
)
def test_the_summary_survives_its_file(blind, explains, said):
    summary = AuditSummary("loss", AUC, blind, "" if blind else "too few groups")
    text = summary.to_json()

    assert AuditSummary.from_json(text) == summary
    assert said in summary.sentence
    assert (json.loads(text)["explains"], json.loads(text)["sentence"]) == (explains, summary.sentence)
    assert ("cannot show membership" in summary.sentence) == explains


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"detector": "loss", "auc": 1, "blind": null, "reason": ""}'])
def test_another_file_is_refused_in_one_line(text):
    with pytest.raises(UsageError, match="audit must be JSON written by this program; got") as caught:
        AuditSummary.from_json(text)
    assert "\n" not in str(caught.value)
