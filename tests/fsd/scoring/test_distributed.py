"""Two processes read together what one reads alone, bitwise, and end together when one of them cannot go on."""

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from fsd import distributed as processes

READ = """
import os, sys
import numpy as np
import torch
from fsd.scoring import distributed as dividing
from fsd import distributed as processes
from fsd.scoring import model_scorer as scoring
from fsd.scoring.distributed import Divided
from fsd.models.language_model import load
from fsd.scoring.model_scorer import ModelScorer
from fsd.token_stats import Prompt

dividing.ROUND = 2
model, team = load(sys.argv[1], device="cpu"), processes.team()
scorer = Divided("base", lambda: ModelScorer(model, max_batch_tokens=48), team)
prompts = [Prompt("the text " * (1 + i % 7) + str(i), "a member" * (i % 3)) for i in range(40)] + [Prompt("x")] * 2
assert processes.from_main(lambda: ("made", team.rank)) == ("made", 0)
forward, made = ModelScorer._forward, []

def counting(self, network, reduction, batch, ids):
    made.append(len(batch))
    if sys.argv[2] == "memory" and team.rank == 1 and len(batch) > 2:
        raise torch.OutOfMemoryError("out of memory")
    return forward(self, network, reduction, batch, ids)

ModelScorer._forward = counting
if not team.main:
    team.serve({"base": scorer})
    assert made
else:
    with team.leading():
        first, second = list(scorer(prompts)), list(scorer(prompts))
        lonely = list(scorer([Prompt("x")]))
        assert list(scorer([])) == []
    shared = sum(made)
    made.clear()
    alone = list(ModelScorer(model, max_batch_tokens=48)(prompts))
    assert [stats.text for stats in first] == [prompt.text for prompt in prompts]
    for one, two, other in zip(first, second, alone, strict=True):
        for name in ("token", "logp", "mean", "std"):
            for some in (one, two):
                given, expected = getattr(some, name), getattr(other, name)
                if sys.argv[2] == "bitwise":
                    assert np.array_equal(given, expected), name
                np.testing.assert_allclose(given, expected, atol=5e-6)
    print("read", shared, sum(made))
team.close()
"""

FAIL = """
import sys
from dataclasses import dataclass
from fsd import distributed as processes
from fsd.errors import UsageError
from pipelines.common.cli import command

@dataclass(frozen=True)
class Nothing:
    "Nothing."

def main(_):
    team = processes.team()
    if sys.argv_kept == str(team.rank) or sys.argv_kept == "both":
        raise UsageError("a process must be able to go on; it is not")
    team.receive("what never comes")

sys.argv_kept = sys.argv.pop()
command(Nothing, main, "", parallel=sys.argv_kept != "refused")
"""


def torchrun(code: str, folder: Path, *arguments: str, root: Path) -> subprocess.CompletedProcess[str]:
    file = folder / "job.py"
    file.write_text(code)
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node", "2"]
    return subprocess.run(
        [*command, str(file), *arguments],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(root)},
        timeout=120,
        check=False,
    )


@pytest.mark.slow
@pytest.mark.parametrize("how", ["bitwise", "memory"])
def test_two_processes_read_what_one_reads(tiny: Path, tmp_path: Path, root: Path, how: str) -> None:
    done = torchrun(READ, tmp_path, str(tiny), how, root=root)

    assert done.returncode == 0, done.stderr
    word, shared, alone = done.stdout.split()
    assert word == "read"
    assert int(shared) < 1.5 * int(alone)  # twice as much was read, by two


@pytest.mark.slow
@pytest.mark.parametrize("who", ["0", "1", "both", "refused"])
def test_an_error_in_any_process_is_one_line_and_ends_all_with_2(tmp_path: Path, root: Path, who: str) -> None:
    done = torchrun(FAIL, tmp_path, who, root=root)

    told = [line for line in done.stderr.splitlines() if line.startswith("error:")]
    expected = "this pipeline must run as one process; got 2" if who == "refused" else "a process must be able to go on"
    assert len(told) == 1
    assert expected in told[0]
    ends = re.findall(r"exitcode  : (-?\d+) ", done.stderr)
    assert "2" in ends, done.stderr
    assert set(ends) <= {"2", str(-signal.SIGTERM)}, done.stderr  # the launcher may stop the other one first


def test_alone_there_is_no_team(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("WORLD_SIZE", raising=False)
    assert processes.size() == 1
    assert processes.is_main()
    assert processes.team() is None
    assert processes.from_main(lambda: 3) == 3
