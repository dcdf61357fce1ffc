"""The table of results, what is made from it, and the choices behind the headline."""

from dataclasses import replace
from datetime import date
from functools import cache
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

from extensions.study import cells
from fsd.data.corpus import Split
from fsd.data.documents import Document
from fsd.errors import UsageError
from fsd.evaluation import sentences
from fsd.evaluation.answer import Answer
from fsd.evaluation.results import (
    CONTRASTS,
    MEASURES,
    charted,
    compute_results,
    kinds_in,
    reference_of,
    summary,
    tracked,
)
from fsd.evaluation.rows import by_key, evaluate
from fsd.reporting.results import detectors_table
from fsd.scores import STATES, Score
from fsd.scoring.deviation import ScoreTable, ViewStatistics
from fsd.statistics import metrics
from fsd.statistics.metrics import Metric, auc
from fsd.text_audit.audited import Audit, Control, Leaks
from fsd.tuning.objective import ValidationSet, check_objective

LABELS = np.arange(120) % 2 == 0
GROUPS = [f"g{i // 4}-{i % 2}" for i in range(120)]


@pytest.fixture(scope="module")
def scores():
    rng = np.random.default_rng(0)
    base = {"loss": rng.normal(size=120) + LABELS, "zlib": rng.normal(size=120)}
    return pd.DataFrame(
        {
            "text": ["ignored"] * 120,
            "loss.base": base["loss"],
            "loss.tuned": -LABELS.astype(float),
            "loss.fsd": base["loss"] + LABELS,
            "pair.fsd": rng.normal(size=120),
            "zlib.base": base["zlib"],
            "zlib.fsd": base["zlib"],
        }
    )


def test_evaluate_gives_one_row_per_number(scores):
    numbers = [GROUPS.index(group) for group in GROUPS]
    table, same, other = (
        evaluate(scores, LABELS, groups, thresholds={Score("loss"): 1.0}, resamples=300, seed=seed)
        for groups, seed in ((GROUPS, 3), (numbers, 3), (GROUPS, 4))
    )
    rows = by_key(table)
    pd.testing.assert_frame_equal(table, same, check_exact=True)
    assert (table["low"] != other["low"]).any()
    assert list(table.columns) == ["detector", "state", "metric", "value", "low", "high", "p", "p_holm"]
    assert list(dict.fromkeys(table["detector"])) == ["loss", "pair", "zlib"]
    assert rows["loss", "fsd", "auc"].value == auc(LABELS, scores["loss.fsd"])
    assert rows["loss", "tuned", "auc"].value == 0
    assert rows["loss", "fsd", "accuracy"].value == ((scores["loss.fsd"] >= 1.0) == LABELS).mean()
    assert ("loss", "base", "accuracy") not in rows
    gain = rows["loss", "", "auc_gain"]
    assert gain.value == pytest.approx(rows["loss", "fsd", "auc"].value - rows["loss", "base", "auc"].value)
    assert gain.low > 0
    assert gain.p < gain.p_holm < 0.05
    assert rows["zlib", "", "auc_gain"].p == 1.0
    assert not {("pair", "base", "auc"), ("pair", "", "auc_gain")} & set(rows)
    assert all(row.low <= row.value <= row.high for row in rows.values())
    with pytest.raises(UsageError, match="2 groups"):
        evaluate(scores, LABELS, ["a" if member else f"b{at}" for at, member in enumerate(LABELS)])


def test_the_lead_over_the_placebo_is_the_difference_of_the_aucs(scores):
    noise = np.random.default_rng(1).normal(size=120)
    placebo = {"zlib": scores["zlib.fsd"].to_numpy(), "loss": noise, "gone": LABELS * 1.0}
    rows = by_key(evaluate(scores, LABELS, GROUPS, control=placebo))
    assert {detector for detector, _, metric in rows if metric == "placebo_auc"} == {"loss", "zlib"}
    assert rows["zlib", "fsd", "placebo_auc"].estimate == rows["zlib", "fsd", "auc"].estimate
    assert rows["zlib", "fsd", "placebo_lead"].estimate == (0.0, 0.0, 0.0)
    assert rows["zlib", "fsd", "placebo_lead"].p == 1.0
    lead, control = rows["loss", "fsd", "placebo_lead"], rows["loss", "fsd", "placebo_auc"]
    assert lead.value == pytest.approx(auc(LABELS, scores["loss.fsd"]) - auc(LABELS, noise))
    assert lead.low > 0
    assert lead.p_holm == 2 * lead.p < 0.002
    assert control.low < 0.5 < control.high
    alike = {"loss": np.random.default_rng(2).normal(size=120) + 2 * LABELS}
    rows = by_key(evaluate(scores, LABELS, GROUPS, control=alike))
    assert rows["loss", "fsd", "placebo_auc"].low > 0.8
    assert rows["loss", "fsd", "placebo_lead"].low < 0 < rows["loss", "fsd", "placebo_lead"].high


