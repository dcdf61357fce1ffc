"""Every sentence about a result, by the numbers that it rests on."""

import json
from dataclasses import replace

import pandas as pd
import pytest

from fsd.data.corpus import Split
from fsd.data.documents import Document
from fsd.data.knowledge_cutoffs import Labels
from fsd.evaluation import sentences
from fsd.evaluation.answer import Answer, AuditSummary
from fsd.evaluation.findings import AGAINST, FOR, Finding
from fsd.evaluation.results import Results
from fsd.evaluation.rows import Row
from fsd.evaluation.sentences import too_few
from fsd.files import from_json
from fsd.scores import Score
from fsd.statistics.intervals import Estimate
from fsd.text_audit.audited import Audit, Control, Leaks, Telling, explains

HIGH, MIDDLE, CHANCE = Estimate(0.99, 0.98, 1.0), Estimate(0.70, 0.65, 0.75), Estimate(0.52, 0.47, 0.57)
GOOD, POOR = Estimate(0.92, 0.90, 0.94), Estimate(0.53, 0.48, 0.58)
LEAD, NO_LEAD = Estimate(0.3, 0.2, 0.4), Estimate(0.05, -0.02, 0.1)


def _row(estimate, metric="auc", detector="loss", state="fsd", p=float("nan")):
    return Row(detector, state, metric, *estimate, p, p)


def _placebo(auc, lead, detector="loss", of=""):
    return [_row(auc, f"placebo_auc{of}", detector), _row(lead, f"placebo_lead{of}", detector, p=0.01)]


def _contrast(name, base, fsd, placebo=None, detector="loss"):
    rows = [_row(base, f"auc_{name}", detector, "base"), _row(fsd, f"auc_{name}", detector)]
    return [*rows, *(_placebo(*placebo, detector, f"_{name}") if placebo else [])]


def _results(
    rows, *, best="loss", top=None, gain=None, validated=True, never_saw=False, periods="", groups=None, **audit
):
    """Results of 30 members and 40 non-members in the test, of one text each unless `groups` are given."""
    scores = pd.DataFrame({"label": [1] * 30 + [0] * 40, "split": "test", "group": groups or range(70)})
    scores = scores.assign(period=periods) if periods else scores
    parts = Split((), (Document("held out", True),) if validated else (), ())
    table = pd.DataFrame(list(rows), columns=list(Row._fields))
    alike = Control(Estimate(0.5, 0.45, 0.55))
    controls = {"leaks": Leaks((), 0, 0, 0, 100), "blind": alike, "date": alike, "length": alike}
    best = Score(best)
    audit = Audit(**{**controls, **audit})
    return Results(parts, scores, table, audit, [], None, top or best, best, None, gain, None, never_saw)


def _said(rows, **more):
    return sentences.conclusions(Answer(_results(rows, **more)))


BLIND = "a blind classifier, which never sees the model, reaches"


@pytest.mark.parametrize(
    ("blind", "auc", "explained", "said"),
    [
        (HIGH, GOOD, True, f"; {BLIND} .99 [.98, 1.00] here: this benchmark cannot show membership"),
        (Estimate(0.91, 0.87, 0.95), GOOD, True, "cannot show membership"),
        (Estimate(0.98, 0.96, 1.0), Estimate(1.0, 0.99, 1.0), True, "cannot show membership"),
        (CHANCE, GOOD, False, "no better than chance: without the model, members and non-members were not"),
        (MIDDLE, GOOD, False, "part of the result may be the difference between members and non-members"),
        (CHANCE, POOR, False, f"not distinguishable from chance, this shows nothing about membership; {BLIND} .52"),
        (HIGH, POOR, True, f"shows nothing about membership; {BLIND} .99 [.98, 1.00] here: this benchmark cannot"),
        (None, GOOD, False, "no blind classifier could be trained (too few): the cause of the result is open"),
    ],
)
def test_the_first_sentence_fits_the_case(blind, auc, explained, said):
    first = _said([_row(auc)], blind=Control(blind, "too few"))[0]
    assert first.startswith(f"loss {auc}")
    assert said in first
    assert explains(blind, auc) is explained


