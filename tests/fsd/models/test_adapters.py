"""Attaching, switching, saving and identifying adapters."""

import json
import math
import os
import re
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from fsd.config import AdapterConfig, ModelConfig
from fsd.errors import UsageError
from fsd.models import adapters
from fsd.models.adapters import (
    adapter_fingerprint,
    attach,
    check_adapter,
    detach,
    peft_config,
    quiet_peft,
    save_adapter,
)
from fsd.models.language_model import load
from fsd.scoring.cache import model_key
from fsd.scoring.model import open_model
from fsd.token_stats import Prompt

SLOW = pytest.mark.slow
CONFIG, WEIGHTS = "adapter_config.json", "adapter_model.safetensors"
METHODS = ("lora", "ia3", "adalora")
FOREVER = "(([a-z_0-9.])+)+!"
"""A regular expression whose search takes exponential time."""
PATTERNS = ("target_modules", "exclude_modules", "feedforward_modules", "layers_pattern")


@pytest.mark.parametrize("architecture", ["gpt_neox", *(pytest.param(a, marks=SLOW) for a in ("llama", "gemma2"))])
@pytest.mark.parametrize("method", METHODS)
def test_a_fresh_adapter_moves_no_score(make_model, architecture, method, numbers):
    from peft import get_peft_model

    model = load(str(make_model(architecture)), device="cpu")
    base = numbers(model, tuned=False)
    with quiet_peft():
        model.model = get_peft_model(model.model, peft_config(model, AdapterConfig(method=method), steps=10))
    assert np.array_equal(numbers(model, tuned=True) - numbers(model, tuned=False), np.zeros_like(base))
    assert np.array_equal(numbers(model, tuned=False), base)


@pytest.mark.parametrize("architecture", ["gpt_neox", pytest.param("gemma2", marks=SLOW)])
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("dtype", ["float32", pytest.param("bfloat16", marks=SLOW)])
def test_with_its_adapter_off_the_model_is_the_base_bitwise_and_a_saved_adapter_gives_the_same_scores(
    make_model, tmp_path, architecture, method, dtype, train, numbers
):
    folder = str(make_model(architecture))
    model, fresh = (load(folder, device="cpu", dtype=dtype) for _ in range(2))
    base = numbers(model, tuned=False)
    train(model, method, learning_rate=0.05)
    tuned = numbers(model, tuned=True)
    assert np.array_equal(numbers(model, tuned=False), base)
    assert abs(tuned - base).max() > 1e-3
    assert np.array_equal(numbers(model, tuned=True), tuned)
    save_adapter(model, tmp_path / "adapter")
    attach(fresh, tmp_path / "adapter")
    if dtype == "float32":
        tolerance = 2e-6 if method == "adalora" else 0  # pruned ranks are added up in another order
        np.testing.assert_allclose(numbers(fresh, tuned=True), tuned, rtol=0, atol=tolerance)
    assert np.array_equal(numbers(fresh, tuned=False), base)
    detach(model)
    assert not model.adapted
    assert np.array_equal(numbers(model, tuned=False), base)


def test_an_adapter_is_saved_as_safetensors_and_config_without_places(adapter, tiny):
    assert {f.name for f in adapter.iterdir()} == {WEIGHTS, CONFIG, "base.json", "SHA256SUMS"}
    base = json.loads((adapter / "base.json").read_text())
    assert base == {"id": str(tiny), "revision": "", "fingerprint": load(str(tiny)).identity.fingerprint}
    assert json.loads((adapter / CONFIG).read_text())["base_model_name_or_path"] == str(tiny)
    checked = subprocess.run(["sha256sum", "--check", "--strict", "SHA256SUMS"], cwd=adapter, check=False)
    assert checked.returncode == 0


def test_attaching_another_adapter_replaces_the_first(tiny, adapter, train, numbers):
    model = load(str(tiny))
    with pytest.raises(ValueError, match="adapter must be attached"):
        numbers(model, tuned=True)
    attach(model, adapter)
    expected = numbers(model, tuned=True)
    train(model, "ia3", learning_rate=0.05)
    attach(model, adapter)
    assert np.array_equal(numbers(model, tuned=True), expected)


def test_an_adapter_is_refused_by_other_weights(adapter, other, make_model):
    for base in (other, make_model("gpt_neox", num_hidden_layers=3)):
        with pytest.raises(UsageError, match="must be used on its own base model"):
            attach(load(str(base)), adapter)


def changed(adapter, folder, **config):
    """A copy of the adapter without checksums and with other settings."""
    shutil.copytree(adapter, folder, dirs_exist_ok=True)
    (folder / "SHA256SUMS").unlink()
    file = folder / CONFIG
    file.write_text(json.dumps({**json.loads(file.read_text()), **config}))
    return folder


