"""The main job end to end on a tiny random model: everything that the outside contract promises is there."""

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from fsd.config import DetectorConfig
from fsd.errors import UsageError
from pipelines.fsd import prepare


@pytest.fixture(scope="module")
def finished(own_run: Any) -> Any:
    """A copy of the finished run, in its folder."""
    return own_run


def runs(folder: Path) -> "list[object]":
    from mlflow import MlflowClient

    client = MlflowClient(f"sqlite:///{folder}/mlruns/mlflow.db")
    experiment = client.get_experiment_by_name("fsd-arxiv")
    assert experiment is not None
    return list(client.search_runs([experiment.experiment_id], order_by=["start_time ASC"]))


def artifact(folder: Path, name: str, run: int = 0) -> Path:
    from fsd import tracking

    return tracking.fetch_artifact(runs(folder)[run].info.run_id, name)  # type: ignore[attr-defined]


def test_metrics_have_the_names_that_line_up_in_the_ui(finished: Any) -> None:
    metrics = runs(finished.folder)[0].data.metrics  # type: ignore[attr-defined]

    for detector in ("loss", "perplexity", "zlib", "lowercase", "min_k", "min_k_pp", "surp", "recall", "neighbour"):
        for group in ("auc", "tpr_at_5fpr", "tpr_at_1fpr", "accuracy"):
            assert {f"{group}/{detector}.base", f"{group}/{detector}.fsd"} <= metrics.keys()
        assert {f"auc_gain/{detector}", f"auc_gain_p/{detector}"} <= metrics.keys()
    assert "auc/min_k_deviation.fsd" in metrics
    assert "auc/min_k_deviation.base" not in metrics
    assert {
        "audit/blind_auc",
        "audit/leaked_groups",
        "seconds/scoring",
        "seconds/finetuning",
        "train/loss",
    } <= metrics.keys()
    assert metrics["audit/leaked_groups"] == 0


def test_scores_table_has_a_row_a_text_and_fsd_is_base_minus_tuned(finished: Any) -> None:
    table = pd.read_parquet(artifact(finished.folder, "scores.parquet"))

    assert list(table.columns[:5]) == ["id", "text", "label", "group", "split"]
    assert set(table["split"]) == {"validation", "test"}
    assert table["id"].is_unique
    for detector in ("loss", "surp", "reference"):
        difference = table[f"{detector}.base"] - table[f"{detector}.tuned"]
        np.testing.assert_array_equal(difference, table[f"{detector}.fsd"])
    assert (table["loss.fsd"] != 0).all()


def test_unseen_texts_are_nowhere_else(finished: Any) -> None:
    unseen = [json.loads(line) for line in artifact(finished.folder, "unseen.jsonl").read_text().splitlines()]
    table = pd.read_parquet(artifact(finished.folder, "scores.parquet"))

    assert set(unseen[0]) == {"text", "group", "date", "source", "sha256"}
    assert not {row["text"] for row in unseen} & set(table["text"])
    assert len(unseen) + len(table) == 200


def test_adapter_is_safetensors_and_config_only(finished: Any) -> None:
    files = {path.name for path in artifact(finished.folder, "adapter").iterdir()}

    assert files == {"adapter_config.json", "adapter_model.safetensors", "base.json", "SHA256SUMS"}


def test_pictures_and_report_are_at_the_root(finished: Any) -> None:
    for name in ("roc.png", "scores.png"):
        assert artifact(finished.folder, name).read_bytes().startswith(b"\x89PNG")
    report = artifact(finished.folder, "report.html").read_text()
    assert "min_k_deviation" in report
    assert "http://" not in report.replace("http://www.w3.org", "")
    assert "https://" not in report


def test_reused_adapter_gives_the_same_scores_without_training_or_forward_pass(
    finished: Any, passes: list[int]
) -> None:
    prepare(replace(finished.config, adapter="models:/fsd-arxiv@champion")).run()

    first = pd.read_parquet(artifact(finished.folder, "scores.parquet"))
    second = pd.read_parquet(artifact(finished.folder, "scores.parquet", run=-1))
    pd.testing.assert_frame_equal(first, second)
    assert passes == []
    last = runs(finished.folder)[-1].data  # type: ignore[attr-defined]
    assert "train/loss" not in last.metrics
    assert (last.tags["method"], last.tags["reused_adapter"]) == ("lora", "models:/fsd-arxiv@champion")


def test_adapter_of_another_base_is_refused(finished: Any, other: Path) -> None:
    stranger = replace(
        finished.config, model=replace(finished.config.model, model=str(other)), adapter="models:/fsd-arxiv/1"
    )
    before = len(runs(finished.folder))

    with pytest.raises(UsageError, match="must be used on its own base"):
        prepare(stranger).run()

    assert len(runs(finished.folder)) == before


def test_a_moved_checkout_finds_its_adapter(finished: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    moved = tmp_path / "moved"
    shutil.copytree(finished.folder, moved)
    monkeypatch.chdir(moved)

    prepare(replace(finished.config, adapter="models:/fsd-arxiv/1", detection=DetectorConfig(detectors="loss"))).run()

    assert pd.read_parquet(artifact(moved, "scores.parquet", run=-1))["loss.fsd"].notna().all()


def test_detector_that_was_asked_for_and_cannot_be_computed_is_refused(finished: Any) -> None:
    with pytest.raises(UsageError, match="detector dc_pdd cannot be computed here: no unigram table"):
        prepare(replace(finished.config, detection=DetectorConfig(detectors="loss,dc_pdd"))).run()


def test_paper_split_says_what_it_leaks(finished: Any, capsys: pytest.CaptureFixture[str]) -> None:
    prepare(
        replace(
            finished.config,
            data=replace(finished.config.data, split="paper", validation=None),
            detection=DetectorConfig(detectors="loss"),
        )
    ).run()

    told = capsys.readouterr().out
    assert "no validation texts" in told
    assert runs(finished.folder)[-1].data.metrics["accuracy/loss.fsd"] > 0.5  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    "change",
    [{"target_modules": "nothing"}, {"batch_size": 0}, {"method": "adalora", "epochs": 1, "batch_size": 64}],
)
def test_an_impossible_training_leaves_no_run_behind(finished: Any, change: dict[str, object]) -> None:
    before = len(runs(finished.folder))

    with pytest.raises(UsageError):
        prepare(replace(finished.config, training=replace(finished.config.training, **change))).run()  # type: ignore[arg-type]

    assert len(runs(finished.folder)) == before
