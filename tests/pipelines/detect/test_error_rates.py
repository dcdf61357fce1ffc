from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pandas as pd

from fsd.evaluation.calibration import calibrate
from fsd.evaluation.domain_check import Reference
from fsd.evaluation.verdicts import NOT_SHOWN, TESTED, Basis, Rules, Verdicts
from fsd.scores import Score
from pipelines.detect import error_rates, report


def test_the_rates_on_the_test_texts_are_of_those_on_which_verdicts_can_be_given(tmp_path, monkeypatch):
    """Of 40 members 30 are of sources with no calibration non-members, too few, and too few for the rate."""
    sources = ("physics",) * 40 + ("few",) * 5 + ("maths",) * 15
    reference = Reference(tuple(map(str, range(60))), tuple(range(60)), sources, {})
    scores = {Score("loss"): np.append(np.linspace(-1, 0, 60), 9.0)}
    calibration = calibrate(np.arange(61) == 60, scores, reference=reference, sources=[*sources, "physics"])
    table = pd.DataFrame(
        {
            "label": [1] * 40 + [0] * 40,
            "split": "test",
            "group": list(map(str, range(80))),
            "source": list(np.repeat(["physics", "few", "novels", "maths"] * 2, 10)),
            "loss.fsd": [5.0] * 40 + [-2.0] * 40,
        }
    )
    monkeypatch.setattr(error_rates.tracking, "version_info", lambda uri: None)
    monkeypatch.setattr(error_rates.tracking, "fetch_model_file", lambda uri, name: tmp_path / name)
    table.to_parquet(tmp_path / "scores.parquet")
    (measured,) = error_rates.on_test("folder", calibration, 0.05)
    assert (measured.members, measured.tpr.value) == (10, 1)
    assert (measured.nonmembers, measured.fpr.value) == (10, 0)
    table[table["source"] != "physics"].to_parquet(tmp_path / "scores.parquet")
    assert error_rates.on_test("folder", calibration, 0.05) == []
    # a calibration that names no sources judges texts of any
    unnamed = replace(calibration, sources=("",) * 60)
    (measured,) = error_rates.on_test("folder", unnamed, 0.05)
    assert (measured.members, measured.tpr.value) == (30, 1)


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
