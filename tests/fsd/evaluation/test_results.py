"""The table of results, what is made from it, and the choices behind the headline."""

from dataclasses import replace
from datetime import date
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

from fsd.data.documents import Document
from fsd.data.splitting import Split
from fsd.errors import UsageError
from fsd.evaluation import metrics
from fsd.evaluation.audit import Control
from fsd.evaluation.metrics import Metric, Row, auc, by_key
from fsd.evaluation.results import evaluate, judge, summary, tracked
from fsd.reporting.console import show
from fsd.reporting.html import results_table
from fsd.scoring.deviation import Deviation


@pytest.fixture
def labels():
    return np.arange(120) % 2 == 0


@pytest.fixture
def groups():
    return [f"g{i // 4}-{i % 2}" for i in range(120)]


@pytest.fixture
def scores(labels):
    rng = np.random.default_rng(0)
    base = {"loss": rng.normal(size=120) + labels, "zlib": rng.normal(size=120)}
    return pd.DataFrame(
        {
            "text": ["ignored"] * 120,
            "loss.base": base["loss"],
            "loss.tuned": -labels.astype(float),
            "loss.fsd": base["loss"] + labels,
            "pair.fsd": rng.normal(size=120),
            "zlib.base": base["zlib"],
            "zlib.fsd": base["zlib"],
        }
    )


def test_evaluate_gives_one_row_per_number(scores, labels, groups):
    table = evaluate(scores, labels, groups, thresholds={"loss.fsd": 1.0}, seed=3)
    rows = by_key(table)

    assert list(table.columns) == ["detector", "state", "metric", "value", "low", "high", "p", "p_holm"]
    assert list(dict.fromkeys(table["detector"])) == ["loss", "pair", "zlib"]
    assert rows["loss", "fsd", "auc"].value == auc(labels, scores["loss.fsd"])
    assert rows["loss", "tuned", "auc"].value == 0
    assert rows["loss", "fsd", "accuracy"].value == ((scores["loss.fsd"] >= 1.0) == labels).mean()
    assert ("loss", "base", "accuracy") not in rows
    gain = rows["loss", "", "auc_gain"]
    assert gain.value == pytest.approx(rows["loss", "fsd", "auc"].value - rows["loss", "base", "auc"].value)
    assert gain.low > 0
    assert gain.p < gain.p_holm < 0.05
    assert rows["zlib", "", "auc_gain"].p == 1.0
    assert not {("pair", "base", "auc"), ("pair", "", "auc_gain")} & set(rows)
    assert all(row.low <= row.value <= row.high for row in rows.values())


def test_groups_may_be_names_or_numbers_and_states_may_be_fewer(scores, labels, groups):
    numbers = [groups.index(group) for group in groups]
    by_name, by_number = (evaluate(scores, labels, g, states=("fsd",), resamples=20) for g in (groups, numbers))

    pd.testing.assert_frame_equal(by_name, by_number, check_exact=True)
    assert set(by_name["state"]) == {"fsd"}


def test_same_seed_same_numbers(scores, labels, groups):
    first, same, other = (evaluate(scores, labels, groups, resamples=50, seed=seed) for seed in (1, 1, 2))

    pd.testing.assert_frame_equal(first, same, check_exact=True)
    assert (first["low"] != other["low"]).any()


def test_too_few_groups_are_refused(scores, labels):
    with pytest.raises(UsageError, match="2 groups"):
        evaluate(scores, labels, ["a" if member else f"b{at}" for at, member in enumerate(labels)])


def test_a_placebo_without_an_effect_leaves_no_lead(scores, labels, groups):
    rows = by_key(
        evaluate(scores, labels, groups, placebo={"zlib": scores["zlib.fsd"].to_numpy(), "gone": labels * 1.0})
    )

    assert rows["zlib", "fsd", "placebo_auc"].estimate == rows["zlib", "fsd", "auc"].estimate
    assert rows["zlib", "fsd", "placebo_lead"].estimate == (0.0, 0.0, 0.0)
    assert rows["zlib", "fsd", "placebo_lead"].p == 1.0
    assert {detector for detector, _, metric in rows if metric == "placebo_auc"} == {"zlib"}


