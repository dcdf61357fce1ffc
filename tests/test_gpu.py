"""What only a GPU can show, by hand where torch can use one: `python -m pytest tests/test_gpu.py`.

FSD_TEST_DEVICE names another device; `cpu` tries the tests themselves.
"""

import json
import math
import os
import random
import subprocess
import sys
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from fsd.config import AdapterConfig
from fsd.models.adapters import attach, save_adapter
from fsd.models.devices import computes_bfloat16
from fsd.models.finetuning import finetune
from fsd.models.language_model import LanguageModel, load
from fsd.scoring.model_scorer import ModelScorer, token_statistics
from fsd.scoring.pair_scorer import PairScorer, pair_statistics
from fsd.token_stats import Prompt

DEVICE = os.environ.get("FSD_TEST_DEVICE", "cuda")
VOCABULARY = 50304
SENTENCES = [
    "The score of an unseen text moves more than the score of a member of the training data.",
    "We present a method that compares two models at each position of a text.",
    "A short one.",
]
PROMPTS = [Prompt(" ".join([sentence] * count)) for sentence in SENTENCES for count in (1, 2, 7)]
UNSEEN = [
    f"Paper {number} is about detectors of {word} in models of language." for number, word in enumerate("abcdefgh")
]

pytestmark = pytest.mark.skipif(
    DEVICE.startswith("cuda") and not torch.cuda.is_available(), reason="no GPU that torch can use"
)
on_gpu = pytest.mark.skipif(not DEVICE.startswith("cuda"), reason="no GPU that torch can use")


@pytest.fixture(scope="module")
def device() -> torch.device:
    return torch.device(DEVICE)


def scored(model: LanguageModel, *, tuned: bool = False, budget: int | None = None) -> np.ndarray:
    """(4, N) statistics of all tokens."""
    stats = ModelScorer(model, tuned=tuned, max_batch_tokens=budget)(PROMPTS)
    return np.concatenate([[s.logp, s.mean, s.std, s.top] for s in stats], axis=1)


@pytest.fixture(scope="module")
def on_cpu() -> np.ndarray:
    return scored(load("embedded", device="cpu", dtype="float32"))


@pytest.mark.parametrize(("dtype", "limit"), [("float32", 1e-3), ("bfloat16", 0.25), ("float16", 0.05)])
def test_scores_are_those_of_a_cpu(dtype: str, limit: float, on_cpu: np.ndarray) -> None:
    model = load("embedded", device=DEVICE, dtype=dtype)
    assert model.device.type == torch.device(DEVICE).type
    numbers = scored(model)
    assert abs(numbers - on_cpu).max() < limit
    assert abs(numbers.mean(axis=1) - on_cpu.mean(axis=1)).max() < limit / 10
    assert np.array_equal(scored(model), numbers)
    assert abs(scored(model, budget=256) - numbers).max() < limit


@on_gpu
def test_the_precision_is_bfloat16_if_the_gpu_has_it(device: torch.device) -> None:
    dtype = "bfloat16" if computes_bfloat16(device) else "float32"
    assert load("embedded").dtype == dtype


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_the_statistics_are_those_of_the_definition(dtype: torch.dtype, device: torch.device) -> None:
    generator = torch.Generator().manual_seed(0)
    logits, other = torch.randn(2, 64, VOCABULARY, generator=generator)
    logits, reference = ((4 * rows).to(dtype).to(device) for rows in (logits, logits + other / 4))
    target = torch.arange(64, device=device) * 700
    logp = logits.double().log_softmax(-1)
    expected = expectations(logp, logp)
    compared = expectations(logp, logp - reference.double().log_softmax(-1))
    moments = pair_statistics(logits.clone(), reference.clone(), target)[8:]
    statistics = token_statistics(logits, target)
    assert torch.allclose(statistics[0].double(), logp.gather(-1, target[:, None])[:, 0], rtol=0, atol=1e-5)
    assert torch.allclose(statistics[1:3].double(), expected, rtol=0, atol=1e-5)
    assert torch.allclose(moments[:2].double(), compared, rtol=0, atol=5e-5)


