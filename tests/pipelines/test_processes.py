"""The main job in two processes: the scores of one, one tracked run, one table."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

FLAGS = (
    "--domain arxiv --data data.jsonl --device cpu --dropout 0 --batch-size 6 --epochs 1 --placebo none --cache cache "
    "--detectors loss,min_k_pp,min_k_deviation,lowercase,neighbour --neighbour-model words --unseen 0.4 "
    "--audit-repeats 1"
)


def single(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    command = [sys.executable, *arguments]
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, env=environment, timeout=240, check=False)


@pytest.mark.slow
def test_two_processes_give_the_scores_of_one(tiny, tmp_path, torchrun, make_rows) -> None:
    rows = make_rows(40, seed=5)
    tables: list[pd.DataFrame] = []
    for name, launch in (("one", single), ("two", torchrun)):
        folder = tmp_path / name
        folder.mkdir()
        short = [{**row, "text": " ".join(row["text"].split()[-6:])} for row in rows]  # one piece of 48 tokens each
        (folder / "data.jsonl").write_text("".join(json.dumps(row) + "\n" for row in short))
        done = launch("-m", "pipelines.fsd", "--model", str(tiny), *FLAGS.split(), cwd=folder)
        assert done.returncode == 0, done.stderr
        assert done.stdout.count("FSD AUC") == 1
        unseen = next(folder.glob("mlruns/**/unseen.jsonl")).read_text().splitlines()
        assert len(unseen) % 6 == 2  # the last batch of the second process is empty
        files = list(folder.glob("mlruns/**/scores.parquet"))
        assert len(files) == 1  # one process alone has tracked
        tables.append(pd.read_parquet(files[0]))
    one, two = tables
    assert (one["text"] == two["text"]).all()
    for column in one.columns[5:]:
        if column.endswith(".base"):
            assert np.array_equal(one[column], two[column]), column
        np.testing.assert_allclose(two[column], one[column], atol=1e-5, rtol=1e-4, err_msg=column)