def test_the_lead_over_the_placebo_is_the_difference_of_the_aucs(scores, labels, groups):
    noise = np.random.default_rng(1).normal(size=120)
    rows = by_key(evaluate(scores, labels, groups, placebo={"loss": noise}))
    lead, control = rows["loss", "fsd", "placebo_lead"], rows["loss", "fsd", "placebo_auc"]

    assert lead.value == pytest.approx(auc(labels, scores["loss.fsd"]) - auc(labels, noise))
    assert lead.low > 0
    assert lead.p < 0.001
    assert control.low < 0.5 < control.high


def test_what_separates_the_texts_for_both_models_gives_no_lead(labels, groups):
    rng = np.random.default_rng(0)
    model, control = (rng.normal(size=120) + 2 * labels for _ in range(2))
    rows = by_key(evaluate(pd.DataFrame({"loss.fsd": model}), labels, groups, placebo={"loss": control}))

    assert rows["loss", "fsd", "placebo_auc"].low > 0.8
    assert rows["loss", "fsd", "placebo_lead"].low < 0 < rows["loss", "fsd", "placebo_lead"].high


def test_names_in_mlflow_and_columns_of_the_summary(scores, labels, groups):
    table = evaluate(scores, labels, groups, states=("base", "fsd"), placebo={"loss": scores["pair.fsd"].to_numpy()})
    names = {name.partition("/")[0]: name for name in tracked(table)}

    assert set(names) == {
        *("auc", "auc_low", "auc_high", "tpr_at_1fpr", "tpr_at_5fpr", "tpr_at_10fpr"),
        *("auc_gain", "auc_gain_p", "auc_gain_p_holm", "placebo_auc", "placebo_lead", "placebo_lead_p"),
        "placebo_lead_p_holm",
    }
    assert (names["auc"], names["auc_gain"], names["placebo_lead_p"]) == (
        "auc/zlib.fsd",
        "auc_gain/zlib",
        "placebo_lead_p/loss.fsd",
    )
    columns = list(summary(table))
    assert columns[:4] == ["detector", "base_auc", "base_auc_low", "base_auc_high"]
    assert columns[-13:-8] == ["gain", "gain_low", "gain_high", "p", "p_holm"]
    assert columns[-8:] == [
        *("placebo_fsd_auc", "placebo_fsd_auc_low", "placebo_fsd_auc_high"),
        *("placebo_lead", "placebo_lead_low", "placebo_lead_high", "placebo_lead_p"),
        "placebo_lead_p_holm",
    ]
    assert list(summary(table)["detector"]) == ["loss", "pair", "zlib"]


TEXTS = 80


def _documents(texts, start=0):
    return tuple(
        Document(f"{i} " + " ".join(f"w{i}x{k}" for k in range(12)), bool(i % 2), date(2020, 1, 1), f"g{i}", "test")
        for i in range(start, start + texts)
    )


