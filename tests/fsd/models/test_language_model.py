"""Loading, identity and precision of models, and what is refused."""

import contextlib
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from fsd.config import AdapterConfig, ModelConfig
from fsd.errors import UsageError
from fsd.models.finetuning import finetune
from fsd.models.language_model import load, load_tokenizer, readable, token_ids
from fsd.scoring.model import open_model
from fsd.scoring.model_scorer import ModelScorer
from fsd.scoring.neighbours import MaskedModel
from fsd.scoring.scorers import reference_loader
from fsd.token_stats import IDS, Prompt, written

WEIGHTS = "model.safetensors"


@pytest.fixture
def copy(tiny, tmp_path):
    return Path(shutil.copytree(tiny, tmp_path / "copy"))


def change(file, **values):
    file.write_text(json.dumps({**json.loads(file.read_text()), **values}))


def test_a_folder_is_loaded_in_evaluation_mode_with_its_identity(tiny, other, numbers, capfd):
    model = load(str(tiny), device="cpu")
    assert not model.base.training
    assert (model.identity.id, model.identity.revision) == (str(tiny), "")
    assert (model.context, model.precision) == (48, "float32")
    numbers(model, tuned=False)
    assert capfd.readouterr() == ("", "")
    assert model.identity.fingerprint != load(str(other), device="cpu").identity.fingerprint


def test_token_ids_in_a_text_are_taken_as_they_are_and_shown_as_far_as_characters_give_them(monkeypatch):
    monkeypatch.setattr("fsd.models.language_model.TOKENIZED", 2)
    tokenizer, size = load_tokenizer("embedded")
    words, other = token_ids(tokenizer, ["We measure the mass of a galaxy.", " the"])
    assert token_ids(tokenizer, [f"We{written([5, 9])} the", "We"]) == [
        [*token_ids(tokenizer, ["We"])[0], 5, 9, *other], token_ids(tokenizer, ["We"])[0],
    ]  # fmt: skip
    apart = [row[0] for row in token_ids(tokenizer, list("galaxy"))]  # letters that the tokenizer joins
    assert token_ids(tokenizer, ["galaxy"]) != [apart]
    rows = [words, words + apart, apart, [*apart[:2], 0, *words]]  # 0 is the start token
    shown = readable(tokenizer, list(map(written, rows)))
    assert token_ids(tokenizer, shown) == rows
    assert shown[0] == "We measure the mass of a galaxy."
    assert shown[1].startswith("We measure the mass of a gal")
    assert [IDS.search(text) is None for text in shown] == [True, False, False, False]
    with pytest.raises(UsageError, match=f"token ids must be below {size}, the size of the vocabulary; got {size}"):
        readable(tokenizer, [written([1, size])])


def test_tokenizers_are_not_told_to_go_on_after_a_fork():
    # Where it is set, a process that is forked later, as by a DataLoader, waits for threads that it does not have.
    assert "TOKENIZERS_PARALLELISM" not in os.environ


def test_old_bin_weights_load_too(copy, tiny, numbers):
    weights = load_file(copy / WEIGHTS)
    (copy / WEIGHTS).unlink()
    assert load_tokenizer(str(copy))[1] == 300  # which needs no weights
    torch.save(weights, copy / "pytorch_model.bin")
    old, new = load(str(copy), device="cpu"), load(str(tiny), device="cpu")
    assert np.array_equal(numbers(old, tuned=False), numbers(new, tuned=False))
    assert old.identity.fingerprint


def test_pickled_weights_run_no_code(copy, tmp_path):
    payload = type("Payload", (), {"__reduce__": lambda _: (Path.touch, (tmp_path / "ran",))})
    torch.save({**load_file(copy / WEIGHTS), "payload": payload()}, copy / "pytorch_model.bin")
    (copy / WEIGHTS).unlink()
    with pytest.raises(UsageError, match="must be a whole causal language model"):
        load(str(copy), device="cpu")
    assert not (tmp_path / "ran").exists()


def without_a_layer(folder):
    weights = load_file(folder / WEIGHTS)
    weights.pop("gpt_neox.layers.1.mlp.dense_h_to_4h.weight")
    save_file(weights, folder / WEIGHTS, metadata={"format": "pt"})


def without_tokenizer(folder):
    for file in folder.glob("tokenizer*"):
        file.unlink()


def without_start(folder):
    file = folder / "tokenizer_config.json"
    kept = {k: v for k, v in json.loads(file.read_text()).items() if k not in ("bos_token", "eos_token")}
    file.write_text(json.dumps(kept))


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (without_a_layer, r"all its weights; 1 missing, e.g. gpt_neox.layers.1.mlp.dense_h_to_4h"),
        (lambda f: change(f / "config.json", num_hidden_layers=1), "must use all its weights; .* leaves out 12, e.g."),
        (lambda f: change(f / "config.json", num_hidden_layers=0), "must use all its weights; .* leaves out 24, e.g."),
        (lambda f: (f / WEIGHTS).write_bytes((f / WEIGHTS).read_bytes()[:-1000]), "whole safetensors file; .* damaged"),
        (lambda f: (f / WEIGHTS).unlink(), "must hold weights"),
        (without_tokenizer, "must be a whole causal language model"),
        (lambda f: change(f / "config.json", hidden_size=16), "must be a whole causal language model"),
        (without_start, "must have a BOS or EOS token"),
    ],
)
def test_a_folder_that_is_no_whole_model_is_refused_in_one_line(copy, capfd, spoil, message):
    spoil(copy)
    with pytest.raises(UsageError, match=message) as caught:
        load(str(copy))
    assert "\n" not in str(caught.value)
    assert capfd.readouterr().err == ""


