"""Attaching, switching, saving and identifying adapters."""

import json
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from fsd.config import AdapterConfig, FSDConfig, ModelConfig
from fsd.errors import UsageError
from fsd.models import adapters
from fsd.models.adapters import adapter_fingerprint, attach, detach, peft_config, quiet_peft, save_adapter
from fsd.models.finetuning import finetune
from fsd.models.language_model import LanguageModel, load
from fsd.scoring.cache import model_key
from fsd.scoring.model_scorer import ModelScorer
from fsd.scoring.scorers import build_scorers
from fsd.token_stats import Prompt
from pipelines.common.experiment import load_model

TEXTS = ["the score of an unseen text", "a member moves more", "more or less text", "an unseen score"]
Method = Any
SLOW = pytest.mark.slow


def train(model: LanguageModel, method: Method = "lora", **settings: Any) -> None:
    config = AdapterConfig(method=method, epochs=4, batch_size=2, rank=4, **settings)
    finetune(model, TEXTS, config, seed=0, shown=False)


def numbers(model: LanguageModel, *, tuned: bool) -> np.ndarray:
    stats = ModelScorer(model, tuned=tuned)([Prompt(text) for text in TEXTS])
    return np.concatenate([[s.logp, s.mean, s.std] for s in stats], axis=1)


def test_the_tuned_state_needs_an_adapter(tiny: Path) -> None:
    with pytest.raises(ValueError, match="adapter must be attached"):
        numbers(load(str(tiny)), tuned=True)


@pytest.mark.parametrize("architecture", ["gpt_neox", *(pytest.param(a, marks=SLOW) for a in ("llama", "gemma2"))])
@pytest.mark.parametrize("method", ["lora", "ia3", "adalora"])
def test_a_fresh_adapter_moves_no_score(make_model: Callable[..., Path], architecture: str, method: Method) -> None:
    from peft import get_peft_model

    model = load(str(make_model(architecture)), device="cpu")
    base = numbers(model, tuned=False)
    with quiet_peft():
        model.model = get_peft_model(model.model, peft_config(model, AdapterConfig(method=method), steps=10))
    assert np.array_equal(numbers(model, tuned=True) - numbers(model, tuned=False), np.zeros_like(base))
    assert np.array_equal(numbers(model, tuned=False), base)


@pytest.mark.parametrize("architecture", ["gpt_neox", pytest.param("gemma2", marks=SLOW)])
@pytest.mark.parametrize("method", ["lora", "ia3", "adalora"])
@pytest.mark.parametrize("dtype", ["float32", pytest.param("bfloat16", marks=SLOW)])
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
    names = {"adapter_model.safetensors", "adapter_config.json", "base.json", "SHA256SUMS"}
    assert {f.name for f in adapter.iterdir()} == names
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
    (folder / "SHA256SUMS").unlink()
    file = folder / "adapter_config.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), **config}))
    return folder


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"peft_type": "PROMPT_TUNING"}, "adapter must be one of LORA, IA3, ADALORA, .* got PROMPT_TUNING"),
        ({"bias": "all"}, "leaves its base as it was; bias is 'all'"),
        ({"init_lora_weights": "pissa"}, "leaves its base as it was; init_lora_weights is 'pissa'"),
        ({"init_lora_weights": "pissa_niter_4"}, "init_lora_weights is 'pissa_niter_4'"),
        ({"init_lora_weights": "olora"}, "init_lora_weights is 'olora'"),
        ({"init_lora_weights": "corda"}, "init_lora_weights is 'corda'"),
        ({"init_lora_weights": "loftq"}, "init_lora_weights is 'loftq'"),
        ({"init_lora_weights": ["pissa"]}, "init_lora_weights is "),
        ({"layer_replication": [[0, 2], [1, 2]]}, "layer_replication is "),
        ({"modules_to_save": ["embed_out"]}, "modules_to_save is "),
        ({"trainable_token_indices": [3]}, "trainable_token_indices is "),
        ({"target_parameters": ["query_key_value.weight"]}, "target_parameters is "),
        ({"setting_of_another_version": "x"}, "setting_of_another_version is 'x'"),
    ],
)
def test_adapters_that_can_change_their_base_are_refused_and_leave_it_alone(
    tiny: Path, adapter: Path, tmp_path: Path, config: dict[str, Any], message: str
) -> None:
    model = load(str(tiny))
    base, key = numbers(model, tuned=False), model_key(model, tuned=False)
    with pytest.raises(UsageError, match=message):
        attach(model, changed(adapter, tmp_path / "changed", **config))
    assert np.array_equal(numbers(model, tuned=False), base)
    assert model_key(model, tuned=False) == key


@pytest.mark.parametrize("init", [True, False, "gaussian", "orthogonal"])
def test_initialisations_of_the_adapter_alone_are_accepted(
    tiny: Path, adapter: Path, tmp_path: Path, init: bool | str
) -> None:
    model = load(str(tiny))
    base = numbers(model, tuned=False)
    attach(model, changed(adapter, tmp_path / "changed", init_lora_weights=init, use_rslora=True, use_dora=False))
    assert np.array_equal(numbers(model, tuned=False), base)
    assert not np.array_equal(numbers(model, tuned=True), base)


