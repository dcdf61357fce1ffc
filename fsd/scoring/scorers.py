"""The scorers of a model by name: base and tuned state, gradients, samples, reference model, token frequencies."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fsd import distributed
from fsd.config import ModelConfig
from fsd.errors import at_least
from fsd.net.hub import EMBEDDED, EMBEDDED_TWIN, default_folder, locate
from fsd.scoring.cache import FILE, SQLiteStore, memoized, model_key
from fsd.token_stats import FloatArray, Prompt, Prompts, Scorer, TokenIds, Tokenize, chats_of, texts_of
from fsd.views import DRAWS, FORMS, Draws

if TYPE_CHECKING:
    from fsd.models.language_model import LanguageModel
    from fsd.scoring.pair_scorer import KeptStates

Read = Callable[[Prompts], list[Prompt]]
"""Prompts → the same, with the tokens of chats."""
STATES = ("base", "tuned")
"""States of a model: with its adapter off, and on."""
# Scorers of a model with its adapter on.
WITH_ADAPTER = ("tuned", "adapted_reference")
# Name of the token-frequency table in a model's folder.
TABLE = "frequencies.npz"


def draws(config: ModelConfig) -> dict[str, Draws]:
    """How texts are continued, by form."""
    at_least(1, samples=config.samples)
    return {form: way._replace(samples=config.samples or way.samples) for form, way in DRAWS.items()}


@dataclass(frozen=True)
class ScorerMaker:
    """What makes the scorers of a model; without the models it knows their names alone. The seed is that of samples."""

    config: ModelConfig
    model: Any = None
    load_reference: Any = None
    seed: int = 42

    def makers(self, states: Sequence[str]) -> dict[str, Callable[[], Scorer]]:
        """Name of a scorer → what makes it: each state of the model, a reference model, and token frequencies."""
        config = self.config
        readers = list(states)
        makers: dict[str, Callable[[], Scorer]] = {}
        reference = reference_name(config)
        if reference:
            for name in ("reference", "adapted_reference"):
                readers.append(name)
                makers[name] = partial(reference_scorer, reference, config, self.store, self.load_reference, name)
        for state in states:
            makers[state] = partial(_scorer, state, config, self.model, self.store)
            # Quantized weights have no gradient, and those spread over several devices none in one place.
            if config.bits is None and config.device != "spread" and not config.by_api:
                makers[f"{state}.gradient"] = partial(self._gradients, state)
            for form, way in draws(config).items():
                makers[f"{state}.{form}"] = partial(self._samples, state, way)
            for name, record in FORMS.items():
                second = record.compared.get(state)
                # An API gives no whole distributions, which could be compared.
                if second in readers and not config.by_api:
                    makers[f"{state}.{name}"] = partial(self._pair, state, second)
        file = frequency_file(config)
        if file:
            makers["unigram"] = partial(self._unigram, file)
        return makers

    def scorers(self, states: Sequence[str] = STATES) -> dict[str, Scorer]:
        """Name → scorer of the loaded model."""
        scorers = {}
        for name, make in self.makers(states).items():
            read = self._read_by_reference if name.endswith("reference") else self.model.read
            scorers[name] = _reading_chats(make(), read)
        return scorers

    @cached_property
    def store(self) -> SQLiteStore | None:
        """The cache of the model's statistics."""
        return cache_store(self.config)

    @cached_property
    def _kept(self) -> "dict[str, KeptStates]":
        """One a reference for all states, made with the first scorer: a dry run does not import torch."""
        from fsd.scoring.pair_scorer import KeptStates

        return {"reference": KeptStates(), "adapted_reference": KeptStates()}

    def _read_by_reference(self, prompts: Prompts) -> list[Prompt]:
        """The prompts as the reference reads them, with chats as the template of the target writes them."""
        if not chats_of(prompts):
            return list(prompts)
        reference: LanguageModel = self.load_reference()
        reference.template = reference.template or self.model.chats.template
        return reference.read(prompts)

    def _gradients(self, state: str) -> Scorer:
        from fsd.scoring.gradients import GradientScorer

        return GradientScorer(self.model, tuned=state == "tuned", description=_title("gradient"))

    def _samples(self, state: str, way: Draws) -> Scorer:
        """The continuations by one model state, which the main process draws."""
        from fsd.scoring.sampling import ContinuationScorer

        model = self.model
        tuned = state == "tuned"
        sampler = ContinuationScorer(
            model,
            way,
            tuned=tuned,
            seed=self.seed,
            batch_tokens=self.config.max_batch_tokens,
            description=_title(f"{state} samples"),
        )
        stored = memoized(sampler, self.store, lambda: f"{model_key(model, tuned=tuned)} {way} {self.seed}", model)
        return lambda prompts: distributed.from_main(lambda: list(stored(prompts)))

    def _pair(self, state: str, second: str) -> Scorer:
        """The scorer that compares a state of the model with another one, or with the reference."""
        from fsd.scoring.pair_scorer import PairMember, pair_scorer

        target = PairMember(lambda: self.model, tuned=state == "tuned")
        reference = target._replace(tuned=second == "tuned")
        if second in self._kept:
            reference = PairMember(self.load_reference, tuned=second in WITH_ADAPTER, kept=self._kept[second])
        return pair_scorer(target, reference, self.config, self.store, _title(f"{state} beside {second}"))

    def _unigram(self, file: Path) -> Scorer:
        model = self.model

        def scored(texts: Sequence[str]) -> list[TokenIds]:
            unscored = 0 if model.starts else 1
            return [ids[unscored:] for ids in model.tokens(texts)]

        vocabulary = model.base.config.get_text_config().vocab_size
        return frequency_scorer(file, self.config.model, model.tokenizer, vocabulary, scored)


