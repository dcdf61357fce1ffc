"""The scorers of a model by name: base and tuned state, gradients, samples, reference model, token frequencies."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
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
from fsd.views import FORMS, Draws

if TYPE_CHECKING:
    from fsd.models.language_model import LanguageModel
    from fsd.scoring.pair_scorer import KeptStates

    Maker = Callable[[LanguageModel, SQLiteStore | None], Scorer]

Read = Callable[[Prompts], list[Prompt]]
"""Prompts → the same, with the tokens of chats."""
STATES = ("base", "tuned")
"""States of a model: with its adapter off, and on."""
# Name of the token-frequency table in a model's folder.
TABLE = "frequencies.npz"


def draws(config: ModelConfig) -> dict[str, Draws]:
    """How texts are continued, by form."""
    at_least(1, samples=config.samples)
    ways = {}
    for name, form in FORMS.items():
        if form.draws:
            ways[name] = form.draws._replace(samples=config.samples or form.draws.samples)
    return ways


def scorer_makers(config: ModelConfig, states: Sequence[str], seed: int = 42) -> "dict[str, Maker]":
    """Name of a scorer → what makes it of a loaded model and its cache; nothing is loaded for the names alone.

    The seed is that of samples.
    """
    makers: dict[str, Maker] = {}
    ways = draws(config)

    def by_target(make: "Maker") -> "Maker":
        return lambda model, store: reading_chats(make(model, store), model.read)

    for state in states:
        makers[state] = partial(_scorer, state, config)
        # Quantized weights have no gradient, and those spread over several devices none in one place.
        if config.bits is None and config.device != "spread" and not config.by_api:
            makers[f"{state}.gradient"] = partial(_gradients, state)
        for form, way in ways.items():
            makers[f"{state}.{form}"] = partial(_sampler, state, config, way, seed)
    reference = reference_name(config)
    load_reference = None
    if reference:
        load_reference = reference_loader(reference, config)
    makers |= _pair_makers(config, states, load_reference)
    file = frequency_file(config)
    if file:
        makers["unigram"] = partial(_unigram, file, config.model)
    for name, make in makers.items():
        makers[name] = by_target(make)
    if reference and load_reference:
        makers["reference"] = partial(_reference, reference, config, load_reference)
    return makers


def _reference(
    name: str,
    config: ModelConfig,
    loader: "Callable[[], LanguageModel]",
    model: "LanguageModel",
    store: "SQLiteStore | None",
) -> Scorer:
    """The scorer of the reference model, which reads chats as the template of the target writes them."""

    def read(prompts: Prompts) -> list[Prompt]:
        if not chats_of(prompts):
            return list(prompts)
        reference = loader()
        reference.template = reference.template or model.chats.template
        return reference.read(prompts)

    return reading_chats(reference_scorer(name, config, store, loader), read)


def _pair_makers(
    config: ModelConfig, states: Sequence[str], load_reference: "Callable[[], LanguageModel] | None"
) -> "dict[str, Maker]":
    """What makes the scorers that compare two of the models."""
    # An API gives no whole distributions, which could be compared.
    if config.by_api:
        return {}
    readers = [*states, "reference"] if load_reference else states
    # One for all states, made with the first scorer: a dry run, which has the names alone, does not import torch.
    kept = cache(_kept_states)
    makers: dict[str, Maker] = {}
    for name, form in FORMS.items():
        for state in states:
            if form.beside and form.beside[state] in readers:
                makers[f"{state}.{name}"] = partial(_pair, state, name, config, load_reference, kept)
    return makers


def _kept_states() -> "KeptStates":
    from fsd.scoring.pair_scorer import KeptStates

    return KeptStates()


def build_scorers(
    language_model: "LanguageModel", config: ModelConfig, states: Sequence[str] = STATES, *, seed: int = 42
) -> dict[str, Scorer]:
    """Scorers by name: the model with its adapter off and on, the reference model, and token frequencies."""
    store = cache_store(config)
    makers = scorer_makers(config, states, seed)
    return {name: make(language_model, store) for name, make in makers.items()}


def reading_chats(scorer: Scorer, read: Read) -> Scorer:
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

    tuned = name == "tuned"
    kind = DistributedScorer if distributed.num_processes() > 1 else ModelScorer
    scorer = kind(model, tuned=tuned, max_batch_tokens=config.max_batch_tokens, description=_title(name))
    # The base weights never change; the adapter may be trained between two calls.
    key = partial(model_key, model, tuned=tuned)
    stored = memoized(scorer, store, key if tuned else cache(key), model)
    return collective(stored, scorer)


def _gradients(state: str, model: "LanguageModel", _: "SQLiteStore | None") -> Scorer:
    from fsd.scoring.gradients import GradientScorer

    return GradientScorer(model, tuned=state == "tuned", description=_title("gradient"))


def _sampler(
    name: str, config: ModelConfig, way: Draws, seed: int, model: "LanguageModel", store: "SQLiteStore | None"
) -> Scorer:
    """The continuations by one model state, which the main process draws."""
    from fsd.scoring.sampling import ContinuationScorer

    tuned = name == "tuned"
    sampler = ContinuationScorer(
        model, way, tuned=tuned, seed=seed, batch_tokens=config.max_batch_tokens, description=_title(f"{name} samples")
    )

    def key() -> str:
        return f"{model_key(model, tuned=tuned)} {way} {seed}"

    stored = memoized(sampler, store, key, model)
    return lambda prompts: distributed.from_main(lambda: list(stored(prompts)))


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


def reference_loader(name: str, config: ModelConfig) -> "Callable[[], LanguageModel]":
    """What loads the reference model at the first call, and gives the same one afterwards."""

    def load_reference() -> "LanguageModel":
        from fsd.models.language_model import load

        return load(config, model=name, revision=None)

    return cache(load_reference)


def reference_scorer(
    name: str, config: ModelConfig, store: "SQLiteStore | None", loader: "Callable[[], LanguageModel] | None" = None
) -> Scorer:
    """The scorer of the reference model, which is located at once and loaded at the first call."""
    # A wrong name is refused before anything is computed; a model that no detector reads takes no memory.
    locate(name)
    load_reference = loader or reference_loader(name, config)
    scorer = cache(lambda: _scorer("reference", config, load_reference(), store))
    return lambda prompts: scorer()(prompts)


def _pair(
    state: str,
    form: str,
    config: ModelConfig,
    load_reference: "Callable[[], LanguageModel] | None",
    kept: "Callable[[], KeptStates]",
    model: "LanguageModel",
    store: "SQLiteStore | None",
) -> Scorer:
    """The scorer that compares a state of the model with what the form names, over the whole vocabulary."""
    from fsd.scoring.pair_scorer import PairMember, pair_scorer

    compared = FORMS[form].beside[state]
    target = PairMember(lambda: model, tuned=state == "tuned")
    reference = target._replace(tuned=compared == "tuned")
    if compared == "reference" and load_reference:
        reference = PairMember(load_reference, kept=kept())
    return pair_scorer(target, reference, config, store, _title(f"{state} beside {compared}"))


def whole_model_scorers(
    base: "LanguageModel", tuned: "LanguageModel", config: ModelConfig, *, seed: int = 42
) -> dict[str, Scorer]:
    """The scorers of a fine-tuned model that is apart from its base: its own, and beside the base."""
    from fsd.scoring.pair_scorer import PairMember, pair_scorer

    members = {"tuned": PairMember(lambda: tuned), "base": PairMember(lambda: base)}
    store = cache_store(config)
    scorers = {}
    for name, scorer in build_scorers(tuned, config, ("base",), seed=seed).items():
        if name.startswith("base"):
            scorers[name.replace("base", "tuned", 1)] = scorer
    for state, compared in FORMS["change"].beside.items():
        title = _title(f"{state} beside {compared}")
        scorers[f"{state}.change"] = pair_scorer(members[state], members[compared], config, store, title)
    return scorers


def _unigram(file: Path, name: str, model: "LanguageModel", _: "SQLiteStore | None") -> Scorer:
    vocabulary = model.base.config.get_text_config().vocab_size

    def scored(texts: Sequence[str]) -> list[TokenIds]:
        unscored = 0 if model.starts else 1
        return [ids[unscored:] for ids in model.tokens(texts)]

    return frequency_scorer(file, name, model.tokenizer, vocabulary, scored)


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
