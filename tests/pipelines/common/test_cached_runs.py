"""The disk cache of a pipeline: what is known is not read again, what is another thing is, and scores are the same."""

import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from fsd.config import DetectorConfig, ModelConfig, TuneConfig
from fsd.models.language_model import LanguageModel, load
from fsd.scoring.cache import FILE, SQLiteStore
from fsd.scoring.model import build_scorers
from fsd.scoring.model_scorer import ModelScorer
from fsd.token_stats import Prompt
from pipelines.fsd import prepare
from pipelines.study.__main__ import prepare as study
from pipelines.study.grid import StudyConfig
from pipelines.tune.__main__ import prepare as tune


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


@pytest.mark.slow
def test_tuning_on_the_same_texts_makes_no_forward_pass(job, passes, tmp_path) -> None:
    job = replace(job, detection=DetectorConfig(detectors="min_k,min_k_deviation"))
    config = TuneConfig(job=job, storage=f"journal:{tmp_path}/trials.log", study="s", trials=12, folds=2, repeats=1)
    prepare(job).run()
    assert passes
    passes.clear()
    tune(config).run()
    assert passes == []


@pytest.mark.slow
def test_a_study_on_texts_that_were_read_makes_no_forward_pass(job, passes, tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("FSD_CACHE", str(tmp_path / "kept"))
    config = StudyConfig(
        "fsd-fig2", model=(job.model.model,), data=(str(tmp_path / "data.jsonl"),), training=job.training
    )
    study(config).run()
    assert passes
    passes.clear()
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")  # where no cell is finished
    study(config).run()
    assert passes == []


def test_an_unusable_folder_costs_one_line_and_a_forward_pass(tiny, tmp_path, passes, capsys) -> None:
    (tmp_path / "file").touch()
    scorers = build_scorers(load(str(tiny), device="cpu"), ModelConfig(model=str(tiny), cache=f"{tmp_path}/file/cache"))
    for _ in range(2):
        list(scorers["base"]([Prompt("a member")]))
    told = [line for line in capsys.readouterr().err.splitlines() if "cache:" in line]
    assert len(told) == 1
    assert "nothing more is stored, because" in told[0]
    assert passes == [1, 1]


def test_the_folder_is_the_named_one_or_that_of_the_environment(tiny, tmp_path, monkeypatch) -> None:
    model = load(str(tiny), device="cpu")
    monkeypatch.setenv("FSD_CACHE", str(tmp_path / "environment"))
    for cache, place in ((None, "environment"), (str(tmp_path / "named"), "named"), ("none", None)):
        before = set(tmp_path.iterdir())
        list(build_scorers(model, ModelConfig(model=str(tiny), cache=cache))["base"]([Prompt("a member")]))
        assert {path.name for path in set(tmp_path.iterdir()) - before} == ({place} if place else set())


def test_a_reference_model_is_kept_under_its_own_weights(tiny, other, passes, tmp_path) -> None:
    model = load(str(tiny), device="cpu")
    for reference, expected in ((str(other), 1), (str(other), 0), (str(tiny), 1)):
        config = ModelConfig(model=str(tiny), reference_model=reference, cache=str(tmp_path / "kept"), device="cpu")
        passes.clear()
        list(build_scorers(model, config)["reference"]([Prompt("a member")]))
        assert len(passes) == expected


def test_a_model_without_a_fingerprint_is_computed_every_time(tiny, passes, tmp_path) -> None:
    model: LanguageModel = load(str(tiny), device="cpu")
    model.identity = replace(model.identity, fingerprint="")
    config = ModelConfig(model=str(tiny), cache=str(tmp_path / "kept"))
    for _ in range(2):
        list(build_scorers(model, config)["base"]([Prompt("a member")]))
    assert len(passes) == 2


def test_numbers_from_the_cache_are_those_of_the_engine(tiny, tmp_path) -> None:
    model = load(str(tiny), device="cpu")
    prompts = [Prompt("a member"), Prompt("unseen text", "a member"), Prompt("x")]
    plain = list(ModelScorer(model)(prompts))
    config = ModelConfig(model=str(tiny), cache=str(tmp_path / "kept"))
    for _ in range(2):
        for one, other in zip(build_scorers(model, config)["base"](prompts), plain, strict=True):
            for name in ("token", "logp", "mean", "std"):
                assert np.array_equal(getattr(one, name), getattr(other, name))


SLOW_JOB = """
import sys, time
from pathlib import Path
from fsd.scoring import cache
from fsd.config import ModelConfig
from fsd.models.language_model import load
from fsd.scoring import model_scorer as scoring
from fsd.token_stats import Prompt
from fsd.scoring.model import build_scorers
cache.SECONDS, scoring.ModelScorer.batches_per_round, scoring.BATCH_TOKENS["cpu"] = 0, 1, 40
prompts = [Prompt(f"the text {i}") for i in range(60)]
model = load(sys.argv[1], device="cpu")
forward, left, made = scoring.ModelScorer._forward, int(sys.argv[2]), []
def counting(self, *args):
    if len(made) == left:
        print("stuck", flush=True)
        time.sleep(60)
    made.append(len(args[2]))
    return forward(self, *args)
scoring.ModelScorer._forward = counting
stats = list(build_scorers(model, ModelConfig(model=sys.argv[1], cache=sys.argv[3]))["base"](prompts))
print(sum(made), len(stats), flush=True)
"""


@pytest.mark.slow
def test_a_killed_run_computes_only_what_is_missing_when_started_again(tiny, tmp_path, root) -> None:
    def start(passes: int) -> subprocess.Popen:
        arguments = [sys.executable, "-c", SLOW_JOB, str(tiny), str(passes), str(tmp_path / "kept")]
        return subprocess.Popen(arguments, cwd=root, stdout=subprocess.PIPE, text=True, env=dict(os.environ))

    with start(5) as process:
        assert process.stdout.readline() == "stuck\n"
        process.send_signal(signal.SIGKILL)
    begun = time.monotonic()
    made, texts = map(int, start(-1).communicate()[0].split())
    assert time.monotonic() - begun < 60
    assert texts == 60
    assert 0 < made < 60
    again, _ = map(int, start(-1).communicate()[0].split())
    assert again == 0
