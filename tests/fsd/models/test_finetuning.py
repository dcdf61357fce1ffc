"""What the trainer is fed, what each method really does, and what it must leave alone."""

import math
import os
import random
import subprocess
import sys
import time
from dataclasses import replace

import numpy as np
import pytest
import torch
from accelerate.state import AcceleratorState

from fsd.config import AdapterConfig
from fsd.errors import UsageError
from fsd.models import adapters, finetuning
from fsd.models.adapters import adapter_fingerprint, peft_config
from fsd.models.finetuning import finetune, orthogonal_penalty
from fsd.models.language_model import load, wrap
from fsd.scoring.model_scorer import ModelScorer
from fsd.token_stats import Prompt
from pipelines.experiment.registration import training_params

TEXTS = [f"the score of an unseen text {word} moves more than a member" for word in "abcdefgh"]
METHODS = ("lora", "ia3", "adalora")
LORA_FIRST = ("lora", *(pytest.param(method, marks=pytest.mark.slow) for method in METHODS[1:]))


@pytest.fixture
def model(tiny):
    return load(str(tiny), device="cpu")


def settings(method="lora", **changes):
    defaults = {"method": method, "rank": 4, "epochs": 5, "batch_size": 4, "learning_rate": 0.02}
    return AdapterConfig(**defaults | changes)


def train(model, config, texts=TEXTS, *, seed=0, **options):
    logs = []
    options = {"log": lambda steps: logs.extend((step, dict(numbers)) for step, numbers in steps.items())} | options
    finetune(model, texts, config, seed=seed, shown=False, **options)
    return logs


def fed(model, monkeypatch, config, texts=TEXTS, **options):
    """The batches of a training."""
    batches = []
    original = finetuning._trainer

    def spying(*args):
        trainer = original(*args)
        compute = trainer.compute_loss

        def compute_loss(model, inputs, *rest, **named):
            batches.append({k: v.clone() for k, v in inputs.items() if isinstance(v, torch.Tensor)})
            return compute(model, inputs, *rest, **named)

        trainer.compute_loss = compute_loss
        return trainer

    with monkeypatch.context() as patch:
        patch.setattr(finetuning, "_trainer", spying)
        train(model, config, texts, **options)
    return batches


@pytest.mark.parametrize("method", METHODS)
def test_the_loss_falls(model, method):
    logs = train(model, settings(method, epochs=8))
    assert [step for step, _ in logs] == list(range(1, 17))
    losses = [numbers["lm_loss"] for _, numbers in logs]
    assert np.mean(losses[-4:]) < np.mean(losses[:4]) - 0.1
    assert {"loss", "lm_loss", "learning_rate", "grad_norm"} <= logs[0][1].keys()
    assert all((numbers["loss"] > numbers["lm_loss"] + 0.01) == (method == "adalora") for _, numbers in logs)


@pytest.mark.parametrize("architecture", ["gpt_neox", "gpt2", "mixtral"])
def test_the_first_loss_is_that_of_the_base(make_model, architecture):
    """Over the tokens that are predicted, whatever the name of the class, and without the loss of a router."""
    still = {"attn_pdrop": 0.0, "resid_pdrop": 0.0, "embd_pdrop": 0.0} if architecture == "gpt2" else {}
    model = load(str(make_model(architecture, **still)), device="cpu")
    stats = list(ModelScorer(model)([Prompt(text) for text in TEXTS]))
    expected = -np.concatenate([s.logp for s in stats]).mean()
    logs = train(model, settings(batch_size=8, epochs=1, dropout=0.0))
    assert logs[0][1]["lm_loss"] == pytest.approx(expected, abs=1e-5)


def test_training_rows_are_start_and_text_without_an_end_and_pads_are_masked(model, monkeypatch):
    texts = [*TEXTS[:3], "a member"]
    batches = fed(model, monkeypatch, settings(epochs=1), texts)
    rows = [
        (ids[mask.bool()].tolist(), labels[mask.bool()].tolist(), labels[~mask.bool()].tolist())
        for batch in batches
        for ids, mask, labels in zip(batch["input_ids"], batch["attention_mask"], batch["labels"], strict=True)
    ]
    expected = [[model.start, *ids] for ids in model.tokens(texts)]
    assert sorted(ids for ids, _, _ in rows) == sorted(expected)
    assert all(labels == ids for ids, labels, _ in rows)
    assert any(pads for _, _, pads in rows)
    assert all(label == -100 for _, _, pads in rows for label in pads)


