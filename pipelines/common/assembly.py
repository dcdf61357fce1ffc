"""From the settings of a command line to the objects of the library."""

import hashlib
import json
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import detectors
from detectors import Detector
from fsd import distributed as processes
from fsd.collection import domains
from fsd.config import DataConfig, DetectorConfig, FSDConfig, ModelConfig
from fsd.data import benchmarks, embedded
from fsd.data.documents import Document, Split, refuse_shared, split, split_with
from fsd.data.readers import parse_columns, read_files
from fsd.errors import UsageError
from fsd.net.hub import EMBEDDED, locate
from fsd.token_stats import Scorer
from fsd.views import Material
from pipelines.common.adapter_files import SETUP, TABLE, UNSEEN

if TYPE_CHECKING:
    from fsd.models.language_model import LanguageModel
    from fsd.scoring.cache import StatsCache

EMBEDDED_DOMAIN = "arxiv"
WORD_SWAPS = 5
"""Neighbours by word swaps, which need no model and cost a forward pass each."""


@dataclass(frozen=True)
class Gathered:
    """The labelled texts of a run, and which files or published benchmarks they are from, in which version."""

    documents: list[Document]
    sources: dict[str, str]


def gather(data: DataConfig, model: ModelConfig) -> Gathered:
    """The labelled texts: the user's files, the embedded corpus, or published benchmarks.

    Raises:
        UsageError: for an unknown domain, files that cannot be read, a benchmark that cannot be reached, or one
            whose sides share texts.
    """
    domain = domains.load(data.domain)
    if data.data:
        found = _entries(data)
    elif model.model == "embedded" and data.domain == EMBEDDED_DOMAIN:
        found = Gathered(list(embedded.corpus()), {"embedded corpus": _digest(embedded.CORPUS)})
    elif model.model == "embedded":
        raise UsageError(
            f"domain {data.domain} must come with --data FILE, or with --model for its published benchmark; "
            f"the embedded model has texts of {EMBEDDED_DOMAIN} only"
        )
    elif not hasattr(domain.module, "BENCHMARK"):
        raise UsageError(f"domain {data.domain} must come with --data FILE; it has no published benchmark of its own")
    else:
        locate(model.model, model.revision)  # a model that is not there is told before its benchmark is fetched
        found = _published([domain.module.BENCHMARK])
    refuse_shared(found.documents)
    return found


def _entries(data: DataConfig) -> Gathered:
    """Files and names of published benchmarks, as one benchmark."""
    published = _published([entry for entry in data.data if benchmarks.is_name(entry)])
    files = [entry for entry in data.data if not benchmarks.is_name(entry)]
    documents = read_files(files, parse_columns(data.columns), labelled=True) if files else []
    return Gathered(documents + published.documents, {f: _digest(Path(f)) for f in files} | published.sources)


def _published(names: Sequence[str]) -> Gathered:
    loaded = [benchmarks.load(name) for name in names]
    return Gathered(
        [document for one in loaded for document in one.documents],
        {f"{one.name} ({one.source})": one.revision for one in loaded},
    )


def _digest(file: Path) -> str:
    return "sha256:" + hashlib.sha256(file.read_bytes()).hexdigest()[:16]


def divide(documents: Sequence[Document], data: DataConfig, seed: int) -> tuple[Split, list[str]]:
    """The benchmark split as the settings say, and what there is to say about it.

    Raises:
        UsageError: for shares out of range, unseen files that cannot be read, or too few texts for a part.
    """
    if not isinstance(data.unseen, str):
        return split(documents, unseen=data.unseen, validation=data.validation, scheme=data.split, seed=seed), []
    if data.split == "paper":
        raise UsageError("split must be grouped where unseen is a file; got paper")
    given = split_with(read_files([data.unseen]), documents, validation=data.validation, seed=seed)
    dropped = len(given.left_out)
    told = [f"{dropped} texts of the benchmark left out: related to a text in {data.unseen}"] if dropped else []
    return given.parts, told


def chosen(config: DetectorConfig) -> list[Detector]:
    """The detectors asked for, with their settings: those given, else those found by tuning, else the papers'.

    Raises:
        UsageError: for an unknown detector or setting, or settings that cannot be fetched.
    """
    settings = _settings(config.settings)
    found = _found(config.settings_from) if config.settings_from else {}
    names = detectors.names() if config.detectors == "all" else _names(config.detectors)
    idle = sorted(set(settings) - set(names))
    if idle:
        raise UsageError(f"settings must be of a detector in use, one of {', '.join(names)}; got {idle[0]!r}")
    return [detectors.load(name, **{**found.get(name, {}), **settings.get(name, {})}) for name in names]


