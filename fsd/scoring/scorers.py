"""The scorers and view inputs that a model configuration describes: base, tuned, reference model, token frequencies."""

import random
from collections.abc import Callable, Sequence
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING

from fsd import distributed as processes
from fsd.config import ModelConfig
from fsd.errors import UsageError
from fsd.net.hub import EMBEDDED, locate
from fsd.token_stats import Scorer
from fsd.views import ViewInputs

if TYPE_CHECKING:
    from fsd.models.language_model import LanguageModel
    from fsd.scoring.cache import SQLiteStore

TABLE = "frequencies.npz"
"""Name of the token-frequency table in a model's folder."""
WORD_SWAPS = 5
"""Neighbours by word swaps, which need no model and cost a forward pass each."""


def build_scorers(language_model: "LanguageModel", config: ModelConfig) -> dict[str, Scorer]:
    """What can read a text: the model with its adapter off and on, and what is given beside it."""
    from fsd.scoring.token_frequencies import FrequencyTable, unigram_scorer

    store = _disk_store(config)
    found: dict[str, Scorer] = {
        "base": _scorer("base", lambda: language_model, config, store),
        "tuned": _scorer("tuned", lambda: language_model, config, store),
    }
    reference = _reference(config)
    if reference:
        found["reference"] = reference_scorer(reference, config, store)
    table = frequency_file(config)
    if table:
        frequencies = FrequencyTable.load(table).matching(
            language_model.tokenizer, language_model.base.config.get_text_config().vocab_size, config.model
        )
        found["unigram"] = unigram_scorer(frequencies, language_model.tokens)
    return found


def reader_names(config: ModelConfig) -> list[str]:
    """The names of the scorers that `build_scorers` makes for a model, without loading it."""
    optional = {"reference": _reference(config), "unigram": frequency_file(config)}
    return ["base", "tuned", *(name for name, value in optional.items() if value)]


def _reference(config: ModelConfig) -> str | None:
    return config.reference_model or ("embedded-twin" if config.model == "embedded" else None)


def _disk_store(config: ModelConfig) -> "SQLiteStore | None":
    """The store of statistics on disk; none in other processes than the main one, or if it is switched off."""
    from fsd.scoring.cache import FILE, SQLiteStore

    if config.cache == "none" or not processes.is_main():
        return None
    return SQLiteStore(Path(config.cache).expanduser() / FILE if config.cache else None)


def _scorer(
    name: str, loaded: "Callable[[], LanguageModel]", config: ModelConfig, store: "SQLiteStore | None"
) -> Scorer:
    """Reads with a model, in all processes of the job, and only what is not kept on disk."""
    from fsd.scoring.cache import MemoizedScorer, model_key
    from fsd.scoring.distributed import Divided
    from fsd.scoring.model_scorer import ModelScorer

    tuned, team = name == "tuned", processes.team()
    size = config.max_batch_tokens
    told = f"{name} model" if processes.is_main() else ""

    def make() -> ModelScorer:
        return ModelScorer(loaded(), tuned=tuned, max_batch_tokens=size, description=told)

    scorer: Scorer = Divided(name, make, team) if team else make()
    if store is None or not loaded().identity.fingerprint:
        return scorer
    # The weights of the base stay what they are; the adapter may be trained between two calls.
    key = partial(model_key, loaded(), tuned=tuned)
    return MemoizedScorer(scorer, store, key if tuned else cache(key))


def reference_scorer(name: str, config: ModelConfig, store: "SQLiteStore | None") -> Scorer:
    """The reference model, which is loaded when a detector asks for it; that it is there is checked at once."""
    locate(name)

    @cache
    def loaded() -> "LanguageModel":
        from fsd.models.language_model import load

        return load(config, model=name, revision=None)

    if processes.team() and not processes.is_main():
        return _scorer("reference", loaded, config, None)
    scorer = cache(lambda: _scorer("reference", loaded, config, store))
    return lambda prompts: scorer()(prompts)


def frequency_file(config: ModelConfig) -> Path | None:
    """The token-frequency table that is given, or lies in the model's folder."""
    if config.frequencies:
        return Path(config.frequencies)
    beside = EMBEDDED.get(config.model, Path(config.model)) / TABLE
    return beside if beside.is_file() else None


def view_inputs(config: ModelConfig, texts: Sequence[str], *, shots: int, seed: int) -> ViewInputs:
    """The prefix of unseen texts for recall, and what makes neighbours.

    Raises:
        UsageError: for fewer shots than one.
    """
    if shots < 1:
        raise UsageError(f"shots must be at least 1; got {shots}")
    if not texts:  # a study of base scores sets none aside
        return ViewInputs()
    prefix = "\n\n".join(random.Random(seed).sample(texts, min(shots, len(texts))))
    kind = config.neighbour_model or ("words" if config.model == "embedded" else None)
    if kind is None:
        return ViewInputs(prefix=prefix + "\n\n")
    return ViewInputs(prefix=prefix + "\n\n", neighbours=_neighbours(kind, config, texts, seed))


def _neighbours(kind: str, config: ModelConfig, texts: Sequence[str], seed: int) -> Callable[[str], Sequence[str]]:
    """Word swaps out of the unseen texts, or a masked model; each text's neighbours are made once for both states."""
    count = config.neighbours
    if count is not None and count < 1:
        raise UsageError(f"neighbours must be at least 1; got {count}")
    if kind == "words":
        from fsd.scoring.neighbours import build_vocabulary, word_swaps

        swaps = count or WORD_SWAPS
        return partial(word_swaps, vocabulary=build_vocabulary(texts), count=swaps, seed=seed)
    from fsd.scoring.masked_lm import NEIGHBOURS, MaskedModel

    device = "auto" if config.device == "spread" else config.device
    return MaskedModel(kind, count=count or NEIGHBOURS, device=device, seed=seed)
