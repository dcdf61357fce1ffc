from dataclasses import replace

import pandas as pd
import pytest

from fsd.evaluation.audit import Audit, Control, Leaks, explains
from fsd.evaluation.conclusions import conclusions
from fsd.evaluation.distribution_shift import Overlap
from fsd.evaluation.intervals import Estimate
from fsd.evaluation.metrics import Row
from fsd.evaluation.text_classifiers import Telling

NO_LEAKS = Leaks((), 0, 0, 0, 100)
ALIKE = Control(Estimate(0.5, 0.45, 0.55))


def _audit(blind, leaks=NO_LEAKS, date=ALIKE, overlaps=None):
    return Audit(leaks, blind, date, ALIKE, overlaps or {})


def _auc(name, *numbers):
    return Row(name, "fsd", "auc", *numbers)


def _said(audit, rows, best="loss", **more):
    table = pd.DataFrame(list(rows), columns=list(Row._fields))
    return conclusions(audit, table, best, **{"on_validation": True, **more})


GOOD = _auc("loss", 0.9, 0.8, 0.95)


@pytest.mark.parametrize(
    ("blind", "auc", "said"),
    [
        ((0.99, 0.98, 1.0), (0.92, 0.90, 0.94), "reaches .99 [.98, 1.00] here: this benchmark cannot show membership"),
        ((0.91, 0.87, 0.95), (0.92, 0.90, 0.94), "cannot show membership"),
        ((0.89, 0.86, 0.92), (0.92, 0.90, 0.94), "cannot show membership"),
        ((0.52, 0.47, 0.57), (0.92, 0.90, 0.94), "no better than chance: without the model, members and non-members"),
        ((0.70, 0.65, 0.75), (0.92, 0.90, 0.94), "part of the result may be"),
        ((0.52, 0.47, 0.57), (0.53, 0.48, 0.58), "not distinguishable from chance"),
        ((0.99, 0.98, 1.0), (0.53, 0.48, 0.58), "not distinguishable from chance"),
        ((0.99, 0.98, 1.0), (0.53, 0.48, 0.58), "reaches .99 [.98, 1.00] here: this benchmark cannot show membership"),
        ((0.52, 0.47, 0.57), (0.53, 0.48, 0.58), "reaches .52 [.47, .57] here, no better than chance"),
    ],
)
def test_the_headline_fits_the_case(blind, auc, said):
    headline = _said(_audit(Control(Estimate(*blind))), [_auc("loss", *auc)])[0]
    assert headline.startswith("loss FSD .")
    assert said in headline


@pytest.mark.parametrize(
    ("blind", "auc", "explained"),
    [
        ((0.98, 0.96, 1.0), (1.0, 0.99, 1.0), True),
        ((0.99, 0.98, 1.0), (0.53, 0.48, 0.58), True),
        ((0.70, 0.65, 0.75), (0.92, 0.90, 0.94), False),
        ((0.60, 0.49, 0.71), (0.62, 0.52, 0.72), False),
    ],
)
def test_a_blind_classifier_explains_what_is_not_clearly_above_it(blind, auc, explained):
    assert explains(Estimate(*blind), Estimate(*auc)) is explained
    assert not explains(None, Estimate(*auc))


def test_the_headline_is_of_the_chosen_detector_and_states_the_choice():
    rows = [_auc("zlib", 0.95, 0.9, 0.99), GOOD]
    assert _said(_audit(ALIKE), rows)[0].startswith(
        "loss FSD .90 [.80, .95], the best of 2 detectors on the validation texts; "
    )
    on_test = _said(_audit(ALIKE), rows, best="zlib", on_validation=False)[0]
    assert "zlib FSD .95 [.90, .99], the best of 2 detectors on the test texts themselves" in on_test


def test_no_blind_classifier_leaves_the_cause_open():
    headline = _said(_audit(Control(None, "too few")), [GOOD])[0]
    assert "(too few): the cause of the result is open" in headline


def _placebo(auc, lead, name="loss"):
    return [Row(name, "fsd", "placebo_auc", *auc), Row(name, "fsd", "placebo_lead", *lead, 0.01)]