def test_every_token_of_a_long_text_is_predicted_once(model, monkeypatch):
    text = "the score of an unseen text moves more than the score of a member. " * 12
    batches = fed(model, monkeypatch, settings(epochs=1, batch_size=1), [text])
    ids = model.tokens([text])[0]
    assert len(batches) == math.ceil(len(ids) / (model.context - 1)) > 2
    assert all(batch["input_ids"].shape[1] <= model.context for batch in batches)
    predicted = sorted(token for batch in batches for token in batch["labels"][0, 1:].tolist())
    assert predicted == sorted(ids)


@pytest.mark.parametrize("method", LORA_FIRST)
def test_the_same_seed_gives_the_same_adapter_and_another_another(model, method):
    prints = []
    for seed in (0, 0, 1):
        torch.manual_seed(len(prints))  # the state outside must not matter
        train(model, settings(method), seed=seed)
        prints.append(adapter_fingerprint(model))
    assert prints[0] == prints[1] != prints[2]


def test_random_states_settings_and_forward_are_left_as_they_were(model):
    def seed():
        torch.manual_seed(5)
        random.seed(5)
        np.random.seed(5)  # noqa: NPY002 - the state that a trainer would overwrite

    seed()
    expected = torch.rand(1).item(), random.random(), np.random.rand()  # noqa: NPY002 - see above
    seed()
    base = model.base
    before = base.config.to_dict(), base.generation_config.to_dict(), base.model_tags
    AcceleratorState._reset_state()
    train(model, settings(epochs=1))
    assert (base.config.to_dict(), base.generation_config.to_dict(), base.model_tags) == before
    assert not AcceleratorState._shared_state  # so that the caller's own may have any precision
    assert "forward" not in vars(model.base)
    assert model.tokenizer.pad_token == "<|endoftext|>"
    assert (torch.rand(1).item(), random.random(), np.random.rand()) == expected  # noqa: NPY002 - see above


def test_what_the_caller_has_set_for_other_trainings_has_no_effect(model, monkeypatch):
    from accelerate import Accelerator

    train(model, settings(epochs=1))
    expected = adapter_fingerprint(model)
    environment = {"MIXED_PRECISION": "bf16", "GRADIENT_ACCUMULATION_STEPS": "2", "DYNAMO_BACKEND": "eager"}
    for name, value in environment.items():
        monkeypatch.setenv(f"ACCELERATE_{name}", value)
    train(model, settings(epochs=1))
    assert adapter_fingerprint(model) == expected
    assert os.environ["ACCELERATE_MIXED_PRECISION"] == "bf16"
    # `accelerate config` and a notebook.
    theirs = Accelerator(mixed_precision="bf16", cpu=True)
    with torch.inference_mode():
        train(model, settings(epochs=1))
        assert adapter_fingerprint(model) == expected
    assert theirs.mixed_precision == "bf16"
    with torch.no_grad():
        train(model, settings(epochs=1))
        assert adapter_fingerprint(model) == expected
        assert not torch.is_grad_enabled()
    AcceleratorState._reset_state()


def test_a_model_that_was_made_without_gradients_is_trained(tiny):
    from transformers import AutoModelForCausalLM

    with torch.inference_mode():
        ours = load(str(tiny), device="cpu")
        theirs = wrap(AutoModelForCausalLM.from_pretrained(tiny))
        for model in (ours, theirs):
            train(model, settings(epochs=1))
    assert adapter_fingerprint(ours) == adapter_fingerprint(theirs)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # of MLflow's own
def test_autologging_makes_no_run_of_a_training(model, tmp_path, monkeypatch):
    import mlflow

    monkeypatch.chdir(tmp_path)
    mlflow.set_tracking_uri(f"sqlite:///{tmp_path}/mlflow.db")
    try:
        mlflow.transformers.autolog(silent=True)
        with mlflow.start_run() as theirs:
            train(model, settings(epochs=1))
        assert mlflow.get_run(theirs.info.run_id).data.params == {}
        assert len(mlflow.search_runs(output_format="list")) == 1
        train(model, settings(epochs=1))
        assert len(mlflow.search_runs(output_format="list")) == 1
    finally:
        mlflow.transformers.autolog(disable=True)
        mlflow.set_tracking_uri(None)


def test_a_tokenizer_that_has_a_start_token_alone_is_trained_to_the_same_adapter(model):
    train(model, settings(epochs=1))
    expected = adapter_fingerprint(model)
    model.tokenizer.eos_token = model.tokenizer.pad_token = None
    train(model, settings(epochs=1))
    assert adapter_fingerprint(model) == expected


