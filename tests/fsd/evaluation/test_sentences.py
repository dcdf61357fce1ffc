"""Every sentence about a result, by the numbers that it rests on."""

import json
from dataclasses import replace

import pandas as pd
import pytest

from fsd.data.documents import Document
from fsd.data.splitting import Split
from fsd.errors import UsageError
from fsd.evaluation import sentences
from fsd.evaluation.audit import Audit, Control, Leaks, Overlap, Telling, explains
from fsd.evaluation.metrics import Estimate, Row
from fsd.evaluation.results import Results
from fsd.evaluation.sentences import AuditSummary, advice, advised, audit_summary, too_few

ALIKE = Control(Estimate(0.5, 0.45, 0.55))
HIGH, MIDDLE, CHANCE = (0.99, 0.98, 1.0), (0.70, 0.65, 0.75), (0.52, 0.47, 0.57)
GOOD, POOR = (0.92, 0.90, 0.94), (0.53, 0.48, 0.58)


def _auc(*numbers, detector="loss", state="fsd", metric="auc", p=float("nan")):
    return Row(detector, state, metric, *numbers, p, p)


def _audit(blind=ALIKE, leaks=None, date=ALIKE, overlaps=None, telling=None):
    return Audit(leaks or Leaks((), 0, 0, 0, 100), blind, date, ALIKE, overlaps or {}, telling)


def _results(rows, audit=None, best="loss", *, validated=True, never_saw=False, periods="", groups=None):
    """Results of 30 members and 40 non-members in the test, of one text each unless `groups` are given."""
    label = [1] * 30 + [0] * 40
    scores = pd.DataFrame({"label": label, "split": "test", "group": groups or range(70)})
    if periods:
        scores["period"] = periods
    parts = Split((), (Document("held out", True),) if validated else (), ())
    table = pd.DataFrame(list(rows), columns=list(Row._fields))
    return Results(parts, scores, table, audit or _audit(), [], None, best, None, never_saw)


def _said(rows, audit=None, **more):
    return sentences.conclusions(_results(rows, audit, **more))


def _placebo(auc, lead, detector="loss", of=""):
    control = _auc(*auc, detector=detector, metric=f"placebo_auc{of}")
    return [control, _auc(*lead, detector=detector, metric=f"placebo_lead{of}", p=0.01)]


@pytest.mark.parametrize(
    ("blind", "auc", "explained", "said"),
    [
        (HIGH, GOOD, True, "reaches .99 [.98, 1.00] here: this benchmark cannot show membership"),
        ((0.91, 0.87, 0.95), GOOD, True, "cannot show membership"),
        ((0.98, 0.96, 1.0), (1.0, 0.99, 1.0), True, "cannot show membership"),
        (CHANCE, GOOD, False, "no better than chance: without the model, members and non-members were not"),
        (MIDDLE, GOOD, False, "part of the result may be the difference between members and non-members"),
        (
            CHANCE,
            POOR,
            False,
            "shows nothing about membership; a blind classifier, which never sees the model, reaches",
        ),
        (HIGH, POOR, True, "reaches .99 [.98, 1.00] here: this benchmark cannot show membership"),
        (None, GOOD, False, "no blind classifier could be trained (too few): the cause of the result is open"),
    ],
)
def test_the_first_sentence_fits_the_case(blind, auc, explained, said):
    found = Estimate(*blind) if blind else None
    first = _said([_auc(*auc)], _audit(Control(found, "too few")))[0]
    assert first.startswith(f"loss FSD {Estimate(*auc)}")
    assert said in first
    assert explains(found, Estimate(*auc)) is explained


def test_the_choice_of_the_detector_is_stated():
    rows = [_auc(0.95, 0.9, 0.99, detector="zlib"), _auc(0.9, 0.8, 0.95)]
    assert _said(rows)[0].startswith("loss FSD .90 [.80, .95], the best of 2 detectors on the validation texts; ")
    on_test = _said(rows, best="zlib", validated=False)[0]
    assert "zlib FSD .95 [.90, .99], the best of 2 detectors on the test texts themselves" in on_test


