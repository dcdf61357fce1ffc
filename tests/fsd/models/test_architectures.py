"""Every causal architecture of transformers: scores and fine-tuning are those of plain forward passes."""

import inspect
from pathlib import Path

import numpy as np
import pytest
import torch
import yaml

from fsd.config import AdapterConfig
from fsd.models.adapters import adapted, quiet_peft, save_adapter
from fsd.models.finetuning import finetune
from fsd.models.language_model import load
from fsd.models.pretraining import train_tokenizer
from fsd.scoring.model_scorer import ModelScorer
from fsd.token_stats import Prompt

ROOT = Path(__file__).parents[3]
DATA = yaml.safe_load((ROOT / "tests" / "data" / "architectures.yaml").read_text(encoding="utf-8"))
ARCHITECTURES = DATA["architectures"]
TEXTS = ["the score of an unseen text moves more", "a member"]
TRAININGS = {"lora": {}, "all-linear": {"target_modules": "all-linear"}, "ia3": {"method": "ia3"}}
FIRST = {("llama", "lora"), ("mixtral", "all-linear"), ("mamba", "lora"), ("falcon_h1", "lora"), ("olmo2", "ia3")}
"""One of each kind: plain, fused experts, state-space, hybrid, and unknown to peft."""
CASES = [
    pytest.param(name, training, marks=() if (name, training) in FIRST else pytest.mark.slow, id=f"{name}-{training}")
    for name in ARCHITECTURES
    for training in TRAININGS
]


@pytest.fixture(scope="module")
def folder_of(tmp_path_factory):
    """Gives a folder with a tiny random model of an architecture."""
    made = {}

    def make(name):
        from transformers import CONFIG_MAPPING, AutoModelForCausalLM

        if name not in made:
            kind = CONFIG_MAPPING[name]
            takes = {*getattr(kind, "__dataclass_fields__", ()), *inspect.signature(kind.__init__).parameters}
            usual = {key: value for key, value in DATA["common"].items() if key in takes}
            special = ARCHITECTURES[name].get("config", {})
            folder = made[name] = tmp_path_factory.mktemp(name)
            torch.manual_seed(0)
            settings = {key: value for key, value in (usual | special).items() if value is not None}
            AutoModelForCausalLM.from_config(kind(**settings)).save_pretrained(folder)
            train_tokenizer(
                ["the score of an unseen text moves more than the score of a member"] * 4, 300
            ).save_pretrained(folder)
        return made[name]

    return make


def ours(model, *, tuned):
    return np.concatenate([stats.logp for stats in ModelScorer(model, tuned=tuned)(list(map(Prompt, TEXTS)))])


@torch.no_grad()
def plain(network, model):
    """Log-probabilities of the tokens by a forward pass of the whole network, a text at a time."""
    rows = []
    for ids in model.tokens(TEXTS):
        row = torch.tensor([[model.start, *ids]])
        logp = network(input_ids=row, use_cache=False).logits.double().log_softmax(-1)
        rows.append(logp[0, :-1].gather(-1, row[0, 1:, None])[:, 0].numpy())
    return np.concatenate(rows)


@pytest.mark.parametrize(("name", "training"), CASES)
def test_scores_and_training_are_those_of_transformers_and_peft(folder_of, tmp_path, name, training):
    from peft import PeftModel
    from transformers import AutoModelForCausalLM

    folder = folder_of(name)
    model = load(str(folder), device="cpu")
    base = ours(model, tuned=False)
    network = AutoModelForCausalLM.from_pretrained(folder)
    np.testing.assert_allclose(base, plain(network, model), rtol=0, atol=1e-5)
    logs = []
    usual = {"rank": 2, "epochs": 1, "batch_size": 2, "learning_rate": 0.05, "warmup_steps": 0}
    config = AdapterConfig(**usual | TRAININGS[training])
    finetune(model, TEXTS, config, seed=0, shown=False, log=lambda steps: logs.extend(steps.values()))
    # Neither the loss of a router nor another head; xLSTM computes a training by another kernel.
    assert logs[0]["lm_loss"] == pytest.approx(-base.mean(), abs=3e-4)
    tuned = ours(model, tuned=True)
    assert abs(tuned - base).max() > 1e-3
    assert np.array_equal(ours(model, tuned=False), base)
    save_adapter(model, tmp_path)
    with quiet_peft():
        by_peft = PeftModel.from_pretrained(network, str(tmp_path)).eval()
    np.testing.assert_allclose(tuned, plain(by_peft, model), rtol=0, atol=1e-5)
    again = adapted(model, tmp_path)
    np.testing.assert_allclose(ours(again, tuned=False), tuned, rtol=0, atol=1e-6)