def test_adapters_that_can_change_their_base_are_refused_and_leave_it_alone(tiny, adapter, tmp_path, numbers):
    model = load(str(tiny))
    base, key = numbers(model, tuned=False), model_key(model, tuned=False)
    initialisations = ("pissa", "pissa_niter_4", "olora", "corda", "loftq", ["pissa"])
    others = {
        "bias": "all",
        "layer_replication": [[0, 2], [1, 2]],
        "modules_to_save": ["embed_out"],
        "trainable_token_indices": [3],
        "setting_of_another_version": "x",
    }
    cases = [("init_lora_weights", value) for value in initialisations] + list(others.items())
    for number, (name, value) in enumerate(cases):
        with pytest.raises(UsageError, match="leaves its base as it was; " + re.escape(f"{name} is {value!r}")):
            attach(model, changed(adapter, tmp_path / str(number), **{name: value}))
    with pytest.raises(UsageError, match=r"adapter must be one of LORA, IA3, ADALORA, .* got PROMPT_TUNING"):
        attach(model, changed(adapter, tmp_path / "kind", peft_type="PROMPT_TUNING"))
    assert np.array_equal(numbers(model, tuned=False), base)
    assert model_key(model, tuned=False) == key
    with pytest.raises(UsageError, match="init_lora_weights is 'pissa'"):  # before the base is loaded
        open_model(ModelConfig("/no/such/model"), adapter=tmp_path / "0")


@pytest.mark.parametrize("init", [True, False, "gaussian", "orthogonal"])
def test_initialisations_of_the_adapter_alone_are_accepted(tiny, adapter, tmp_path, init, numbers):
    model = load(str(tiny))
    base = numbers(model, tuned=False)
    attach(model, changed(adapter, tmp_path / "changed", init_lora_weights=init, use_rslora=True, use_dora=False))
    assert np.array_equal(numbers(model, tuned=False), base)
    assert not np.array_equal(numbers(model, tuned=True), base)


@pytest.mark.parametrize("init", ["pissa", "olora"])
def test_a_base_that_an_adapter_changed_after_all_gives_no_number_and_no_key(
    tiny, adapter, tmp_path, monkeypatch, init, numbers
):
    """As an adapter would do by a setting of peft that is not known to change the base."""
    folder = changed(adapter, tmp_path / "changed", init_lora_weights=init)
    model = load(str(tiny))
    scorer = open_model(ModelConfig(str(tiny), cache=str(tmp_path)), local=model).scorers["base"]
    monkeypatch.setattr(adapters, "_check_config", lambda folder: "lora")
    with pytest.raises(UsageError, match=r"must leave its base bitwise as it was; .* changes it: load the base again"):
        attach(model, folder)
    for use in (
        lambda: list(scorer([Prompt("a")])),
        lambda: numbers(model, tuned=False),
        lambda: model_key(model, tuned=False),
    ):
        with pytest.raises(UsageError, match="must be loaded again, since an adapter has changed it"):
            use()


def test_a_damaged_adapter_is_refused_in_one_line(tiny, adapter, tmp_path):
    model = load(str(tiny))
    model.model.train()
    cases: list[tuple[str, str | None, str]] = [
        (CONFIG, None, "must be a folder with adapter_config.json"),
        (CONFIG, "{", "adapter_config.json must be an adapter's configuration; content: invalid JSON"),
        (CONFIG, "[]", "adapter_config.json must be an adapter's configuration; content: input should be"),
        (CONFIG, "[" * 100_000, "adapter_config.json must be"),
        ("base.json", None, "must record the base it was trained on"),
        ("base.json", '{"id": 1}', "base.json must be the identity of a base; id: input should be a valid string"),
        ("base.json", '{"id": "a", "revision": "", "fingerprint": 5}', "identity of a base; fingerprint: .* got 5"),
        ("base.json", "[" * 100_000, "base.json must be the identity of a base; content: invalid JSON"),
        (WEIGHTS, None, "must hold its weights as adapter_model.safetensors"),
        (WEIGHTS, "", "must hold its weights as a whole adapter_model.safetensors"),
        (WEIGHTS, "\x02\0\0\0\0\0\0\0[]", "must hold its weights as a whole adapter_model.safetensors"),
    ]
    folders = []
    for name, text, message in cases:
        file = changed(adapter, tmp_path / f"damaged {len(folders)}") / name
        file.unlink()
        if text is not None:
            file.write_text(text)
        folders.append((file.parent, message))
    configs = [
        ({"r": None}, "configuration; r: input should be a valid integer; got None"),
        ({"r": 0}, "configuration; r: input should be greater than or equal to 1; got 0"),
        ({"r": 10**9}, "configuration; r: input should be less than or equal to 10000; got 1000000000"),
        ({"rank_pattern": {"x": 10**9}}, "configuration; rank_pattern.x.* got 1000000000"),
        ({"lora_alpha": "8"}, "configuration; lora_alpha: input should be a valid number; got '8'"),
        ({"lora_alpha": float("nan")}, "configuration; lora_alpha: input should be .*; got nan"),
        ({"target_modules": 3}, "target_modules: must be at most 10,000 names of modules without patterns; got '3'"),
        ({"target_modules": ["x"] * 10_001}, "target_modules: must be at most 10,000 names"),
        ({"rank_pattern": "x"}, "rank_pattern: input should be an object; got 'x'"),
        ({"rank_pattern": {FOREVER: 4}}, "rank_pattern: must be .* without patterns"),
        ({"alpha_pattern": {FOREVER: 4}}, "alpha_pattern: must be .* without patterns"),
        *(({name: FOREVER}, f"{name}: must be .* without patterns; got") for name in PATTERNS),
    ]
    folders += [
        (changed(adapter, tmp_path / str(at), **config), message) for at, (config, message) in enumerate(configs)
    ]
    lacking = changed(adapter, tmp_path / "lacking") / WEIGHTS
    save_file({name: weight for name, weight in load_file(lacking).items() if "layers.1" not in name}, lacking)
    for folder, message in [*folders, (lacking.parent, r"adapter must fit its base .* missing adapter keys")]:
        with pytest.raises(UsageError, match=message) as caught:
            attach(model, folder)
        assert "\n" not in str(caught.value)
    assert not model.base.training
    assert not model.adapted


