"""The main job end to end on a tiny random model: what the outside contract promises beside what it prints."""

import contextlib
import json
import shutil
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import fsd
import pipelines.fsd as main_job
from fsd import tracking
from fsd.config import DetectorConfig, FSDConfig
from fsd.errors import UsageError
from pipelines.command.cli import command
from pipelines.command.context import stages
from pipelines.experiment import inputs
from pipelines.fsd import prepare


@pytest.fixture(scope="module")
def finished(own_run: Any) -> Any:
    """A copy of the finished run, in its folder."""
    return own_run


@pytest.fixture(scope="module")
def artifact(finished: Any) -> Callable[[str], Path]:
    first = tracking.find_runs("fsd-arxiv", {})[0].id
    return lambda name: tracking.fetch_artifact(first, name)


def test_metrics_have_the_names_that_line_up_in_the_ui(finished: Any) -> None:
    metrics = tracking.find_runs("fsd-arxiv", {})[0].metrics
    for detector in ("loss", "perplexity", "zlib", "lowercase", "min_k", "min_k_pp", "surp", "recall", "neighbour"):
        assert {f"auc/{detector}.base", f"auc/{detector}.fsd", f"auc_gain/{detector}"} <= metrics.keys()
    assert "auc/min_k_deviation.fsd" in metrics
    assert "auc/min_k_deviation.base" not in metrics
    assert {"audit/blind_auc", "seconds/scoring", "seconds/finetuning", "train/loss"} <= metrics.keys()
    assert metrics["audit/leaked_groups"] == 0
    assert len(metrics) <= 80


def test_the_params_are_those_in_effect_and_the_tags_name_version_and_commit(finished: Any) -> None:
    run = tracking.find_runs("fsd-arxiv", {})[0]
    assert not {"", "None"} & set(run.params.values())
    assert (run.params["device"], run.params["validation"], run.params["placebo"]) == ("cpu", "0.4", "none")
    assert run.params["target_modules"] == "query_key_value"
    own = tracking.versions()
    assert run.tags["fsd_version"] == own["fsd"]
    assert run.tags.get("mlflow.source.git.commit", "") == own.get("commit", "").removesuffix("-dirty")


@pytest.mark.slow
def test_a_rerun_with_equal_settings_makes_no_new_version(finished: Any, capsys: Any) -> None:
    shutil.copytree(finished.folder, "again")
    with contextlib.chdir("again"):
        prepare(finished.config).run()
        lines = capsys.readouterr().out.splitlines()
        assert "version  models:/fsd-arxiv/1 (champion: the best so far)" in lines
        assert "         (equal to this run's: no new version)" in lines  # within 80 columns
        assert tracking.version_info("models:/fsd-arxiv/latest").number == 1
        again = tracking.find_runs("fsd-arxiv", {})[0]
        assert again.tags["repeats"] == "models:/fsd-arxiv/1"
        assert again.tags["mlflow.runName"].startswith("again · ")


def test_scores_table_has_a_row_a_text_and_fsd_is_base_minus_tuned(artifact: Callable[[str], Path]) -> None:
    table = pd.read_parquet(artifact("scores.parquet"))
    unseen = [json.loads(line) for line in artifact("unseen.jsonl").read_text().splitlines()]
    assert list(table.columns[:5]) == ["id", "text", "label", "group", "split"]
    assert set(table["split"]) == {"validation", "test"}
    assert table["id"].is_unique
    for detector in ("loss", "surp", "reference"):
        difference = table[f"{detector}.base"] - table[f"{detector}.tuned"]
        np.testing.assert_array_equal(difference, table[f"{detector}.fsd"])
    assert (table["loss.fsd"] != 0).all()
    assert set(unseen[0]) == {"text", "group", "date", "source", "sha256"}
    assert not {row["text"] for row in unseen} & set(table["text"])
    assert len(unseen) + len(table) == 200