def expectations(logp: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
    """(2, n) mean and standard deviation of (n, V) values under (n, V) log-probabilities."""
    p = logp.exp()
    mean = (p * values).sum(-1)
    variance = (p * (values - mean[:, None]).square()).sum(-1)
    return torch.stack([mean, variance.sqrt()])


def test_two_models_compared_give_the_numbers_of_each_alone(make_model: Any) -> None:
    model, reference = (load(str(make_model("llama", seed=seed)), device=DEVICE, dtype="float32") for seed in (0, 1))
    prompts = [Prompt("the score of an unseen text"), Prompt("a member")]
    both = list(PairScorer(model, reference=reference)(prompts))
    for side, name in ((model, "target"), (reference, "reference")):
        for got, alone in zip(both, ModelScorer(side)(prompts), strict=True):
            np.testing.assert_allclose(getattr(got, name).logp, alone.logp, atol=1e-4)


@on_gpu
def test_a_batch_beyond_the_memory_is_halved(device: torch.device) -> None:
    model = load("embedded", device=DEVICE, dtype="float32")
    prompts = [Prompt(" ".join(SENTENCES * 6) + f" {number}") for number in range(400)]
    expected = [stats.logp for stats in ModelScorer(model, max_batch_tokens=2048)(prompts)]
    torch.cuda.empty_cache()
    scorer = ModelScorer(model, max_batch_tokens=400_000)
    total = torch.cuda.get_device_properties(device).total_memory
    room = torch.cuda.memory_reserved(device) + 2**30
    torch.cuda.set_per_process_memory_fraction(room / total, device)
    try:
        stats = list(scorer(prompts))
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0, device)
    assert scorer.budget < 400_000
    for got, other in zip(stats, expected, strict=True):
        np.testing.assert_allclose(got.logp, other, atol=1e-3)


@dataclass
class Trained:
    """A model with an adapter, its scores before and after, and the losses of the training."""

    model: LanguageModel
    before: np.ndarray
    after: np.ndarray
    losses: list[float]


def trained(method: str, **changes: Any) -> Trained:
    model = load("embedded", device=DEVICE, **changes)
    before = scored(model)
    losses = []
    config = AdapterConfig(method=method, epochs=6, batch_size=4, learning_rate=1e-2)  # type: ignore[arg-type]
    finetune(
        model,
        UNSEEN,
        config,
        seed=0,
        log=lambda steps: losses.extend(logs["lm_loss"] for logs in steps.values()),
        shown=False,
    )
    return Trained(model, before, scored(model, tuned=True), losses)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("method", ["lora", "ia3", "adalora"])
def test_an_adapter_learns_and_moves_to_a_cpu(method: str, dtype: str, tmp_path: Path) -> None:
    states = (random.getstate(), torch.get_rng_state().tolist())
    result = trained(method, dtype=dtype)
    assert (random.getstate(), torch.get_rng_state().tolist()) == states
    assert np.mean(result.losses[-3:]) < np.mean(result.losses[:3]) - 0.01
    assert all(map(math.isfinite, result.losses))
    assert np.array_equal(scored(result.model), result.before), "the base is as it was"
    save_adapter(result.model, tmp_path / "adapter")
    other = load("embedded", device="cpu", dtype="float32")
    attach(other, tmp_path / "adapter")
    limit = 1e-3 if dtype == "float32" else 0.5
    assert abs(scored(other, tuned=True) - result.after).max() < limit


def test_the_same_seed_gives_the_same_adapter() -> None:
    first, second = trained("lora", dtype="float32"), trained("lora", dtype="float32")
    assert np.allclose(first.losses, second.losses, atol=1e-5)
    assert abs(first.after - second.after).max() < 1e-3


@pytest.mark.skipif(find_spec("bitsandbytes") is None, reason="bitsandbytes is not installed")
@pytest.mark.parametrize("bits", [8, 4])
def test_quantized_weights_are_scored_and_trained(bits: int, on_cpu: np.ndarray) -> None:
    result = trained("lora", bits=bits)
    assert abs(result.before[0].mean() - on_cpu[0].mean()) < (0.1 if bits == 8 else 0.5)
    assert np.mean(result.losses[-3:]) < np.mean(result.losses[:3])


def test_memory_is_given_back_after_a_training(device: torch.device) -> None:
    def held() -> int:
        return torch.cuda.memory_allocated(device) if device.type == "cuda" else 0

    trained("lora")
    first = held()
    trained("lora")
    assert held() <= first + 2**20


def test_the_main_job_gives_the_answer_of_a_cpu(root: Path, tmp_path: Path) -> None:
    answers = []
    for name in ("cpu", DEVICE):
        folder = tmp_path / f"{len(answers)}"
        folder.mkdir()
        words = [sys.executable, "-m", "pipelines.fsd", "--domain", "arxiv", "--json", "--placebo", "none"]
        done = subprocess.run(
            [*words, "--detectors", "loss,min_k,surp,dc_pdd", "--device", name],
            cwd=folder,
            env=os.environ | {"PYTHONPATH": str(root), "FSD_CACHE": str(folder / "cache")},
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stderr
        rows = json.loads(done.stdout)["tables"]["results"]
        answers.append({(row["detector"], row["state"]): row["value"] for row in rows if row["metric"] == "auc"})
    cpu, gpu = answers
    assert cpu.keys() == gpu.keys()
    assert cpu
    for key, auc in cpu.items():
        assert abs(auc - gpu[key]) < 0.08, key