@pytest.mark.parametrize(
    ("placebo", "said"),
    [
        ([], "no placebo"),
        (_placebo((0.9, 0.8, 1.0), (0.0, -0.1, 0.1), "zlib"), "no placebo"),
        (
            _placebo((0.85, 0.78, 0.92), (0.05, -0.02, 0.12)),
            "reaches .85 [.78, .92] on a control model trained on none of these texts; the lead over it, "
            "+.05 [-.02, +.12], may be zero: this result is not evidence of membership",
        ),
        (_placebo((0.6, 0.52, 0.68), (0.3, 0.2, 0.4)), "+.30 [+.20, +.40], is the most that can be due to membership"),
        (_placebo((0.51, 0.44, 0.58), (0.39, 0.3, 0.5)), "[+.30, +.50], does not come from the texts alone"),
        (_placebo((0.95, 0.9, 1.0), (-0.05, -0.1, -0.01)), "[-.10, -.01], may be zero"),
    ],
)
def test_the_placebo_is_described(placebo, said):
    assert said in _said(_audit(ALIKE), [GOOD, *placebo])[1]


def test_the_most_telling_word_is_named():
    planted = replace(_audit(ALIKE), telling=Telling("“marker”", 0.25, 0.0, 1.2e-6, 1900))
    headline, named = _said(planted, [GOOD])[0], _said(planted, [])[1]
    assert headline.endswith("no better than chance")
    assert named == (
        "the most telling word, pair or sign, “marker”, is in 25% of the members and 0% of the non-members "
        "(p = 1.2e-06, corrected for 1,900 words, pairs and signs)"
    )
    nothing = replace(_audit(ALIKE), telling=Telling("“to within”", 0.05, 0.0, 0.43, 1900))
    assert (
        "no single word, pair of words or sign separates members from non-members; the most telling is “to within” "
        "(p = .43, corrected for 1,900 words, pairs and signs)"
    ) in _said(nothing, [GOOD])
    assert headline != _said(nothing, [GOOD])[0]


def test_one_leak_is_in_the_singular():
    lines = _said(_audit(ALIKE, Leaks((), 1, 1, 1, 40)), [])
    assert lines[1:4] == [
        "LEAK: 1 group of texts spans more than one part of the split",
        "LEAK: 1 of 40 test texts belongs (2%) to a group that was used for fine-tuning; its score measures the "
        "fine-tuning",
        "LEAK: 1 of 40 test texts belongs to a group that was used to choose thresholds",
    ]


def test_leaks_are_reported_with_their_share():
    lines = _said(_audit(ALIKE, Leaks((), 5, 36, 2, 100)), [])
    assert "LEAK: 5 groups" in lines[1]
    assert "36 of 100 test texts belong (36%)" in lines[2]
    assert "2 of 100 test texts" in lines[3]
    assert "no set of near-duplicates spans two parts" in _said(_audit(ALIKE), [])[1]


def test_shifts_of_date_and_vocabulary_are_reported():
    audit = _audit(ALIKE, date=Control(Estimate(1.0, 1.0, 1.0)), overlaps={"date": Overlap(0.1, 0.9)})
    text = " ".join(_said(audit, []))
    assert "the date alone separates members from non-members with AUC 1.00" in text
    assert "overlap little in date 10% (matched texts would show 90%)" in text
    assert "length" not in text


def test_a_model_trained_on_none_of_the_texts_is_a_control_itself():
    lines = _said(_audit(ALIKE), [GOOD], never_saw=True)
    assert lines[0].startswith("this model was trained on none of these texts: the whole run is a control")
    assert not any(line.startswith("no placebo") for line in lines)


def test_where_fine_tuning_helped_and_where_it_did_harm():
    gains = (("loss", 0.1, 0.01), ("zlib", -0.1, 0.01), ("surp", 0.1, 0.2))
    rows = [GOOD, *(Row(name, "", "auc_gain", gain, gain - 0.1, gain + 0.1, p, p) for name, gain, p in gains)]
    verdict = "better for loss; worse for zlib; no significant difference for the other 1"
    assert f"FSD against the base score (p < .05 after Holm's correction): {verdict}" in _said(_audit(ALIKE), rows)


def _contrast(name, base, fsd, placebo=None):
    rows = [Row("loss", "base", f"auc_{name}", *base), Row("loss", "fsd", f"auc_{name}", *fsd)]
    if placebo:
        auc, lead = placebo
        rows += [
            Row("loss", "fsd", f"placebo_auc_{name}", *auc),
            Row("loss", "fsd", f"placebo_lead_{name}", *lead, 0.01, 0.01),
        ]
    return rows


MEASURED = _contrast("members_vs_later", (0.68, 0.6, 0.76), (0.82, 0.75, 0.88))
WITHIN = _contrast("members_vs_contemporaries", (0.64, 0.56, 0.72), (0.67, 0.6, 0.74))
PERIOD = ((0.52, 0.44, 0.6), (0.65, 0.57, 0.72))
AT_CHANCE = (0.49, 0.41, 0.57)


