"""Memory that scoring and fine-tuning take, estimated from the number of parameters."""

from typing import NamedTuple

from fsd.config import ModelConfig
from fsd.models.language_model import load_tokenizer, resolve_precision
from fsd.net.hub import ModelSize, model_size

__all__ = ["Memory", "memory", "model_size", "parameters", "tokens"]


class Memory(NamedTuple):
    """Bytes on a device, known only roughly."""

    low: float
    high: float
    device: str


def parameters(size: ModelSize) -> int:
    """Number of parameters; half the bytes of the weights where their format does not tell it."""
    return size.parameters or size.size // 2


def memory(size: ModelSize, config: ModelConfig, *, trained: bool) -> Memory:
    """The weights, and as much again for a batch; for training up to three times the weights.

    Raises:
        UsageError: for an unknown device or dtype.
    """
    device, dtype = resolve_precision(config)
    weights = parameters(size) * (config.bits or 8 * dtype.itemsize) / 8
    return Memory(weights, weights * (4 if trained else 2) + 2**30, device.type)


def tokens(model: str, revision: str | None, texts: list[str]) -> int:
    """Number of tokens of the texts."""
    tokenizer, _ = load_tokenizer(model, revision=revision)
    return sum(len(ids) for ids in tokenizer(texts, add_special_tokens=False, verbose=False)["input_ids"])