@pytest.mark.parametrize("config", [{"init_lora_weights": "pissa"}, {"init_lora_weights": "olora"}])
def test_a_base_that_an_adapter_changed_after_all_gives_no_number_and_no_key(
    tiny: Path, adapter: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, config: dict[str, str]
) -> None:
    """As an adapter would do by a setting of peft that is not known to change the base."""
    folder = changed(adapter, tmp_path / "changed", **config)
    model = load(str(tiny))
    scorer = build_scorers(model, ModelConfig(str(tiny), cache=str(tmp_path)))["base"]
    monkeypatch.setattr(adapters, "_check_config", lambda folder: "lora")
    with pytest.raises(UsageError, match=r"must leave its base bitwise as it was; .* changes it: load the base again"):
        attach(model, folder)
    with pytest.raises(UsageError, match="must be loaded again, since an adapter has changed it"):
        list(scorer([Prompt(TEXTS[0])]))
    with pytest.raises(UsageError, match="must be loaded again"):
        numbers(model, tuned=False)
    with pytest.raises(UsageError, match="must be loaded again"):
        model_key(model, tuned=False)


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("adapter_config.json", None, "must be a folder with adapter_config.json"),
        ("adapter_config.json", "{", "adapter_config.json must be"),
        ("base.json", None, "must record the base it was trained on"),
        ("adapter_config.json", "[]", "adapter_config.json must be"),
        ("adapter_config.json", "[" * 100_000, "adapter_config.json must be"),
        ("base.json", '{"id": 1}', "base.json must hold id, revision and fingerprint"),
        ("base.json", '{"id": "a", "revision": "", "fingerprint": 5}', "base.json must hold id, revision and"),
        ("base.json", "[" * 100_000, "base.json must hold id, revision and fingerprint"),
        ("adapter_model.safetensors", "", "adapter must fit its base"),
        ("adapter_model.safetensors", "\x02\0\0\0\0\0\0\0[]", "adapter must fit its base"),
        ("adapter_model.safetensors", None, "must hold its weights as adapter_model.safetensors"),
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


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"r": None}, "must hold a number of at least 1 as r; .* holds None"),
        ({"r": 0}, "must hold a number of at least 1 as r; .* holds 0"),
        ({"lora_alpha": "8"}, "must hold a number of at least 0 as lora_alpha; .* holds '8'"),
        ({"lora_alpha": float("nan")}, "must hold a number of at least 0 as lora_alpha; .* holds nan"),
        ({"target_modules": "("}, "adapter must fit its base"),
        ({"target_modules": 3}, "adapter must fit its base"),
        ({"rank_pattern": "x"}, "adapter must fit its base"),
    ],
)
def test_a_configuration_that_makes_no_sense_is_refused_in_one_line(
    tiny: Path, adapter: Path, tmp_path: Path, config: dict[str, Any], message: str
) -> None:
    model = load(str(tiny))
    with pytest.raises(UsageError, match=message) as caught:
        attach(model, changed(adapter, tmp_path / "changed", **config))
    assert "\n" not in str(caught.value)
    assert not model.adapted


def test_an_adapter_of_pickled_weights_is_refused_unread(tiny: Path, adapter: Path, tmp_path: Path) -> None:
    folder = changed(adapter, tmp_path / "changed")
    (folder / "adapter_model.safetensors").unlink()
    ran = tmp_path / "ran"

    class Payload:
        def __reduce__(self) -> tuple[Any, ...]:
            return Path.touch, (ran,)

    torch.save({"weights": Payload()}, folder / "adapter_model.bin")
    with pytest.raises(UsageError, match=r"must hold its weights as adapter_model\.safetensors"):
        attach(load(str(tiny)), folder)
    assert not ran.exists()


@pytest.mark.parametrize("name", ["adapter_model.safetensors", "adapter_config.json", "base.json"])
def test_one_flipped_bit_of_an_adapter_is_refused(tiny: Path, adapter: Path, tmp_path: Path, name: str) -> None:
    shutil.copytree(adapter, tmp_path / "copy")
    file = tmp_path / "copy" / name
    content = bytearray(file.read_bytes())
    content[-3] ^= 1
    file.write_bytes(content)
    with pytest.raises(UsageError):
        attach(load(str(tiny)), file.parent)
    if name == "adapter_model.safetensors":
        with pytest.raises(UsageError, match=r"adapter must be as it was saved; .*adapter_model.safetensors differs"):
            attach(load(str(tiny)), file.parent)


def test_an_adapter_is_checked_before_its_base_is_loaded(adapter: Path, tmp_path: Path) -> None:
    folder = changed(adapter, tmp_path / "changed", init_lora_weights="pissa")
    with pytest.raises(UsageError, match="init_lora_weights is 'pissa'"):
        load_model(FSDConfig(model=ModelConfig("/no/such/model"), adapter=str(folder)))


def test_checksums_are_those_of_sha256sum(adapter: Path) -> None:
    checked = subprocess.run(["sha256sum", "--check", "--strict", "SHA256SUMS"], cwd=adapter, check=False)
    assert checked.returncode == 0


def test_an_adapter_without_checksums_is_accepted_with_a_remark(tiny: Path, adapter: Path, tmp_path: Path) -> None:
    model, remarks = load(str(tiny)), list[str]()
    attach(model, adapter, warn=remarks.append)
    assert not remarks
    attach(model, changed(adapter, tmp_path / "earlier"), warn=remarks.append)
    assert model.adapted
    (remark,) = remarks
    assert remark == "adapter: it has no SHA256SUMS, so damage to its files would go unnoticed"


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