def _line(rows, start, **more):
    (line,) = [line for line in _said(_audit(ALIKE), [GOOD, *rows], **more) if line.startswith(start)]
    return line


def test_without_contemporaries_no_lead_is_called_membership():
    for control in ((0.6, 0.52, 0.68), (0.51, 0.44, 0.58)):
        line = _line(_placebo(control, (0.3, 0.2, 0.4)), "placebo")
        assert line.endswith("; a placebo cannot exclude that it is familiarity with the members' period")
        line = _line([*_placebo(control, (0.3, 0.2, 0.4)), *WITHIN], "placebo")
        assert "familiarity" not in line
    assert _line([], "without contemporaries").endswith(
        "excludes this; a column period, or --cutoff DAY, shows which texts are contemporaries"
    )
    assert _line(MEASURED, "without contemporaries").endswith(
        "; contemporaries against later texts and members against contemporaries cannot be compared: all non-members "
        "are later texts"
    )


def test_a_result_at_chance_needs_no_contemporaries():
    assert not [line for line in _said(_audit(ALIKE), [_auc("loss", *AT_CHANCE)]) if "contemporaries" in line]
    assert not [line for line in _said(_audit(ALIKE), [GOOD], never_saw=True) if "contemporaries" in line]


def test_contemporaries_alone_exclude_familiarity_with_the_period():
    line = _line(WITHIN, "all non-members are contemporaries")
    assert "familiarity with the period cannot explain the result" in line
    assert line.endswith(
        "members against later texts and contemporaries against later texts cannot be compared: there are no later "
        "texts"
    )


@pytest.mark.parametrize(
    ("period", "within", "said"),
    [
        (
            [*PERIOD],
            WITHIN,
            "by familiarity with the period, or by a difference of the texts that a placebo would show; what can be "
            "due to membership is the separation within the period",
        ),
        (
            [*PERIOD, (AT_CHANCE, (0.16, 0.1, 0.22))],
            WITHIN,
            "from later texts by familiarity with the period; what can",
        ),
        ([*PERIOD, ((0.64, 0.56, 0.7), (0.01, -0.1, 0.1))], WITHIN, "which the control model shows as well; what can"),
        ([AT_CHANCE, AT_CHANCE], WITHIN, "; no familiarity with the period was shown by loss; what can"),
        (
            [AT_CHANCE, AT_CHANCE],
            _contrast("members_vs_contemporaries", AT_CHANCE, AT_CHANCE),
            "; within the period nothing was shown, so this is not evidence of membership",
        ),
    ],
)
def test_three_contrasts_state_what_is_familiarity_and_what_membership(period, within, said):
    rows = [*MEASURED, *_contrast("contemporaries_vs_later", *period), *within]
    line = _line(rows, "loss base → FSD: members against later texts .68 → .82 [.75, .88], contemporaries against")
    assert said in line
    assert (" (placebo ." in line) == (len(period) == 3)
    assert not [line for line in _said(_audit(ALIKE), [GOOD, *rows]) if "without contemporaries" in line]


def test_familiarity_that_another_detector_shows_is_named():
    def zlib(rows):
        return [row._replace(detector="zlib") for row in rows]

    none = [*MEASURED, *_contrast("contemporaries_vs_later", AT_CHANCE, AT_CHANCE), *WITHIN]
    low, high = (0.6, 0.52, 0.68), (0.79, 0.67, 0.87)
    surp = [row._replace(detector="surp") for row in _contrast("contemporaries_vs_later", low, low)]

    line = _line([*none, *surp, *zlib(_contrast("contemporaries_vs_later", PERIOD[0], high))], "loss base")
    assert (
        "; no familiarity with the period was shown by loss; by the FSD of zlib, the highest of 3, it is "
        ".79 [.67, .87]: contemporaries, which the model never read, are separated from later texts by familiarity "
        "with the period, or by a difference of the texts that a placebo would show; what can"
    ) in line
    texts = zlib(_contrast("contemporaries_vs_later", PERIOD[0], high, ((0.7, 0.6, 0.8), (0.09, -0.02, 0.2))))
    assert "shown by loss; what can" in _line([*none, *texts], "loss base")


def test_contrasts_of_a_model_that_read_nothing_are_numbers_alone():
    rows = [*MEASURED, *_contrast("contemporaries_vs_later", *PERIOD), *WITHIN]
    line = _line(rows, "loss base → FSD: members against later texts", never_saw=True)
    assert line.endswith("members against contemporaries .64 → .67 [.60, .74]")