def _reading_chats(scorer: Scorer, read: Read) -> Scorer:
    """A scorer that knows of tokens alone, behind what writes chats by a template."""
    return lambda prompts: scorer(read(prompts))


def _title(label: str) -> str:
    """The title of a progress bar, which the main process alone shows."""
    if distributed.is_main_process():
        return label
    return ""


def _scorer(name: str, config: ModelConfig, model: "LanguageModel", store: "SQLiteStore | None") -> Scorer:
    """The scorer of one model state, which computes in all processes of the job what is not in the store."""
    from fsd.scoring.model_scorer import DistributedScorer, ModelScorer, collective

    tuned = name in WITH_ADAPTER
    kind = DistributedScorer if distributed.num_processes() > 1 else ModelScorer
    scorer = kind(model, tuned=tuned, max_batch_tokens=config.max_batch_tokens, description=_title(name))
    # The base weights never change; the adapter may be trained between two calls.
    key = partial(model_key, model, tuned=tuned)
    stored = memoized(scorer, store, key if tuned else cache(key), model)
    return collective(stored, scorer)


@dataclass(frozen=True)
class StateReader:
    """Reads the (N, D) hidden states of texts by the base of a model; those in the store are not read again."""

    model: "LanguageModel"
    store: "SQLiteStore | None"

    @cached_property
    def key(self) -> str:
        """Hash of what hidden states depend on beside the text."""
        from fsd.scoring.model_scorer import DEPTH

        # They are always read after the start token, whether or not scores are.
        return f"{model_key(self.model, tuned=False)} states {DEPTH} {self.model.start}"

    def __call__(self, texts: Sequence[str]) -> FloatArray:
        """The hidden states of texts, in order."""
        from fsd.scoring.model_scorer import hidden_states

        def read(prompts: Prompts) -> FloatArray:
            return hidden_states(self.model, texts_of(prompts))

        reader = memoized(read, self.store, lambda: self.key, self.model)
        return np.array(list(reader(list(map(Prompt, texts)))))