def test_the_choice_of_the_detector_is_stated():
    rows = [_row((0.95, 0.9, 0.99), detector="zlib"), _row((0.9, 0.8, 0.95))]
    assert _said(rows)[0].startswith("loss .90 [.80, .95], the best of 2 scores on the validation texts; ")
    on_test = _said(rows, best="zlib", validated=False)[0]
    assert on_test.startswith("zlib .95 [.90, .99], the best of 2 scores on the test texts themselves")


LOW_AUC = Estimate(0.20, 0.15, 0.26)
MAY_BE_PERIOD = "; a control model cannot exclude that it is familiarity with the members' period"
GAINS = [
    _row((gain, gain - 0.1, gain + 0.1), "auc_gain", name, "", p)
    for name, gain, p in (("loss", 0.1, 0.01), ("zlib", -0.1, 0.01), ("surp", 0.1, 0.2))
]
LOW, FAMILIAR, NONE = (0.52, 0.44, 0.6), (0.65, 0.57, 0.72), (0.49, 0.41, 0.57)
PERIOD = "contemporaries_vs_later"
MEASURED = _contrast("members_vs_later", (0.68, 0.6, 0.76), (0.82, 0.75, 0.88))
WITHIN = _contrast("members_vs_contemporaries", (0.64, 0.56, 0.72), (0.67, 0.6, 0.74))


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        ([], "no control model: the same procedure on one trained on none of these texts would show how much"),
        (_placebo(HIGH, LEAD, "zlib"), "no control model for loss: the same"),
        (_placebo(MIDDLE, NO_LEAD), "the difference, +.05 [-.02, +.10], may be zero: this result is not evidence"),
        (_placebo(MIDDLE, LEAD), f"is the most that can be due to membership{MAY_BE_PERIOD}"),
        (_placebo(CHANCE, LEAD), f"control model, trained on none of these texts: loss reaches {CHANCE}; the"),
        (_placebo(CHANCE, LEAD), f"+.30 [+.20, +.40], does not come from the texts alone{MAY_BE_PERIOD}"),
        ([*_placebo(MIDDLE, LEAD), *WITHIN], "is the most that can be due to membership\n"),
        ([], "a control model excludes this; a column period, or --cutoff DAY, shows which texts are contemporaries"),
        (MEASURED, "members against contemporaries cannot be compared: all non-members are later texts"),
        (WITHIN, "all non-members are contemporaries, of the members' own period, so that familiarity with the period"),
        (WITHIN, "contemporaries against later texts cannot be compared: there are no later texts"),
        (GAINS, "better for loss; worse for zlib; no significant difference for the other 1"),
    ],
)
def test_controls_contrasts_and_gains_are_described(rows, said):
    assert said in "\n".join([*_said([_row(GOOD), *rows]), ""])
    assert "contemporaries" not in "\n".join(_said([_row(NONE)]))


@pytest.mark.parametrize(
    ("period", "within", "said"),
    [
        ((LOW, FAMILIAR), WITHIN, "by familiarity with the period, or by a difference of the texts that a control"),
        ((LOW, FAMILIAR), WITHIN, "would show; what can be due to membership is the separation within the period"),
        ((LOW, FAMILIAR, (NONE, LEAD)), WITHIN, " .65 [.57, .72], members against contemporaries .67 [.60, .74]; "),
        ((LOW, FAMILIAR, (NONE, LEAD)), WITHIN, "separated from later texts by familiarity with the period; what can"),
        ((LOW, FAMILIAR, (FAMILIAR, NO_LEAD)), WITHIN, "of the texts, which the control model shows as well; what"),
        ((NONE, NONE), WITHIN, "; no familiarity with the period was shown by loss; what can"),
        (
            (NONE, NONE),
            _contrast("members_vs_contemporaries", NONE, NONE),
            "by loss; within the period nothing was shown, so this is not evidence of membership",
        ),
    ],
)
def test_three_contrasts_state_what_is_familiarity_and_what_membership(period, within, said):
    rows = [_row(GOOD), *MEASURED, *_contrast(PERIOD, *period), *within]
    (line,) = [line for line in _said(rows) if "contemporaries" in line]
    assert line.startswith("loss: members against later texts .82 [.75, .88], contemporaries against")
    assert said in line
    lines = _said(rows, never_saw=True)
    assert lines[0].startswith("this model was trained on none of these texts: the whole run is a control")
    assert line.startswith(lines[2])


