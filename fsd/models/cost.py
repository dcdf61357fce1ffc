"""Time and memory that scoring and fine-tuning take, estimated from the number of parameters and tokens."""

import time
from typing import NamedTuple

import torch

from fsd.config import ModelConfig
from fsd.models.language_model import load_tokenizer, resolve_precision
from fsd.net.hub import ModelSize, model_size

UTILIZATION = (0.6, 0.1)
"""Share of the measured speed of a matrix product that models reach: large ones at best, small ones at worst."""
STARTUP = (5.0, 60.0)
"""Seconds for libraries, statistics and figures."""
_SIDE = 1024


class Range(NamedTuple):
    """A number that is known only roughly."""

    low: float
    high: float


class Machine(NamedTuple):
    """Where the model runs.

    Attributes:
        device: such as `cpu`.
        bytes: per parameter.
        speed: floating-point operations per second in a large matrix product, measured in about 0.2 s.
    """

    device: str
    bytes: float
    speed: float


def machine(config: ModelConfig) -> Machine:
    """Measure the device of a configuration.

    Raises:
        UsageError: for an unknown device or dtype.
    """
    device, dtype = resolve_precision(config)
    matrix = torch.ones(_SIDE, _SIDE, device=device, dtype=dtype)
    rounds, begun = 0, time.perf_counter()
    while rounds < 2 or time.perf_counter() - begun < 0.2:
        torch.mm(matrix, matrix)[0, 0].item()
        rounds += 1
    speed = rounds * 2 * _SIDE**3 / (time.perf_counter() - begun)
    return Machine(device.type, (config.bits or 8 * dtype.itemsize) / 8, speed)


def parameters(size: ModelSize) -> int:
    """Number of parameters; half the bytes of the weights where their format does not tell it."""
    return size.parameters or size.size // 2


def seconds(passes: float, training: float, size: ModelSize, speed: float) -> Range:
    """Estimated duration.

    A forward pass takes about two operations per parameter and token, a training step about six (arXiv 2001.08361,
    §2.1).

    Args:
        passes: tokens that are read in forward passes.
        training: tokens that are trained on, over all epochs.
        size: of the model.
        speed: operations per second.
    """
    operations = parameters(size) * (2 * passes + 6 * training)
    low, high = (start + operations / (share * speed) for start, share in zip(STARTUP, UTILIZATION, strict=True))
    return Range(low, high)


def memory(size: ModelSize, machine: Machine, *, trained: bool) -> Range:
    """Estimated bytes: the weights, and as much again for a batch; for training up to three times the weights."""
    weights = parameters(size) * machine.bytes
    return Range(weights, weights * (4 if trained else 2) + 2**30)


def tokens(model: str, revision: str | None, texts: list[str]) -> int:
    """Number of tokens of the texts."""
    tokenizer, _ = load_tokenizer(model, revision=revision)
    return sum(len(ids) for ids in tokenizer(texts, add_special_tokens=False, verbose=False)["input_ids"])


__all__ = ["Machine", "ModelSize", "Range", "machine", "memory", "model_size", "parameters", "seconds", "tokens"]
