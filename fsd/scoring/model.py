"""Models to score with, wherever they are, and what can be computed with them, checked before anything else is done."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fsd import distributed
from fsd.config import AdapterConfig, APIConfig, ModelConfig
from fsd.errors import UsageError
from fsd.scoring.deviation import Deviation, evaluate
from fsd.scoring.scorers import build_scorers, frequency_file, reference_name, reference_scorer, view_inputs
from fsd.token_stats import Scorer
from fsd.views import Detector, ViewInputs, usable

if TYPE_CHECKING:
    from fsd.models.language_model import LanguageModel
    from fsd.scoring.cache import SQLiteStore

API = "api:"
"""Prefix of the name of a model behind an API."""
Tokens = Callable[[Sequence[str]], list[list[int]]]


@dataclass(frozen=True)
class Model:
    """A model without an adapter, opened by `open_model`.

    `tokens` (without special tokens), `decode` and `tokenizer`, its hash, are unknown for an API without `--tokenizer`.
    `local` is the model on this machine; `answers` keeps those of an API; `reference` names the reference model.
    """

    name: str
    scorers: Mapping[str, Scorer]
    tokens: Tokens | None = None
    decode: Callable[[list[int]], str] | None = None
    tokenizer: str = ""
    local: "LanguageModel | None" = None
    answers: "SQLiteStore | None" = None
    reference: str | None = None

    def computable(
        self, detectors: Sequence[Detector], texts: Sequence[str], inputs: ViewInputs | None = None, **how: Any
    ) -> tuple[list[Detector], list[str]]:
        """The detectors that can be computed on the texts, and remarks on the others; see `usable` for `how`."""
        excluded = {**_unaligned(detectors, texts, self.tokens, self.reference), **how.pop("excluded", {})}
        found, left_out = usable(detectors, texts, self.scorers, inputs, excluded=excluded, **how)
        return found, _remarks(left_out, found, texts, inputs, self.local)


@dataclass(frozen=True)
class ScoringJob:
    """Everything that scoring before and after fine-tuning needs; made by `prepare`."""

    texts: list[str]
    detectors: Sequence[Detector]
    left_out: dict[str, str]
    scorers: Mapping[str, Scorer]
    inputs: ViewInputs
    remarks: list[str]

    def score(self) -> Deviation:
        """Base, tuned and FSD scores of the texts, in every process of the job."""
        shown = distributed.is_main_process()
        return evaluate(self.texts, self.detectors, self.scorers, self.inputs, shown=shown)


def prepare(  # noqa: PLR0913 - each argument is a choice of its own, most of them with a default
    model: "LanguageModel",
    texts: Sequence[str],
    unseen: Sequence[str],
    detectors: Sequence[Detector],
    config: ModelConfig,
    *,
    training: AdapterConfig | None = None,
    scorers: Mapping[str, Scorer] | None = None,
    strict: bool = True,
    shots: int = 2,
    seed: int = 42,
) -> ScoringJob:
    """Check which detectors can be computed on the texts, and that the training is possible.

    The unseen texts give the prefix of `recall` and the words of `neighbour`. `training` is None for base scores
    alone, or for a model with an adapter; `scorers`, e.g. memoized ones, take the place of the model's own. Unless
    `strict`, a detector that cannot be computed is left out.
    """
    from fsd.models.finetuning import plan

    scorers = dict(scorers or build_scorers(model, config))
    if not model.adapted:
        if training is None:
            scorers.pop("tuned", None)
        else:
            plan(model, unseen, training)
    inputs = view_inputs(config, unseen, shots=shots, seed=seed)
    reference = reference_name(config) if "reference" in scorers else None
    excluded = _unaligned(detectors, texts, model.tokens, reference)
    found, left_out = usable(detectors, texts, scorers, inputs, excluded=excluded, strict=strict)
    remarks = _remarks(left_out, found, texts, inputs, model)
    return ScoringJob(list(texts), found, left_out, scorers, inputs, remarks)


def _unaligned(
    detectors: Sequence[Detector], texts: Sequence[str], tokens: Tokens | None, reference: str | None
) -> dict[str, str]:
    """The detectors that compare tokens with a reference model which divides the texts into others, and why not."""
    from fsd.models.language_model import load_tokenizer, token_ids

    aligned = [d.name for d in detectors if "reference" in d.views and "token" in d.needs]
    if not aligned or reference is None or tokens is None:
        return {}
    tokenizer, _ = load_tokenizer(reference)
    if token_ids(tokenizer, texts) == tokens(texts):
        return {}
    return dict.fromkeys(aligned, "the reference model has another tokenizer")


def _remarks(
    left_out: Mapping[str, str],
    detectors: Sequence[Detector],
    texts: Sequence[str],
    inputs: ViewInputs | None,
    model: "LanguageModel | None",
) -> list[str]:
    """A line for each detector that is left out, and on texts that exceed the context with the prefix of `recall`."""
    remarks = [f"{name} left out: {reason}" for name, reason in left_out.items()]
    if model and inputs and any("primed" in detector.views for detector in detectors):
        size = len(model.tokens([inputs.prefix])[0])
        cut = sum(size + len(ids) > model.context for ids in model.tokens(texts))
        if cut:
            many = f"all {len(texts):,}" if cut == len(texts) else f"{cut:,} of {len(texts):,}"
            remarks.append(
                f"recall: the prefix is too long for the {model.context}-token context in {many} texts and was cut; "
                "try fewer --shots"
            )
    return remarks


def open_model(config: ModelConfig, api: APIConfig, answers: str | Path) -> Model:
    """Load a model, or connect to its API, whose answers are kept in a file, so that an interrupted command goes on."""
    from fsd.models import language_model
    from fsd.scoring.api import Client, CompletionsScorer, PromptTokens, key_for
    from fsd.scoring.cache import MemoizedScorer, SQLiteStore
    from fsd.scoring.token_frequencies import FrequencyTable, fingerprint, unigram_scorer

    if not config.model.startswith(API):
        model = language_model.load(config)
        scorers = {name: scorer for name, scorer in build_scorers(model, config).items() if name != "tuned"}
        own = fingerprint(model.tokenizer)
        reference = reference_name(config)
        return Model(config.model, scorers, model.tokens, model.tokenizer.decode, own, model, reference=reference)
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
    opened = Model(config.model, scorers, answers=store, reference=config.reference_model)
    return replace(opened, tokens=known.tokens, decode=known.decode, tokenizer=known.fingerprint) if known else opened
