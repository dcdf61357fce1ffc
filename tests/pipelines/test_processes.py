"""The main job in two processes: the scores of one, one tracked run, one table."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

FLAGS = (
    "--domain arxiv --data data.jsonl --device cpu --dropout 0 --batch-size 6 --epochs 1 --placebo none --cache none "
    "--detectors loss,min_k_pp,min_k_deviation,lowercase --neighbour-model words --unseen 0.4"
)


def run(folder: Path, root: Path, *launcher: str, model: Path, flags: str = FLAGS) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *launcher, "-m", "pipelines.fsd", "--model", str(model), *flags.split()],
        cwd=folder,
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(root)},
        timeout=200,
        check=False,
    )


def scores(folder: Path) -> pd.DataFrame:
    files = list(folder.glob("mlruns/**/scores.parquet"))
    assert len(files) == 1  # one process alone has tracked
    return pd.read_parquet(files[0])


@pytest.mark.slow
def test_two_processes_give_the_scores_of_one(tiny: Path, tmp_path: Path, root: Path, make_rows: Callable) -> None:
    tables = []
    for name, launcher in (
        ("one", ()),
        ("two", ("-m", "torch.distributed.run", "--standalone", "--nproc_per_node", "2")),
    ):
        folder = tmp_path / name
        folder.mkdir()
        rows = make_rows(40, seed=5)
        short = [{**row, "text": " ".join(row["text"].split()[-6:])} for row in rows]  # one piece of 48 tokens each
        (folder / "data.jsonl").write_text("".join(json.dumps(row) + "\n" for row in short))
        done = run(folder, root, *launcher, model=tiny)
        assert done.returncode == 0, done.stderr
        assert done.stdout.count("FSD AUC") == 1
        unseen = next(folder.glob("mlruns/**/unseen.jsonl")).read_text().splitlines()
        assert len(unseen) % 6 == 2  # the last batch of the second process is empty
        tables.append(scores(folder))

    one, two = tables
    assert (one["text"] == two["text"]).all()
    for column in one.columns[5:]:
        if column.endswith(".base"):
            assert np.array_equal(one[column], two[column]), column
        np.testing.assert_allclose(two[column], one[column], atol=1e-5, rtol=1e-4, err_msg=column)