@pytest.mark.parametrize(
    ("placebo", "said"),
    [
        ([], "no placebo: the same"),
        (_placebo((0.9, 0.8, 1.0), (0.0, -0.1, 0.1), "zlib"), "no placebo for loss"),
        (
            _placebo((0.85, 0.78, 0.92), (0.05, -0.02, 0.12)),
            "reaches .85 [.78, .92] on a control model trained on none of these texts; the lead over it, "
            "+.05 [-.02, +.12], may be zero: this result is not evidence of membership",
        ),
        (_placebo((0.6, 0.52, 0.68), (0.3, 0.2, 0.4)), "+.30 [+.20, +.40], is the most that can be due to membership"),
        (_placebo((0.51, 0.44, 0.58), (0.39, 0.3, 0.5)), "[+.30, +.50], does not come from the texts alone"),
    ],
)
def test_the_placebo_is_described(placebo, said):
    assert said in _said([_auc(*GOOD), *placebo])[1]


def test_the_most_telling_word_is_named():
    planted = _said([_auc(*GOOD)], _audit(telling=Telling("“marker”", 0.25, 0.0, 1.2e-6, 1900)))
    assert planted[0].endswith("no better than chance")
    assert (
        "the most telling word, pair or sign, “marker”, is in 25% of the members and 0% of the non-members "
        "(p = 1.2e-06, corrected for 1,900 words, pairs and signs)"
    ) in planted
    assert (
        "no single word, pair of words or sign separates members from non-members; the most telling is “to within” "
        "(p = .43, corrected for 1,900 words, pairs and signs)"
    ) in _said([_auc(*GOOD)], _audit(telling=Telling("“to within”", 0.05, 0.0, 0.43, 1900)))


def test_leaks_and_shifts_are_reported():
    assert (
        "LEAK: groups of texts that span more than one part of the split: 5; of 100 test texts, 36 belong to a group "
        "that was used for fine-tuning, which their scores measure, and 2 to one that was used to choose thresholds"
    ) in _said([_auc(*GOOD)], _audit(leaks=Leaks((), 5, 36, 2, 100)))
    audit = _audit(date=Control(Estimate(1.0, 1.0, 1.0)), overlaps={"date": Overlap(0.1, 0.9)})
    none, *shifts = _said([_auc(*GOOD)], audit)[-3:]
    assert none == "no group and no set of near-duplicates spans two parts of the split"
    assert shifts == [
        "the date alone separates members from non-members with AUC 1.00 [1.00, 1.00]",
        "members and non-members overlap little in date 10% (matched texts would show 90%)",
    ]


def test_where_fine_tuning_helped_and_where_it_did_harm():
    gains = (("loss", 0.1, 0.01), ("zlib", -0.1, 0.01), ("surp", 0.1, 0.2))
    rows = [
        _auc(gain, gain - 0.1, gain + 0.1, detector=name, state="", metric="auc_gain", p=p) for name, gain, p in gains
    ]
    verdict = "better for loss; worse for zlib; no significant difference for the other 1"
    assert f"FSD against the base score (p < .05 after Holm's correction): {verdict}" in _said([_auc(*GOOD), *rows])


def _contrast(name, base, fsd, placebo=None, detector="loss"):
    rows = [_auc(*base, detector=detector, state="base", metric=f"auc_{name}")]
    rows.append(_auc(*fsd, detector=detector, metric=f"auc_{name}"))
    return [*rows, *(_placebo(*placebo, detector, f"_{name}") if placebo else [])]


AT_CHANCE = (0.49, 0.41, 0.57)
LOW, FAMILIAR = (0.52, 0.44, 0.6), (0.65, 0.57, 0.72)
PERIOD = "contemporaries_vs_later"
MEASURED = _contrast("members_vs_later", (0.68, 0.6, 0.76), (0.82, 0.75, 0.88))
WITHIN = _contrast("members_vs_contemporaries", (0.64, 0.56, 0.72), (0.67, 0.6, 0.74))
WITHIN_NOTHING = _contrast("members_vs_contemporaries", AT_CHANCE, AT_CHANCE)
MAY_BE_PERIOD = "; a placebo cannot exclude that it is familiarity with the members' period"