def test_the_defaults_are_the_papers(tmp_path):
    config = AdapterConfig()
    arguments = finetuning._arguments(torch.device("cpu"), config, 300, 0, str(tmp_path))
    assert (config.method, config.rank, config.alpha, config.dropout) == ("lora", 16, 32, 0.05)
    assert (arguments.learning_rate, arguments.num_train_epochs, arguments.per_device_train_batch_size) == (1e-3, 3, 8)
    assert (arguments.lr_scheduler_type, arguments.warmup_steps) == ("cosine", 10)
    assert finetuning._arguments(torch.device("cpu"), config, 10, 0, str(tmp_path)).warmup_steps == 5
    assert (arguments.optim, arguments.weight_decay) == ("adamw_torch", 5e-4)


# AdaLoRA


def test_adalora_moves_its_budget_between_layers(model):
    config = settings("adalora", epochs=10)
    train(model, config)
    pattern = model.model.peft_config["default"].rank_pattern
    kept = {name: sum(mask) for name, mask in pattern.items()}
    layers = model.base.config.num_hidden_layers
    assert len(kept) == layers
    assert sum(kept.values()) == config.rank * layers
    assert all(len(mask) == 6 for mask in pattern.values())
    for name, weight in model.model.named_parameters():
        if "lora_E" in name:
            mask = torch.tensor(next(m for key, m in pattern.items() if key.split(".lora_E")[0] in name))
            assert (weight.detach()[~mask] == 0).all()
            assert (weight.detach()[mask] != 0).all()


def test_the_orthogonal_penalty_is_what_peft_adds_to_its_own_loss(model):
    train(model, settings("adalora"))
    ids = torch.tensor([[model.start, *model.tokens(TEXTS[:1])[0]]])
    with_penalty = model.model(input_ids=ids, labels=ids).loss
    without = model.base(input_ids=ids, labels=ids).loss
    penalty = orthogonal_penalty(model.model)
    assert isinstance(penalty, torch.Tensor)
    assert penalty.item() == pytest.approx((with_penalty - without).item(), abs=1e-5)
    assert penalty.item() > 0.01
    penalty.backward()
    grads = [p.grad for n, p in model.model.named_parameters() if "lora_A" in n or "lora_B" in n]
    assert all(grad is not None and grad.abs().sum() > 0 for grad in grads)


# Several processes

WORKER = """
import sys, torch
from fsd.config import AdapterConfig
from fsd.models.finetuning import finetune
from fsd.models.language_model import load
results = {}
for method, epochs, counts in (("lora", 2, (8, 7, 5, 1)), ("adalora", 5, (7,))):
    for count in counts:  # the last batch of two processes: 2 + 2 texts, 2 + 1, 1 + 0, 1 + 0
        model, logs = load(sys.argv[1], device="cpu"), []
        texts = [f"the score of an unseen text {i} " + "moves more " * i for i in range(count)]
        config = AdapterConfig(method=method, rank=4, epochs=epochs, batch_size=4, learning_rate=0.02, dropout=0.0)
        finetune(model, texts, config, seed=0, log=lambda steps: logs.extend(steps.values()), shown=False)
        weights = {n: p.detach() for n, p in model.model.named_parameters() if "lora" in n}
        results[f"{method}, {count} texts"] = {"weights": weights, "logs": logs}
if torch.distributed.is_initialized() and torch.distributed.get_rank():
    assert not any(result["logs"] for result in results.values())
else:
    torch.save(results, sys.argv[2])
"""


@pytest.mark.slow
def test_two_processes_train_the_adapter_of_one_for_any_number_of_texts(tiny, tmp_path, root):
    script = tmp_path / "worker.py"
    script.write_text(WORKER)
    launch = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    results = []
    for name, start in (("one", []), ("two", launch)):
        command = [sys.executable, *start, str(script), str(tiny), str(tmp_path / name)]
        environment = {**os.environ, "PYTHONPATH": str(root)}
        subprocess.run(command, check=True, capture_output=True, timeout=240, env=environment)
        results.append(torch.load(tmp_path / name))
    steps = {"lora, 8 texts": 4, "lora, 7 texts": 4, "lora, 5 texts": 4, "lora, 1 texts": 2, "adalora, 7 texts": 10}
    assert results[0].keys() == steps.keys()
    for name, one in results[0].items():
        two = results[1][name]
        assert len(one["logs"]) == steps[name], name
        for key in ("loss", "lm_loss", "grad_norm", "learning_rate"):
            pairs = [[numbers[key] for numbers in run["logs"]] for run in (one, two)]
            assert pairs[1] == pytest.approx(pairs[0], abs=2e-5), (name, key)
        assert len(one["weights"]) >= 4
        for parameter, weight in one["weights"].items():
            assert torch.allclose(weight, two["weights"][parameter], rtol=0, atol=1e-6), (name, parameter)


