"""One model to score with, wherever it is: on this machine or behind a completions API."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fsd.config import APIConfig, ModelConfig
from fsd.token_stats import Scorer
from fsd.views import Detector, ViewInputs, usable

if TYPE_CHECKING:
    from fsd.models.language_model import LanguageModel
    from fsd.scoring.cache import SQLiteStore

API = "api:"
"""Prefix of the name of a model behind an API."""


@dataclass(frozen=True)
class Model:
    """A model without an adapter, opened by `open_model`.

    Attributes:
        name: as the user gave it.
        scorers: reader → scorer.
        tokens: texts → token ids, without special tokens; None for an API without `--tokenizer`.
        decode: token ids → text, likewise.
        tokenizer: hash of its tokenizer; empty if it is not known.
        local: the model itself; None behind an API.
        answers: where the answers of an API are kept; None for a model on this machine.
    """

    name: str
    scorers: Mapping[str, Scorer]
    tokens: Callable[[Sequence[str]], list[list[int]]] | None
    decode: Callable[[list[int]], str] | None
    tokenizer: str = ""
    local: "LanguageModel | None" = None
    answers: "SQLiteStore | None" = None

    def computable(
        self, detectors: Sequence[Detector], texts: Sequence[str], inputs: ViewInputs | None = None, **how: Any
    ) -> tuple[list[Detector], list[str]]:
        """The detectors that can be computed on the texts, and a remark for each of the others; see `fsd.views.usable`.

        Raises:
            UsageError: as `usable`.
        """
        found, left_out = usable(detectors, texts, self.scorers, inputs, **how)
        return found, [f"{name} left out: {reason}" for name, reason in left_out.items()]


def open_model(config: ModelConfig, api: APIConfig, answers: str | Path) -> Model:
    """Load a model, or connect to its API.

    Args:
        config: which model, and how it is run.
        api: access to an API.
        answers: file that keeps the answers of an API, so that an interrupted command goes on.

    Raises:
        UsageError: if the model cannot be loaded, or a setting of the API is invalid.
    """
    from fsd.models import language_model
    from fsd.scoring.api.prompt_ids import PromptTokens
    from fsd.scoring.api.scorer import api_scorers
    from fsd.scoring.cache import SQLiteStore
    from fsd.scoring.scorers import build_scorers
    from fsd.scoring.token_frequencies import fingerprint

    if not config.model.startswith(API):
        model = language_model.load(config)
        scorers = {name: scorer for name, scorer in build_scorers(model, config).items() if name != "tuned"}
        own = fingerprint(model.tokenizer)
        return Model(config.model, scorers, model.tokens, model.tokenizer.decode, own, model)
    store = SQLiteStore(Path(answers), limit=None, required=True)
    scorers = api_scorers(config, api, store)
    if api.tokenizer is None:
        return Model(config.model, scorers, None, None, answers=store)
    tokenizer, _ = language_model.load_tokenizer(api.tokenizer, revision=config.revision)
    known = PromptTokens(tokenizer, api.tokenizer)
    return Model(config.model, scorers, known.tokens, known.decode, known.fingerprint, answers=store)
