"""Models and scorers shared by the cells of a study: one model is loaded at a time, its base statistics kept."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from fsd.config import ModelConfig
from fsd.net.hub import fingerprint, locate
from fsd.scoring.cache import MemoizedScorer
from fsd.scoring.scorers import build_scorers, frequency_file
from fsd.scoring.token_frequencies import FrequencyTable
from fsd.token_stats import Scorer

if TYPE_CHECKING:
    from fsd.models.language_model import LanguageModel

DOCSTRINGS = "docstrings:"
"""Prefix of a reference corpus that consists of the docstrings of an installed package."""
PARAGRAPHS = 300


@dataclass
class ModelPool:
    """Loads models and scorers for cells sorted by model.

    Attributes:
        folder: temporary folder for token-frequency tables that are counted here.
    """

    folder: Path
    _loaded: "tuple[ModelConfig, LanguageModel] | None" = None
    _scorers: dict[ModelConfig, dict[str, Scorer]] = field(default_factory=dict)
    _fingerprints: dict[tuple[str, str | None], str] = field(default_factory=dict)
    _tables: dict[tuple[str, str | None, Path], str] = field(default_factory=dict)

    def fingerprint(self, model: str, revision: str | None = None) -> str:
        """Hash of a model's weights, without loading the model."""
        key = (model, revision)
        if key not in self._fingerprints:
            self._fingerprints[key] = fingerprint(locate(model, revision)[0])
        return self._fingerprints[key]

    def frequencies(self, config: ModelConfig) -> str | None:
        """Hash of the token-frequency table of a model, without loading the model; None if there is none.

        Raises:
            UsageError: if it is no such table, or was made with another tokenizer.
        """
        from fsd.models.language_model import load_tokenizer

        file = frequency_file(config)
        if file is None:
            return None
        key = (config.model, config.revision, file)
        if key not in self._tables:
            table = FrequencyTable.load(file)
            table.matching(*load_tokenizer(config.model, revision=config.revision), config.model)
            self._tables[key] = hashlib.sha256(file.read_bytes()).hexdigest()
        return self._tables[key]

    def neighbours(self, config: ModelConfig) -> str | None:
        """What the neighbours of a text depend on: `words`, or the hash of a masked language model's weights."""
        name = config.neighbour_model
        return self.fingerprint(name) if name and name != "words" else name

    def with_frequency_file(self, config: ModelConfig) -> ModelConfig:
        """The settings with a frequency file in place of `docstrings:PACKAGE`, whose tokens are counted first."""
        package = (config.frequencies or "").partition(DOCSTRINGS)[2]
        return replace(config, frequencies=str(self._count(config, package))) if package else config

    def model(self, config: ModelConfig) -> "LanguageModel":
        """Return the loaded model; loading another one releases the previous one."""
        from fsd.models import language_model

        key = replace(config, frequencies=None, reference_model=None, neighbour_model=None)
        if self._loaded is None or self._loaded[0] != key:
            self._loaded = None
            self._scorers.clear()
            model = language_model.load(config)
            self._loaded = key, model
        return self._loaded[1]

    def scorers(self, config: ModelConfig, *, trained: bool) -> Mapping[str, Scorer]:
        """Scorers by name, `tuned` only if `trained`; all cells of a model share its base statistics."""
        model = self.model(config)
        if config not in self._scorers:
            new = build_scorers(model, config)
            previous = next(iter(self._scorers.values()), {})
            base = previous.get("base", MemoizedScorer(new["base"]))
            self._scorers[config] = {n: MemoizedScorer(s) for n, s in new.items() if n not in ("base", "tuned")}
            self._scorers[config] |= {"base": base, "tuned": new["tuned"]}
        return {name: scorer for name, scorer in self._scorers[config].items() if trained or name != "tuned"}

    def _count(self, config: ModelConfig, package: str) -> Path:
        from fsd.data.docstrings import docstring_paragraphs
        from fsd.data.streaming import Passage
        from fsd.models.language_model import load_tokenizer
        from fsd.scoring.token_counting import count

        out = self.folder / f"{self.fingerprint(config.model, config.revision)}-{package}.npz"
        if not out.exists():
            tokenizer, vocabulary = load_tokenizer(config.model, revision=config.revision)
            texts = docstring_paragraphs((package,), limit=PARAGRAPHS, seed=0)
            name = f"{PARAGRAPHS} paragraphs of the manual of {package}"
            table = count(map(Passage, texts), tokenizer, vocabulary, model=config.model, corpus=name)
            table.save(out)
        return out
