"""Which model it is, what is refused, and the adapter's switch."""

import json
import shutil
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from fsd.config import AdapterConfig
from fsd.errors import UsageError
from fsd.models import quantization
from fsd.models.adapters import adapter_fingerprint, attach, detach, peft_config, quiet_peft, save_adapter
from fsd.models.finetuning import finetune, plan
from fsd.models.language_model import LanguageModel, load, load_tokenizer
from fsd.scoring.model_scorer import ModelScorer
from fsd.token_stats import Prompt

TEXTS = ["the score of an unseen text", "a member moves more", "more or less text", "an unseen score"]
Method = Any


@pytest.fixture
def copy(tiny: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(tiny, tmp_path / "copy"))


def train(model: LanguageModel, method: Method = "lora", **settings: Any) -> None:
    config = AdapterConfig(method=method, epochs=4, batch_size=2, rank=4, **settings)
    finetune(model, TEXTS, config, seed=0, shown=False)


def numbers(model: LanguageModel, *, tuned: bool) -> np.ndarray:
    stats = ModelScorer(model, tuned=tuned)([Prompt(text) for text in TEXTS])
    return np.concatenate([[s.logp, s.mean, s.std] for s in stats], axis=1)


@pytest.fixture(scope="module")
def adapter(tiny: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    model = load(str(tiny), device="cpu")
    train(model)
    folder = tmp_path_factory.mktemp("adapters") / "lora"
    save_adapter(model, folder)
    return folder


# Loading


def test_a_folder_is_loaded_in_evaluation_mode_with_its_identity(tiny: Path, other: Path) -> None:
    model = load(str(tiny), device="cpu")
    assert not model.base.training
    assert model.identity.id == str(tiny)
    assert model.identity.revision == ""
    assert model.context == 48
    assert model.precision == "float32"
    assert model.identity.fingerprint != load(str(other), device="cpu").identity.fingerprint


def test_loading_and_scoring_say_nothing(tiny: Path, capfd: pytest.CaptureFixture[str]) -> None:
    numbers(load(str(tiny), device="cpu"), tuned=False)
    assert capfd.readouterr() == ("", "")


def test_old_bin_weights_load_too(copy: Path, tiny: Path) -> None:
    torch.save(load_file(copy / "model.safetensors"), copy / "pytorch_model.bin")
    (copy / "model.safetensors").unlink()
    old, new = load(str(copy), device="cpu"), load(str(tiny), device="cpu")
    assert np.array_equal(numbers(old, tuned=False), numbers(new, tuned=False))
    assert old.identity.fingerprint


def test_missing_weights_are_refused_in_one_line(copy: Path, capfd: pytest.CaptureFixture[str]) -> None:
    weights = load_file(copy / "model.safetensors")
    weights.pop("gpt_neox.layers.1.mlp.dense_h_to_4h.weight")
    save_file(weights, copy / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(UsageError, match=r"all its weights; 1 missing, e.g. gpt_neox.layers.1.mlp.dense_h_to_4h"):
        load(str(copy))
    assert capfd.readouterr().err == ""


def test_a_truncated_weight_file_is_refused(copy: Path) -> None:
    file = copy / "model.safetensors"
    file.write_bytes(file.read_bytes()[:-1000])
    with pytest.raises(UsageError, match=r"whole safetensors file; .* is cut short"):
        load(str(copy))


def test_a_folder_without_weights_is_refused(copy: Path) -> None:
    (copy / "model.safetensors").unlink()
    with pytest.raises(UsageError, match="must hold weights"):
        load(str(copy))


def test_a_folder_without_a_tokenizer_is_refused(copy: Path) -> None:
    for file in copy.glob("tokenizer*"):
        file.unlink()
    with pytest.raises(UsageError, match="must be a whole causal language model"):
        load(str(copy))


def test_weights_of_another_shape_are_refused(copy: Path) -> None:
    config = json.loads((copy / "config.json").read_text())
    (copy / "config.json").write_text(json.dumps({**config, "hidden_size": 16}))
    with pytest.raises(UsageError, match="must be a whole causal language model"):
        load(str(copy))


def test_a_masked_language_model_is_refused(make_model: Callable[..., Path]) -> None:
    with pytest.raises(UsageError, match="must read from left to right"):
        load(str(make_model("bert")), device="cpu")


def test_code_from_the_model_folder_is_never_run(copy: Path) -> None:
    config = json.loads((copy / "config.json").read_text())
    config |= {"model_type": "mine", "auto_map": {"AutoConfig": "mine.C", "AutoModelForCausalLM": "mine.M"}}
    (copy / "config.json").write_text(json.dumps(config))
    (copy / "mine.py").write_text("raise SystemExit('run')")
    with pytest.raises(UsageError, match="must be a whole causal language model"):
        load(str(copy))


def test_a_tokenizer_without_start_token_is_refused(copy: Path) -> None:
    file = copy / "tokenizer_config.json"
    config = {k: v for k, v in json.loads(file.read_text()).items() if k not in ("bos_token", "eos_token")}
    file.write_text(json.dumps(config))
    with pytest.raises(UsageError, match="must have a BOS or EOS token"):
        load(str(copy))


def test_a_tokenizer_of_a_larger_model_is_refused(make_model: Callable[..., Path]) -> None:
    with pytest.raises(UsageError, match=r"must fit the model's 200 embeddings; it has 2\d\d"):
        load(str(make_model("gpt_neox", vocab_size=200)))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"device": "tpu9"}, "device must be auto, spread, cpu or cuda"),
        ({"device": "meta"}, "device must be"),
        ({"device": "cuda:77"}, "device must be"),
        ({"dtype": "float8"}, "dtype must be one of auto, float32, bfloat16, float16; got 'float8'"),
        ({"bits": 3}, "bits must be 4 or 8; got 3"),
    ],
)
def test_unknown_devices_and_precisions_are_refused(tiny: Path, options: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        load(str(tiny), **options)


def test_a_model_spread_over_what_there_is_scores_the_same(tiny: Path) -> None:
    spread, plain = load(str(tiny), device="spread"), load(str(tiny))
    assert np.array_equal(numbers(spread, tuned=False), numbers(plain, tuned=False))
    train(spread)
    train(plain)
    assert np.array_equal(numbers(spread, tuned=True), numbers(plain, tuned=True))


def test_a_model_is_spread_by_one_process_alone(tiny: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(UsageError, match="device spread must be used in one process, which takes all cards; got 2"):
        load(str(tiny), device="spread")


@pytest.mark.parametrize("architecture", ["gpt_neox", "gemma2"])
def test_bfloat16_logits_are_reduced_as_in_float64(make_model: Callable[..., Path], architecture: str) -> None:
    model = load(str(make_model(architecture)), device="cpu", dtype="bfloat16")
    assert model.precision == model.dtype == "bfloat16"
    for text in TEXTS:
        row = [model.start, *model.tokens([text])[0]]
        with model.state(tuned=False) as network:
            logits = network(input_ids=torch.tensor([row]), use_cache=False).logits[0, :-1]
        assert logits.dtype == torch.bfloat16
        log = logits.double().log_softmax(-1)
        mean = (log.exp() * log).sum(-1)
        std = (log.exp() * (log - mean[:, None]).square()).sum(-1).sqrt()
        stats = next(ModelScorer(model)([Prompt(text)]))
        np.testing.assert_allclose(stats.logp, log.gather(-1, torch.tensor(row)[1:, None])[:, 0], rtol=0, atol=5e-6)
        np.testing.assert_allclose(stats.mean, mean, rtol=0, atol=5e-6)
        np.testing.assert_allclose(stats.std, std, rtol=0, atol=5e-6)


# Rounded weights

rounded = pytest.mark.skipif(find_spec("bitsandbytes") is None, reason="bitsandbytes is not installed")


@pytest.mark.skipif(find_spec("bitsandbytes") is not None, reason="bitsandbytes is installed")
@pytest.mark.parametrize("bits", [8, 4])
def test_rounded_weights_need_their_package(tiny: Path, bits: int) -> None:
    with pytest.raises(UsageError, match=f"{bits}-bit weights must have the package bitsandbytes; it is not installed"):
        load(str(tiny), bits=bits)


def test_what_is_asked_of_the_rounding(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(quantization, "find_spec", lambda _: True)
    assert quantization.options(None, torch.float32) == {}
    eight, four = (quantization.options(bits, torch.bfloat16)["quantization_config"] for bits in (8, 4))
    assert eight == {"quant_method": "bitsandbytes", "load_in_8bit": True}
    assert four["bnb_4bit_quant_type"] == "nf4"
    assert four["bnb_4bit_compute_dtype"] == torch.bfloat16


def test_the_precision_names_bits_and_dtype(tiny: Path) -> None:
    model = load(str(tiny), device="cpu", dtype="bfloat16")
    assert model.bits is None
    model.base.is_loaded_in_4bit = True
    assert (model.bits, model.dtype, model.precision) == (4, "bfloat16", "4bit-bfloat16")


@pytest.mark.parametrize("method", ["ia3", "adalora"])
def test_only_lora_works_on_rounded_weights_in_half_precision(
    tiny: Path, adapter: Path, tmp_path: Path, method: Method
) -> None:
    model = load(str(tiny), device="cpu", dtype="bfloat16")
    model.base.is_loaded_in_4bit = True
    message = f"{method} on 4-bit weights must be computed in float32; got dtype bfloat16: take lora or dtype float32"
    with pytest.raises(UsageError, match=message):
        plan(model, TEXTS, AdapterConfig(method=method))
    with pytest.raises(UsageError, match=message):
        attach(model, changed(adapter, tmp_path / "changed", peft_type=method.upper()))
    plan(model, TEXTS, AdapterConfig())


@rounded
@pytest.mark.parametrize("bits", [8, 4])
def test_lora_on_rounded_weights_in_bfloat16_is_read_again(tiny: Path, tmp_path: Path, bits: int) -> None:
    model, fresh = (load(str(tiny), device="cpu", dtype="bfloat16", bits=bits) for _ in range(2))
    base = numbers(model, tuned=False)
    train(model, learning_rate=0.05)
    save_adapter(model, tmp_path / "adapter")
    attach(fresh, tmp_path / "adapter")
    assert np.array_equal(numbers(fresh, tuned=True), numbers(model, tuned=True))
    assert np.array_equal(numbers(fresh, tuned=False), base)
    assert np.array_equal(numbers(model, tuned=False), base)


@rounded
@pytest.mark.parametrize("architecture", ["gpt_neox", "llama", "gpt2", "gemma2"])
@pytest.mark.parametrize("bits", [8, 4])
@pytest.mark.parametrize("method", ["lora", "ia3", "adalora"])
def test_a_rounded_model_is_scored_trained_and_its_adapter_read_again(
    make_model: Callable[..., Path], tmp_path: Path, architecture: str, bits: int, method: Method
) -> None:
    folder = str(make_model(architecture))
    model = load(folder, device="cpu", bits=bits)
    weights = {name: weight.clone() for name, weight in model.base.state_dict().items()}
    base, plain = numbers(model, tuned=False), numbers(load(folder, device="cpu"), tuned=False)
    assert model.precision == f"{bits}bit-float32"
    assert model.split_head == (architecture != "gemma2")
    assert 0 < abs(base - plain).max() < (0.2 if bits == 8 else 4)

    train(model, method, learning_rate=0.05)
    tuned = numbers(model, tuned=True)
    assert abs(tuned - base).max() > 0.1
    assert np.array_equal(numbers(model, tuned=False), base)
    save_adapter(model, tmp_path / "adapter")
    fresh = load(folder, device="cpu", bits=bits)
    attach(fresh, tmp_path / "adapter")
    np.testing.assert_allclose(numbers(fresh, tuned=True), tuned, rtol=0, atol=2e-6 if method == "adalora" else 0)
    detach(model)
    assert np.array_equal(numbers(model, tuned=False), base)
    assert all(torch.equal(weight, weights[name]) for name, weight in model.base.state_dict().items())


@rounded
@pytest.mark.parametrize("bits", [8, 4])
def test_a_rounded_models_numbers_are_those_of_its_own_logits(tiny: Path, bits: int) -> None:
    model = load(str(tiny), device="cpu", bits=bits)
    for text in TEXTS:
        row = [model.start, *model.tokens([text])[0]]
        with model.state(tuned=False) as network:
            log = network(input_ids=torch.tensor([row]), use_cache=False).logits[0, :-1].double().log_softmax(-1)
        stats = next(ModelScorer(model)([Prompt(text)]))
        np.testing.assert_allclose(stats.logp, log.gather(-1, torch.tensor(row)[1:, None])[:, 0], rtol=0, atol=5e-6)


@rounded
@pytest.mark.parametrize("bits", [8, 4])
def test_a_training_on_rounded_weights_is_that_on_what_they_stand_for(tiny: Path, bits: int) -> None:
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


@rounded
@pytest.mark.parametrize("bits", [8, 4])
def test_a_rounded_model_can_be_spread(tiny: Path, bits: int) -> None:
    spread, plain = load(str(tiny), device="spread", bits=bits), load(str(tiny), bits=bits)
    assert np.array_equal(numbers(spread, tuned=False), numbers(plain, tuned=False))


@rounded
def test_rounding_says_nothing(tiny: Path, capfd: pytest.CaptureFixture[str]) -> None:
    train(load(str(tiny), device="cpu", bits=8))
    assert capfd.readouterr() == ("", "")


def test_the_tokenizer_comes_without_the_weights(copy: Path) -> None:
    (copy / "model.safetensors").unlink()
    tokenizer, vocabulary = load_tokenizer(str(copy))
    assert vocabulary == 300
    assert tokenizer("a member")["input_ids"]


# Adapters


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