@pytest.fixture
def judged():
    """Judges two detectors: `early` separates the validation texts alone, `late` the test texts alone."""

    def judge_them(validation=TEXTS // 2, **more):
        parts = Split(_documents(4, 1000), _documents(validation), _documents(TEXTS - validation, validation))
        member = np.arange(TEXTS) % 2 == 1
        held = np.arange(TEXTS) < validation
        noise = np.random.default_rng(0).normal(size=(3, TEXTS))
        fsd = {"early": noise[0] + 4 * (member & held), "late": noise[1] + 4 * (member & ~held)}
        base = dict.fromkeys(fsd, noise[2])
        tuned = {name: base[name] - fsd[name] for name in fsd}
        placebo = ("control", Deviation(fsd=dict.fromkeys(fsd, noise[2])))
        detectors = [SimpleNamespace(name=name, settings={"k": k}) for k, name in enumerate(fsd, start=1)]
        return judge(parts, Deviation(base=base, tuned=tuned, fsd=fsd), placebo, detectors, seed=0, **more)

    return judge_them


def test_headline_and_placebo_describe_the_detector_chosen_on_validation(judged, capsys):
    results = judged()
    headline, placebo = results.conclusions[:2]

    assert results.best == "early"
    assert by_key(results.table)["late", "fsd", "auc"].value > 0.9
    assert headline.startswith("early FSD")
    assert "the best of 2 detectors on the validation texts" in headline
    assert placebo.startswith("placebo: early FSD")
    assert results.calibration is not None
    assert (results.calibration.detector, results.calibration.settings) == ("early", {"k": 1})
    show(results)
    assert "40 test texts, best on validation: early" in capsys.readouterr().out


def test_a_result_that_the_control_may_have_too_makes_no_champion(judged):
    results = judged()
    alike = replace(results, audit=replace(results.audit, blind=Control(None, "none")))
    assert alike.headline.barred.startswith("the lead of early over the control model, ")
    assert alike.headline.barred.endswith("], may be zero")


def test_without_validation_the_choice_on_the_test_texts_is_stated(judged, capsys):
    results = judged(validation=0)

    assert results.best == "late"
    assert results.conclusions[0].startswith("late FSD")
    assert "on the test texts themselves" in results.conclusions[0]
    assert results.calibration is None
    show(results)
    output = capsys.readouterr().out
    assert "best on the test texts themselves: late" in output
    assert "best on validation" not in output
    assert "no validation texts: the accuracy is at the best threshold on the test texts themselves" in output


def test_scores_have_one_row_per_text(judged):
    scores = judged().scores

    assert list(scores)[:5] == ["id", "text", "label", "group", "split"]
    assert list(scores)[5:] == [f"{name}.{state}" for name in ("early", "late") for state in ("base", "tuned", "fsd")]
    assert list(scores["split"]) == ["validation"] * 40 + ["test"] * 40
    assert list(scores["group"]) == [str(number) for number in range(TEXTS)]


def test_cross_validated_aucs_replace_those_of_validation(judged):
    results = judged(cross_validated={"early": 0.75})

    assert results.validation_auc == results.metrics()["validation_auc/early.fsd"] == 0.75
    assert results.metrics()["validation_auc/late.fsd"] != 0.75
    assert np.isnan(judged(validation=0).validation_auc)


def test_a_registered_metric_reaches_every_output(judged, monkeypatch, capsys):
    monkeypatch.setitem(metrics.METRICS, "fpr_at_top", Metric("FPR@top", lambda curves: curves.alarms[0]))
    results = judged()

    assert isinstance(by_key(results.table)["late", "base", "fpr_at_top"], Row)
    assert "fpr_at_top/late.fsd" in results.metrics()
    assert {"base_fpr_at_top", "fsd_fpr_at_top_low"} <= set(summary(results.table))
    assert "FPR@top" in results_table(results.table, results.best).head
    show(results)
    assert "FPR@top base → FSD" in capsys.readouterr().out


def test_fallbacks_and_remarks_are_noted(judged):
    results = judged(remarks=["zlib left out: no reason"])

    assert results.notes()[-2].startswith("too few independent non-members, 20, for the intervals of TPR@1%FPR")
    assert results.notes()[-1] == "zlib left out: no reason"
    assert results.notes()[: len(results.conclusions)] == results.conclusions


def test_few_nonmembers_are_stated_in_the_summary(judged):
    results = judged()
    (caveat,) = results.caveats()

    assert "TPR@1%FPR (reliable from about 250 on), TPR@5%FPR (reliable from about 50 on)" in caveat
    assert set(summary(results.table, caveat)["caveat"]) == {caveat}


def test_leads_are_corrected_for_the_number_of_detectors(judged):
    rows = by_key(judged().table)
    leads = [rows[name, "fsd", "placebo_lead"] for name in ("early", "late")]

    assert all(row.p <= row.p_holm <= 1 for row in leads)
    assert min(row.p for row in leads) * 2 == pytest.approx(min(row.p_holm for row in leads))
