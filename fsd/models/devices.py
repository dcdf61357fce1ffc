"""What a model is computed on: a device of this machine, a precision that it has, a memory that holds the weights."""

import functools
import re
import sys
import warnings

import torch

from fsd.config import ModelConfig
from fsd.errors import UsageError, first_line
from fsd.net.hub import ModelSize, check_memory, model_size

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
# How CUDA numbers what is wrong with a driver, e.g. "Error 803: system has unsupported display driver".
_NUMBERED = re.compile(r"Error \d+: [^(]+")


def torch_device(device: str) -> torch.device:
    """The torch device of a name; "auto" is cuda if torch can use a GPU, else the CPU.

    A UsageError for a device that this machine does not have.
    """
    if device == "auto":
        return torch.device("cuda" if gpu_works() else "cpu")
    try:
        chosen = torch.device(device)
        if chosen.type == "meta":
            raise RuntimeError("it holds no numbers")
        torch.empty(1, device=chosen)
    except (RuntimeError, AssertionError) as error:
        message = f"device must be auto, spread, cpu or cuda[:N] of this machine; got {device!r}"
        if device.startswith("cuda"):
            message += f": {_reason(first_line(error))}"
        raise UsageError(message) from error
    return chosen


@functools.cache
def gpu_works() -> bool:
    """Whether torch can use a GPU; a line says why not, once, where there is one."""
    # A driver that does not match is told of by a warning alone, and hours of work would go to the CPU.
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        works = torch.cuda.is_available()
    if told and not works:
        print(f"the GPU is not used: {_reason(str(told[0].message))}", file=sys.stderr)
    return works


def _reason(message: str) -> str:
    """What CUDA says is wrong, without advice and places in its code."""
    numbered = _NUMBERED.search(message)
    if numbered:
        return numbered[0].strip()
    return message.removeprefix("CUDA initialization: ").partition(". ")[0]


def resolve_precision(config: ModelConfig) -> tuple[torch.device, torch.dtype]:
    """Device of the inputs and dtype that a model is loaded with; a UsageError for one that the device lacks."""
    device = torch_device("auto" if config.device == "spread" else config.device)
    if config.dtype == "auto":
        rounded = device.type == "cuda" and computes_bfloat16(device)
        return device, torch.bfloat16 if rounded else torch.float32
    if config.dtype not in DTYPES:
        raise UsageError(f"dtype must be one of auto, {', '.join(DTYPES)}; got {config.dtype!r}")
    # It would only be emulated.
    if config.dtype == "bfloat16" and not computes_bfloat16(device):
        name = torch.cuda.get_device_name(device)
        raise UsageError(f"dtype must be one that the GPU computes; {name} has no bfloat16: take float32 or float16")
    return device, DTYPES[config.dtype]


def computes_bfloat16(device: torch.device) -> bool:
    """Whether a device computes in bfloat16; of NVIDIA's GPUs those since compute capability 8.0."""
    if device.type != "cuda":
        return True
    with torch.cuda.device(device):
        return bool(torch.cuda.is_bf16_supported(including_emulation=False))


def memory(size: ModelSize, config: ModelConfig, *, trained: bool) -> tuple[float, float, str]:
    """Least and most bytes on the device: the weights, a batch, and for training up to three times the weights."""
    device, dtype = resolve_precision(config)
    weights = size.parameters * _weight_bytes(config, dtype)
    return weights, weights * (4 if trained else 2) + 2**30, device.type


def check_fits(config: ModelConfig) -> None:
    """Refuse a model on this machine whose weights alone take more than is free on the device.

    A CPU would not refuse them: the system kills the process.
    """
    size = model_size(config.model, config.revision)
    # What is spread takes all GPUs, then the main memory.
    if size is None or config.device == "spread":
        return
    device, dtype = resolve_precision(config)
    weight_bytes = _weight_bytes(config, dtype)
    free = _free_bytes(device)
    half = "dtype bfloat16" if computes_bfloat16(device) else "dtype float16"
    # What makes weights smaller, and the bytes that each of them then takes.
    ways = {half: 2.0, "bits 8": 1.0, "bits 4": 0.5}
    fitting = []
    for way, smaller in ways.items():
        taken = size.parameters * smaller
        if smaller < weight_bytes and taken <= free:
            fitting.append(f"{way} ({taken / 1e9:.1f} GB)")
    advice = " or ".join(fitting) or "a smaller model"
    check_memory(config.model, size.parameters * weight_bytes, free, f"memory of {device}", advice)


def _weight_bytes(config: ModelConfig, dtype: torch.dtype) -> float:
    return (config.bits or 8 * dtype.itemsize) / 8


def _free_bytes(device: torch.device) -> float:
    import psutil

    if device.type != "cuda":
        return float(psutil.virtual_memory().available)
    free, _ = torch.cuda.mem_get_info(device)
    # Blocks that torch keeps for what comes next.
    kept = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
    return float(free + kept)
