"""What is said of verdicts: chance, the sources, why there are none, and what the domain check does not recognise."""

from functools import partial

import numpy as np
import pandas as pd
import pytest

from fsd.evaluation.findings import AGAINST, FOR, Finding
from fsd.scores import Score
from fsd.verdicts.calibration import calibrate
from fsd.verdicts.domain_check import LATER, OWN, Reference
from fsd.verdicts.exchangeability import Exchangeability
from fsd.verdicts.verdicts import ASSERTED, MEMBER, NOT_SHOWN, TESTED, Basis, Rules, Verdicts
from pipelines.experiment.verdict_sentences import basis_sentences, chance_sentence, power_sentences, rate_sentences

TESTED_TEXTS = (Basis("", TESTED),)
"""Texts without a named source that passed the tests."""


def calibration_of(sources):
    """A calibration on one non-member of each of the (n,) sources, and a member."""
    count = len(sources)
    texts = tuple(f"text {place}" for place in range(count))
    reference = Reference(texts, tuple(range(count)), tuple(sources), {})
    scores = {Score("loss"): np.append(np.linspace(-1, 0, count), 1.0)}
    return calibrate(np.arange(count + 1) == count, scores, reference=reference, sources=[*sources, sources[0]])


def verdicts_of(called, judged, bases=TESTED_TEXTS, fpr=0.05):
    """Verdicts on families of one text each, of which the first ones are called members."""
    said = [MEMBER] * called + [NOT_SHOWN] * (judged - called)
    table = pd.DataFrame({"verdict": said, "p_value": 0.5})
    return Verdicts(table, list(bases), np.arange(judged), Rules(fpr=fpr))


@pytest.fixture(scope="module")
def calibration():
    return calibration_of([""] * 99)


chance = partial(chance_sentence, data="training data", called_what="members")


def test_as_many_calls_as_chance_explains_are_no_evidence_and_one_more_is(calibration):
    """With a rate of .05 and 40 texts, at most 5 are called in 95 of 100 cases: beta-binomial of 5 of 100 votes."""
    most = calibration.false_alarms(0.05, 40)
    assert most == 5
    at_most = chance(verdicts_of(most, 40), calibration)
    assert at_most.sign is AGAINST
    assert "about 2.0 would still be called members, and in 95 of 100 cases at most 5" in at_most.text
    assert at_most.text.endswith(": 5 such calls together are no evidence of membership")
    more = chance(verdicts_of(most + 1, 40), calibration)
    assert more.sign is FOR
    assert more.text.endswith(": 6 are more than chance explains for texts of the calibrated kind")
    asserted = chance(verdicts_of(most + 1, 40, [Basis("", ASSERTED)]), calibration)
    assert asserted.sign is AGAINST
    assert asserted.text.endswith("more than chance explains, if they are of the calibrated kind")


def test_one_call_none_and_three_that_are_expected(calibration):
    assert chance(verdicts_of(1, 40), calibration).text.endswith(": 1 such call is no evidence of membership")
    none = chance(verdicts_of(0, 40), calibration)
    assert none.sign is None
    assert none.text.endswith("at most 5")
    assert "about 2.9 would" in chance(verdicts_of(0, 58), calibration).text
    assert "about 3 would" in chance(verdicts_of(0, 60), calibration).text


def test_two_sources_have_rates_of_their_own():
    """What chance explains is known for each source; a source without verdicts does not count."""
    calibration = calibration_of(["old"] * 60 + ["new"] * 20)
    bases = [Basis("old", TESTED), Basis("new", TESTED)]
    said = chance(verdicts_of(9, 40, bases), calibration)
    assert said.text == "9 of 40 independent texts are called; each source has a rate of its own"
    alone = chance(verdicts_of(9, 40, [bases[0], Basis("new", reason="they differ")]), calibration)
    assert f"at most {calibration.of('old').false_alarms(0.05, 40)}: 9 are more" in alone.text


def test_the_range_of_the_rate_is_said_of_each_source_with_verdicts():
    calibration = calibration_of(["old"] * 60 + ["new"] * 20)
    bases = [Basis("old", TESTED), Basis("new", TESTED), Basis("other", reason="they differ")]
    old, new = rate_sentences(verdicts_of(1, 40, bases), calibration)
    assert old.text.startswith("source 'old': the false-positive rate of 5.0% holds")
    assert "rests on 60 test non-members" in old.text
    assert "rests on 20 test non-members" in new.text
    rate = calibration.of("new").rate(0.05)
    assert f"between {rate.low:.1%} and {rate.high:.1%}" in new.text


def test_a_refusal_names_the_test_with_the_smaller_p_value():
    few = Exchangeability(20, 0.002, 0.4, 0.001, 0.51, ("digits 90% (benchmark 1%)",))
    all_texts = Exchangeability(20, 0.004, 0.002, 0.4, 0.93)
    passed = Exchangeability(20, 0.4, 0.2, 0.3, 0.6)
    tests = (few, all_texts, passed, Exchangeability(20, 0.004, None, 0.0, None))
    said = [basis_sentences([Basis("", reason="they differ", test=test)])[0] for test in tests]
    assert "no verdict, since they differ; more of them are outside the calibrated domain" in said[0].text
    assert "; most telling: digits 90% (benchmark 1%): judge texts of one kind" in said[0].text
    assert "; a classifier distinguishes the two with AUC 0.93: judge" in said[1].text
    assert said[2] == Finding("WARNING: no verdict, since they differ", AGAINST)
    assert "more of them are outside the calibrated domain than chance explains" in said[3].text
    assert all(sentence.sign is AGAINST for sentence in said)


def test_a_source_is_named_where_there_are_several():
    old, new = Basis("old", ASSERTED), Basis("new", TESTED)
    assert basis_sentences([old])[0].text.startswith("WARNING: asserted, not tested")
    (said,) = basis_sentences([old, new])
    assert said.text.startswith("WARNING: source 'old': asserted, not tested")


def test_what_the_domain_check_finds_and_does_not_recognise_is_named():
    power = {"novels": 1.0, "manuals": 0.75, LATER: 0.1, OWN: 0.9}
    edits = {"capitals": 1.0, "first half": 0.25}
    found, missed = power_sentences(Reference((), (), (), power, edits))
    assert found.sign is FOR
    assert "it found 88% of texts of other kinds, least of manuals (75%), 10% of later texts, 90% of" in found.text
    assert "90% of texts that the model wrote; of the" in found.text
    assert found.text.endswith("after edits 62% of them, least of first half (25%)")
    assert missed.sign is AGAINST
    assert missed.text.endswith("most texts of these kinds: first half (25% found)")


def test_a_check_that_recognises_everything_or_was_not_tried():
    assert len(power_sentences(Reference((), (), (), {"novels": 1.0}))) == 1
    (weak,) = power_sentences(Reference((), (), (), {"novels": 0.6}))
    assert weak.sign is AGAINST
    assert power_sentences(Reference((), (), (), {})) == [
        Finding("domain check: not tried on texts of other kinds", AGAINST)
    ]
    untried, missed = power_sentences(Reference((), (), (), {}, {"first half": 0.25}))
    assert untried.text == "domain check: not tried on texts of other kinds"
    assert missed.text.endswith("most texts of these kinds: first half (25% found)")
    (later,) = power_sentences(Reference((), (), (), {LATER: 0.4}))
    assert "it found no texts of other kinds, 40% of later texts" in later.text