@pytest.mark.parametrize(
    ("rows", "start", "end"),
    [
        (_placebo((0.6, 0.52, 0.68), (0.3, 0.2, 0.4)), "placebo", f"due to membership{MAY_BE_PERIOD}"),
        ([*_placebo((0.6, 0.52, 0.68), (0.3, 0.2, 0.4)), *WITHIN], "placebo", "can be due to membership"),
        ([], "without contemporaries", "a column period, or --cutoff DAY, shows which texts are contemporaries"),
        (
            MEASURED,
            "without contemporaries",
            "; contemporaries against later texts and members against contemporaries cannot be compared: all "
            "non-members are later texts",
        ),
        (
            WITHIN,
            "all non-members are contemporaries",
            "cannot explain the result; members against later texts and contemporaries against later texts cannot be "
            "compared: there are no later texts",
        ),
        ([*MEASURED, *_contrast(PERIOD, AT_CHANCE, AT_CHANCE), *WITHIN], "without contemporaries", None),
    ],
)
def test_without_contemporaries_no_lead_is_called_membership(rows, start, end):
    lines = [line for line in _said([_auc(*GOOD), *rows]) if line.startswith(start)]
    assert len(lines) == (end is not None)
    assert all(line.endswith(end) for line in lines)
    assert not [line for line in _said([_auc(*AT_CHANCE)]) if "contemporaries" in line]


@pytest.mark.parametrize(
    ("period", "within", "said"),
    [
        (
            _contrast(PERIOD, LOW, FAMILIAR),
            WITHIN,
            "by familiarity with the period, or by a difference of the texts that a placebo would show; what can be "
            "due to membership is the separation within the period",
        ),
        (
            _contrast(PERIOD, LOW, FAMILIAR, (AT_CHANCE, (0.16, 0.1, 0.22))),
            WITHIN,
            " .52 → .65 [.57, .72] (placebo .49), members against contemporaries .64 → .67 [.60, .74]; contemporaries, "
            "which the model never saw, are separated from later texts by familiarity with the period; what can",
        ),
        (
            _contrast(PERIOD, LOW, FAMILIAR, ((0.64, 0.56, 0.7), (0.01, -0.1, 0.1))),
            WITHIN,
            "which the control model shows as well; what can",
        ),
        (
            _contrast(PERIOD, AT_CHANCE, AT_CHANCE),
            WITHIN_NOTHING,
            "; no familiarity with the period was shown by loss; within the period nothing was shown, so this is not "
            "evidence of membership",
        ),
        (
            [
                *_contrast(PERIOD, AT_CHANCE, AT_CHANCE),
                *_contrast(PERIOD, LOW, (0.6, 0.52, 0.68), detector="surp"),
                *_contrast(PERIOD, LOW, (0.79, 0.67, 0.87), detector="zlib"),
            ],
            WITHIN,
            "; no familiarity with the period was shown by loss; by the FSD of zlib, the highest of 3, it is "
            ".79 [.67, .87]: contemporaries, which the model never saw, are separated from later texts by familiarity "
            "with the period, or by a difference of the texts that a placebo would show; what can",
        ),
        (
            [
                *_contrast(PERIOD, AT_CHANCE, AT_CHANCE),
                *_contrast(PERIOD, LOW, FAMILIAR, ((0.7, 0.6, 0.8), (0.09, -0.02, 0.2)), detector="zlib"),
            ],
            WITHIN,
            "shown by loss; what can",
        ),
    ],
)
def test_three_contrasts_state_what_is_familiarity_and_what_membership(period, within, said):
    (line,) = [line for line in _said([_auc(*GOOD), *MEASURED, *period, *within]) if "contemporaries" in line]
    assert line.startswith("loss base → FSD: members against later texts .68 → .82 [.75, .88], contemporaries against")
    assert said in line


def test_a_model_trained_on_none_of_the_texts_is_a_control_itself():
    rows = [_auc(*GOOD), *MEASURED, *_contrast(PERIOD, LOW, FAMILIAR), *WITHIN]
    lines = _said(rows, never_saw=True)
    assert lines[0].startswith("this model was trained on none of these texts: the whole run is a control")
    assert lines[2].endswith("members against contemporaries .64 → .67 [.60, .74]")
    lines = _said(rows[:1], never_saw=True)
    assert not [line for line in lines if line.startswith("no placebo") or "contemporaries" in line]


def test_the_best_score_that_was_computed_is_advised():
    scores = ["loss.base", "min_k.base", "min_k_pp.base", "min_k_reference.base", "loss.fsd", "combined.fsd"]
    for best in ("combined.fsd", "min_k_reference.base", "min_k_pp.base", "min_k.base", "loss.base"):
        assert advised(scores) == best
        scores.remove(best)
    assert advised(scores) is None
    assert advice(["zlib.base"]) == []
    for score, shown, end in (
        ("combined.fsd", "combined FSD: it was best on small", "trust reference, base score"),
        ("loss.base", "loss, base score: nothing", "nothing better can be computed"),
    ):
        (line,) = advice([score])
        assert line.startswith(f"advice without labels, within one period: trust {shown}")
        assert line.endswith(f"{end}; against later texts no score is advised")