# Targets


def test_targets_are_found_by_architecture(make_model):
    for architecture, method, targets in [
        ("gpt_neox", "lora", {"query_key_value"}),
        ("llama", "ia3", {"k_proj", "v_proj", "down_proj"}),
        ("gptj", "adalora", {"q_proj", "v_proj"}),
        ("gemma2", "ia3", {"q_proj", "v_proj", "down_proj"}),
    ]:
        model = load(str(make_model(architecture)), device="cpu")
        assert set(peft_config(model, settings(method), steps=10).target_modules) == targets, architecture


@pytest.mark.parametrize("method", LORA_FIRST)
def test_an_architecture_that_peft_does_not_know_is_adapted_and_said(make_model, method, capsys):
    model = load(str(make_model("phi3")), device="cpu")
    adapters._remark.cache_clear()
    for modules, adapted in (
        ("auto", {"self_attn.qkv_proj", "self_attn.o_proj"}),
        ("qkv_proj, down_proj", {"qkv_proj", "down_proj"}),
    ):
        train(model, settings(method, target_modules=modules))
        assert set(model.model.peft_config["default"].target_modules) == adapted
    train(model, settings(method, target_modules="all-linear"))
    targets = set(model.model.peft_config["default"].target_modules)
    assert len(targets) >= 3
    assert "lm_head" not in targets
    said = capsys.readouterr().err
    assert said.count(f"target-modules auto for {method} on phi3: peft names none that it can adapt") == 1
    assert "so that self_attn.o_proj, self_attn.qkv_proj are adapted" in said


def test_what_peft_refuses_is_refused_before_the_model_is_loaded(make_model, capsys):
    check = adapters.check_targets
    adapters._remark.cache_clear()
    check(str(make_model("mamba")), None, settings(target_modules="all-linear"))
    assert (
        "all-linear for lora on mamba: peft names none that it can adapt, so that dt_proj, in"
        in capsys.readouterr().err
    )
    with pytest.raises(
        UsageError, match=r"'out_proj' must suit lora and architecture 'mamba'; .* incompatible with Mamba"
    ):
        check(str(make_model("mamba")), None, settings(target_modules="out_proj"))
    with pytest.raises(UsageError, match="must be auto, all-linear or of dt_proj, in_proj, out_proj, x_proj; got"):
        check(str(make_model("mamba")), None, settings(target_modules="q_proj"))


def test_fused_experts_are_trained_without_dropout_which_is_said(make_model, capsys):
    adapters._remark.cache_clear()
    model = load(str(make_model("mixtral")), device="cpu")
    train(model, settings(epochs=1, target_modules="all-linear"))
    config = model.model.peft_config["default"]
    assert config.lora_dropout == 0
    assert {"down_proj", "gate_up_proj"} <= set(config.target_parameters)
    assert capsys.readouterr().err == "dropout 0, not 0.05: peft has none for the fused experts of mixtral\n"
    assert training_params(settings(target_modules="all-linear"), model)["dropout"] == 0
    adapters.detach(model)
    assert not any("base_layer" in name for name, _ in model.base.named_modules())


# Bad input and accidents


def logp(model, *, tuned=False):
    return next(ModelScorer(model, tuned=tuned)([Prompt("a member")])).logp


def raising(error):
    def stop(*_):
        raise error

    return stop


