"""Models to score with, wherever they are, and what can be computed with them, checked before anything else is done."""

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fsd import distributed
from fsd.config import AdapterConfig, APIConfig, ModelConfig
from fsd.errors import UsageError
from fsd.net.hub import EMBEDDED, EMBEDDED_TWIN, locate
from fsd.scoring.deviation import Deviation, evaluate
from fsd.token_stats import Scorer
from fsd.views import Detector, ViewInputs, usable

if TYPE_CHECKING:
    from fsd.models.language_model import LanguageModel
    from fsd.scoring.cache import SQLiteStore


TABLE = "frequencies.npz"
"""Name of the token-frequency table in a model's folder."""
WORD_SWAPS = 5
"""Neighbours of a text by word swaps, each of which costs a forward pass."""


def build_scorers(language_model: "LanguageModel", config: ModelConfig) -> dict[str, Scorer]:
    """Scorers by reader name: the model with its adapter off and on, the reference model, and token frequencies."""
    from fsd.scoring.cache import FILE, SQLiteStore
    from fsd.scoring.token_frequencies import FrequencyTable, unigram_scorer

    folder = cache_folder(config)
    store = SQLiteStore(folder / FILE) if folder and distributed.is_main_process() else None
    scorers = {name: _scorer(name, language_model, config, store) for name in ("base", "tuned")}
    reference = reference_name(config)
    if reference:
        scorers["reference"] = reference_scorer(reference, config, store)
    table = frequency_file(config)
    if table:
        frequencies = FrequencyTable.load(table).matching(
            language_model.tokenizer, language_model.base.config.get_text_config().vocab_size, config.model
        )
        scorers["unigram"] = unigram_scorer(frequencies, language_model.tokens)
    return scorers


def reader_names(config: ModelConfig) -> list[str]:
    """The names of the scorers that `build_scorers` makes for a model, without loading it."""
    optional = {"reference": reference_name(config), "unigram": frequency_file(config)}
    return ["base", "tuned", *(name for name, value in optional.items() if value)]


def reference_name(config: ModelConfig) -> str | None:
    """The reference model: the one given, else the twin of an embedded target."""
    return config.reference_model or (EMBEDDED_TWIN if _embedded_target(config) else None)


def _embedded_target(config: ModelConfig) -> bool:
    return config.model in EMBEDDED and not config.model.endswith("twin")


def cache_folder(config: ModelConfig) -> Path | None:
    """The folder of the cache; None if it is switched off."""
    from fsd.scoring.cache import default_folder

    if config.cache == "none":
        return None
    return Path(config.cache).expanduser() if config.cache else default_folder()


def _scorer(name: str, model: "LanguageModel", config: ModelConfig, store: "SQLiteStore | None") -> Scorer:
    """The scorer of one model state, which computes in all processes of the job what is not in the store."""
    from fsd.scoring.cache import MemoizedScorer, model_key
    from fsd.scoring.model_scorer import DistributedScorer, ModelScorer, collective

    tuned = name == "tuned"
    model_scorer = (DistributedScorer if distributed.num_processes() > 1 else ModelScorer)(
        model,
        tuned=tuned,
        max_batch_tokens=config.max_batch_tokens,
        description=f"{name} model" if distributed.is_main_process() else "",
    )
    scorer: Scorer = model_scorer
    if store is not None and model.identity.fingerprint:
        # The base weights never change; the adapter may be trained between two calls.
        key = partial(model_key, model, tuned=tuned)
        scorer = MemoizedScorer(scorer, store, key if tuned else cache(key))
    return collective(scorer, model_scorer) if isinstance(model_scorer, DistributedScorer) else scorer


def reference_scorer(name: str, config: ModelConfig, store: "SQLiteStore | None") -> Scorer:
    """The scorer of the reference model, which is located at once and loaded at the first call."""
    from fsd.models.language_model import load

    locate(name)
    scorer = cache(lambda: _scorer("reference", load(config, model=name, revision=None), config, store))
    return lambda prompts: scorer()(prompts)


def frequency_file(config: ModelConfig) -> Path | None:
    """The token-frequency table of the configuration, or else of the model's folder; None if there is none."""
    if config.frequencies:
        return Path(config.frequencies)
    beside = EMBEDDED.get(config.model, Path(config.model)) / TABLE
    return beside if beside.is_file() else None


def view_inputs(config: ModelConfig, texts: Sequence[str], *, shots: int, seed: int) -> ViewInputs:
    """The prefix of unseen texts for `recall`, and the source of neighbours for `neighbour`.

    Without unseen texts there is no prefix, and no neighbour by word swaps.
    """
    if shots < 1:
        raise UsageError(f"shots must be at least 1; got {shots}")
    prefix = "".join(f"{text}\n\n" for text in random.Random(seed).sample(texts, min(shots, len(texts))))
    kind = config.neighbour_model or ("words" if _embedded_target(config) else None)
    if kind is None or (kind == "words" and not texts):
        return ViewInputs(prefix=prefix)
    return ViewInputs(prefix=prefix, neighbours=_neighbours(kind, config, texts, seed))


def _neighbours(kind: str, config: ModelConfig, texts: Sequence[str], seed: int) -> Callable[[str], Sequence[str]]:
    """Neighbours by word swaps or by a masked language model."""
    count = config.neighbours
    if count is not None and count < 1:
        raise UsageError(f"neighbours must be at least 1; got {count}")
    if kind == "words":
        from fsd.scoring.neighbours import build_vocabulary, word_swaps

        swaps = count or WORD_SWAPS
        return partial(word_swaps, vocabulary=build_vocabulary(texts), count=swaps, seed=seed)
    from fsd.scoring.neighbours import NEIGHBOURS, MaskedModel

    device = "auto" if config.device == "spread" else config.device
    if not distributed.is_main_process():
        return lambda text: distributed.from_main(list)
    masked = MaskedModel(kind, count=count or NEIGHBOURS, device=device, seed=seed)
    return lambda text: distributed.from_main(lambda: masked(text))


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
