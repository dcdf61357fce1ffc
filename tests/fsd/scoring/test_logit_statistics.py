"""Statistics of logits by hand and in float64, in chunks, and the choice between kernel and torch."""

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from fsd.models.language_model import load
from fsd.scoring import logit_statistics
from fsd.scoring.logit_statistics import Reduction, statistics_for, token_statistics
from fsd.scoring.model_scorer import ModelScorer
from fsd.token_stats import STD_FLOOR, Prompt

TEXTS = ["the score of an unseen text moves more than the score of a member", "a member", "x"]


def test_statistics_of_four_logits_by_hand() -> None:
    # p = 1/2, 1/4, 1/8, 1/8: E[log p] = -(1/2 + 2/4 + 3/8 + 3/8) ln 2 = -1.75 ln 2, and
    # E[(log2 p)^2] = 1/2 + 4/4 + 9/8 + 9/8 = 3.75, so that the variance is 3.75 - 3.0625 = 0.6875 (ln 2)^2.
    logits = torch.tensor([[1 / 2, 1 / 4, 1 / 8, 1 / 8]]).log() + 7.0
    logp, mean, std = token_statistics(logits, torch.tensor([1]))[:, 0].tolist()
    ln2 = math.log(2)
    assert (logp, mean, std) == pytest.approx((-2 * ln2, -1.75 * ln2, math.sqrt(0.6875) * ln2), rel=1e-6)


def test_uniform_logits_have_no_deviation_but_a_floor() -> None:
    logp, mean, std = token_statistics(torch.full((1, 5), 3.0), torch.tensor([4]))[:, 0].tolist()
    assert (logp, mean) == pytest.approx((-math.log(5), -math.log(5)), rel=1e-6)
    assert std == pytest.approx(STD_FLOOR)


@pytest.mark.parametrize("offset", [-1000.0, 0.0, 1000.0])
@pytest.mark.parametrize("spread", [0.1, 3.0, 30.0])
def test_statistics_equal_float64_at_any_offset_and_spread(offset: float, spread: float) -> None:
    generator = torch.Generator().manual_seed(0)
    logits = (torch.randn(16, 5000, generator=generator) * spread + offset).float()
    target = torch.randint(5000, (16,), generator=generator)
    log = logits.double().log_softmax(-1)
    mean = (log.exp() * log).sum(-1)
    std = (log.exp() * (log - mean[:, None]) ** 2).sum(-1).sqrt()
    expected = torch.stack([log[torch.arange(16), target], mean, std])
    got = token_statistics(logits.clone(), target).double()
    assert torch.allclose(got, expected, rtol=2e-6, atol=2e-5 if spread > 3 else 2e-6)


def test_half_precision_logits_are_reduced_in_float32() -> None:
    logits = torch.randn(4, 5000, generator=torch.Generator().manual_seed(0)).bfloat16()
    target = torch.arange(4)
    assert torch.equal(token_statistics(logits, target), token_statistics(logits.float(), target))


def test_a_token_of_probability_zero_adds_nothing() -> None:
    logits = torch.randn(2, 300, generator=torch.Generator().manual_seed(0))
    barred = torch.cat([logits, torch.full((2, 40), -torch.inf)], dim=1)
    target = torch.tensor([4, 299])
    expected = token_statistics(logits, target)
    assert torch.allclose(token_statistics(barred.clone(), target), expected, atol=1e-6)
    assert token_statistics(barred, torch.tensor([310, 4]))[0, 0] == -torch.inf


def test_chunks_of_any_size_give_the_same_statistics(monkeypatch: pytest.MonkeyPatch) -> None:
    head = torch.nn.Linear(8, 300, bias=False)
    states, target = torch.randn(23, 8), torch.randint(300, (23,))
    with torch.inference_mode():
        expected = Reduction(head)(states, target)
        monkeypatch.setitem(logit_statistics.CHUNK_BYTES, "cpu", 5 * 4 * 300)
        monkeypatch.setitem(logit_statistics.BLOCK_BYTES, "cpu", 2 * 4 * 300)
        assert torch.allclose(Reduction(head)(states, target), expected, atol=5e-6)
        assert torch.allclose(Reduction(None)(head(states), target), expected, atol=5e-6)


