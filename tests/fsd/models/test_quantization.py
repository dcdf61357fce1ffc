"""Quantized weights: scores, training, adapters."""

import json
from dataclasses import asdict
from importlib.util import find_spec

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from fsd.config import AdapterConfig
from fsd.errors import UsageError
from fsd.models import language_model
from fsd.models.adapters import attach, detach, save_adapter
from fsd.models.finetuning import plan
from fsd.models.language_model import load

quantized = pytest.mark.skipif(find_spec("bitsandbytes") is None, reason="bitsandbytes is not installed")


def test_options_of_the_quantization(monkeypatch):
    monkeypatch.setattr(language_model, "find_spec", lambda _: None)
    with pytest.raises(UsageError, match="8-bit weights must have the package bitsandbytes; it is not installed"):
        language_model.quantization_options(8, torch.float32)
    monkeypatch.setattr(language_model, "find_spec", lambda _: True)
    assert language_model.quantization_options(None, torch.float32) == {}
    eight, four = (language_model.quantization_options(bits, torch.bfloat16)["quantization_config"] for bits in (8, 4))
    assert eight == {"quant_method": "bitsandbytes", "load_in_8bit": True}
    assert (four["bnb_4bit_quant_type"], four["bnb_4bit_compute_dtype"]) == ("nf4", torch.bfloat16)


@pytest.mark.parametrize("method", ["ia3", "adalora"])
def test_only_lora_works_on_quantized_weights_in_half_precision(tiny, tmp_path, method):
    model = load(str(tiny), device="cpu", dtype="bfloat16")
    assert model.bits is None
    model.base.is_loaded_in_4bit = True
    assert (model.bits, model.dtype, model.precision) == (4, "bfloat16", "4bit-bfloat16")
    message = f"{method} on 4-bit weights must be computed in float32; got dtype bfloat16: take lora or dtype float32"
    with pytest.raises(UsageError, match=message):
        plan(model, ["a member"], AdapterConfig(method=method))
    saved = tmp_path / "saved"
    saved.mkdir()
    save_file({"weight": torch.zeros(1)}, saved / "adapter_model.safetensors")
    (saved / "adapter_config.json").write_text(json.dumps({"peft_type": method.upper(), "task_type": "CAUSAL_LM"}))
    (saved / "base.json").write_text(json.dumps(asdict(model.identity)))
    with pytest.raises(UsageError, match=message):
        attach(model, saved)
    plan(model, ["a member"], AdapterConfig())


@quantized
@pytest.mark.parametrize(
    "architecture", ["llama", *(pytest.param(name, marks=pytest.mark.slow) for name in ("gpt2", "gemma2"))]
)
@pytest.mark.parametrize("bits", [8, 4])
@pytest.mark.parametrize(
    ("method", "dtype"), [("lora", "float32"), ("lora", "bfloat16"), ("ia3", "float32"), ("adalora", "float32")]
)
def test_a_quantized_model_is_scored_and_trained_and_its_adapter_loaded_again(
    make_model, tmp_path, architecture, bits, method, dtype, train, numbers
):
    folder = str(make_model(architecture))
    model = load(folder, device="cpu", dtype=dtype, bits=bits)
    weights = {name: weight.clone() for name, weight in model.base.state_dict().items()}
    base, plain = numbers(model, tuned=False), numbers(load(folder, device="cpu", dtype=dtype), tuned=False)
    assert model.precision == f"{bits}bit-{dtype}"
    assert model.split_head == (architecture != "gemma2")
    assert 0 < abs(base - plain).max() < (0.2 if bits == 8 else 4)
    train(model, method, learning_rate=0.05)
    tuned = numbers(model, tuned=True)
    assert abs(tuned - base).max() > 0.1
    assert np.array_equal(numbers(model, tuned=False), base)
    save_adapter(model, tmp_path / "adapter")
    fresh = load(folder, device="cpu", dtype=dtype, bits=bits)
    attach(fresh, tmp_path / "adapter")
    np.testing.assert_allclose(numbers(fresh, tuned=True), tuned, rtol=0, atol=2e-6 if method == "adalora" else 0)
    detach(model)
    assert np.array_equal(numbers(model, tuned=False), base)
    assert all(torch.equal(weight, weights[name]) for name, weight in model.base.state_dict().items())


@quantized
@pytest.mark.parametrize("bits", [8, 4])
def test_training_on_quantized_weights_equals_training_on_their_dequantized_values(tiny, bits, train):
    import bitsandbytes as bnb

    model, plain = load(str(tiny), device="cpu", bits=bits), load(str(tiny), device="cpu")
    for name, module in model.base.named_modules():
        weight = getattr(module, "weight", None)
        if isinstance(module, bnb.nn.Linear4bit):
            weight = bnb.functional.dequantize_4bit(weight.data, weight.quant_state)
        elif isinstance(module, bnb.nn.Linear8bitLt):
            scale = module.state.SCB if weight.SCB is None else weight.SCB
            weight = weight.data.float() * scale[:, None] / 127
        else:
            continue
        plain.base.get_submodule(name).weight.data.copy_(weight)
    for each in (model, plain):
        train(each, "ia3", learning_rate=0.05)
    weights = dict(plain.model.named_parameters())
    trained = [(name, p) for name, p in model.model.named_parameters() if p.requires_grad or "ia3" in name]
    assert len(trained) >= 4
    for name, weight in trained:
        assert weight.dtype == torch.float32
        assert torch.allclose(weight, weights[name], rtol=0, atol=2e-6), name


@quantized
@pytest.mark.parametrize("bits", [8, 4])
def test_a_quantized_model_can_be_spread(tiny, bits, numbers, capfd):
    spread, plain = load(str(tiny), device="spread", bits=bits), load(str(tiny), bits=bits)
    assert np.array_equal(numbers(spread, tuned=False), numbers(plain, tuned=False))
    assert capfd.readouterr() == ("", "")
