"""Attaching, switching, saving and identifying adapters."""

import json
import math
import os
import shutil
import subprocess
from pathlib import Path
from unittest.mock import MagicMock

import numpy as np
import pytest
import torch
from peft import get_peft_model
from safetensors.torch import load_file, save_file

from fsd.config import AdapterConfig, ModelConfig
from fsd.errors import UsageError
from fsd.models.adapters import (
    adapter_fingerprint,
    attach,
    check_adapter,
    check_unloaded,
    detach,
    peft_config,
    quiet_peft,
    save_adapter,
)
from fsd.models.language_model import load
from fsd.scoring.cache import model_key
from fsd.scoring.model import open_model
from fsd.token_stats import Prompt

CONFIG, WEIGHTS = "adapter_config.json", "adapter_model.safetensors"
METHODS = ("lora", "ia3", "adalora")


@pytest.mark.parametrize("method", METHODS)
def test_a_fresh_adapter_moves_no_score(tiny, method, numbers):
    model = load(str(tiny), device="cpu")
    base = numbers(model, tuned=False)
    with quiet_peft():
        model.model = get_peft_model(model.model, peft_config(model, AdapterConfig(method=method), steps=10))
    assert np.array_equal(numbers(model, tuned=True) - numbers(model, tuned=False), np.zeros_like(base))
    assert np.array_equal(numbers(model, tuned=False), base)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("dtype", ["float32", pytest.param("bfloat16", marks=pytest.mark.slow)])
def test_with_its_adapter_off_the_model_is_the_base_bitwise_and_a_saved_adapter_gives_the_same_scores(
    tiny, tmp_path, method, dtype, train, numbers
):
    model, fresh = (load(str(tiny), device="cpu", dtype=dtype) for _ in range(2))
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


@pytest.mark.parametrize("init", [True, False, "gaussian", "orthogonal"])
def test_initialisations_of_the_adapter_alone_are_accepted(tiny, adapter, tmp_path, init, numbers):
    model = load(str(tiny))
    base = numbers(model, tuned=False)
    attach(model, changed(adapter, tmp_path / "changed", init_lora_weights=init, use_rslora=True, use_dora=False))
    assert np.array_equal(numbers(model, tuned=False), base)
    assert not np.array_equal(numbers(model, tuned=True), base)


@pytest.mark.parametrize("init", ["pissa", "olora"])
def test_a_base_that_an_adapter_changed_gives_no_number_and_no_key(tiny, adapter, tmp_path, init, numbers):
    folder = changed(adapter, tmp_path / "changed", init_lora_weights=init)
    model = load(str(tiny))
    scorer = open_model(ModelConfig(str(tiny), cache=str(tmp_path)), local=model).scorers["base"]
    with pytest.raises(UsageError, match=r"must leave its base bitwise as it was; .* does not: give it as adapter="):
        attach(model, folder)
    for use in (
        lambda: list(scorer([Prompt("a")])),
        lambda: numbers(model, tuned=False),
        lambda: model_key(model, tuned=False),
    ):
        with pytest.raises(UsageError, match="must be loaded again, since an adapter has changed it"):
            use()


def test_a_damaged_adapter_is_refused_in_one_line(tiny, adapter, tmp_path, monkeypatch):
    model = load(str(tiny))
    model.model.train()
    cases: list[tuple[str, str | None, str]] = [
        (CONFIG, None, "must be a folder with adapter_config.json; .*--tuned"),
        (CONFIG, "{", "adapter_config.json must be an adapter's configuration; content: invalid JSON"),
        (CONFIG, "[]", "adapter_config.json must be an adapter's configuration; content: input should be"),
        (CONFIG, "[" * 100_000, "adapter_config.json must be"),
        ("base.json", '{"id": 1}', "base.json must be the identity of a base; id: input should be a valid string"),
        ("base.json", '{"id": "a", "revision": "", "fingerprint": 5}', "identity of a base; fingerprint: .* got 5"),
        ("base.json", "[" * 100_000, "base.json must be the identity of a base; content: invalid JSON"),
        (WEIGHTS, None, "must hold its weights as adapter_model.safetensors or adapter_model.bin"),
        (WEIGHTS, "", "must hold its weights as a whole file of tensors"),
        (WEIGHTS, "\x02\0\0\0\0\0\0\0[]", "must hold its weights as a whole file of tensors"),
    ]
    folders = []
    for name, text, message in cases:
        file = changed(adapter, tmp_path / f"damaged {len(folders)}") / name
        file.unlink()
        if text is not None:
            file.write_text(text)
        folders.append((file.parent, message))
    configs = [
        ({"peft_type": 3}, "configuration; peft_type: input should be a valid string; got 3"),
        ({"peft_type": "LORA_2"}, "must be of a kind .*; LORA_2 is not known to this version of peft: .*--tuned"),
        ({"megatron_config": {"x": 1}}, "configuration; megatron_config: input should be null"),
        ({"r": None}, r"adapter must fit its base .*; .*--tuned"),
        ({"r": 0}, r"adapter must fit its base .*: `r` should be a positive integer value but the value passed is 0"),
        ({"target_modules": ["no_such"]}, "adapter must fit its base .*: Target modules .*no_such.* not found"),
    ]
    folders += [
        (changed(adapter, tmp_path / str(at), **config), message) for at, (config, message) in enumerate(configs)
    ]
    lacking = changed(adapter, tmp_path / "lacking") / WEIGHTS
    save_file({name: weight for name, weight in load_file(lacking).items() if "layers.1" not in name}, lacking)
    # As of a base with added tokens: the reason stands below the first line of torch's message.
    grown = changed(adapter, tmp_path / "grown") / WEIGHTS
    save_file({name: weight.repeat(2, 1) for name, weight in load_file(grown).items()}, grown)
    folders.append((lacking.parent, r"adapter must fit its base .* missing adapter keys"))
    folders.append(
        (grown.parent, r"adapter must fit its base .*: size mismatch .* current model is torch.Size.*--tuned")
    )
    for folder, message in folders:
        with pytest.raises(UsageError, match=message) as caught:
            attach(model, folder)
        assert "\n" not in str(caught.value)
    monkeypatch.setattr("fsd.models.adapters._loaded", MagicMock(side_effect=AssertionError))
    with pytest.raises(UsageError, match=r"does not: AssertionError\(\); "):
        attach(model, adapter)
    assert not model.base.training
    assert not model.adapted