def hidden_state_reader(model: "LanguageModel", config: ModelConfig) -> StateReader:
    """What reads hidden states by a model and its cache."""
    # In half precision they depend on what else is in the batch, and so on what the cache has already.
    stored = model.precision == "float32" and model.identity.fingerprint
    return StateReader(model, cache_store(config) if stored else None)


def cache_store(config: ModelConfig) -> "SQLiteStore | None":
    """The cache of token statistics and hidden states; None if it is switched off, or another process writes it."""
    folder = cache_folder(config)
    # One process writes; the others get what it knows.
    if folder and distributed.is_main_process():
        return SQLiteStore(folder / FILE)
    return None


def reference_loader(config: ModelConfig, adapter: Path | None = None) -> "Callable[[], LanguageModel]":
    """What loads the reference model, and its adapter, at the first call, and gives the same one afterwards."""

    def load_reference() -> "LanguageModel":
        from fsd.models.adapters import attach
        from fsd.models.language_model import load

        reference = load(config, model=reference_name(config) or "", revision=None)
        if adapter and adapter.is_dir():
            attach(reference, adapter)
        return reference

    return cache(load_reference)


def reference_scorer(
    name: str,
    config: ModelConfig,
    store: "SQLiteStore | None",
    load_reference: "Callable[[], LanguageModel]",
    reader: str = "reference",
) -> Scorer:
    """The scorer of the reference model, which is located at once and loaded at the first call."""
    # A wrong name is refused before anything is computed; a model that no detector reads takes no memory.
    locate(name)
    scorer = cache(lambda: _scorer(reader, config, load_reference(), store))
    return lambda prompts: scorer()(prompts)


def whole_model_scorers(of_base: ScorerMaker, tuned: "LanguageModel") -> dict[str, Scorer]:
    """The scorers of a fine-tuned model that is apart from its base: its own, and beside the base."""
    from fsd.scoring.pair_scorer import PairMember, pair_scorer

    base = of_base.model
    config = of_base.config
    members = {"tuned": PairMember(lambda: tuned), "base": PairMember(lambda: base)}
    store = cache_store(config)
    scorers = {}
    for name, scorer in replace(of_base, model=tuned).scorers(("base",)).items():
        if name.startswith("base"):
            scorers[name.replace("base", "tuned", 1)] = scorer
    for state, compared in FORMS["change"].compared.items():
        title = _title(f"{state} beside {compared}")
        scorers[f"{state}.change"] = pair_scorer(members[state], members[compared], config, store, title)
    return scorers


def frequency_scorer(file: Path, name: str, tokenizer: Any, vocabulary: int, tokens: Tokenize) -> Scorer:
    """The scorer of a table of token frequencies, read at the first call: most detectors do without it.

    It must fit the tokenizer of the model of that name.
    """
    from fsd.scoring.token_frequencies import FrequencyTable, unigram_scorer

    @cache
    def scorer() -> Scorer:
        table = FrequencyTable.load(file).matching(tokenizer, vocabulary, name)
        return unigram_scorer(table, tokens)

    return lambda prompts: scorer()(prompts)


def reference_name(config: ModelConfig) -> str | None:
    """The reference model: the one given, else the twin of an embedded target."""
    return config.reference_model or (EMBEDDED_TWIN if embedded_target(config) else None)


def embedded_target(config: ModelConfig) -> bool:
    """Whether the model is an embedded one, other than the twin, which is the reference of the others."""
    return config.model in EMBEDDED and not config.model.endswith("twin")


def frequency_file(config: ModelConfig) -> Path | None:
    """The token-frequency table of the configuration, or else of the model's folder; None if there is none."""
    if config.frequencies:
        return Path(config.frequencies)
    file = EMBEDDED.get(config.model, Path(config.model)) / TABLE
    if file.is_file():
        return file
    return None


def cache_folder(config: ModelConfig) -> Path | None:
    """The folder of the cache; None if it is switched off."""
    if config.cache == "none":
        return None
    return default_folder(config.cache)
