"""One loaded model at a time, shared by all cells that ask it, its base readings kept."""

import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from fsd.config import ModelConfig
from fsd.net.hub import EMBEDDED, fingerprint, locate
from fsd.scoring.cache import MemoizedScorer
from fsd.scoring.scorers import TABLE, build_scorers
from fsd.token_stats import Scorer

if TYPE_CHECKING:
    from fsd.models.language_model import LanguageModel

DOCSTRINGS = "docstrings:"
"""Begins the name of a reference corpus that is made of an installed package's manual."""
PARAGRAPHS = 300


@dataclass
class Workbench:
    """Models and scorers for cells that come sorted by model. Made by `workbench`.

    Attributes:
        folder: for frequency tables that are counted here; removed at the end.
    """

    folder: Path
    _loaded: "tuple[ModelConfig, LanguageModel] | None" = None
    _scorers: dict[ModelConfig, dict[str, Scorer]] = field(default_factory=dict)
    _fingerprints: dict[tuple[str, str | None], str] = field(default_factory=dict)

    def fingerprint(self, model: str, revision: str | None = None) -> str:
        """The hash of a model's weights, without loading it."""
        key = (model, revision)
        if key not in self._fingerprints:
            self._fingerprints[key] = fingerprint(locate(model, revision)[0])
        return self._fingerprints[key]

    def resolved(self, config: ModelConfig) -> ModelConfig:
        """The settings with a frequency table as a file, counted first if it is of a package's manual."""
        given = config.frequencies or ""
        if given.startswith(DOCSTRINGS):
            return replace(config, frequencies=str(self._count(config, given.removeprefix(DOCSTRINGS))))
        beside = EMBEDDED.get(config.model, Path()) / TABLE
        if not given and config.model in EMBEDDED and beside.is_file():
            return replace(config, frequencies=str(beside))
        return config

    def model(self, config: ModelConfig) -> "LanguageModel":
        """The model; the one before is let go of when another is asked for."""
        from fsd.models import language_model

        wanted = replace(config, frequencies=None, reference_model=None, neighbour_model=None)
        if self._loaded is None or self._loaded[0] != wanted:
            self._loaded = None
            self._scorers.clear()
            model = language_model.load(config)
            self._loaded = wanted, model
        return self._loaded[1]

    def scorers(self, config: ModelConfig, *, trained: bool) -> Mapping[str, Scorer]:
        """What can read a text for `resolved` settings; base readings are shared by all cells of a model."""
        model = self.model(config)
        if config not in self._scorers:
            fresh = build_scorers(model, config)
            kept = next(iter(self._scorers.values()), {})
            base = kept.get("base", MemoizedScorer(fresh["base"]))
            self._scorers[config] = {n: MemoizedScorer(s) for n, s in fresh.items() if n not in ("base", "tuned")}
            self._scorers[config] |= {"base": base, "tuned": fresh["tuned"]}
        found = dict(self._scorers[config])
        if not trained:
            found.pop("tuned")
        return found

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


@contextmanager
def workbench() -> Iterator[Workbench]:
    """A workbench for the length of a `with` block."""
    with tempfile.TemporaryDirectory(prefix="fsd-") as folder:
        yield Workbench(Path(folder))
