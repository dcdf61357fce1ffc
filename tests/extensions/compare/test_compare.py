"""Runs compared: mean and interval over seeds, by hand, and what is refused."""

import math
from collections.abc import Callable, Sequence
from pathlib import Path

import pandas as pd
import pytest

from extensions.compare.command import CompareConfig, prepare
from fsd import tracking
from fsd.errors import UsageError


@pytest.fixture
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[str]]:
    monkeypatch.chdir(tmp_path)

    def make(*tables: pd.DataFrame, scores: Sequence[pd.DataFrame] = (), told: Sequence[dict] = ()) -> list[str]:
        ids = []
        for number, table in enumerate(tables):
            params, tags = told[number] if told else ({}, {})
            with tracking.run("fsd-x", "a run", params=params, tags=tags) as run:
                run.log_metrics({"headline/blind": 0.91})
                run.log("summary.csv", table)
                run.log("scores.parquet", scores[number] if scores else scored(number))
            ids.append(run.id)
        return ids

    return make


def scored(number: int = 0, **columns: list[float]) -> pd.DataFrame:
    """Twelve texts of a run, the first four for validation; members and others take turns."""
    texts = pd.DataFrame({"id": [f"{number} {row}" for row in range(12)], "label": [1, 0] * 6})
    texts["group"] = list(map(str, range(12)))
    texts["split"] = ["validation"] * 4 + ["test"] * 8
    return texts.assign(**columns)


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
    assert table.loc["fsd_auc", ["runs", "value"]].tolist() == pytest.approx([2, 0.75])
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
    with pytest.raises(UsageError, match=r"must be a run of `fsd run`; its summary.csv has no fsd_auc"):
        prepare(CompareConfig((one, other)))


SEPARATED = [3.0, 0, 4, 1, 4, 0, 5, 1, 6, 2, 7, 3]
MIXED = [3.0, 1, 2, 4, 4, 0, 1, 5, 6, 2, 3, 7]
METHODS = [({"method": "ia3", "seed": 42}, {}), ({"method": "lora", "rank": 16, "seed": 42}, {})]


def validated(auc: float) -> pd.DataFrame:
    return summary(base_auc=0.5, fsd_auc=auc).assign(base_validation_auc=0.5, fsd_validation_auc=auc)


def test_methods_are_compared_and_not_averaged(runs: Callable[..., list[str]], capsys: pytest.CaptureFixture) -> None:
    """By hand: of 16 pairs of test texts 16 are in order with lora, 8 with ia3."""
    scores = [scored(**{"loss.base": MIXED, "loss.fsd": column}) for column in (MIXED, SEPARATED)]
    tables = [validated(auc) for auc in (0.5, 0.9)]
    ids = runs(*tables, scores=scores, told=METHODS)
    prepare(CompareConfig(tuple(ids), out="compared.csv")).run()

    table = pd.read_csv("compared.csv").set_index(["settings", "measure"])
    assert table.loc[("ia3", "fsd_auc"), "value"] == 0.5
    assert table.loc[("lora", "fsd_auc"), "value"] == 0.9
    assert ("lora", "fsd_against") not in table.index
    assert table.loc[("ia3", "base_against"), ["value", "low", "high"]].tolist() == [0, 0, 0]  # the same scores
    assert table.loc[("ia3", "fsd_against"), "value"] == -0.5
    shown = capsys.readouterr().out
    assert "lora is best on validation: loss FSD .90" in shown
    assert "; ia3 -.50 [" in shown
    assert "paired by the test texts" in shown
    assert "a classifier that never sees the model reaches .91" in " ".join(shown.split())


def test_settings_are_named_by_what_tells_them_apart(runs: Callable[..., list[str]], capsys) -> None:
    """Three seeds of one setting are one line; commas and paths are no part of a metric's name in MLflow."""
    settings = [("lora", 0.001, 1), ("lora", 0.001, 2), ("lora", 0.002, 1), ("ia3", 0.001, 1)]
    told = [
        ({"method": method, "learning_rate": rate, "seed": seed, "rank": 4, "reference_model": "./a"}, {})
        for method, rate, seed in settings
    ]
    ids = runs(*map(validated, (0.6, 0.7, 0.8, 0.5)), scores=[scored(0, **{"loss.fsd": MIXED})] * 4, told=told)
    prepare(CompareConfig(tuple(ids), out="compared.csv")).run()
    table = pd.read_csv("compared.csv").query("measure == 'fsd_auc'").set_index("settings")
    assert table["value"].round(3).to_dict() == {
        "lora, learning_rate 0.001": 0.65,
        "lora, learning_rate 0.002": 0.8,
        "ia3, learning_rate 0.001": 0.5,
    }
    assert "ia3, learning_rate 0.001 +.00 [+.00, +.00], no clear difference" in capsys.readouterr().out
    (run,) = tracking.find_runs("fsd-compare")
    assert run.metrics["fsd_auc/loss.lora_ learning_rate 0.002"] == 0.8


def test_epochs_of_one_method_are_named(runs: Callable[..., list[str]], capsys) -> None:
    """What a method lacks, or the modules that it takes by itself, come with it."""
    told = [
        ({"method": "lora", "epochs": 2, "rank": 8, "target_modules": "a"}, {}),
        ({"method": "ia3", "epochs": 1, "target_modules": "b"}, {}),
    ]
    ids = runs(validated(0.5), validated(0.9), scores=[scored(0, **{"loss.fsd": MIXED})] * 2, told=told)
    prepare(CompareConfig(tuple(ids))).run()
    assert "ia3, epochs 1 is best on validation" in capsys.readouterr().out


def test_runs_of_other_test_texts_have_no_difference(runs: Callable[..., list[str]], capsys) -> None:
    scores = [scored(number, **{"loss.fsd": column}) for number, column in enumerate((MIXED, SEPARATED))]
    prepare(CompareConfig(tuple(runs(validated(0.5), validated(0.9), scores=scores, told=METHODS)))).run()
    assert "; ia3 has other test texts, and no difference is given" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("tags", "message"),
    [
        ({"base_fingerprint": "b", "base_model": "other"}, r"must be of one model; .* is of one, .* of other"),
        ({"texts": "b.jsonl sha256:2"}, r"must be of the same texts; .* is of a.jsonl .*:1, .* of b.jsonl .*:2"),
        ({"texts": "folder/a.jsonl sha256:1"}, ""),
    ],
)
def test_other_models_and_texts_are_no_draws(runs: Callable[..., list[str]], tags: dict, message: str) -> None:
    same = {"base_fingerprint": "a", "base_model": "one", "texts": "a.jsonl sha256:1"}
    config = CompareConfig(tuple(runs(*[summary(fsd_auc=0.5)] * 2, told=[({}, same), ({}, same | tags)])))
    if not message:
        assert prepare(config)
        return
    with pytest.raises(UsageError, match=message):
        prepare(config)
