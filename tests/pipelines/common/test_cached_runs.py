"""The disk cache of a pipeline: what is known is not read again, what is another thing is, and scores are the same."""

from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest

from fsd.config import DetectorConfig, ModelConfig
from fsd.models.language_model import load
from fsd.scoring.cache import FILE, SQLiteStore
from fsd.scoring.model import build_scorers
from fsd.token_stats import Prompt
from pipelines.fsd import prepare


@pytest.fixture
def job(job):
    return replace(job, detection=DetectorConfig(detectors="loss,lowercase,min_k_deviation,recall"))


def newest_scores(folder: Path) -> pd.DataFrame:
    files = sorted(folder.glob("mlruns/**/scores.parquet"), key=lambda file: file.stat().st_mtime)
    return pd.read_parquet(files[-1])


def stored() -> int:
    """Number of rows in the cache."""
    store = SQLiteStore(Path("kept") / FILE)
    return store._run(lambda db: db.execute("SELECT count(*) FROM statistics").fetchone()[0]) or 0


@pytest.mark.slow
def test_a_second_run_and_one_that_reuses_the_adapter_make_no_forward_pass(job, passes, tmp_path) -> None:
    prepare(job).run()
    first, rows = newest_scores(tmp_path), stored()
    assert passes
    passes.clear()
    prepare(job).run()  # trained again, to the same adapter
    assert passes == []
    pd.testing.assert_frame_equal(newest_scores(tmp_path), first, check_exact=True)
    prepare(replace(job, adapter="models:/fsd-arxiv/1", detection=DetectorConfig(detectors="loss,lowercase"))).run()
    assert passes == []
    assert stored() == rows
    prepare(
        replace(job, training=replace(job.training, learning_rate=2e-3), detection=DetectorConfig(detectors="loss"))
    ).run()
    assert passes  # by the tuned model, which is another now
    assert stored() > rows


def test_a_reference_model_is_kept_under_its_own_weights(tiny, other, passes, tmp_path) -> None:
    model = load(str(tiny), device="cpu")
    for reference, expected in ((str(other), 1), (str(other), 0), (str(tiny), 1)):
        config = ModelConfig(model=str(tiny), reference_model=reference, cache=str(tmp_path / "kept"), device="cpu")
        passes.clear()
        list(build_scorers(model, config)["reference"]([Prompt("a member")]))
        assert len(passes) == expected
