"""Runs compared: mean and interval over seeds, by hand, and what is refused."""

import math
from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest

from extensions.compare.command import CompareConfig, prepare
from fsd import tracking
from fsd.errors import UsageError


@pytest.fixture
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[str]]:
    monkeypatch.chdir(tmp_path)

    def make(*tables: pd.DataFrame) -> list[str]:
        ids = []
        for table in tables:
            with tracking.run("fsd-x", "a run") as run:
                run.log("summary.csv", table)
            ids.append(run.id)
        return ids

    return make


def summary(**values: float) -> pd.DataFrame:
    """The table of a run with intervals of half-width .098, which is a standard error of .05."""
    ends = {
        f"{name}{end}": value + sign * 0.098
        for name, value in values.items()
        for end, sign in (("_low", -1), ("_high", 1))
    }
    return pd.DataFrame([{"detector": "loss", **values, **ends}])


def test_means_and_intervals_over_runs(runs: Callable[..., list[str]], capsys: pytest.CaptureFixture[str]) -> None:
    ids = runs(summary(base_auc=0.6, fsd_auc=0.7), summary(base_auc=0.64, fsd_auc=0.8))
    prepare(CompareConfig(tuple(ids), out="compared.csv")).run()

    table = pd.read_csv("compared.csv").set_index("measure")
    assert table.loc["fsd_auc", ["runs", "value", "least", "most"]].tolist() == pytest.approx([2, 0.75, 0.7, 0.8])
    assert table.loc["fsd_auc", "sd"] == pytest.approx(math.sqrt(0.005))
    # squared error s²/S + e² = .0025 + .0025; Satterthwaite's degrees of freedom (.005 / .0025)² = 4: t = 2.776
    assert table.loc["fsd_auc", "high"] == pytest.approx(0.75 + 2.776 * math.sqrt(0.005), abs=1e-3)
    (run,) = tracking.find_runs("fsd-compare")
    assert run.metrics["fsd_auc/loss"] == pytest.approx(0.75)
    assert "loss has the highest mean FSD AUC of 2 runs, .75" in capsys.readouterr().out


def test_intervals_end_where_numbers_do(runs: Callable[..., list[str]]) -> None:
    """Two runs have few degrees of freedom: the ends of the AUC would be -1.14 and 2.73."""
    ids = runs(summary(fsd_auc=0.6, gain=-0.8), summary(fsd_auc=0.99, gain=0.3))
    prepare(CompareConfig(tuple(ids), out="compared.csv")).run()
    table = pd.read_csv("compared.csv").set_index("measure")
    assert table.loc["fsd_auc", ["low", "high"]].tolist() == [0, 1]
    assert table.loc["gain", ["low", "high"]].tolist() == [-1, 1]


def test_what_cannot_be_compared_is_refused(runs: Callable[..., list[str]]) -> None:
    (one,) = runs(pd.DataFrame({"detector": ["loss"]}))
    for names, message in (((one, "nothing"), "must"), ((one, one), "two or more")):
        with pytest.raises(UsageError, match=message):
            prepare(CompareConfig(names))
    (other,) = runs(summary(fsd_auc=0.5))
    (another,) = runs(summary(fsd_auc=0.5).assign(detector="zlib"))
    with pytest.raises(UsageError, match=r"runs must share a detector; .* have none in common"):
        prepare(CompareConfig((other, another)))
    with pytest.raises(UsageError, match=r"must be a run of `fsd run`; its summary.csv has no fsd_auc"):
        prepare(CompareConfig((one, other)))
