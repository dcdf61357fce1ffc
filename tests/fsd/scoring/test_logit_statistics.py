"""Statistics of logits by torch and by the kernel: by hand, in float64, in chunks, and the choice between the two.

Triton's interpreter runs the kernel on a CPU, see tests/conftest.py; its compiler is tested too.
"""

import math
import os
import subprocess
import sys
import warnings
from typing import Any

import numpy as np
import pytest
import torch

from fsd.models.language_model import load
from fsd.scoring import model_scorer
from fsd.scoring.model_scorer import ModelScorer, Reduction, statistics_for, token_statistics
from fsd.token_stats import STD_FLOOR, Prompt

LN2 = math.log(2)


def kernel():
    return pytest.importorskip("fsd.scoring.triton_kernel", reason="Triton is not installed", exc_type=ImportError)


@pytest.fixture(autouse=True)
def _numpy_warns():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # the interpreter is numpy: −∞ − 0, log2 of NaN
        yield


@pytest.fixture(params=["torch", "kernel"])
def compute(request):
    """Logits, which are kept, and targets → float64 statistics."""
    function = token_statistics if request.param == "torch" else kernel().token_statistics
    return lambda logits, target: function(logits.clone(), target).double()


def slow(logits, target):
    """Float64, by the definition of expectation and variance."""
    logp = logits.double().log_softmax(-1)
    p = logp.exp()
    mean = torch.where(p > 0, p * logp, 0.0).sum(-1)
    std = torch.where(p > 0, p * (logp - mean[:, None]).square(), 0.0).sum(-1).sqrt()
    return torch.stack([logp.gather(-1, target[:, None])[:, 0], mean, std.clamp_min(STD_FLOOR), logp.amax(-1)])


def random_logits(*shape):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(0))


def test_by_hand(compute):
    # p = 1/2, 1/4, 1/8, 1/8: E[log p] = -(1/2 + 2/4 + 3/8 + 3/8) ln 2 = -1.75 ln 2, and
    # E[(log2 p)^2] = 1/2 + 4/4 + 9/8 + 9/8 = 3.75, so that the variance is 3.75 - 3.0625 = 0.6875 (ln 2)^2.
    logits = torch.tensor([[1 / 2, 1 / 4, 1 / 8, 1 / 8]]).log() + 7.0
    got = compute(logits, torch.tensor([1]))[:, 0].tolist()
    assert got == pytest.approx((-2 * LN2, -1.75 * LN2, math.sqrt(0.6875) * LN2, -LN2), rel=1e-6)


def test_all_alike_and_certain(compute):
    alike = compute(torch.full((1, 5000), 3.0), torch.tensor([4]))[:, 0].tolist()
    assert alike == pytest.approx([-math.log(5000), -math.log(5000), STD_FLOOR, -math.log(5000)], abs=1e-4)
    certain = torch.zeros(1, 5000)
    certain[0, 4500] = 1e4
    assert compute(certain, torch.tensor([4500]))[:, 0].tolist() == pytest.approx((0, 0, STD_FLOOR, 0), abs=1e-8)


def test_float64_at_any_offset_and_spread(compute):
    target = torch.randint(5000, (16,), generator=torch.Generator().manual_seed(0))
    for offset in (-1000.0, 0.0, 1000.0):
        for spread in (0.1, 3.0, 30.0):
            logits = (random_logits(16, 5000) * spread + offset).float()
            limit = 2e-5 if spread > 3 else 5e-6
            assert torch.allclose(compute(logits, target), slow(logits, target), rtol=2e-6, atol=limit)