@pytest.mark.parametrize("value", [math.nan, -math.inf, 1e30])
def test_weights_of_which_no_score_can_be_made_are_named_before_the_base_is_loaded(adapter, tmp_path, value):
    file = changed(adapter, tmp_path / "changed") / WEIGHTS
    weights = load_file(file)
    name = max(weights)
    weights[name].view(-1)[3] = value
    save_file(weights, file)
    with pytest.raises(UsageError, match=rf"must have weights up to 1e\+06; .* has others: {name}"):
        open_model(ModelConfig("/no/such/model"), adapter=file.parent)


@pytest.mark.parametrize("name", [CONFIG, WEIGHTS, "SHA256SUMS", "base.json"])
def test_files_without_an_end_are_refused_before_the_base_is_loaded(adapter, tmp_path, name):
    for number, make in enumerate((os.mkfifo, lambda file: file.symlink_to("/dev/zero"), Path.mkdir, sparse)):
        file = changed(adapter, tmp_path / str(number)) / name
        file.unlink(missing_ok=True)
        make(file)
        with pytest.raises(UsageError, match=rf"{name}.*(no regular file|is a directory|10,737,418,240|damaged)"):
            check_adapter(file.parent)


def sparse(file):
    file.touch()
    os.truncate(file, 10 * 2**30)


def test_an_adapter_of_pickled_weights_is_refused_unread(tiny, adapter, tmp_path):
    folder = changed(adapter, tmp_path / "changed")
    (folder / WEIGHTS).unlink()
    payload = type("Payload", (), {"__reduce__": lambda _: (Path.touch, (tmp_path / "ran",))})
    torch.save({"weights": payload()}, folder / "adapter_model.bin")
    with pytest.raises(UsageError, match=r"must hold its weights as adapter_model\.safetensors"):
        attach(load(str(tiny)), folder)
    assert not (tmp_path / "ran").exists()


def test_one_flipped_bit_of_an_adapter_is_refused(tiny, adapter, tmp_path):
    messages = {WEIGHTS: f"adapter must be as it was saved; .*{WEIGHTS} differs", CONFIG: "must", "base.json": "must"}
    for name, message in messages.items():
        folder = shutil.copytree(adapter, tmp_path / name)
        content = bytearray((folder / name).read_bytes())
        content[-3] ^= 1
        (folder / name).write_bytes(content)
        with pytest.raises(UsageError, match=message):
            attach(load(str(tiny)), folder)


def test_an_adapter_without_checksums_is_accepted_with_a_remark(tiny, adapter, tmp_path):
    model, remarks = load(str(tiny)), list[str]()
    attach(model, adapter, warn=remarks.append)
    assert not remarks
    attach(model, changed(adapter, tmp_path / "earlier"), warn=remarks.append)
    assert model.adapted
    assert remarks == ["adapter: it has no SHA256SUMS, so damage to its files would go unnoticed"]


def test_an_adapters_fingerprint_follows_weights_and_settings(tiny, adapter, tmp_path):
    model = load(str(tiny))
    assert adapter_fingerprint(model) == ""
    attach(model, adapter)
    first = adapter_fingerprint(model)
    attach(model, Path(shutil.copytree(adapter, tmp_path / "moved")))
    assert adapter_fingerprint(model) == first
    attach(model, changed(adapter, tmp_path / "stronger", lora_alpha=64))
    assert adapter_fingerprint(model) != first
    attach(model, adapter)
    with torch.no_grad():
        next(p for n, p in model.model.named_parameters() if "lora_B" in n)[0, 0] += 1e-3
    assert adapter_fingerprint(model) != first
