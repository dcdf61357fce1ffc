"""A run with members, contemporaries and later texts on a tiny random model: every output has the three contrasts."""

import contextlib
import json
from collections.abc import Iterator
from dataclasses import replace
from io import StringIO
from pathlib import Path
from typing import NamedTuple

import pandas as pd
import pytest

from fsd import tracking
from fsd.config import AdapterConfig, DataConfig, DetectorConfig, FSDConfig, ModelConfig, TuneConfig
from fsd.evaluation.results import CONTRASTS, kinds_in
from fsd.files import read_json
from fsd.statistics.metrics import auc
from fsd.verdicts.calibration import Calibration
from pipelines.command.context import Invocation, running
from pipelines.fsd import prepare
from pipelines.tune.tuning import prepare as tune


class Finished(NamedTuple):
    folder: Path
    config: FSDConfig
    output: str
    id: str

    def artifact(self, name: str) -> Path:
        return tracking.fetch_artifact(self.id, name)


@pytest.fixture(scope="module")
def finished(tiny, other, make_rows, tmp_path_factory) -> Iterator[Finished]:
    """Half of the texts are members, a quarter contemporaries and a quarter later texts."""
    folder = tmp_path_factory.mktemp("contrasts")
    periods = ("2020", "2020", "2022", "2020")  # rows 1, 3, 5, ... are members
    rows = ({**row, "period": periods[at % 4]} for at, row in enumerate(make_rows(120, seed=4)))
    (folder / "data.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    config = FSDConfig(
        audit_repeats=1,
        data=DataConfig(data=("data.jsonl",)),
        model=ModelConfig(model=str(tiny), device="cpu"),
        training=AdapterConfig(batch_size=4, epochs=1),
        detection=DetectorConfig(detectors="loss,min_k_deviation"),
        placebo=str(other),
    )
    with contextlib.chdir(folder):
        with contextlib.redirect_stdout(StringIO()) as printed, running("run", Invocation(verbose=True)):
            prepare(config).run()
        (run,) = tracking.find_runs("fsd-arxiv", {})
        yield Finished(folder, config, printed.getvalue(), run.id)


def scores(finished: Finished) -> pd.DataFrame:
    return pd.read_parquet(finished.artifact("scores.parquet"))


def test_numbers_are_those_of_the_two_kinds_in_the_table_of_scores(finished: Finished) -> None:
    metrics = tracking.find_runs("fsd-arxiv", {})[0].metrics
    table = scores(finished)
    assert list(table.columns[:6]) == ["id", "text", "label", "group", "split", "period"]
    test = table[table["split"] == "test"]
    kind = kinds_in(table)[table["split"] == "test"]
    summary = pd.read_csv(finished.artifact("summary.csv"), index_col="detector")
    for contrast in CONTRASTS:
        chosen = contrast.among(kind)
        for name in ("loss.base", "loss.fsd", "min_k_deviation.fsd"):
            expected = auc(kind[chosen] == contrast.positive, test[name].to_numpy()[chosen])
            detector, _, state = name.partition(".")
            column = f"{state}_auc_{contrast.name}"
            value, low, high = (summary.loc[detector, f"{column}{end}"] for end in ("", "_low", "_high"))
            assert value == pytest.approx(expected)
            assert low <= expected <= high
        assert f"auc_gain_{contrast.name}_p_holm" in summary
        assert {f"fsd_placebo_auc_{contrast.name}", f"fsd_placebo_lead_{contrast.name}"} <= set(summary)
    within = summary.loc["loss", "fsd_auc_members_vs_contemporaries"]
    assert metrics["auc/loss.fsd"] == pytest.approx(within)
    assert metrics["auc_members_vs_contemporaries/loss.fsd"] == pytest.approx(within)
    assert {"auc_members_vs_later/loss.base", "tpr_at_5fpr/loss.base", "tpr_at_5fpr/loss.fsd"} <= metrics.keys()
    assert {"base_auc_members_vs_later_low", "auc_gain_contemporaries_vs_later_p"} <= set(summary.columns)


def test_the_adapter_is_trained_on_later_texts_and_calibrated_on_contemporaries(finished: Finished) -> None:
    unseen = [json.loads(line) for line in finished.artifact("unseen.jsonl").read_text().splitlines()]
    assert {row["period"] for row in unseen} == {"2022"}
    assert len(unseen) == 9
    table = scores(finished)
    contemporaries = table[kinds_in(table) == "contemporary"]
    calibration = read_json(Calibration, finished.artifact("calibration.json"), "")
    assert len(calibration.test.scores) == (contemporaries["split"] == "test").sum()
    assert len(calibration.validation.scores) == (contemporaries["split"] == "validation").sum()
    assert sorted(calibration.reference.texts) == sorted(contemporaries["text"])
    assert "later texts" in calibration.reference.power
    audit = json.loads(finished.artifact("audit.json").read_text())
    assert audit["contemporaries"] is True


def test_terminal_report_and_figure_show_the_three_contrasts(finished: Finished) -> None:
    report = finished.artifact("report.html").read_text()
    assert finished.artifact("contrasts.png").read_bytes().startswith(b"\x89PNG")
    tables = finished.output.split("test texts; best on")[0]
    assert max(map(len, tables.splitlines()[1:])) <= 100
    for contrast in CONTRASTS:
        assert contrast.title in tables
        assert f"{contrast.title.capitalize()}: {contrast.meaning}." in report
    finding = "loss base score: members against later texts"
    assert finding in " ".join(finished.output.split())
    assert finding in " ".join(report.split())


@pytest.mark.slow
def test_tuning_chooses_on_members_and_contemporaries(finished: Finished, capsys: pytest.CaptureFixture[str]) -> None:
    job = replace(finished.config, detection=DetectorConfig(detectors="min_k"), placebo="none")
    config = TuneConfig(base_run=job, trials=2, folds=2, repeats=1, sampler="random", storage="journal:trials.log")
    with running("tune", Invocation(verbose=True)):
        tune(config).run()
    assert "members against contemporaries" in capsys.readouterr().out
    (run,) = [
        run for run in tracking.find_runs("fsd-arxiv", {}) if run.id != finished.id and "auc/min_k.fsd" in run.metrics
    ]
    assert "fsd_auc_contemporaries_vs_later" in pd.read_csv(tracking.fetch_artifact(run.id, "summary.csv"))
