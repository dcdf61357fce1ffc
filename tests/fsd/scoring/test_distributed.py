"""Two processes compute together, bitwise, the statistics of a single process, with and without a cache."""

import pytest

SCORE = """
import os, sys
import numpy as np
import torch
from fsd import distributed
from fsd.models.language_model import load
from fsd.scoring.cache import MemoizedScorer
from fsd.scoring.model_scorer import DistributedScorer, collective
from fsd.scoring.model_scorer import ModelScorer
from fsd.token_stats import Prompt

model_folder, mode = sys.argv[1:]
model, rank = load(model_folder, device="cpu"), distributed.process_index()
DistributedScorer.batches_per_round = 4
model_scorer = DistributedScorer(model, max_batch_tokens=48)
scorer = collective(model_scorer, model_scorer)
prompts = [Prompt("the text " * (1 + i % 7) + str(i), "a member" * (i % 3)) for i in range(40)] + [Prompt("x")] * 2
assert distributed.from_main(lambda: ("made", rank)) == ("made", 0)
assert distributed.gather(rank) == [0, 1]
forward, computed = ModelScorer._forward, []

def counting(self, network, batch, ids):
    computed.append(len(batch))
    if mode == "memory" and rank == 1 and len(batch) > 2:
        raise torch.OutOfMemoryError("out of memory")
    return forward(self, network, batch, ids)

ModelScorer._forward = counting
first = list(scorer(prompts))
passes = len(computed)
second = list(scorer(prompts if rank == 0 else []))
single = list(scorer([Prompt("x")]))
assert list(scorer([])) == []
if mode == "bitwise":
    cached = MemoizedScorer(model_scorer) if rank == 0 else None
    for _ in range(2):
        computed.clear()
        third = list(collective(cached, model_scorer)(prompts))
        assert [one.logp.tolist() for one in third] == [one.logp.tolist() for one in first]
    assert not computed
computed.clear()
alone = list(ModelScorer(model, max_batch_tokens=48)(prompts))
assert 0 < passes < (1 if mode == "bitwise" else 1.5) * len(computed)
assert [stats.text for stats in first] == [prompt.text for prompt in prompts]
for one, two, expected in zip(first, second, alone, strict=True):
    for name in ("token", "logp", "mean", "std"):
        for stats in (one, two):
            if mode == "bitwise":
                assert np.array_equal(getattr(stats, name), getattr(expected, name)), name
            np.testing.assert_allclose(getattr(stats, name), getattr(expected, name), atol=5e-6)
print("same", end=" ")
distributed.leave()
"""


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["bitwise", "memory"])
def test_two_processes_compute_the_statistics_of_one(tiny, tmp_path, torchrun, mode):
    (tmp_path / "job.py").write_text(SCORE)
    job = torchrun("job.py", str(tiny), mode, cwd=tmp_path)
    assert job.returncode == 0, job.stderr
    assert "".join(job.stdout.split()) == "samesame"  # both print, perhaps at once
