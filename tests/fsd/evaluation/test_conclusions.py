from dataclasses import replace

import pytest

from fsd.evaluation.audit import Audit, Control, Leaks
from fsd.evaluation.conclusions import plain_words
from fsd.evaluation.distribution_shift import Overlap
from fsd.evaluation.intervals import Estimate
from fsd.evaluation.metrics import Comparison, Evaluation, Result
from fsd.evaluation.placebo import Placebo

NO_LEAKS = Leaks((), 0, 0, 0, 100)
ALIKE = Control(Estimate(0.5, 0.45, 0.55))


def _audit(blind, leaks=NO_LEAKS, date=ALIKE, overlaps=None):
    return Audit(leaks, blind, date, ALIKE, overlaps or {})


def _result(name, *numbers):
    evaluation = Evaluation(*[Estimate(*numbers)] * 4)
    return Result(name, None, evaluation, None)


@pytest.mark.parametrize(
    ("blind", "result", "said"),
    [
        ((0.99, 0.98, 1.0), (0.92, 0.90, 0.94), "reaches .99 [.98, 1.00] here: this benchmark cannot show membership"),
        ((0.91, 0.87, 0.95), (0.92, 0.90, 0.94), "cannot show membership"),
        ((0.52, 0.47, 0.57), (0.92, 0.90, 0.94), "no better than chance: the two sides look alike"),
        ((0.70, 0.65, 0.75), (0.92, 0.90, 0.94), "a part of the result may be"),
        ((0.52, 0.47, 0.57), (0.53, 0.48, 0.58), "not told apart from chance"),
        ((0.99, 0.98, 1.0), (0.53, 0.48, 0.58), "not told apart from chance"),
    ],
)
def test_the_headline_fits_the_case(blind, result, said):
    headline = plain_words(_audit(Control(Estimate(*blind))), [_result("loss", *result)])[0]
    assert headline.startswith("loss FSD .")
    assert said in headline


def test_the_best_detector_is_named_as_the_best_of_many():
    rows = [_result("zlib", 0.7, 0.6, 0.8), _result("loss", 0.9, 0.8, 0.95)]
    headline = plain_words(_audit(ALIKE), rows)[0]
    assert headline.startswith("loss FSD .90 [.80, .95], the highest of 2 detectors")


def test_no_blind_classifier_leaves_the_cause_open():
    headline = plain_words(_audit(Control(None, "too few")), [_result("loss", 0.9, 0.8, 0.95)])[0]
    assert "(too few): what causes the result is open" in headline


def _sham(auc, lead):
    return Placebo(Estimate(*auc), Comparison(Estimate(*lead), 0.01, 0.01, 0.01))


@pytest.mark.parametrize(
    ("placebo", "said"),
    [
        (None, "no placebo"),
        ({"zlib": _sham((0.9, 0.8, 1.0), (0.0, -0.1, 0.1))}, "no placebo"),
        (
            {"loss": _sham((0.85, 0.78, 0.92), (0.05, -0.02, 0.12))},
            "reaches .85 [.78, .92] on a model that saw neither side; the lead over it, +.05 [-.02, +.12], may be none"
            ": this result is not evidence of membership",
        ),
        ({"loss": _sham((0.6, 0.52, 0.68), (0.3, 0.2, 0.4))}, "+.30 [+.20, +.40], is all that can be membership"),
        ({"loss": _sham((0.51, 0.44, 0.58), (0.39, 0.3, 0.5))}, "[+.30, +.50], does not come from the texts alone"),
        ({"loss": _sham((0.95, 0.9, 1.0), (-0.05, -0.1, -0.01))}, "[-.10, -.01], may be none"),
    ],
)
def test_the_placebo_is_spoken_of(placebo, said):
    assert said in plain_words(_audit(ALIKE), [_result("loss", 0.9, 0.8, 0.95)], placebo)[1]


def test_leaks_are_said_with_their_share():
    lines = plain_words(_audit(ALIKE, Leaks((), 5, 36, 2, 100)), [])
    assert "LEAK: 5 groups" in lines[1]
    assert "36 of 100 test texts (36%)" in lines[2]
    assert "2 of 100 test texts" in lines[3]
    assert "no near-duplicate lies in two parts" in plain_words(_audit(ALIKE), [])[1]


def test_differences_of_date_and_vocabulary_are_said():
    audit = _audit(ALIKE, date=Control(Estimate(1.0, 1.0, 1.0)), overlaps={"date": Overlap(0.1, 0.9)})
    said = " ".join(plain_words(audit, []))
    assert "the date alone tells members from non-members with AUC 1.00" in said
    assert "overlap little in date 10% (equal sides would show 90%)" in said
    assert "length" not in said


def test_a_model_that_saw_none_of_the_texts_is_a_placebo_itself():
    lines = plain_words(_audit(ALIKE), [_result("loss", 0.9, 0.8, 0.95)], never_saw=True)
    assert lines[0].startswith("this model saw none of these texts: the whole run is a placebo")
    assert not any(line.startswith("no placebo") for line in lines)


def test_where_fine_tuning_helped_and_where_it_did_harm_is_said():
    def row(name, gain, p):
        comparison = Comparison(Estimate(gain, gain - 0.1, gain + 0.1), p, p, p)
        return replace(_result(name, 0.7, 0.6, 0.8), comparison=comparison)

    rows = [row("loss", 0.1, 0.01), row("zlib", -0.1, 0.01), row("surp", 0.1, 0.2), _result("pair", 0.7, 0.6, 0.8)]
    verdict = "better for loss; worse for zlib; no difference shown for the other 1"
    told = f"FSD against the base score (p < .05 after Holm): {verdict}"
    assert told in plain_words(_audit(ALIKE), rows)