def test_adapter_is_safe_and_pictures_and_report_are_at_the_root(artifact: Callable[[str], Path]) -> None:
    files = {path.name for path in artifact("adapter").iterdir()}
    assert files == {"adapter_config.json", "adapter_model.safetensors", "base.json", "SHA256SUMS", "README.md"}
    for name in ("roc.png", "scores.png"):
        assert artifact(name).read_bytes().startswith(b"\x89PNG")
    report = artifact("report.html").read_text()
    assert "min_k_deviation" in report
    for fact in ("fsd run --data data.jsonl --model ", f"fsd {fsd.__version__}, torch ", "Commit", "Date"):
        assert fact in report
    assert "http://" not in report.replace("http://www.w3.org", "")
    assert "https://" not in report


def test_reused_adapter_gives_the_same_scores_without_training_or_forward_pass(
    finished, artifact, passes, monkeypatch
) -> None:
    # Verdicts then rest on other non-members, whose openings the model continues anew.
    monkeypatch.setattr("fsd.scoring.sampling.own_texts", lambda *_, **__: {})
    before = {run.id for run in tracking.find_runs("fsd-arxiv", {})}
    prepare(replace(finished.config, adapter="models:/fsd-arxiv@champion")).run()
    (last,) = [run for run in tracking.find_runs("fsd-arxiv", {}) if run.id not in before]
    first, second = map(
        pd.read_parquet, (artifact("scores.parquet"), tracking.fetch_artifact(last.id, "scores.parquet"))
    )
    pd.testing.assert_frame_equal(first, second)
    assert passes == []
    assert "train/loss" not in last.metrics
    assert (last.tags["method"], last.tags["reused_adapter"]) == ("lora", "models:/fsd-arxiv@champion")


def test_what_cannot_be_is_refused_and_leaves_no_run_behind(finished: Any, other: Path) -> None:
    config, training = finished.config, finished.config.training
    before = len(tracking.find_runs("fsd-arxiv", {}))
    model = replace(config.model, model=str(other), reference_model=None)
    for impossible, message in (
        (replace(config, model=model, adapter="models:/fsd-arxiv/1"), "must be used on its own base"),
        (replace(config, detection=DetectorConfig(detectors="loss,dc_pdd")), "dc_pdd cannot be computed here: no uni"),
        (replace(config, training=replace(training, target_modules="nothing")), "target"),
        (replace(config, training=replace(training, method="adalora", batch_size=64)), "steps"),
    ):
        with pytest.raises(UsageError, match=message):
            prepare(impossible).run()
    assert len(tracking.find_runs("fsd-arxiv", {})) == before


@pytest.mark.slow
@pytest.mark.parametrize("spellings", [("query_key_value,dense", "dense, query_key_value"), ("all-linear", None)])
def test_modules_are_logged_once_however_they_are_spelt(job: FSDConfig, spellings: Any, capsys: Any) -> None:
    for modules in spellings:
        config = replace(job, training=replace(job.training, target_modules=modules or "auto"))
        prepare(config if modules else replace(job, adapter="models:/fsd-arxiv/1")).run()
    runs = tracking.find_runs("fsd-arxiv", {})
    logged = spellings[0] if None in spellings else "dense,query_key_value"
    assert [run.params["target_modules"] for run in runs] == [logged, logged]
    assert [run.params["dropout"] for run in runs] == ["0.05", "0.05"]
    # A reused adapter is a version of its own.
    assert tracking.version_info("models:/fsd-arxiv/latest").number == (2 if None in spellings else 1)
    assert "could not be stored" not in capsys.readouterr().err


def test_the_reading_of_the_texts_counts_as_time_of_the_data(monkeypatch: pytest.MonkeyPatch) -> None:
    load = inputs.load_texts

    def slow(*arguments: Any) -> Any:
        time.sleep(0.2)
        return load(*arguments)

    seconds: dict[str, float] = {}
    monkeypatch.setattr(inputs, "load_texts", slow)
    monkeypatch.setattr(main_job, "run", lambda *_: seconds.update(stages().seconds))
    monkeypatch.setattr(sys, "argv", ["fsd run"])
    command(FSDConfig, prepare, "")
    # A sleep may be a little shorter than it should, by another clock.
    assert seconds["seconds/data"] > 0.1
