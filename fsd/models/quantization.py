"""Weights rounded to 8 or 4 bits by bitsandbytes, for models that are larger than the memory."""

import logging
from importlib.util import find_spec
from typing import Any

from fsd.errors import UsageError

BITS = (8, 4)


def options(bits: int | None, dtype: Any) -> dict[str, Any]:
    """What transformers is to be told so that it rounds the weights while it loads them; nothing for None.

    8 bits are LLM.int8 (Dettmers et al. 2022), which rounds what goes into a layer too, 4 bits NormalFloat (Dettmers
    et al. 2023, "QLoRA", §3). Embeddings and norms are left as they are.

    Args:
        bits: 8, 4 or None.
        dtype: torch dtype that 4-bit weights are computed in.

    Raises:
        UsageError: for another number of bits, or without bitsandbytes.
    """
    logging.getLogger("bitsandbytes").setLevel(logging.ERROR)  # it says at every layer what it does as documented
    if bits is None:  # weights may lie there rounded already
        return {}
    if bits not in BITS:
        raise UsageError(f"bits must be 4 or 8; got {bits}")
    if find_spec("bitsandbytes") is None:
        raise UsageError(f"{bits}-bit weights must have the package bitsandbytes; it is not installed")
    how: dict[str, Any] = {"quant_method": "bitsandbytes", f"load_in_{bits}bit": True}
    if bits == 4:
        how |= {"bnb_4bit_quant_type": "nf4", "bnb_4bit_compute_dtype": dtype}
    return {"quantization_config": how}


def bits_of(network: Any) -> int | None:
    """The bits that a transformers model's weights were rounded to; None if they were not."""
    return next((bits for bits in BITS if getattr(network, f"is_loaded_in_{bits}bit", False)), None)


def keep_trainable(network: Any) -> None:
    """Keep bitsandbytes from packing 4-bit weights anew at the first reading on a CPU that has AVX512-BF16.

    Its kernel for packed weights passes no gradient on and rounds the scales further, so that the model would be
    another one than on other machines and could not be trained.
    """
    for module in network.modules():
        if hasattr(module, "support_avx512bf16_for_cpu"):
            module.support_avx512bf16_for_cpu = False
