"""Attaching, switching, saving and identifying adapters."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from fsd.config import AdapterConfig
from fsd.errors import UsageError
from fsd.models.adapters import adapter_fingerprint, attach, detach, peft_config, quiet_peft, save_adapter
from fsd.models.finetuning import finetune
from fsd.models.language_model import LanguageModel, load
from fsd.scoring.model_scorer import ModelScorer
from fsd.token_stats import Prompt

TEXTS = ["the score of an unseen text", "a member moves more", "more or less text", "an unseen score"]
Method = Any


def train(model: LanguageModel, method: Method = "lora", **settings: Any) -> None:
    config = AdapterConfig(method=method, epochs=4, batch_size=2, rank=4, **settings)
    finetune(model, TEXTS, config, seed=0, shown=False)


def numbers(model: LanguageModel, *, tuned: bool) -> np.ndarray:
    stats = ModelScorer(model, tuned=tuned)([Prompt(text) for text in TEXTS])
    return np.concatenate([[s.logp, s.mean, s.std] for s in stats], axis=1)


def test_the_tuned_state_needs_an_adapter(tiny: Path) -> None:
    with pytest.raises(ValueError, match="adapter must be attached"):
        numbers(load(str(tiny)), tuned=True)


@pytest.mark.parametrize("architecture", ["gpt_neox", "llama", "gemma2"])
@pytest.mark.parametrize("method", ["lora", "ia3", "adalora"])
def test_a_fresh_adapter_moves_no_score(make_model: Callable[..., Path], architecture: str, method: Method) -> None:
    from peft import get_peft_model

    model = load(str(make_model(architecture)), device="cpu")
    base = numbers(model, tuned=False)
    with quiet_peft():
        model.model = get_peft_model(model.model, peft_config(model, AdapterConfig(method=method), steps=10))
    assert np.array_equal(numbers(model, tuned=True) - numbers(model, tuned=False), np.zeros_like(base))
    assert np.array_equal(numbers(model, tuned=False), base)


@pytest.mark.parametrize("architecture", ["gpt_neox", "gemma2"])
@pytest.mark.parametrize("method", ["lora", "ia3", "adalora"])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_with_its_adapter_off_the_model_is_the_base_bitwise(
    make_model: Callable[..., Path], architecture: str, method: Method, dtype: str
) -> None:
    model = load(str(make_model(architecture)), device="cpu", dtype=dtype)
    base = numbers(model, tuned=False)
    train(model, method, learning_rate=0.05)
    tuned = numbers(model, tuned=True)
    assert np.array_equal(numbers(model, tuned=False), base)
    assert abs(tuned - base).max() > 1e-3
    assert np.array_equal(numbers(model, tuned=True), tuned)
    detach(model)
    assert not model.adapted
    assert np.array_equal(numbers(model, tuned=False), base)


@pytest.mark.parametrize("method", ["lora", "ia3", "adalora"])
def test_a_saved_adapter_gives_the_same_scores(tiny: Path, tmp_path: Path, method: Method) -> None:
    model = load(str(tiny))
    train(model, method, learning_rate=0.05)
    save_adapter(model, tmp_path / "adapter")
    fresh = load(str(tiny))
    attach(fresh, tmp_path / "adapter")
    tolerance = 2e-6 if method == "adalora" else 0  # pruned ranks are added up in another order
    np.testing.assert_allclose(numbers(fresh, tuned=True), numbers(model, tuned=True), rtol=0, atol=tolerance)
    assert np.array_equal(numbers(fresh, tuned=False), numbers(model, tuned=False))


def test_an_adapter_is_saved_as_safetensors_and_config_without_places(adapter: Path, tiny: Path) -> None:
    assert {f.name for f in adapter.iterdir()} == {"adapter_model.safetensors", "adapter_config.json", "base.json"}
    base = json.loads((adapter / "base.json").read_text())
    assert base == {"id": str(tiny), "revision": "", "fingerprint": load(str(tiny)).identity.fingerprint}
    assert json.loads((adapter / "adapter_config.json").read_text())["base_model_name_or_path"] == str(tiny)


def test_attaching_another_adapter_replaces_the_first(tiny: Path, adapter: Path) -> None:
    model = load(str(tiny))
    attach(model, adapter)
    expected = numbers(model, tuned=True)
    train(model, "ia3", learning_rate=0.05)
    attach(model, adapter)
    assert np.array_equal(numbers(model, tuned=True), expected)


def test_an_adapter_is_refused_as_a_base_model(adapter: Path) -> None:
    with pytest.raises(UsageError, match="is an adapter: give it to --adapter"):
        load(str(adapter))


def test_an_adapter_is_refused_by_other_weights(adapter: Path, other: Path) -> None:
    with pytest.raises(UsageError, match="must be used on its own base model"):
        attach(load(str(other)), adapter)


def test_an_adapter_made_for_fewer_layers_is_refused(adapter: Path, make_model: Callable[..., Path]) -> None:
    with pytest.raises(UsageError, match="must be used on its own base model"):
        attach(load(str(make_model("gpt_neox", num_hidden_layers=3))), adapter)


def changed(adapter: Path, folder: Path, **config: Any) -> Path:
    shutil.copytree(adapter, folder)
    file = folder / "adapter_config.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), **config}))
    return folder


@pytest.mark.parametrize("config", [{"bias": "all"}, {"peft_type": "PROMPT_TUNING"}])
def test_adapters_that_cannot_be_switched_off_are_refused(
    tiny: Path, adapter: Path, tmp_path: Path, config: dict[str, str]
) -> None:
    with pytest.raises(UsageError, match="must be one of LORA, IA3, ADALORA without trained biases"):
        attach(load(str(tiny)), changed(adapter, tmp_path / "changed", **config))


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("adapter_config.json", None, "must be a folder with adapter_config.json"),
        ("adapter_config.json", "{", "adapter_config.json must be"),
        ("base.json", None, "must record the base it was trained on"),
        ("base.json", '{"id": 1}', "base.json must hold id, revision and fingerprint"),
        ("adapter_model.safetensors", "", "adapter must fit its base"),
    ],
)
def test_a_damaged_adapter_is_refused(
    tiny: Path, adapter: Path, tmp_path: Path, name: str, text: str | None, message: str
) -> None:
    file = changed(adapter, tmp_path / "changed") / name
    file.unlink()
    if text is not None:
        file.write_text(text)
    with pytest.raises(UsageError, match=message):
        attach(load(str(tiny)), file.parent)


def test_an_adapter_that_lacks_a_layer_is_refused(tiny: Path, adapter: Path, tmp_path: Path) -> None:
    file = changed(adapter, tmp_path / "changed") / "adapter_model.safetensors"
    weights = load_file(file)
    save_file({name: weight for name, weight in weights.items() if "layers.1" not in name}, file)
    with pytest.raises(UsageError, match=r"adapter must fit its base .* missing adapter keys"):
        attach(load(str(tiny)), file.parent)


def test_an_adapters_fingerprint_follows_weights_and_settings(tiny: Path, adapter: Path, tmp_path: Path) -> None:
    model = load(str(tiny))
    assert adapter_fingerprint(model) == ""
    attach(model, adapter)
    first = adapter_fingerprint(model)
    moved = tmp_path / "moved"
    shutil.copytree(adapter, moved)
    attach(model, moved)
    assert adapter_fingerprint(model) == first
    attach(model, changed(adapter, tmp_path / "stronger", lora_alpha=64))
    assert adapter_fingerprint(model) != first
    attach(model, adapter)
    with torch.no_grad():
        next(p for n, p in model.model.named_parameters() if "lora_B" in n)[0, 0] += 1e-3
    assert adapter_fingerprint(model) != first


def test_a_model_is_in_evaluation_mode_after_a_failed_attachment(tiny: Path, adapter: Path, tmp_path: Path) -> None:
    file = changed(adapter, tmp_path / "changed") / "adapter_model.safetensors"
    file.write_bytes(b"")
    model = load(str(tiny))
    model.model.train()
    with pytest.raises(UsageError, match="adapter must fit its base"):
        attach(model, file.parent)
    assert not model.base.training
    assert not model.adapted