def imported_kernel() -> Any:
    return pytest.importorskip("fsd.scoring.triton_kernel", reason="Triton is not installed", exc_type=ImportError)


class FakeGPU:
    """A device of type cuda."""

    type = "cuda"


@pytest.fixture
def _uncached() -> Iterator[None]:
    statistics_for.cache_clear()
    yield
    statistics_for.cache_clear()


def test_a_cpu_needs_no_kernel() -> None:
    assert statistics_for(torch.device("cpu"), torch.float32, 300) is token_statistics


@pytest.mark.usefixtures("_uncached")
def test_a_gpu_uses_the_kernel_if_it_agrees_with_torch(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    triton_kernel = imported_kernel()
    assert logit_statistics._disagreement(torch.device("cpu"), torch.bfloat16, 300) == ""
    monkeypatch.setattr(logit_statistics, "_disagreement", lambda *_: "")
    assert statistics_for(FakeGPU(), torch.bfloat16, 300) is triton_kernel.token_statistics  # type: ignore[arg-type]
    assert capsys.readouterr().err == ""


@pytest.mark.usefixtures("_uncached")
def test_a_kernel_that_fails_is_replaced_with_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("triton", reason="Triton is not installed")

    def fails(*_: object) -> str:
        raise RuntimeError("no C compiler\nand more")

    monkeypatch.setattr(logit_statistics, "_disagreement", fails)
    device = FakeGPU()
    for _ in range(2):
        assert statistics_for(device, torch.bfloat16, 300) is token_statistics  # type: ignore[arg-type]
    assert capsys.readouterr().err == (
        "token statistics are computed by torch, without the Triton kernel: no C compiler\n"
    )


@pytest.mark.usefixtures("_uncached")
def test_a_kernel_with_other_numbers_is_not_used(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    triton_kernel = imported_kernel()
    monkeypatch.setattr(triton_kernel, "token_statistics", lambda logits, _: torch.zeros(3, len(logits)))
    difference = logit_statistics._disagreement(torch.device("cpu"), torch.float32, 300)
    assert difference.startswith("its numbers differ by ")
    monkeypatch.setattr(logit_statistics, "_disagreement", lambda *_: difference)
    assert statistics_for(FakeGPU(), torch.float32, 300) is token_statistics  # type: ignore[arg-type]
    assert difference in capsys.readouterr().err


@pytest.mark.usefixtures("_uncached")
def test_running_out_of_memory_in_the_comparison_is_passed_on(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("triton", reason="Triton is not installed")

    def full(*_: object) -> str:
        raise torch.OutOfMemoryError("full")

    monkeypatch.setattr(logit_statistics, "_disagreement", full)
    with pytest.raises(torch.OutOfMemoryError):
        statistics_for(FakeGPU(), torch.float32, 300)  # type: ignore[arg-type]


@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # the interpreter is numpy
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("split", [True, False])
def test_scores_with_the_kernel_are_the_same(
    tiny: Path, monkeypatch: pytest.MonkeyPatch, dtype: str, split: bool
) -> None:
    triton_kernel = imported_kernel()
    model = load(str(tiny), device="cpu", dtype=dtype)
    model.split_head = split
    prompts = [Prompt(text) for text in TEXTS]
    expected = list(ModelScorer(model)(prompts))
    monkeypatch.setattr(logit_statistics, "statistics_for", lambda *_: triton_kernel.token_statistics)
    for got, other in zip(ModelScorer(model)(prompts), expected, strict=True):
        for column in ("logp", "mean", "std"):
            np.testing.assert_allclose(getattr(got, column), getattr(other, column), atol=5e-6)
