"""The page of a real model, by the embedded twin; SmolLM2 itself takes eight minutes (`make real`)."""

from pathlib import Path

import pandas as pd
import pytest

from benchmarks import real_model
from fsd.tracking import fetch_artifact, find_runs


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_every_question_is_asked_of_the_trained_and_the_untouched_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(real_model, "PARAGRAPHS", 8)
    monkeypatch.setattr(real_model, "COPIES", 4)
    monkeypatch.setattr(real_model, "UNSEEN", 2)
    cache = str(tmp_path / "cache")
    real_model.prepare(real_model.RealConfig("embedded-twin", texts=32, learning_rate=1e-3, cache=cache)).run()
    (run,) = find_runs(real_model.EXPERIMENT)
    scores = pd.read_parquet(fetch_artifact(run.id, "scores.parquet"))
    assert scores.groupby("exposures").size().nunique() == 1
    untouched = scores[scores["exposures"] == 0]
    assert (untouched["reference.base"] == -1).all()  # it is its own reference
    assert (untouched["wbc.base"] == 0).all()
    within = "auc_members_vs_contemporaries"
    assert run.metrics[f"{within}/reference.base.untouched"] == run.metrics[f"{within}/wbc.base.untouched"] == 0.5
    assert run.metrics[f"{within}/reference.base"] > 0.7
    page = fetch_artifact(run.id, "report.html").read_text()
    for title in ("Three contrasts", "An adapter, trained on other articles", "Canaries", "Extraction"):
        assert f"{title}<" in page
    assert "canaries: p " in capsys.readouterr().out