def test_too_few_non_members_and_one_large_family_are_remarked_on():
    assert too_few(250) == []
    assert too_few(105) == [
        "too few independent non-members, 105, for the interval of TPR@1%FPR (reliable from about 250 on): it depends "
        "on the few highest of them and is too narrow"
    ]
    assert "intervals of TPR@1%FPR (reliable from about 250 on), TPR@5%FPR (reliable" in too_few(20)[0]
    for size, remarks in (
        (8, []),
        (
            9,
            [
                "9 of the 40 non-member test texts are one family of related texts, of 32 families in all: numbers on "
                "these texts rest largely on it"
            ],
        ),
    ):
        groups = [*range(30), *[99] * size, *range(30 + size, 70)]
        assert sentences.caveats(_results([_auc(*GOOD)], groups=groups)) == too_few(41 - size) + remarks


@pytest.mark.parametrize(
    ("blind", "explained", "said"),
    [
        (HIGH, True, "reaches .99 [.98, 1.00] on the adapter's benchmark, loss FSD .92 [.90, .94]"),
        (MIDDLE, False, "part of the result may be the difference"),
        (CHANCE, False, "reaches .52 [.47, .57] on the adapter's benchmark"),
        (None, False, "no blind classifier could be trained on the adapter's benchmark (too few groups)"),
    ],
)
def test_the_summary_of_an_audit_survives_its_file(blind, explained, said):
    summary = AuditSummary("loss", Estimate(*GOOD), Estimate(*blind) if blind else None, "too few groups")
    text = summary.to_json()
    assert AuditSummary.from_json(text) == summary
    assert said in summary.sentence
    assert (json.loads(text)["explains"], json.loads(text)["sentence"]) == (explained, summary.sentence)
    assert ("cannot show membership" in summary.sentence) == explained
    assert ("has no contemporaries" in summary.sentence) == (not explained)


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"detector": "loss", "auc": 1, "blind": null, "reason": ""}'])
def test_another_file_than_a_summary_is_refused_in_one_line(text):
    with pytest.raises(UsageError, match="audit must be JSON written by this program; got") as caught:
        AuditSummary.from_json(text)
    assert "\n" not in str(caught.value)


PLACEBO = "the lead of loss over the control model, .05 [-.02, .10], may be zero"


@pytest.mark.parametrize(
    ("auc", "blind", "lead", "periods", "judgement", "barred"),
    [
        (POOR, CHANCE, None, "", "chance", ""),
        (GOOD, HIGH, None, "", "texts", "a blind classifier, which never sees the model, reaches .99"),
        (GOOD, CHANCE, None, "", "unexplained", ""),
        (GOOD, CHANCE, (0.05, -0.02, 0.1), "", "placebo", PLACEBO),
        (GOOD, CHANCE, (0.2, 0.1, 0.3), "", "period", ""),
        (GOOD, None, (0.2, 0.1, 0.3), "2020", "lead", ""),
    ],
)
def test_the_headline_judges_and_bars(auc, blind, lead, periods, judgement, barred):
    rows = [_auc(*auc), _auc(0.4, 0.3, 0.5, metric="tpr_at_5fpr"), *(_placebo(MIDDLE, lead) if lead else [])]
    control = Control(Estimate(*blind) if blind else None, "few")
    results = _results(rows, _audit(control), validated=False, periods=periods)

    assert sentences.judgement(results) == judgement
    assert sentences.judgement(replace(results, never_saw=True)) == "control"
    assert sentences.barred(results).startswith(barred)
    assert bool(sentences.barred(results)) == bool(barred)
    assert audit_summary(results, "calibrated").state == "calibrated"
    signed = Estimate(*lead).signed if lead else "none"
    line = f"loss FSD AUC {Estimate(*auc)} · placebo lead {signed} · blind AUC {control.auc or 'none'}"
    assert sentences.description(results).startswith(f"{line}\n\n")
    assert results.metrics()["headline/fsd_auc"] == auc[0]
    assert ("headline/placebo_lead" in results.metrics()) == bool(lead)
    assert "40 of 100 training texts are found (30 to 50)" in sentences.answer(results)[2]
    changes = sentences.changes(results)
    assert "rests on 30 independent texts from the training data and 40 from outside it" in changes[1]
    assert changes[2].startswith("The detector was chosen on these very texts")