def test_names_in_mlflow_and_columns_of_the_summary(scores):
    table = evaluate(
        scores.drop(columns=[name for name in scores if name.endswith(".tuned")]),
        LABELS,
        GROUPS,
        control={"loss": scores["pair.fsd"].to_numpy()},
    )
    names = {name.partition("/")[0]: name for name in tracked(table)}
    plain = {"auc", "tpr_at_1fpr", "tpr_at_5fpr", "tpr_at_10fpr", "auc_gain", "placebo_auc", "placebo_lead"}
    p_values = {"auc_gain_p", "auc_gain_p_holm", "placebo_lead_p", "placebo_lead_p_holm"}
    assert set(names) == plain | p_values | {"auc_low", "auc_high"}
    assert {name.partition("/")[0] for name in tracked(table, uncertainty=False)} == plain
    assert {name.partition("/")[0] for name in charted(table)} == {"auc", "auc_gain", "placebo_lead"}
    assert [names[name] for name in ("auc", "auc_gain", "placebo_lead_p")] == [
        "auc/zlib.fsd",
        "auc_gain/zlib",
        "placebo_lead_p/loss.fsd",
    ]
    columns, ends = list(summary(table)), ("", "_low", "_high")
    assert columns[:4] == ["detector", *(f"base_auc{end}" for end in ends)]
    assert columns[-13:] == [
        *(f"gain{end}" for end in ends),
        *("p", "p_holm"),
        *(f"{name}{end}" for name in ("placebo_fsd_auc", "placebo_lead") for end in ends),
        *("placebo_lead_p", "placebo_lead_p_holm"),
    ]
    assert list(summary(table)["detector"]) == ["loss", "pair", "zlib"]


TEXTS = 80


def table_of(**states):
    """Scores of detectors by state."""
    columns = {Score(name, state): column for state, scores in states.items() for name, column in scores.items()}
    ordered = sorted(columns, key=lambda score: (score.detector, STATES.index(score.state)))
    return ScoreTable({score: columns[score] for score in ordered})


NOTHING = Control(None, "none")
AUDIT = Audit(leaks=Leaks((), 0, 0, 0, 40), blind=NOTHING, date=NOTHING, length=NOTHING)


