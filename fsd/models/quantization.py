"""Quantization of the weights to 8 or 4 bits by bitsandbytes, for models larger than the memory."""

import logging
from importlib.util import find_spec
from typing import Any

from fsd.errors import UsageError

BITS = (8, 4)


def options(bits: int | None, dtype: Any) -> dict[str, Any]:
    """Options of transformers' `from_pretrained` for quantization while loading; empty for None.

    8 bits is LLM.int8 (arXiv 2208.07339), which quantizes the inputs of a layer too; 4 bits is NormalFloat (QLoRA,
    arXiv 2305.14314, §3). Embeddings and norms are not quantized.

    Args:
        bits: 8, 4 or None.
        dtype: torch dtype of the computation with 4-bit weights.

    Raises:
        UsageError: for another number of bits, or without bitsandbytes.
    """
    logging.getLogger("bitsandbytes").setLevel(logging.ERROR)  # it logs documented behaviour at every layer
    if bits is None:  # the folder may hold quantized weights already
        return {}
    if bits not in BITS:
        raise UsageError(f"bits must be 4 or 8; got {bits}")
    if find_spec("bitsandbytes") is None:
        raise UsageError(f"{bits}-bit weights must have the package bitsandbytes; it is not installed")
    config: dict[str, Any] = {"quant_method": "bitsandbytes", f"load_in_{bits}bit": True}
    if bits == 4:
        config |= {"bnb_4bit_quant_type": "nf4", "bnb_4bit_compute_dtype": dtype}
    return {"quantization_config": config}


def bits_of(network: Any) -> int | None:
    """Bits of a transformers model's quantized weights; None without quantization."""
    return next((bits for bits in BITS if getattr(network, f"is_loaded_in_{bits}bit", False)), None)


def keep_trainable(network: Any) -> None:
    """Keep bitsandbytes from repacking 4-bit weights in the first forward pass on a CPU with AVX512-BF16.

    Its kernel for repacked weights has no gradient and rounds the scales further, so the model could not be trained
    and its numbers would differ from those of other machines.
    """
    for module in network.modules():
        if hasattr(module, "support_avx512bf16_for_cpu"):
            module.support_avx512bf16_for_cpu = False