def test_membership_is_stated_by_the_score_of_the_answer():
    """The base score is above chance within the period, and its FSD is not."""
    within = _contrast("members_vs_contemporaries", GOOD, NONE)
    rows = [_row(GOOD, state="base"), _row(NONE), *MEASURED, *_contrast(PERIOD, NONE, NONE), *within]
    (line,) = [line for line in _said(rows, top=Score("loss", "base")) if line.startswith("loss base score: ")]
    assert line.endswith("what can be due to membership is the separation within the period")


def test_the_texts_are_described():
    for telling, said in (
        (Telling("“a”", 0.25, 0.0, 1.2e-6, 1900), "the most telling word, pair or sign, “a”, is in 25% of the members"),
        (Telling("“a”", 0.25, 0.0, 1.2e-6, 1900), "0% of the non-members (p = 1.2e-06, corrected for 1,900 words, pai"),
        (Telling("“a b”", 0.05, 0.0, 0.43, 1900), "no single word, pair of words or sign separates members from non-"),
    ):
        assert said in "\n".join(_said([_row(GOOD)], telling=telling))
    assert (
        "LEAK: groups of texts that span more than one part of the split: 5; of 100 test texts, 36 belong to a group "
        "that was used for fine-tuning, which their scores measure, and 2 to one that was used to choose thresholds"
    ) in _said([_row(GOOD)], leaks=Leaks((), 5, 36, 2, 100))
    assert _said([_row(GOOD)], date=Control(HIGH))[-2:] == [
        "no group and no set of near-duplicates spans two parts of the split",
        "the date alone separates members from non-members with AUC .99 [.98, 1.00]",
    ]


def test_what_cannot_be_avoided_is_left_to_the_report():
    avoidable = "loss: the prefix was cut; try --shots 1"
    results = _results([_row(GOOD)])
    scored = results.scores.assign(**{"loss.fsd": 0.0})
    results = replace(results, scores=scored, remarks=["loss: no token met both conditions", avoidable])
    texts = [sign.text for sign in sentences.signs(Answer(results))]
    assert avoidable in texts
    assert not any("no token" in text for text in texts)
    assert {*results.remarks} < {*sentences.notes(Answer(results))}


def test_too_few_non_members_and_one_large_family_are_remarked_on():
    assert too_few(250) == []
    assert too_few(105) == [
        "too few independent non-members, 105, for the interval of TPR@1%FPR (reliable from about 250 on): it depends "
        "on the few highest of them and is too narrow"
    ]
    assert "intervals of TPR@1%FPR (reliable from about 250 on), TPR@5%FPR (reliable" in too_few(20)[0]
    nothing, large = (
        sentences.caveats(Answer(_results([_row(GOOD)], groups=[*range(30), *[99] * size, *range(30 + size, 70)])))
        for size in (8, 9)
    )
    assert nothing == too_few(33)
    assert large[1].startswith("9 of the 40 non-member test texts are one family of related texts, of 32 families in")


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
    summary = AuditSummary("loss", GOOD, blind, "too few groups")
    text = summary.to_json()
    assert from_json(AuditSummary, text, "") == summary
    assert said in summary.sentence
    assert (json.loads(text)["explains"], json.loads(text)["sentence"]) == (explained, summary.sentence)
    assert ("cannot show membership" in summary.sentence) == explained
    assert ("has no contemporaries" in summary.sentence) == (not explained)