def test_what_ends_a_training_leaves_the_base_bare(model, monkeypatch):
    """Of the numbers, only what the command line refuses by another message; the rest is in docs/bad_input.tsv."""
    base = logp(model)
    cases = [
        ({"learning_rate": math.nan}, TEXTS, {}, UsageError, "learning-rate must be greater than 0; got nan"),
        ({"method": "adalora", "epochs": 1}, TEXTS, {}, UsageError, "adalora must have at least 5 steps .*; got 2"),
        ({}, [], {}, UsageError, "at least one unseen text"),
        ({}, ["a", ""], {}, UsageError, "at least one token"),
        ({"learning_rate": 1e30, "epochs": 20}, TEXTS, {}, UsageError, r"loss must stay finite; at step \d+ it is"),
        ({}, TEXTS, {"log": raising(KeyboardInterrupt)}, KeyboardInterrupt, None),
        ({}, TEXTS, {"after_epoch": raising(StopIteration)}, StopIteration, None),
        ({}, TEXTS, {}, UsageError, "must fit the memory; batch-size 4 does not"),
    ]
    full = raising(torch.OutOfMemoryError("out of memory"))
    for changes, texts, options, error, message in cases:
        with monkeypatch.context() as patch:
            if message and "memory" in message:
                patch.setattr(finetuning, "orthogonal_penalty", full)
            with pytest.raises(error, match=message):
                train(model, settings(**changes), texts, **options)
        assert not model.adapted
        assert "forward" not in vars(model.base)
        assert not any("lora" in name for name, _ in model.base.named_modules())
    assert np.array_equal(logp(model), base)
    train(model, settings())
    assert model.adapted


def test_training_says_nothing_but_its_own_progress(model, capfd, monkeypatch):
    train(model, settings())
    assert capfd.readouterr() == ("", "")
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)  # elsewhere it waits before it says anything
    finetune(model, TEXTS, settings(), seed=0, shown=True)
    out, err = capfd.readouterr()
    lines = [line for line in err.replace("\r", "\n").splitlines() if line.strip()]
    assert out == ""
    assert lines
    assert all(line.startswith("fine-tuning ") for line in lines)


def test_scoring_after_every_epoch_leaves_the_training_as_it_is(model):
    train(model, settings())
    expected, final = adapter_fingerprint(model), logp(model, tuned=True)
    seen = []
    train(model, settings(), after_epoch=lambda epoch: seen.append((epoch, logp(model, tuned=True))))
    assert adapter_fingerprint(model) == expected
    assert [epoch for epoch, _ in seen] == [1, 2, 3, 4, 5]
    assert not np.array_equal(seen[0][1], final)
    assert np.array_equal(seen[-1][1], final)


@pytest.mark.parametrize("method", LORA_FIRST)
def test_a_killed_training_begins_anew_with_the_same_adapter_and_a_finished_one_is_not_repeated(
    model, method, tmp_path, monkeypatch
):
    config = settings(method, dropout=0.1)
    logs = train(model, config)
    expected = adapter_fingerprint(model)
    with pytest.raises(KeyboardInterrupt):
        train(model, config, cache=tmp_path, after_epoch=raising(KeyboardInterrupt))
    for trained in (10, 0 if method != "adalora" else 10):
        again = []
        batches = fed(
            model, monkeypatch, config, cache=tmp_path, log=lambda steps, again=again: again.extend(steps.items())
        )
        assert len(batches) == trained
        assert adapter_fingerprint(model) == expected
        assert again == logs


def test_finished_trainings_are_checked_and_the_oldest_deleted(model, tmp_path, monkeypatch):
    config = settings(epochs=1)
    train(model, config, cache=tmp_path)
    expected = adapter_fingerprint(model)
    (file,) = tmp_path.glob("*/adapter/adapter_model.safetensors")
    file.write_bytes(file.read_bytes()[:-1] + b"!")
    assert len(fed(model, monkeypatch, config, cache=tmp_path)) == 2
    assert adapter_fingerprint(model) == expected
    os.utime(file.parents[1], (time.time() - 9, time.time() - 9))
    size = sum(path.stat().st_size for path in file.parents[1].rglob("*"))
    monkeypatch.setattr(finetuning, "KEEP_BYTES", 1.5 * size)
    train(model, config, seed=1, cache=tmp_path)
    assert file.parents[1] not in tmp_path.iterdir()
    monkeypatch.setattr(adapters, "write_whole", raising(OSError(28, "No space left on device")))
    train(model, config, seed=2, cache=tmp_path)
    assert model.adapted


def test_another_training_has_another_folder(model):
    pieces, config = [finetuning.Piece([0, 1, 2], [True] * 3)], settings()
    others = [
        ([pieces[0]._replace(ids=[0, 1, 3])], config, 0),
        (pieces, settings(learning_rate=0.01), 0),
        (pieces, config, 1),
    ]
    assert len({finetuning.training_key(model, *other) for other in [(pieces, config, 0), *others]}) == 4
    key = finetuning.training_key(model, pieces, config, 0)
    # The same weights compute otherwise by another configuration, such as another scaling of positions.
    reconfigured = replace(model, settings="another")
    assert finetuning.training_key(reconfigured, pieces, config, 0) != key
