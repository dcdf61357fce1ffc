"""From the settings of a command line to the objects of the library."""

import json
import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import detectors
from detectors import Detector
from fsd import domains, embedded
from fsd.config import DataConfig, DetectorConfig, FSDConfig, ModelConfig
from fsd.documents import Document, Split, split
from fsd.errors import UsageError
from fsd.hub import EMBEDDED, locate
from fsd.rows import parse_columns, read_files
from fsd.stats import Scorer
from fsd.views import Material

if TYPE_CHECKING:
    from fsd.models import LanguageModel

TABLE = "frequencies.npz"
"""Name of the token-frequency table that may lie in a model's folder."""
EMBEDDED_DOMAIN = "arxiv"
UNSEEN = "unseen.jsonl"
"""Name of the file of texts that an adapter was trained on, which travels with it."""


def benchmark(data: DataConfig, model: ModelConfig) -> list[Document]:
    """The labelled texts: the user's files, the embedded corpus, or the domain's published benchmark.

    Raises:
        UsageError: for an unknown domain, files that cannot be read, a benchmark that cannot be reached.
    """
    domain = domains.load(data.domain)
    if data.data:
        return read_files(data.data, parse_columns(data.columns), labelled=True)
    if model.model == "embedded" and data.domain == EMBEDDED_DOMAIN:
        return list(embedded.corpus())
    if model.model == "embedded":
        raise UsageError(
            f"domain {data.domain} must come with --data FILE, or with --model for its published benchmark; "
            f"the embedded model has texts of {EMBEDDED_DOMAIN} only"
        )
    locate(model.model, model.revision)  # a model that is not there is told before its benchmark is fetched
    return list(domain.benchmark())


def divide(documents: Sequence[Document], data: DataConfig, seed: int) -> Split:
    """The benchmark split into unseen, validation and test as the settings say."""
    if isinstance(data.unseen, str):
        raise UsageError(f"unseen must be a share between 0 and 1; got {data.unseen!r}")
    return split(documents, unseen=data.unseen, validation=data.validation, scheme=data.split, seed=seed)


def chosen(config: DetectorConfig) -> list[Detector]:
    """The detectors asked for, with their settings.

    Raises:
        UsageError: for an unknown detector or setting.
    """
    settings = _settings(config.settings)
    names = detectors.names() if config.detectors == "all" else _names(config.detectors)
    idle = sorted(set(settings) - set(names))
    if idle:
        raise UsageError(f"settings must be of a detector in use, one of {', '.join(names)}; got {idle[0]!r}")
    return [detectors.load(name, **settings.get(name, {})) for name in names]


def _names(text: str) -> list[str]:
    names = list(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))
    if not names:
        raise UsageError(f"detectors must be all, or names out of {', '.join(detectors.names())}; got {text!r}")
    return names


def _settings(entries: Sequence[str]) -> dict[str, dict[str, Any]]:
    """`surp.k=30` → {"surp": {"k": 30}}."""
    found: dict[str, dict[str, Any]] = {}
    for entry in entries:
        key, equals, value = entry.partition("=")
        name, dot, setting = key.partition(".")
        if not (equals and dot and name and setting):
            raise UsageError(f"settings must look like surp.k=30; got {entry!r}")
        try:
            found.setdefault(name, {})[setting] = json.loads(value.lower() if value in ("True", "False") else value)
        except json.JSONDecodeError:
            found.setdefault(name, {})[setting] = value
    return found


def scorers(language_model: "LanguageModel", config: ModelConfig) -> dict[str, Scorer]:
    """What can read a text: the model with its adapter off and on, and what is given beside it."""
    from fsd.frequencies import FrequencyTable, unigram_scorer
    from fsd.models import load
    from fsd.scoring import ModelScorer

    size = config.max_batch_tokens
    found: dict[str, Scorer] = {
        "target": ModelScorer(language_model, max_batch_tokens=size, description="base model"),
        "tuned": ModelScorer(language_model, tuned=True, max_batch_tokens=size, description="tuned model"),
    }
    reference = config.reference_model or ("embedded-twin" if config.model == "embedded" else None)
    if reference:
        smaller = load(reference, device=config.device, dtype=config.dtype)
        found["reference"] = ModelScorer(smaller, max_batch_tokens=size, description="reference model")
    table = frequency_file(config)
    if table:
        frequencies = FrequencyTable.load(table).matching(
            language_model.tokenizer, language_model.base.config.get_text_config().vocab_size, config.model
        )
        found["unigram"] = unigram_scorer(frequencies, language_model.tokens)
    return found


def frequency_file(config: ModelConfig) -> Path | None:
    """The token-frequency table that is given, or lies in the model's folder."""
    if config.frequencies:
        return Path(config.frequencies)
    beside = (embedded.HERE / "target" if config.model == "embedded" else Path(config.model)) / TABLE
    return beside if beside.is_file() else None


def material(config: ModelConfig, unseen: Sequence[Document], *, shots: int, seed: int) -> Material:
    """The prefix of unseen texts for recall, and what makes neighbours.

    Raises:
        UsageError: for fewer shots than one.
    """
    if shots < 1:
        raise UsageError(f"shots must be at least 1; got {shots}")
    texts = [document.text for document in unseen]
    prefix = "\n\n".join(random.Random(seed).sample(texts, min(shots, len(texts))))
    kind = config.neighbour_model or ("words" if config.model == "embedded" else None)
    if kind is None:
        return Material(prefix=prefix + "\n\n")
    return Material(prefix=prefix + "\n\n", neighbours=_neighbours(kind, texts, config.device, seed))


def _neighbours(kind: str, texts: Sequence[str], device: str, seed: int) -> Callable[[str], Sequence[str]]:
    """Word swaps out of the unseen texts, or a masked model; each text's neighbours are made once for both states."""
    if kind == "words":
        from fsd.neighbours import build_vocabulary, word_swaps

        return partial(word_swaps, vocabulary=build_vocabulary(texts), seed=seed)
    from fsd.masked import MaskedModel

    return MaskedModel(kind, device=device, seed=seed)


def trained_on(parts: Split, adapter: str | None) -> Split:
    """The split with the texts that a reused adapter was trained on in place of its unseen part, if they are known.

    The audit then finds what of them lies in validation or test, and recall takes its prefix from them.
    """
    from fsd import tracking

    file = tracking.fetch_model_file(adapter, UNSEEN) if adapter else None
    return (
        parts._replace(unseen=tuple(replace(document, member=False) for document in read_files([file])))
        if file
        else parts
    )


def placebo_model(config: FSDConfig) -> str | None:
    """The model for the placebo, or None for no placebo.

    The embedded model saw none of anybody's texts but its own, for which its twin stands in. When it is itself
    asked about texts that it never saw, the run is a placebo already.
    """
    if config.placebo == "none":
        return None
    if config.placebo != "auto":
        return config.placebo
    if config.model.model == "embedded":
        return None if never_saw(config) else "embedded-twin"
    return "embedded"


def never_saw(config: FSDConfig) -> bool:
    """Whether the model is known to have seen none of the texts: an embedded one, asked about others than its own."""
    own = {embedded.CORPUS.resolve()}
    return (
        config.model.model in EMBEDDED
        and bool(config.data.data)
        and not own & {Path(f).resolve() for f in config.data.data}
    )