@pytest.mark.parametrize(
    ("base", "state", "explains", "said"),
    [
        (CHANCE, "calibrated", False, ""),
        (MIDDLE, "calibrated", False, "part of the result may be what it knew before"),
        (MIDDLE, "tuned", True, "the two sides differ before the fine-tuning"),
        (HIGH, "calibrated", True, "the two sides differ before the fine-tuning"),
    ],
)
def test_what_the_base_knows_is_said_of_an_audit(base, state, explains, said):
    summary = AuditSummary("loss", GOOD, CHANCE, state=state, base=base)
    assert from_json(AuditSummary, summary.to_json(), "") == summary
    assert summary.explains == explains
    assert summary.clean == (base is CHANCE)
    for sentence in (summary.sentence, summary.short):
        assert said in sentence
        assert ("the base model" in sentence) == (base is not CHANCE)


@pytest.mark.parametrize(
    ("auc", "blind", "lead", "periods", "judgement", "barred"),
    [
        (POOR, CHANCE, None, "", "chance", ""),
        (LOW_AUC, CHANCE, LEAD, "", "reversed", f"{BLIND} .52"),
        (GOOD, HIGH, None, "", "texts", f"{BLIND} .99"),
        (GOOD, CHANCE, None, "", "unexplained", ""),
        (GOOD, CHANCE, NO_LEAD, "", "placebo", f"the lead of loss over the control model, {NO_LEAD}, may be zero"),
        (GOOD, CHANCE, LEAD, "", "period", ""),
        (GOOD, None, LEAD, "2020", "lead", ""),
    ],
)
def test_the_headline_judges_and_bars(auc, blind, lead, periods, judgement, barred):
    rows = [_row(auc), _row((0.4, 0.3, 0.5), "tpr_at_5fpr"), *(_placebo(MIDDLE, lead) if lead else [])]
    results = _results(rows, blind=Control(blind, "few"), periods=periods)
    assert Answer(results).state == judgement
    assert Answer(replace(results, never_saw=True)).state == "control"
    young = replace(results, labels=Labels(False, "the labels do not hold"))
    assert Answer(young).state == "labels"
    assert {
        Answer(young).barred,
        sentences.conclusions(Answer(young))[0],
        sentences.signs(Answer(young))[0].text,
    } == set(young.labels.notes)
    unknown = replace(results, labels=Labels(doubt="the age is not known"))
    assert Answer(unknown).state == judgement
    assert Answer(unknown).barred.startswith(barred)
    assert Finding("the age is not known", AGAINST) in sentences.signs(Answer(unknown))
    assert Answer(results).barred.startswith(barred)
    assert bool(Answer(results).barred) == bool(barred)
    assert Answer(results).audit.state == "fsd"
    beside = [f"control model {MIDDLE.short}"] if lead else []
    beside += [f"texts alone {blind.short}"] if blind else []
    line = sentences.headline(Answer(results))
    assert line.startswith("Was it in the training data? ")
    assert line.endswith("; ".join(filter(None, [f": AUC {auc} (loss)", ", ".join(beside)])))
    assert sentences.description(Answer(results)).startswith(f"{sentences.headline(Answer(results))}\n\n")
    assert Answer(results).metrics()["headline/auc"] == auc.value
    assert ("headline/lead" in Answer(results).metrics()) == bool(lead)
    assert "40 of 100 training texts are found (30 to 50)" in sentences.in_words(Answer(results))[2]
    _, texts = sentences.changes(Answer(results))
    assert "rests on 30 independent texts from the training data and 40 from outside it" in texts


@pytest.mark.parametrize("periods", ["", "2020"])
def test_without_validation_texts_the_answer_is_open_at_most_and_makes_no_champion(periods):
    """The best of many scores on the texts that measure it is so by chance in 6 to 9 of 100 runs."""
    rows = [_row(GOOD), _row((0.4, 0.3, 0.5), "tpr_at_5fpr"), *_placebo(MIDDLE, LEAD)]
    results = _results(rows, validated=False, periods=periods)
    assert Answer(results).state == "unvalidated"
    assert sentences.headline(Answer(results)).startswith("Was it in the training data? Open: AUC")
    assert Answer(results).barred.endswith("set others aside by --validation 0.2")
    assert sentences.changes(Answer(results))[0].endswith("(--validation 0.2).")
    assert sentences.changes(Answer(results))[-1].startswith("The detector was chosen on these very texts")
    nothing = _results([_row(POOR), _row((0.1, 0.0, 0.2), "tpr_at_5fpr")], validated=False)
    assert Answer(nothing).state == "chance"