def _found(uri: str) -> dict[str, dict[str, Any]]:
    """The settings that the detectors of a run had, which travel with its adapter."""
    from fsd import tracking

    file = processes.from_main(lambda: tracking.fetch_model_file(uri, SETUP))
    if file is None:
        raise UsageError(f"settings-from must be a model, run or folder with {SETUP}; {uri} has none")
    known: dict[str, dict[str, Any]] = json.loads(file.read_text(encoding="utf-8"))["detectors"]
    return known


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
    from fsd.scoring.token_frequencies import FrequencyTable, unigram_scorer

    keep = _keeper(config)
    found: dict[str, Scorer] = {
        "target": _scorer("target", lambda: language_model, config, keep),
        "tuned": _scorer("tuned", lambda: language_model, config, keep),
    }
    reference = config.reference_model or ("embedded-twin" if config.model == "embedded" else None)
    if reference:
        found["reference"] = reference_scorer(reference, config, keep)
    table = frequency_file(config)
    if table:
        frequencies = FrequencyTable.load(table).matching(
            language_model.tokenizer, language_model.base.config.get_text_config().vocab_size, config.model
        )
        found["unigram"] = unigram_scorer(frequencies, language_model.tokens)
    return found


def _keeper(config: ModelConfig) -> "StatsCache | None":
    """What keeps statistics on disk, in the main process and if it is wanted."""
    from fsd.scoring.cache import StatsCache

    if config.cache == "none" or not processes.is_main():
        return None
    return StatsCache(Path(config.cache).expanduser() if config.cache else None)


def _scorer(name: str, loaded: "Callable[[], LanguageModel]", config: ModelConfig, keep: "StatsCache | None") -> Scorer:
    """Reads with a model, in all processes of the job, and only what is not kept on disk."""
    from fsd.scoring.cache import CachedScorer, model_key
    from fsd.scoring.distributed import Divided
    from fsd.scoring.model_scorer import ModelScorer

    tuned, team = name == "tuned", processes.team()
    size = config.max_batch_tokens
    told = (f"{name} model" if name != "target" else "base model") if processes.is_main() else ""

    def make() -> ModelScorer:
        return ModelScorer(loaded(), tuned=tuned, max_batch_tokens=size, description=told)

    scorer: Scorer = Divided(name, make, team) if team else make()
    if keep is None or not loaded().identity.fingerprint:
        return scorer
    # The weights of the base stay what they are; the adapter may be trained between two calls.
    key = partial(model_key, loaded(), tuned=tuned)
    return CachedScorer(scorer, keep, key if tuned else cache(key))


def reference_scorer(name: str, config: ModelConfig, keep: "StatsCache | None") -> Scorer:
    """The reference model, which is loaded when a detector asks for it; that it is there is checked at once."""
    locate(name)

    @cache
    def loaded() -> "LanguageModel":
        from fsd.models.language_model import load

        return load(name, device=config.device, dtype=config.dtype, bits=config.bits)

    if processes.team() and not processes.is_main():
        return _scorer("reference", loaded, config, None)
    scorer = cache(lambda: _scorer("reference", loaded, config, keep))
    return lambda prompts: scorer()(prompts)


def frequency_file(config: ModelConfig) -> Path | None:
    """The token-frequency table that is given, or lies in the model's folder."""
    if config.frequencies:
        return Path(config.frequencies)
    beside = EMBEDDED.get(config.model, Path(config.model)) / TABLE
    return beside if beside.is_file() else None


def material(config: ModelConfig, unseen: Sequence[Document], *, shots: int, seed: int) -> Material:
    """The prefix of unseen texts for recall, and what makes neighbours.

    Raises:
        UsageError: for fewer shots than one.
    """
    if shots < 1:
        raise UsageError(f"shots must be at least 1; got {shots}")
    texts = [document.text for document in unseen]
    if not texts:  # a study of base scores sets none aside
        return Material()
    prefix = "\n\n".join(random.Random(seed).sample(texts, min(shots, len(texts))))
    kind = config.neighbour_model or ("words" if config.model == "embedded" else None)
    if kind is None:
        return Material(prefix=prefix + "\n\n")
    return Material(prefix=prefix + "\n\n", neighbours=_neighbours(kind, config, texts, seed))


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


def trained_on(parts: Split, adapter: str | None) -> Split:
    """The split with the texts that a reused adapter was trained on in place of its unseen part, if they are known.

    The audit then finds what of them lies in validation or test, and recall takes its prefix from them.
    """
    from fsd import tracking

    file = processes.from_main(lambda: tracking.fetch_model_file(adapter, UNSEEN)) if adapter else None
    return (
        parts._replace(unseen=tuple(replace(document, member=False) for document in read_files([file])))
        if file
        else parts
    )


def placebo_model(config: FSDConfig, documents: Sequence[Document]) -> str | None:
    """The model for the placebo, or None for no placebo.

    The embedded model saw none of anybody's texts but its own, for which its twin stands in. When it is itself
    asked about texts that it never saw, the run is a placebo already.
    """
    if config.placebo == "none":
        return None
    if config.placebo != "auto":
        return config.placebo
    if config.model.model == "embedded":
        return None if never_saw(config, documents) else "embedded-twin"
    return "embedded"


def never_saw(config: FSDConfig, documents: Sequence[Document]) -> bool:
    """Whether the model is known to have seen none of the texts: an embedded one, asked about others than its own."""
    own = {document.text for document in embedded.corpus()} if config.model.model in EMBEDDED else set()
    return bool(own) and not any(document.text in own for document in documents)
