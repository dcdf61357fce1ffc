"""One model to score with, wherever it is: on this machine or behind a completions API."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fsd.config import APIConfig, ModelConfig
from fsd.errors import UsageError
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

    `tokens` (without special tokens), `decode` and `tokenizer`, its hash, are unknown for an API without `--tokenizer`.
    `local` is the model on this machine; `answers` keeps those of an API.
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
        """The detectors that can be computed on the texts, and a remark for each of the others, by `usable`."""
        found, left_out = usable(detectors, texts, self.scorers, inputs, **how)
        return found, [f"{name} left out: {reason}" for name, reason in left_out.items()]


def open_model(config: ModelConfig, api: APIConfig, answers: str | Path) -> Model:
    """Load a model, or connect to its API, whose answers are kept in a file, so that an interrupted command goes on."""
    from fsd.models import language_model
    from fsd.scoring.api import Client, CompletionsScorer, PromptTokens, key_for
    from fsd.scoring.cache import MemoizedScorer, SQLiteStore
    from fsd.scoring.scorers import build_scorers, frequency_file, reference_scorer
    from fsd.scoring.token_frequencies import FrequencyTable, fingerprint, unigram_scorer

    if not config.model.startswith(API):
        model = language_model.load(config)
        scorers = {name: scorer for name, scorer in build_scorers(model, config).items() if name != "tuned"}
        own = fingerprint(model.tokenizer)
        return Model(config.model, scorers, model.tokens, model.tokenizer.decode, own, model)
    if api.base_url is None:
        raise UsageError(
            f"model {config.model} must come with --base-url, e.g. http://localhost:8000/v1; there is none"
        )
    if api.price is not None and not api.price >= 0:
        raise UsageError(f"price must be at least 0; got {api.price}")
    client = Client(api.base_url, key=key_for(api.base_url), per_minute=api.requests_per_minute)
    scorers, known = {}, None
    if api.tokenizer is not None:
        tokenizer, vocabulary = language_model.load_tokenizer(api.tokenizer, revision=config.revision)
        known = PromptTokens(tokenizer, api.tokenizer)
        table = frequency_file(replace(config, model=api.tokenizer))
        if table:
            frequencies = FrequencyTable.load(table).matching(tokenizer, vocabulary, api.tokenizer)
            scorers["unigram"] = unigram_scorer(frequencies, known.tokens)
    name = config.model.removeprefix(API)
    scorer = CompletionsScorer(
        client, name, start=api.start_token, tokens=known, concurrency=api.concurrency, description="API"
    )
    store = SQLiteStore(Path(answers), limit=None, required=True)
    scorers["base"] = MemoizedScorer(scorer, store, scorer.key)
    if config.reference_model:
        scorers["reference"] = reference_scorer(config.reference_model, config, None)
    if known is None:
        return Model(config.model, scorers, None, None, answers=store)
    return Model(config.model, scorers, known.tokens, known.decode, known.fingerprint, answers=store)