ASKED = "wholly below .5: are labels reversed, in all texts or in some (1 is a member, 0 is none)?"


def test_an_interval_below_one_half_asks_whether_labels_are_reversed():
    """MIMIR and open-unlearning code members as 0: .20 is no chance, neither by the score nor by a control."""
    rate = _row((0.4, 0.3, 0.5), "tpr_at_5fpr")
    first = _said([_row(LOW_AUC)])[0]
    assert first.startswith(f"loss {LOW_AUC}: {ASKED}")
    assert "chance" not in first.partition(";")[0]
    results = _results([_row(LOW_AUC), rate])
    assert sentences.description(Answer(results)).endswith("1 for a member, 0 for a non-member.")
    summary = Answer(results).audit
    assert summary.void
    assert summary.sentence.endswith(f"the score {LOW_AUC} is {ASKED}")
    assert Answer(results).rate is None
    blind = _results([_row(GOOD), rate, *_placebo(MIDDLE, LEAD)], blind=Control(LOW_AUC))
    assert f"reaches {LOW_AUC} here, {ASKED}" in sentences.conclusions(Answer(blind))[0]
    assert Answer(blind).barred == f"the blind classifier reaches {LOW_AUC}, {ASKED}"
    control = _results([_row(GOOD), rate, *_placebo(LOW_AUC, LEAD)])
    assert sentences.conclusions(Answer(control))[1].endswith(f"; the control model is {ASKED}")
    assert Answer(control).barred == f"the control model reaches {LOW_AUC}, {ASKED}"
    for result in (blind, control):
        (sign,) = [finding for finding in sentences.signs(Answer(result)) if ASKED in finding.text]
        assert sign.sign is AGAINST
        assert sum("right less often than guessing" in line for line in sentences.sure(Answer(result))) == 1


@pytest.mark.parametrize(
    ("uncontrolled", "short", "long"),
    [
        ("", "no control model: name one by --placebo", "no control model: the same procedure"),
        (
            "the control model ./base is itself the reference model, and has no loss",
            "the control model ./base is itself the reference model, and has no loss: name another control by",
            "is itself the reference model, and has no loss; a control model that can",
        ),
        (
            "the control model ./base cannot compute loss",
            "the control model ./base cannot compute loss: name another control by --placebo",
            "cannot compute loss; a control model that can",
        ),
    ],
)
def test_why_there_is_no_control_is_told_apart(uncontrolled, short, long):
    results = replace(_results([_row(GOOD)]), uncontrolled=uncontrolled)
    assert Answer(results).state == "unexplained"
    assert any(finding.text.startswith(short) for finding in sentences.signs(Answer(results)))
    assert long in sentences.conclusions(Answer(results))[1]


def test_the_headline_is_the_best_score_of_all_states():
    base = [_row((0.76, 0.7, 0.82), state="base"), _row((0.4, 0.3, 0.5), "tpr_at_5fpr", state="base")]
    base += [row._replace(state="base") for row in _placebo((0.5, 0.4, 0.6), (0.2, 0.1, 0.3))]
    gain = _row((-0.06, -0.1, -0.02), "auc_gain", state="")
    results = _results([_row(MIDDLE), *base], top=Score("loss", "base"), gain=gain)
    assert sentences.headline(Answer(results)).endswith(
        ": AUC .76 [.70, .82] (loss base score); control model .50, texts alone .50"
    )
    first, *others = sentences.conclusions(Answer(results))
    assert first.startswith("loss base score .76 [.70, .82], the best of 2 scores")
    against = "loss FSD, the best score with fine-tuning, against the best without: -.06 [-.10, -.02]"
    assert f"{against}: it is lower" in others
    assert Finding(
        "loss FSD against the best base score: -.06 [-.10, -.02]; read base scores", AGAINST
    ) in sentences.signs(Answer(results))
    named = {"auc": 0.76, "blind": 0.5, "control": 0.5, "fsd_over_base": -0.06, "lead": 0.2, "tpr5": 0.4}
    assert {f"headline/{name}": value for name, value in named.items()}.items() <= Answer(results).metrics().items()
    assert "The best score, “loss base score”, is higher" in sentences.in_words(Answer(results))[1]