def test_a_model_of_another_kind_is_refused(make_model, adapter):
    with pytest.raises(UsageError, match="must predict from left to right"):
        load(str(make_model("bert")), device="cpu")
    with pytest.raises(UsageError, match=r"must fit the model's 200 embeddings; it has 2\d\d"):
        load(str(make_model("gpt_neox", vocab_size=200)))
    with pytest.raises(UsageError, match="is an adapter: give it to --adapter"):
        load(str(adapter))


LOADERS: dict[str, Callable[[str], object]] = {
    "model": load,
    "tokenizer": load_tokenizer,
    "masked model": MaskedModel,
    "reference model": lambda name: reference_loader(ModelConfig(reference_model=name))(),
    "placebo": lambda name: open_model(ModelConfig(name)),
}


@pytest.mark.parametrize("file", ["config.json", "tokenizer_config.json"])
@pytest.mark.parametrize("loader", LOADERS)
def test_no_loader_runs_code_of_a_model_even_if_somebody_says_yes(make_model, tmp_path, monkeypatch, loader, file):
    folder, ran = tmp_path / "mine", tmp_path / "ran"
    shutil.copytree(make_model("bert" if loader == "masked model" else "gpt_neox"), folder)
    names = ("AutoConfig", "AutoModelForCausalLM", "AutoModelForMaskedLM")
    changes: dict[str, Any] = {"model_type": "mine", "auto_map": dict.fromkeys(names, "mine.Mine")}
    if file == "tokenizer_config.json":
        changes = {"tokenizer_class": "Mine", "auto_map": {"AutoTokenizer": ["mine.Mine", "mine.Mine"]}}
    change(folder / file, **changes)
    (folder / "mine.py").write_text(f"import pathlib\npathlib.Path({str(ran)!r}).touch()\n")
    monkeypatch.setattr("builtins.input", lambda *_: "y")
    with contextlib.suppress(UsageError):
        LOADERS[loader](str(folder))
    assert not ran.exists()


@pytest.mark.parametrize("loader", ["model", "masked model"])
def test_files_that_make_no_sense_are_refused_in_one_line(copy, capfd, loader):
    config = json.loads((copy / "config.json").read_text())
    configs = {"num_attention_heads": 0, "num_hidden_layers": "two", "hidden_size": None, "model_type": [],
               "rope_parameters": 5}  # fmt: skip
    cases = [("config.json", config | {name: value}) for name, value in configs.items()]
    cases += [("tokenizer.json", content) for content in ({"model": {"type": "Nothing"}}, {}, [])]
    cases += [("tokenizer_config.json", content) for content in ([],)]
    for file, content in cases:
        before = (copy / file).read_text()
        (copy / file).write_text(json.dumps(content))
        with pytest.raises(UsageError, match=r"must be a (whole causal|masked) language model") as caught:
            LOADERS[loader](str(copy))
        assert "\n" not in str(caught.value)
        (copy / file).write_text(before)
    assert "Traceback" not in capfd.readouterr().err


def test_a_model_without_a_padding_token_in_its_configuration_is_trained(make_model, numbers):
    model = load(str(make_model("rwkv")), device="cpu")
    assert not hasattr(model.base.config, "pad_token_id")
    base = numbers(model, tuned=False)
    finetune(model, ["a member"], AdapterConfig(epochs=1, target_modules="key"), seed=0, shown=False)
    assert np.array_equal(numbers(model, tuned=False), base)


@pytest.mark.parametrize("architecture", ["gpt_neox", "gemma2"])
def test_bfloat16_logits_are_reduced_as_in_float64(make_model, architecture):
    model = load(str(make_model(architecture)), device="cpu", dtype="bfloat16")
    assert model.precision == model.dtype == "bfloat16"
    text = "the score of an unseen text"
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


def test_a_model_whose_states_have_another_precision_than_its_head_makes_its_own_logits(make_model):
    model = load(str(make_model("mamba")), device="cpu", dtype="bfloat16")
    ids = torch.tensor([[model.start, *model.tokens(["the score of a text"])[0]]])
    with model.state(tuned=False) as network:
        loss = network(input_ids=ids, labels=ids, use_cache=False).loss
    (stats,) = ModelScorer(model)([Prompt("the score of a text")])
    assert -stats.logp.mean() == pytest.approx(float(loss), abs=1e-5)


def test_a_model_spread_over_what_there_is_scores_the_same_in_one_process(tiny, train, numbers, monkeypatch):
    spread, plain = load(str(tiny), device="spread"), load(str(tiny))
    assert np.array_equal(numbers(spread, tuned=False), numbers(plain, tuned=False))
    for model in (spread, plain):
        train(model)
    assert np.array_equal(numbers(spread, tuned=True), numbers(plain, tuned=True))
    monkeypatch.setenv("WORLD_SIZE", "2")
    for options, message in [
        ({"dtype": "float8"}, "dtype must be one of auto, float32, bfloat16, float16; got 'float8'"),
        ({"bits": 3}, "bits must be 4 or 8; got 3"),
        ({"device": "spread"}, "device spread must be used in one process, which takes all cards; got 2"),
    ]:
        with pytest.raises(UsageError, match=message):
            load(str(tiny), **options)