@pytest.mark.parametrize("value", [math.nan, -math.inf])
def test_weights_of_which_no_score_can_be_made_are_named_before_the_base_is_loaded(adapter, tmp_path, value):
    file = changed(adapter, tmp_path / "changed") / WEIGHTS
    weights = load_file(file)
    name = max(weights)
    weights[name].view(-1)[3] = value
    save_file(weights, file)
    with pytest.raises(UsageError, match=rf"must have finite weights; .* has others: {name}"):
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


def test_pickled_weights_are_read_and_run_no_code(tiny, adapter, tmp_path, numbers):
    model = load(str(tiny))
    attach(model, adapter)
    expected = numbers(model, tuned=True)
    folder = changed(adapter, tmp_path / "changed")
    weights = load_file(folder / WEIGHTS)
    (folder / WEIGHTS).unlink()
    torch.save(weights, folder / "adapter_model.bin")
    attach(model, folder)
    assert np.array_equal(numbers(model, tuned=True), expected)
    payload = type("Payload", (), {"__reduce__": lambda _: (Path.touch, (tmp_path / "ran",))})
    torch.save({"weights": payload()}, folder / "adapter_model.bin")
    with pytest.raises(UsageError, match=r"must hold its weights as a whole file of tensors; .* holds more"):
        attach(load(str(tiny)), folder)
    assert not (tmp_path / "ran").exists()


def test_settings_of_other_programs_and_versions_have_the_same_numbers(tiny, adapter, tmp_path, numbers, capsys):
    """Numbers written as floats; a training that did not know its steps; fields of a later peft, the empty ones too."""
    model = load(str(tiny))
    attach(model, adapter)
    expected = numbers(model, tuned=True)
    rank = json.loads((adapter / CONFIG).read_text())["r"]
    later = changed(adapter, tmp_path / "later", r=float(rank), lora_alpha=32.0, empty_one=[], new_one="x")
    attach(model, later)
    assert np.array_equal(numbers(model, tuned=True), expected)
    assert (
        capsys.readouterr().err
        == "adapter: this version of peft does not know its setting new_one, which is left out\n"
    )


def test_adalora_without_the_number_of_its_steps_is_read(tiny, train, tmp_path, numbers):
    model = load(str(tiny))
    train(model, "adalora", learning_rate=0.05)
    save_adapter(model, tmp_path / "saved")
    attach(model, tmp_path / "saved")
    expected = numbers(model, tuned=True)
    attach(model, changed(tmp_path / "saved", tmp_path / "without", total_step=None))
    assert np.array_equal(numbers(model, tuned=True), expected)


def test_one_flipped_bit_of_an_adapter_is_refused(tiny, adapter, tmp_path):
    messages = {WEIGHTS: f"adapter must be as it was saved; .*{WEIGHTS} differs", CONFIG: "must", "base.json": "must"}
    for name, message in messages.items():
        folder = shutil.copytree(adapter, tmp_path / name)
        content = bytearray((folder / name).read_bytes())
        content[-3] ^= 1
        (folder / name).write_bytes(content)
        with pytest.raises(UsageError, match=message):
            attach(load(str(tiny)), folder)


def test_what_is_taken_on_the_users_word_is_said(tiny, adapter, tmp_path, capsys):
    check_unloaded(adapter, str(tiny))
    assert capsys.readouterr().err == ""
    cases = [
        ({}, "that the base is TINY is taken on your word: the adapter records its name, and no hash of its weights"),
        ({"base_model_name_or_path": "org/a"}, "the adapter was trained on org/a; that TINY has the same weights is"),
        ({"revision": "v2"}, "trained on TINY at v2; that TINY has the same weights is taken on your word"),
        ({"base_model_name_or_path": None}, "was trained on a base that it does not name; that TINY has the same"),
    ]
    for number, (config, message) in enumerate(cases):
        folder = changed(adapter, tmp_path / str(number), **config)
        (folder / "base.json").unlink()
        check_unloaded(folder, str(tiny))
        (line,) = capsys.readouterr().err.replace(str(tiny), "TINY").splitlines()
        assert message in line
    with pytest.raises(UsageError, match="adapter must come with a base model on this machine; api:x is behind an API"):
        check_unloaded(adapter, "api:x")


def test_an_adapter_of_a_base_of_another_shape_is_refused(adapter, tmp_path, make_model):
    folder = changed(adapter, tmp_path / "peft")
    (folder / "base.json").unlink()
    for base in (
        make_model("gpt_neox", hidden_size=64),
        make_model("gpt_neox", num_hidden_layers=1),
        make_model("gpt2"),
    ):
        with pytest.raises(UsageError, match=r"adapter must fit its base .*; .*--tuned") as caught:
            attach(load(str(base)), folder)
        assert "\n" not in str(caught.value)


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
