"""A saved adapter of the tiny model."""

from pathlib import Path

import pytest

from fsd.config import AdapterConfig
from fsd.models.adapters import save_adapter
from fsd.models.finetuning import finetune
from fsd.models.language_model import load

TEXTS = ["the score of an unseen text", "a member moves more", "more or less text", "an unseen score"]


@pytest.fixture(scope="session")
def adapter(tiny: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a LoRA adapter."""
    model = load(str(tiny), device="cpu")
    finetune(model, TEXTS, AdapterConfig(epochs=4, batch_size=2, rank=4), seed=0, shown=False)
    folder = tmp_path_factory.mktemp("adapters") / "lora"
    save_adapter(model, folder)
    return folder
