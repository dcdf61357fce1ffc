"""A saved adapter of the tiny model, and how the tests of this folder train and score."""

import numpy as np
import pytest

from fsd.config import AdapterConfig
from fsd.models.adapters import save_adapter
from fsd.models.finetuning import finetune
from fsd.models.language_model import load
from fsd.scoring.model_scorer import ModelScorer
from fsd.token_stats import Prompt

TEXTS = ["the score of an unseen text", "a member moves more", "more or less text", "an unseen score"]


def _train(model, method="lora", **settings):
    config = AdapterConfig(method=method, epochs=4, batch_size=2, rank=4, **settings)
    finetune(model, TEXTS, config, seed=0, shown=False)


@pytest.fixture(scope="session")
def train():
    """`train(model, method, **settings)` gives a model an adapter."""
    return _train


@pytest.fixture(scope="session")
def numbers():
    """`numbers(model, tuned=...)`: every token statistic of four texts."""

    def computed(model, *, tuned):
        stats = ModelScorer(model, tuned=tuned)([Prompt(text) for text in TEXTS])
        return np.concatenate([[s.logp, s.mean, s.std, s.top] for s in stats], axis=1)

    return computed


@pytest.fixture(scope="session")
def adapter(tiny, tmp_path_factory):
    """The folder of a LoRA adapter."""
    model = load(str(tiny), device="cpu")
    _train(model)
    folder = tmp_path_factory.mktemp("adapters") / "lora"
    save_adapter(model, folder)
    return folder
