"""The kernel by Triton's interpreter, which runs it on a CPU (see tests/conftest.py), and by its compiler."""

import os
import subprocess
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from fsd.scoring.logit_statistics import token_statistics as by_torch
from fsd.token_stats import STD_FLOOR

triton_kernel = pytest.importorskip("fsd.scoring.triton_kernel", reason="Triton is not installed", exc_type=ImportError)


@pytest.fixture(autouse=True)
def _numpy_warns() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # the interpreter is numpy: −∞ − 0, log2 of NaN
        yield


def slow(logits: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    """Float64, by the definition of expectation and variance."""
    logp = logits.double().log_softmax(-1)
    p = logp.exp()
    mean = torch.where(p > 0, p * logp, 0.0).sum(-1)
    std = torch.where(p > 0, p * (logp - mean[:, None]).square(), 0.0).sum(-1).sqrt()
    return torch.stack([logp.gather(-1, target[:, None])[:, 0], mean, std.clamp_min(STD_FLOOR)])


def test_hand_computed() -> None:
    logits = torch.tensor([[0.5, 0.25, 0.25]]).log()
    logp, mean, std = triton_kernel.token_statistics(logits, torch.tensor([1]))[:, 0].tolist()
    ln2 = 0.6931471805599453
    assert logp == pytest.approx(-2 * ln2, abs=1e-6)
    assert mean == pytest.approx(-1.5 * ln2, abs=1e-6)
    assert std == pytest.approx(0.5 * ln2, abs=1e-6)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("vocabulary", [5, *(pytest.param(n, marks=pytest.mark.slow) for n in (1, 4096, 4097, 50304))])
@pytest.mark.parametrize("order", ["as they come", "rising", "falling"])
def test_agrees_with_definition_and_with_torch(dtype: torch.dtype, vocabulary: int, order: str) -> None:
    """A rising row moves the largest logit in every block, a falling one never."""
    generator = torch.Generator().manual_seed(vocabulary)
    logits = 4 * torch.randn(3, vocabulary, generator=generator)
    if order != "as they come":
        logits = logits.sort(-1, descending=order == "falling").values
    logits = logits.to(dtype)
    target = torch.tensor([0, vocabulary // 2, vocabulary - 1])
    got = triton_kernel.token_statistics(logits, target).double()
    assert torch.allclose(got, slow(logits, target), rtol=0, atol=5e-6)
    assert torch.allclose(got, by_torch(logits.float().clone(), target).double(), rtol=0, atol=1e-5)


def test_logits_are_unchanged_and_rows_may_have_a_stride() -> None:
    wide = torch.randn(4, 900)
    kept = wide.clone()
    part, target = wide[::2, :700], torch.tensor([3, 699])
    assert torch.allclose(triton_kernel.token_statistics(part, target).double(), slow(part, target), rtol=0, atol=5e-6)
    assert torch.equal(wide, kept)
    with pytest.raises(ValueError, match="got a stride of 900"):
        triton_kernel.token_statistics(wide.t(), torch.tensor([0]))


def test_shift_changes_nothing() -> None:
    logits, target = torch.randn(2, 6000), torch.tensor([1, 5999])
    one, other = (triton_kernel.token_statistics(logits + shift, target) for shift in (0, 64))
    assert torch.allclose(one, other, rtol=0, atol=2e-5)


def test_tokens_of_probability_zero() -> None:
    logits = 5 * torch.randn(3, 9000)
    logits[0, 4096:] = -torch.inf
    logits[1, :5000] = -torch.inf  # a whole block, the first
    logits[2, 1::2] = -torch.inf
    target = torch.tensor([5, 6000, 8])
    got = triton_kernel.token_statistics(logits, target).double()
    assert torch.allclose(got, slow(logits, target), rtol=0, atol=5e-6)
    assert torch.allclose(got, by_torch(logits.clone(), target).double(), rtol=0, atol=1e-5)
    assert triton_kernel.token_statistics(logits, torch.tensor([5000, 6000, 8]))[0, 0] == -torch.inf


def test_all_alike_and_certain() -> None:
    alike = triton_kernel.token_statistics(torch.full((1, 5000), 3.0), torch.tensor([4]))[:, 0].double()
    assert torch.allclose(alike, torch.tensor([-8.517193191416238, -8.517193191416238, STD_FLOOR]).double(), atol=1e-4)
    certain = torch.zeros(1, 5000)
    certain[0, 4500] = 1e4
    logp, mean, std = triton_kernel.token_statistics(certain, torch.tensor([4500]))[:, 0].tolist()
    assert (logp, mean, std) == (0.0, 0.0, pytest.approx(STD_FLOOR))


@pytest.mark.parametrize("bad", [torch.nan, torch.inf])
@pytest.mark.parametrize("place", [0, 4999])
def test_what_is_no_number_is_not_hidden(bad: float, place: int) -> None:
    logits = torch.randn(2, 5000)
    logits[1, place] = bad
    got = triton_kernel.token_statistics(logits, torch.tensor([7, 7]))
    assert got[:, 0].isfinite().all()
    assert not got[:, 1].isfinite().any()


COMPILE = """
import re, sys, triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from fsd.scoring import triton_kernel

warps, threads = 8, 256
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
"""


@pytest.mark.slow
def test_compiles_for_cards_with_one_exponential_a_logit(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", COMPILE],
        env=os.environ | {"TRITON_INTERPRET": "0", "TRITON_CACHE_DIR": str(tmp_path)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("compiled") == 6
