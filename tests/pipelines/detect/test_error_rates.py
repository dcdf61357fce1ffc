from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pandas as pd

from extensions.bundle.gate import Condition
from fsd.scores import Score
from fsd.verdicts.calibration import NonMembers, calibrate
from fsd.verdicts.domain_check import OwnText, Reference
from fsd.verdicts.verdicts import NO_VERDICT, NOT_SHOWN, TESTED, Basis, Rules, VerdictMaker, Verdicts
from pipelines.detect import error_rates, report

NONE = NonMembers((), (), ())


def test_the_rates_on_held_out_texts_are_of_the_sources_on_which_verdicts_are_given(tmp_path, monkeypatch):
    """Of 40 members 30 are of sources with no calibration non-members, too few, and too few for the rate."""
    sources = ("physics",) * 40 + ("few",) * 5 + ("maths",) * 15
    reference = Reference(tuple(map(str, range(60))), tuple(range(60)), sources, {})
    scores = {Score("loss"): np.append(np.linspace(-1, 0, 60), 9.0)}
    calibration = calibrate(np.arange(61) == 60, scores, reference=reference, sources=[*sources, "physics"])
    tried = NonMembers((-2.0,) * 20 + (5.0,), tuple(range(100, 121)), ("physics",) * 20 + ("maths",))
    calibration = replace(calibration, validation=tried)
    table = pd.DataFrame(
        {
            "label": [1] * 40 + [0] * 40,
            "text": "a text",
            "split": "test",
            "group": list(map(str, range(80))),
            "source": list(np.repeat(["physics", "few", "novels", "maths"] * 2, 10)),
            "loss.fsd": [5.0] * 40 + [-2.0] * 40,
        }
    )
    monkeypatch.setattr(error_rates.tracking, "version_info", lambda uri: None)
    monkeypatch.setattr(error_rates.tracking, "fetch_model_file", lambda uri, name: tmp_path / name)
    table.to_parquet(tmp_path / "scores.parquet")
    # what the model wrote itself reaches as much: then a member is not called, as in verdicts
    written = replace(reference, written=(OwnText("physics", "plain", True, score=5.0),))
    (measured,) = error_rates.on_held_out("folder", VerdictMaker(replace(calibration, reference=written)), 0.05)
    assert (measured.members, measured.tpr.value) == (10, 0)
    (measured,) = error_rates.on_held_out("folder", VerdictMaker(calibration), 0.05)
    assert measured.name.endswith(", source 'physics'")
    assert (measured.members, measured.tpr.value) == (10, 1)
    # the 40 non-members in the file calibrated it, and try nothing
    assert (measured.nonmembers, measured.fpr.value) == (20, 0)
    monkeypatch.setattr(error_rates.tracking, "fetch_model_file", lambda uri, name: None)
    (measured,) = error_rates.on_held_out("folder", VerdictMaker(calibration), 0.05)
    assert (measured.members, measured.tpr, measured.nonmembers) == (0, None, 20)
    # a calibration that names no sources judges texts of any
    monkeypatch.setattr(error_rates.tracking, "fetch_model_file", lambda uri, name: tmp_path / name)
    unnamed = replace(calibration, test=replace(calibration.test, sources=("",) * 60), validation=NONE)
    (measured,) = error_rates.on_held_out("folder", VerdictMaker(unnamed), 0.05)
    assert (measured.members, measured.tpr.value, measured.fpr) == (40, 1, None)


def test_nothing_is_more_than_chance_explains_beside_non_members_that_contradict_the_rate():
    """Of 20 known non-members of the request 5 were called: .25 [.09, .49]."""
    called = pd.DataFrame({"member": False, "called": [True] * 5 + [False] * 15, "group": range(20)})
    loud = error_rates.Measured.of("labelled", "the labelled texts given", called)
    assert loud.contradicts(0.05)
    assert not loud.contradicts(0.1)
    assert report._measurement(loud, 0.05).text.startswith("WARNING: measured on the labelled texts given: 25.0 %")


def rates_of(*sources):
    """The first rows of the table of rates of a request, by a calibration on 30 texts of one source and 170 of two."""
    known = ["maths"] * 30 + ["physics"] * 160 + ["other"] * 10
    reference = Reference(tuple(map(str, range(200))), tuple(range(200)), tuple(known), {})
    scores = {Score("loss"): np.append(np.linspace(-1, 0, 200), 9.0)}
    calibration = calibrate(np.arange(201) == 200, scores, reference=reference, sources=[*known, "maths"])
    bases = [Basis("other", reason="too few"), *(Basis(source, TESTED) for source in sources)]
    verdicts = Verdicts(pd.DataFrame({"verdict": [NOT_SHOWN]}), bases, np.arange(1), Rules())
    findings = report.Findings(SimpleNamespace(calibration=calibration, audited=False), [], verdicts, [])
    return [line[:3] for line in report._rates(findings).lines]


def test_the_nominal_rate_rests_on_the_source_that_is_judged():
    by_maths = ["30", "5.0 % [0.1, 11.6]"]
    assert rates_of("maths") == [["nominal", *by_maths]]
    maths, physics = rates_of("maths", "physics")
    assert maths == ["nominal, source 'maths'", *by_maths]
    assert physics[:2] == ["nominal, source 'physics'", "160"]


def test_a_gate_does_not_open_where_no_text_was_judged():
    """`found > 0` of no verdict on any of three texts: nothing was found to be in order."""
    nothing = Verdicts(pd.DataFrame({"verdict": [NO_VERDICT] * 3, "selected": False}), [], np.arange(3), Rules())
    numbers = report._gate_numbers(report.Findings(None, [], nothing, []))
    assert numbers["judged"] == 0
    for name in ("found", "share", "selected"):
        assert numbers[name] is None
        assert "has no number" in Condition(name, ">", 0.0).failure(numbers)
    one = Verdicts(pd.DataFrame({"verdict": [NOT_SHOWN], "selected": False}), [], np.arange(1), Rules())
    numbers = report._gate_numbers(report.Findings(None, [], one, []))
    assert (numbers["found"], numbers["selected"], Condition("found", ">", 0.0).failure(numbers)) == (0, 0, "")
