"""Devices, precisions and memories that are there, and those that are not: what torch says is played."""

import warnings
from contextlib import nullcontext
from types import SimpleNamespace

import pytest
import torch

from fsd.config import ModelConfig
from fsd.errors import UsageError
from fsd.models import devices
from fsd.net.hub import ModelSize

OLD_DRIVER = (
    "CUDA initialization: The NVIDIA driver on your system is too old (found version 12020). Please update your GPU "
    "driver by downloading and installing a new version from the URL: http://www.nvidia.com/Download/index.aspx "
    "(Triggered internally at /pytorch/c10/cuda/CUDAFunctions.cpp:119.)"
)
MISMATCH = (
    "CUDA initialization: Unexpected error from cudaGetDeviceCount(). Did you run some cuda functions before calling "
    "NumCudaDevices() that might have already set an error? Error 803: system has unsupported display driver / cuda "
    "driver combination (Triggered internally at /pytorch/c10/cuda/CUDAFunctions.cpp:119.)"
)
"""What torch 2.13.0 for CUDA 13.0 says with another driver, word for word."""
REASONS = {
    OLD_DRIVER: "The NVIDIA driver on your system is too old (found version 12020)",
    MISMATCH: "Error 803: system has unsupported display driver / cuda driver combination",
}
GIB = 2**30


@pytest.fixture(autouse=True)
def _asked_anew():
    devices.gpu_works.cache_clear()
    yield
    devices.gpu_works.cache_clear()


@pytest.fixture
def gpu(monkeypatch):
    """A GPU of 16 GiB, half of which is free, that has bfloat16."""
    has = SimpleNamespace(bfloat16=True, free=8 * GIB, reserved=0)
    monkeypatch.setattr(devices, "torch_device", lambda name: torch.device("cpu" if name == "cpu" else "cuda"))
    monkeypatch.setattr(torch.cuda, "device", lambda _: nullcontext())
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda including_emulation: has.bfloat16)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda _: "Tesla T4")
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda _: (has.free, 16 * GIB))
    monkeypatch.setattr(torch.cuda, "memory_reserved", lambda _: has.reserved)
    monkeypatch.setattr(torch.cuda, "memory_allocated", lambda _: 0)
    return has


@pytest.mark.parametrize("told", REASONS)
def test_a_driver_that_does_not_match_is_told_of_once(told, monkeypatch, capsys):
    def available():
        warnings.warn(told, stacklevel=1)
        return False

    monkeypatch.setattr(torch.cuda, "is_available", available)
    assert [devices.torch_device("auto").type for _ in range(2)] == ["cpu", "cpu"]
    assert capsys.readouterr().err == f"the GPU is not used: {REASONS[told]}\n"


@pytest.mark.parametrize("told", REASONS)
def test_a_gpu_that_was_asked_for_is_refused_with_the_reason(told, monkeypatch):
    def empty(*_, **__):
        raise RuntimeError(told.removeprefix("CUDA initialization: "))

    monkeypatch.setattr(torch, "empty", empty)
    with pytest.raises(UsageError) as error:
        devices.torch_device("cuda")
    must = "device must be auto, spread, cpu or cuda[:N] of this machine; got 'cuda': "
    assert str(error.value) == must + REASONS[told]


def test_bfloat16_is_taken_where_the_gpu_has_it_and_refused_where_it_has_not(gpu):
    for config, dtype in (
        (ModelConfig(), torch.bfloat16),
        (ModelConfig(dtype="float16"), torch.float16),
        (ModelConfig(device="cpu"), torch.float32),
    ):
        assert devices.resolve_precision(config)[1] == dtype
    gpu.bfloat16 = False
    assert devices.resolve_precision(ModelConfig())[1] == torch.float32
    assert devices.resolve_precision(ModelConfig(dtype="bfloat16", device="cpu"))[1] == torch.bfloat16
    message = "dtype must be one that the GPU computes; Tesla T4 has no bfloat16: take float32 or float16"
    with pytest.raises(UsageError, match=message):
        devices.resolve_precision(ModelConfig(dtype="bfloat16"))


@pytest.mark.parametrize(
    ("billions", "changes", "message"),
    [
        (
            3,
            {"dtype": "float32"},
            r"weights take 12\.0 GB, and 8\.6 GB are free: take dtype bfloat16 \(6\.0 GB\) or bits 8 \(3\.0 GB\) or "
            r"bits 4 \(1\.5 GB\)",
        ),
        (7, {}, r"weights take 14\.0 GB, .* take bits 8 \(7\.0 GB\) or bits 4 \(3\.5 GB\)"),
        (12, {"bits": 8}, r"weights take 12\.0 GB, .* take bits 4 \(6\.0 GB\)"),
        (70, {}, r"weights take 140\.0 GB, .* take a smaller model"),
    ],
)
def test_what_would_fit_is_said_of_a_model_that_does_not(gpu, monkeypatch, tmp_path, billions, changes, message):
    monkeypatch.setattr(devices, "model_size", lambda *_: ModelSize(tmp_path, 0, billions * 10**9))
    config = ModelConfig("large", **changes)
    with pytest.raises(UsageError, match=f"model 'large' must fit the memory of cuda; its {message}$"):
        devices.check_fits(config)
    if billions == 3:
        # Only what the GPU has would fit.
        gpu.bfloat16 = False
        with pytest.raises(UsageError, match=r"take 12\.0 GB, .* take dtype float16 \(6\.0 GB\) or bits 8"):
            devices.check_fits(config)
    # What torch keeps for later is free as well.
    gpu.reserved = 200 * GIB
    devices.check_fits(config)


def test_what_is_spread_or_not_here_is_not_measured(gpu, monkeypatch, tmp_path):
    gpu.free = 0
    devices.check_fits(ModelConfig("api:model"))
    monkeypatch.setattr(devices, "model_size", lambda *_: ModelSize(tmp_path, 0, 10**9))
    devices.check_fits(ModelConfig("large", device="spread"))
