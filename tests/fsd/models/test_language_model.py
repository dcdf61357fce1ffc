"""Loading, identity and precision of models, and what is refused."""

import contextlib
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from fsd.config import AdapterConfig, FSDConfig, ModelConfig
from fsd.errors import UsageError
from fsd.models.finetuning import finetune
from fsd.models.language_model import LanguageModel, load, load_tokenizer
from fsd.scoring.masked_lm import MaskedModel
from fsd.scoring.model_scorer import ModelScorer
from fsd.scoring.scorers import reference_scorer
from fsd.token_stats import Prompt
from pipelines.common.experiment import load_model

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


def test_a_folder_is_loaded_in_evaluation_mode_with_its_identity(tiny: Path, other: Path) -> None:
    model = load(str(tiny), device="cpu")
    assert not model.base.training
    assert model.identity.id == str(tiny)
    assert model.identity.revision == ""
    assert model.context == 48
    assert model.precision == "float32"
    assert model.identity.fingerprint != load(str(other), device="cpu").identity.fingerprint


def test_loading_and_scoring_print_nothing(tiny: Path, capfd: pytest.CaptureFixture[str]) -> None:
    numbers(load(str(tiny), device="cpu"), tuned=False)
    assert capfd.readouterr() == ("", "")


def test_old_bin_weights_load_too(copy: Path, tiny: Path) -> None:
    torch.save(load_file(copy / "model.safetensors"), copy / "pytorch_model.bin")
    (copy / "model.safetensors").unlink()
    old, new = load(str(copy), device="cpu"), load(str(tiny), device="cpu")
    assert np.array_equal(numbers(old, tuned=False), numbers(new, tuned=False))
    assert old.identity.fingerprint


def test_pickled_weights_run_no_code(copy: Path, tmp_path: Path) -> None:
    ran = tmp_path / "ran"

    class Payload:
        def __reduce__(self) -> tuple[Any, ...]:
            return Path.touch, (ran,)

    torch.save({**load_file(copy / "model.safetensors"), "payload": Payload()}, copy / "pytorch_model.bin")
    (copy / "model.safetensors").unlink()
    with pytest.raises(UsageError, match="must be a whole causal language model"):
        load(str(copy), device="cpu")
    assert not ran.exists()


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
    with pytest.raises(UsageError, match=r"whole safetensors file; .* is damaged or cut short"):
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


LOADERS: dict[str, Callable[[str], object]] = {
    "model": load,
    "tokenizer": load_tokenizer,
    "masked model": MaskedModel,
    "reference model": lambda name: list(reference_scorer(name, ModelConfig(), None)([Prompt("a member")])),
    "placebo": lambda name: load_model(FSDConfig(model=ModelConfig(name))),
}


@pytest.mark.parametrize("file", ["config.json", "tokenizer_config.json"])
@pytest.mark.parametrize("loader", LOADERS)
def test_no_loader_runs_code_of_a_model_even_if_somebody_says_yes(
    make_model: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, loader: str, file: str
) -> None:
    folder, ran = tmp_path / "mine", tmp_path / "ran"
    shutil.copytree(make_model("bert" if loader == "masked model" else "gpt_neox"), folder)
    config = json.loads((folder / file).read_text())
    names = ("AutoConfig", "AutoModelForCausalLM", "AutoModelForMaskedLM")
    changes: dict[str, Any] = {"model_type": "mine", "auto_map": dict.fromkeys(names, "mine.Mine")}
    if file == "tokenizer_config.json":
        changes = {"tokenizer_class": "Mine", "auto_map": {"AutoTokenizer": ["mine.Mine", "mine.Mine"]}}
    (folder / file).write_text(json.dumps({**config, **changes}))
    (folder / "mine.py").write_text(f"import pathlib\npathlib.Path({str(ran)!r}).touch()\n")
    monkeypatch.setattr("builtins.input", lambda *_: "y")
    with contextlib.suppress(UsageError):
        LOADERS[loader](str(folder))
    assert not ran.exists()


@pytest.mark.parametrize(
    ("file", "content"),
    [
        ("config.json", {"num_attention_heads": 0}),
        ("config.json", {"num_attention_heads": 3}),
        ("config.json", {"num_hidden_layers": "two"}),
        ("config.json", {"hidden_size": None}),
        ("config.json", {"model_type": []}),
        ("config.json", {"rope_parameters": 5}),
        ("tokenizer.json", {"model": {"type": "Nothing"}}),
        ("tokenizer.json", {}),
        ("tokenizer.json", []),
        ("tokenizer_config.json", {"tokenizer_class": 5}),
        ("tokenizer_config.json", []),
    ],
)
@pytest.mark.parametrize("loader", ["model", "masked model"])
def test_files_that_make_no_sense_are_refused_in_one_line(
    copy: Path, capfd: pytest.CaptureFixture[str], loader: str, file: str, content: Any
) -> None:
    if file == "config.json":
        content = {**json.loads((copy / file).read_text()), **content}
    (copy / file).write_text(json.dumps(content))
    with pytest.raises(UsageError, match=r"must be a (whole causal|masked) language model"):
        LOADERS[loader](str(copy))
    assert "Traceback" not in capfd.readouterr().err


def test_a_model_without_a_padding_token_in_its_configuration_is_trained(make_model: Callable[..., Path]) -> None:
    model = load(str(make_model("rwkv")), device="cpu")
    assert not hasattr(model.base.config, "pad_token_id")
    base = numbers(model, tuned=False)
    finetune(model, TEXTS[:2], AdapterConfig(epochs=1, target_modules="key"), seed=0, shown=False)
    assert np.array_equal(numbers(model, tuned=False), base)


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


def test_the_tokenizer_comes_without_the_weights(copy: Path) -> None:
    (copy / "model.safetensors").unlink()
    tokenizer, vocabulary = load_tokenizer(str(copy))
    assert vocabulary == 300
    assert tokenizer("a member")["input_ids"]


def test_custom_code_is_not_run_for_the_tokenizer_either(copy: Path) -> None:
    config = json.loads((copy / "config.json").read_text())
    (copy / "config.json").write_text(
        json.dumps({**config, "model_type": "mine", "auto_map": {"AutoConfig": "mine.C"}})
    )
    (copy / "mine.py").write_text("raise SystemExit('run')")
    with pytest.raises(UsageError, match="must be a whole causal language model"):
        load_tokenizer(str(copy))