@cache
def judged(validation=TEXTS // 2, periods=("",), gaps=(0, 4), labelled=(), remarks=(), cross_validated=None):
    """Results of two detectors: `early` separates the validation texts alone, `late` the test texts alone.

    The gaps are those of the base scores and of the FSD, in standard deviations.
    """
    documents = tuple(
        Document(
            f"{at} " + " ".join(f"w{at}x{k}" for k in range(12)),
            bool(at % 2),
            date(2020, 1, 1),
            f"g{at}",
            "test",
            period=periods[at % len(periods)],
        )
        for at in range(TEXTS)
    )
    parts = Split(
        (replace(documents[0], text="unseen", group="unseen"),), documents[:validation], documents[validation:]
    )
    member, held = np.arange(TEXTS) % 2 == 1, np.arange(TEXTS) < validation
    noise = np.random.default_rng(0).normal(size=(3, TEXTS))
    of_base, of_fsd = gaps
    fsd = {"early": noise[0] + of_fsd * (member & held), "late": noise[1] + of_fsd * (member & ~held)}
    base, control = dict.fromkeys(fsd, noise[2] + of_base * member), dict.fromkeys(fsd, noise[2])
    scored = table_of(base=base, tuned={name: base[name] - fsd[name] for name in fsd}, fsd=fsd)
    detectors = [
        SimpleNamespace(name=name, needs_labels=name in labelled, settings_in=lambda _, k=k: {"k": k})
        for k, name in enumerate(fsd, start=1)
    ]
    return compute_results(
        parts,
        scored,
        ("control", table_of(base=dict.fromkeys(fsd, noise[1]), fsd=control)),
        detectors,
        seed=0,
        audited=lambda: AUDIT,
        remarks=remarks,
        cross_validated=dict([cross_validated]) if cross_validated else None,
    )


@pytest.fixture(scope="module")
def results():
    return judged(remarks=("zlib left out: no reason",), cross_validated=(Score("early"), 0.75))


def test_what_is_said_is_of_the_detector_chosen_on_validation(results):
    assert results.best_fsd.detector == results.ranked[0] == "early"
    assert results.control.shape == (len(results.judged),)
    assert by_key(results.table)["late", "fsd", "auc"].value > 0.9
    first, placebo = sentences.conclusions(Answer(results))[:2]
    assert first.startswith("early FSD")
    assert "the best of 4 scores on the validation texts" in first
    assert placebo.startswith("control model, trained on none of these texts: early FSD")
    assert (results.calibration.detector, results.calibration.settings) == ("early", {"k": 1})
    (caveat,) = sentences.caveats(Answer(results))
    assert caveat.startswith("too few independent non-members, 20, for the intervals of TPR@1%FPR")
    assert sentences.notes(Answer(results)) == [
        *sentences.conclusions(Answer(results)),
        caveat,
        "zlib left out: no reason",
    ]
    assert set(summary(results.table, caveat)["caveat"]) == {caveat}
    reported = summary(results.table).set_index("detector")["fsd_validation_auc"]
    assert results.validation_auc == reported["early"] == 0.75  # as cross-validated
    assert reported["late"] != 0.75
    assert Answer(results).barred.startswith("the lead of early over the control model, ")


def test_without_validation_the_choice_on_the_test_texts_is_stated():
    results = judged(validation=0)
    assert results.best_fsd.detector == "late"
    notes = sentences.notes(Answer(results))
    assert notes[0].startswith("late FSD")
    assert "on the test texts themselves" in notes[0]
    assert results.calibration is None
    assert np.isnan(results.validation_auc)
    assert "no validation texts: the accuracy is at the best threshold on the test texts themselves" in notes


def test_a_base_score_that_is_the_best_is_compared_with_the_base_score_of_the_control_model():
    results = judged(gaps=(4, 1))
    rows, test = by_key(results.table), results.judged
    assert str(results.headline) == "early.base"
    # verdicts are by the same score
    assert results.calibration.score == results.headline
    assert results.validation_auc == rows["early", "base", "validation_auc"].value
    noise = np.random.default_rng(0).normal(size=(3, TEXTS))[1][TEXTS // 2 :]
    np.testing.assert_array_equal(results.control, noise)
    control, lead = rows["early", "base", "placebo_auc"], rows["early", "base", "placebo_lead"]
    assert control.value == pytest.approx(auc(test["label"], noise))
    assert lead.value == pytest.approx(auc(test["label"], test["early.base"]) - control.value)
    assert lead.low > 0.2


def test_verdicts_are_by_scores_that_need_no_labelled_texts():
    assert judged(labelled=("early",)).calibration.detector == "late"
    assert judged(labelled=("early", "late")).calibration is None


def test_a_base_score_that_gives_the_verdicts_is_compared_with_the_control_model_beside_another_headline():
    results = judged(gaps=(0.6, 0), labelled=("early",))
    assert (str(results.headline), str(results.verdict_score)) == ("early.base", "late.base")
    assert {("early", "base", "placebo_lead"), ("late", "base", "placebo_lead")} <= set(results.rows)
    assert Answer(results).barred.startswith("the lead of late over the control model, ")


def test_scores_have_one_row_per_text(results):
    scores = results.scores
    assert list(scores)[:5] == ["id", "text", "label", "group", "split"]
    assert list(scores)[5:] == [f"{name}.{state}" for name in ("early", "late") for state in ("base", "tuned", "fsd")]
    assert list(scores["split"]) == ["validation"] * 40 + ["test"] * 40
    assert list(scores["group"]) == [str(number) for number in range(TEXTS)]


def test_a_metric_that_is_added_in_one_place_reaches_every_number(monkeypatch):
    """The table, summary.csv, MLflow's charts, the tables of studies and the objective of a tuning."""
    added = Metric("FPR@top", lambda curves: curves.alarms[0], charted=True)
    monkeypatch.setitem(metrics.METRICS, "fpr_at_top", added)
    # Not the one that is kept, which has no such metric.
    results = judged.__wrapped__()
    assert ("late", "base", "fpr_at_top") in by_key(results.table)
    assert {"base_fpr_at_top", "fsd_fpr_at_top_low"} <= set(summary(results.table))
    assert "fpr_at_top/late.base" in Answer(results).metrics()
    assert "FPR@top" in detectors_table(results).head
    assert cells.heading("fpr_at_top") == "FPR@top"
    check_objective("fpr_at_top")
    member = np.array([True, False, False])
    objective = ValidationSet(ViewStatistics({}), member, [np.arange(3)], "fpr_at_top")
    assert objective.values(np.array([1.0, 2.0, 2.0])) == [2.0]
    with pytest.raises(UsageError, match=r"objective must be one of auc, .*; got 'accuracy'"):
        check_objective("accuracy")


def test_contrasts_are_evaluations_of_two_kinds():
    """Of four texts two are members, one is a contemporary and one is later."""
    results = judged(periods=("2020", "2020", "2022", "2020"))
    rows = by_key(results.table)
    test = results.scores[results.scores["split"] == "test"]
    kind = kinds_in(test)
    groups, control = test["group"].tolist(), np.random.default_rng(0).normal(size=(3, TEXTS))[2][TEXTS // 2 :]
    for contrast in CONTRASTS:
        among = contrast.among(kind)
        of_two = [group for group, one in zip(groups, among, strict=True) if one]
        placebo = dict.fromkeys(("early", "late"), control[among])
        expected = evaluate(test[among], kind[among] == contrast.positive, of_two, control=placebo)
        for (detector, state, metric), row in by_key(expected).items():
            found = rows.get((detector, state, f"{metric}_{contrast.name}"))
            if metric in MEASURES and state != "tuned":
                np.testing.assert_equal(tuple(found)[3:], tuple(row)[3:])
            else:
                assert found is None
    within = rows["late", "fsd", "auc_members_vs_contemporaries"]
    assert rows["late", "fsd", "auc"].estimate == within.estimate
    tracked_numbers = Answer(results).metrics()
    for contrast in CONTRASTS:
        assert f"auc_{contrast.name}/{results.headline}" in tracked_numbers
    assert f"tpr_at_5fpr/{results.headline}" in tracked_numbers
    assert not any("_vs_" in name for name in Answer(judged()).metrics())
    for periods, measured in ((("2020",), "members_vs_contemporaries"), (("2022", "2020"), "members_vs_later")):
        names = {metric for _, _, metric in by_key(judged(periods=periods).table)}
        assert {name for name in names if "_vs_" in name} == {f"{measure}_{measured}" for measure in MEASURES}


def test_kinds_of_a_table_of_scores():
    table = pd.DataFrame({"label": [1, 0, 0], "period": ["2022", "2022", "2024"]})
    assert kinds_in(table).tolist() == ["member", "contemporary", "later"]
    assert kinds_in(table.drop(columns="period")).tolist() == ["member", "non-member", "non-member"]


def test_the_reference_holds_the_judged_nonmembers_and_the_unseen_texts_of_their_kind():
    def document(number, *, member=False, period=""):
        text = " ".join(f"n{number}x{k}" for k in range(12))
        return Document(text, member, group=f"g{number // 2}", period=period, source=f"source {number % 2}")

    plain = [document(number, member=number < 4) for number in range(12)]
    parts = Split(tuple(plain[8:]), (plain[0], plain[4], plain[5]), (*plain[1:4], *plain[6:8]))
    for unseen, numbers, families in (
        (False, [4, 5, 6, 7], [0, 0, 1, 1]),
        (True, range(4, 12), [0, 0, 1, 1, 2, 2, 3, 3]),
    ):
        found = reference_of(parts, unseen=unseen)
        assert found.texts == tuple(plain[number].text for number in numbers)
        assert found.families == tuple(families)
        assert found.sources == tuple(f"source {number % 2}" for number in numbers)
    # of contemporaries and later texts, the unseen ones are later: texts to be judged are not compared with these
    dated = [replace(one, period="new" if number > 5 else "old") for number, one in enumerate(plain)]
    parts = Split(tuple(dated[8:]), (dated[0], dated[4], dated[6]), (*dated[1:4], dated[5], dated[7]))
    for unseen in (False, True):
        assert reference_of(parts, unseen=unseen).texts == (plain[4].text, plain[5].text)