MATCHED = "bring members and non-members of one kind and period"


def test_signs_say_what_speaks_for_the_result_and_against_it():
    leaks, telling = Leaks((), 5, 36, 2, 100), Telling("“x”", 0.2, 0.0, 0.001, 9)
    poor = _results([_row(GOOD)], validated=False, blind=Control(HIGH), leaks=leaks, telling=telling)
    assert sentences.signs(Answer(poor)) == [
        Finding(f"the texts alone explain it: blind classifier .99 [.98, 1.00]; {MATCHED}", AGAINST),
        Finding("a sign distinguishes the texts: “x”; bring texts without it", AGAINST),
        Finding("no control model: name one by --placebo", AGAINST),
        Finding(
            "no contemporaries: it may be familiarity with the members' period; bring non-members of that period",
            AGAINST,
        ),
        Finding("LEAK: 5 groups of texts are in several parts: use --split grouped", AGAINST),
        Finding("chosen on the test texts, which flatters: set others aside by --validation 0.2", AGAINST),
    ]
    good = _results([_row(GOOD), _row(GOOD, "auc_members_vs_contemporaries"), *_placebo(POOR, LEAD)])
    assert sentences.signs(Answer(good)) == [
        Finding("the texts alone do not explain it: blind classifier .50 [.45, .55]", FOR),
        Finding("a control model reaches .53: difference +.30 [+.20, +.40]", FOR),
        Finding("all texts are of one period", FOR),
        Finding("nothing is in two parts of the split", FOR),
    ]


def test_four_sentences_say_how_sure_it_is_without_terms_of_the_field():
    within = _row(GOOD, "auc_members_vs_contemporaries")
    good = _results([_row(GOOD), within, *_placebo(POOR, LEAD)])
    assert sentences.sure(Answer(good)) == [
        "A classifier that never sees the model is right in 50 of 100 such pairs (45 to 55): the texts alone do not "
        "explain the result.",
        "A control model, trained on none of these texts, is right in 53 of 100 such pairs (48 to 58): the difference "
        "is more than chance.",
        "Members and non-members are of one period, so that the period does not explain the result.",
        "No text, and none that is almost the same, was used for two purposes: training, choice and measurement.",
    ]
    poor = _results([_row(GOOD)], blind=Control(HIGH), leaks=Leaks((), 5, 36, 2, 100))
    texts, control, period, leak = sentences.sure(Answer(poor))
    assert texts.endswith("(98 to 100): the texts alone explain the result.")
    assert control.startswith("There was no control model")
    assert "may know the period" in period
    assert leak.startswith("LEAK: 5 groups")
    assert "may explain a part" in sentences.sure(Answer(_results([_row(GOOD)], blind=Control(MIDDLE))))[0]
    assert "may be chance" in sentences.sure(Answer(_results([_row(GOOD), *_placebo(POOR, (0.1, -0.1, 0.3))])))[1]
    doubted = replace(good, labels=Labels(False, "the labels do not hold"))
    assert sentences.sure(Answer(doubted)) == ["The labels do not hold.", *sentences.sure(Answer(good))]
    assert "is itself the control" in sentences.sure(Answer(_results([_row(GOOD)], never_saw=True)))[1]


@pytest.mark.parametrize(("p", "said"), [(0.049, "better for loss"), (0.051, "no significant difference for 1")])
def test_a_gain_is_significant_below_one_in_twenty(p, said):
    lines = _said([_row(GOOD), _row(LEAD, "auc_gain", state="", p=p)])
    assert f"FSD against the base score (p < .05 after Holm's correction): {said}" in lines
