"""What a training will do, before it does it: pieces of text, optimiser steps, and settings that cannot be."""

import math
from collections.abc import Sequence
from typing import Any

from fsd.config import AdapterConfig
from fsd.errors import UsageError
from fsd.models.adapters import peft_config
from fsd.models.language_model import LanguageModel


def plan(
    language_model: LanguageModel, texts: Sequence[str], config: AdapterConfig
) -> tuple[list[list[int]], int, Any]:
    """What a training would do, without doing it: token ids of its pieces of text, optimiser steps, peft configuration.

    Raises:
        UsageError: for no texts, impossible hyperparameters, or an architecture without known targets.
    """
    if not texts:
        raise UsageError("fine-tuning must have at least one unseen text; got none")
    _check(config)
    pieces = _pieces(language_model, texts)
    steps = math.ceil(len(pieces) / config.batch_size) * config.epochs
    return pieces, steps, peft_config(language_model, config, steps=steps)


def _check(config: AdapterConfig) -> None:
    positive = {
        "rank": config.rank,
        "alpha": config.alpha,
        "learning-rate": config.learning_rate,
        "epochs": config.epochs,
        "batch-size": config.batch_size,
    }
    for name, value in positive.items():
        if not 0 < value < math.inf:
            raise UsageError(f"{name} must be greater than 0; got {value}")
    if not 0 <= config.dropout < 1:
        raise UsageError(f"dropout must be at least 0 and below 1; got {config.dropout}")
    if config.warmup_steps < 0 or config.weight_decay < 0:
        raise UsageError("warmup-steps and weight-decay must be at least 0; got a negative value")


def _pieces(language_model: LanguageModel, texts: Sequence[str]) -> list[list[int]]:
    """Start token + tokens of each text, in pieces of at most one context.

    A piece begins with the last token of the one before, so that every token is predicted once.
    """
    size = language_model.context
    rows = [[language_model.start, *ids] for ids in language_model.tokens(texts)]
    return [row[i : i + size] for row in rows for i in range(0, len(row) - 1, size - 1)]
