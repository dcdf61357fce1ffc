"""The scorers and view inputs that a model configuration describes: base, tuned, reference model, token frequencies."""

import random
from collections.abc import Callable, Sequence
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING

from fsd import distributed
from fsd.config import ModelConfig
from fsd.errors import UsageError
from fsd.net.hub import EMBEDDED, EMBEDDED_TWIN, locate
from fsd.token_stats import Scorer
from fsd.views import ViewInputs

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
    from fsd.scoring.distributed import DistributedScorer, collective
    from fsd.scoring.model_scorer import ModelScorer

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
    from fsd.scoring.masked_lm import NEIGHBOURS, MaskedModel

    device = "auto" if config.device == "spread" else config.device
    if not distributed.is_main_process():
        return lambda text: distributed.from_main(list)
    masked = MaskedModel(kind, count=count or NEIGHBOURS, device=device, seed=seed)
    return lambda text: distributed.from_main(lambda: masked(text))