@pytest.mark.parametrize("vocabulary", [5, *(pytest.param(n, marks=pytest.mark.slow) for n in (1, 4096, 4097, 50304))])
def test_float64_for_any_type_and_order(compute, vocabulary):
    """A rising row moves the largest logit in every block of the kernel, a falling one never."""
    target = torch.tensor([0, vocabulary // 2, vocabulary - 1])
    logits = 4 * random_logits(3, vocabulary)
    for order in (logits, logits.sort(-1).values, logits.sort(-1, descending=True).values):
        for dtype in (torch.float32, torch.bfloat16, torch.float16):
            rows = order.to(dtype)
            assert torch.allclose(compute(rows, target), slow(rows, target), rtol=0, atol=5e-6)


def test_tokens_of_probability_zero(compute):
    logits = 5 * random_logits(3, 9000)
    logits[0, 4096:] = -torch.inf
    logits[1, :5000] = -torch.inf  # a whole block, the first
    logits[2, 1::2] = -torch.inf
    target = torch.tensor([5, 6000, 8])
    assert torch.allclose(compute(logits, target), slow(logits, target), rtol=0, atol=5e-6)
    assert compute(logits, torch.tensor([5000, 6000, 8]))[0, 0] == -torch.inf


def test_what_is_no_number_is_not_hidden():
    for bad, place in ((torch.nan, 0), (torch.nan, 4999), (torch.inf, 0), (torch.inf, 4999)):
        logits = random_logits(2, 5000)
        logits[1, place] = bad
        got = kernel().token_statistics(logits, torch.tensor([7, 7]))
        assert got[:, 0].isfinite().all()
        assert not got[:, 1].isfinite().any()


def test_the_kernel_keeps_the_logits_whose_rows_may_have_a_stride():
    wide = random_logits(4, 900)
    kept, part, target = wide.clone(), wide[::2, :700], torch.tensor([3, 699])
    assert torch.allclose(kernel().token_statistics(part, target).double(), slow(part, target), rtol=0, atol=5e-6)
    assert torch.equal(wide, kept)
    with pytest.raises(ValueError, match="got a stride of 900"):
        kernel().token_statistics(wide.t(), torch.tensor([0]))


def test_chunks_of_any_size_give_the_same_statistics(monkeypatch):
    head = torch.nn.Linear(8, 300, bias=False)
    states, target = torch.randn(23, 8), torch.randint(300, (23,))
    with torch.inference_mode():
        expected = Reduction(head)(states, target)
        monkeypatch.setitem(model_scorer.CHUNK_BYTES, "cpu", 5 * 4 * 300)
        monkeypatch.setitem(model_scorer.BLOCK_BYTES, "cpu", 2 * 4 * 300)
        assert torch.allclose(Reduction(head)(states, target), expected, atol=5e-6)
        assert torch.allclose(Reduction(None)(head(states), target), expected, atol=5e-6)


# The choice


class FakeGPU:
    """A device of type cuda."""

    type = "cuda"


def test_the_kernel_is_used_on_a_gpu_if_it_agrees_with_torch(monkeypatch, capsys):
    triton_kernel = kernel()
    real, to, outcome = triton_kernel.token_statistics, torch.Tensor.to, None

    def compared(logits, target):
        if isinstance(outcome, Exception):
            raise outcome
        return real(logits, target) + (outcome or 0.0)

    def chosen():
        statistics_for.cache_clear()
        device: Any = FakeGPU()
        return [statistics_for(device, torch.bfloat16, 300) for _ in range(2)][1]

    assert statistics_for(torch.device("cpu"), torch.float32, 300) is token_statistics
    here = lambda tensor, *place: to(tensor, *(of for of in place if not isinstance(of, FakeGPU)), copy=True)  # noqa: E731
    monkeypatch.setattr(torch.Tensor, "to", here)
    monkeypatch.setattr(triton_kernel, "token_statistics", compared)
    assert chosen() is compared
    assert capsys.readouterr().err == ""
    for fault, reason in ((0.5, "its numbers differ by 5.0e-01 nats"), (RuntimeError("no cc\nand more"), "no cc")):
        outcome = fault
        assert chosen() is token_statistics
        line = f"token statistics are computed by torch, without the Triton kernel: {reason}\n"
        assert capsys.readouterr().err == line
    outcome = torch.OutOfMemoryError("full")
    with pytest.raises(torch.OutOfMemoryError):
        chosen()
    statistics_for.cache_clear()


@pytest.mark.parametrize(("dtype", "split"), [("float32", True), ("bfloat16", False)])
def test_scores_with_the_kernel_are_the_same(tiny, monkeypatch, dtype, split):
    triton_kernel = kernel()
    model = load(str(tiny), device="cpu", dtype=dtype)
    model.split_head = split
    prompts = [Prompt("the score of an unseen text moves more than the score of a member"), Prompt("x")]
    expected = list(ModelScorer(model)(prompts))
    monkeypatch.setattr(model_scorer, "statistics_for", lambda *_: triton_kernel.token_statistics)
    for got, other in zip(ModelScorer(model)(prompts), expected, strict=True):
        for column in ("logp", "mean", "std", "top"):
            np.testing.assert_allclose(getattr(got, column), getattr(other, column), atol=5e-6)


COMPILE = """
import re, sys, triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from fsd.scoring import triton_kernel

warps, threads = 8, 256
CONSTANTS = ("width", "reference_width", "block")
for capability in (80, 90):
    for dtype, size in (("bf16", 2), ("fp16", 2), ("fp32", 4)):
        signature = {"logits": f"*{dtype}", "target": "*i64", "out": "*fp32", "rows": "i32", "stride": "i32"}
        source = ASTSource(
            fn=triton_kernel._kernel,
            signature=signature | {"width": "constexpr", "block": "constexpr"},
            constexprs={"width": 50304, "block": triton_kernel.BLOCK},
            attrs={(at,): [["tt.divisibility", 16]] for at in (0, 4)},
        )
        built = triton.compile(source, target=GPUTarget("cuda", capability, 32), options={"num_warps": warps})
        assert built.asm["cubin"]
        ptx = built.asm["ptx"]
        assert len(re.findall(r"ex2[.]approx", ptx)) == triton_kernel.BLOCK // threads + 1, "one exponential a logit"
        loads = len(re.findall(r"ld[.]global[.\\w]*v4", ptx))
        assert loads >= triton_kernel.BLOCK // threads * size // 16, "16 bytes at once"
        print("compiled", capability, dtype)
        both = {"logits": f"*{dtype}", "reference": f"*{dtype}", "out": "*fp32", "rows": "i32", "stride": "i32"}
        source = ASTSource(
            fn=triton_kernel._pair_kernel,
            signature=both | {"reference_stride": "i32"} | dict.fromkeys(CONSTANTS, "constexpr"),
            constexprs={"width": 50304, "reference_width": 50432, "block": triton_kernel.BLOCK},
            attrs={(at,): [["tt.divisibility", 16]] for at in (0, 1, 4, 5)},
        )
        built = triton.compile(source, target=GPUTarget("cuda", capability, 32), options={"num_warps": warps})
        assert built.asm["cubin"]
        count = len(re.findall(r"ex2[.]approx", built.asm["ptx"]))
        assert count == 2 * triton_kernel.BLOCK // threads, "one exponential a logit"
        print("compiled both", capability, dtype)
"""


@pytest.mark.slow
def test_compiles_for_cards_with_one_exponential_a_logit(tmp_path):
    kernel()
    done = subprocess.run(
        [sys.executable, "-c", COMPILE],
        env=os.environ | {"TRITON_INTERPRET": "0", "TRITON_CACHE_DIR": str(tmp_path)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("compiled") == 2 * 6
