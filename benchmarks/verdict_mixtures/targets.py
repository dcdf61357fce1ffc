"""Targets that read one, three and five sources, and the scores of texts that none of them read."""

import json
import random
from collections.abc import Callable, Collection
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

import detectors
from fsd.config import AdapterConfig, ModelConfig, Recipe
from fsd.data import embedded
from fsd.data.docstrings import docstring_paragraphs
from fsd.models import language_model
from fsd.models.finetuning import finetune
from fsd.models.pretraining import continue_pretraining
from fsd.scores import FSD, of_state
from fsd.scoring.deviation import score_texts
from fsd.scoring.model_scorer import ModelScorer, hidden_states
from pipelines.research.study.lab import corpora

DETECTORS = ("loss", "perplexity", "zlib", "min_k", "min_k_pp", "surp", "reference", "min_k_reference", "combined")
COPIES = 3
"""Number of times that a target reads each of its texts."""
READ, OWN, GUESTS = 150, 230, 100
"""Largest number of texts of a source that a target reads, and of others that are scored: of the calibrated source, and
of each other one."""
DOCSTRINGS, BACKGROUND = 400, 250
"""Docstrings that are a source, and others that every target reads."""


@dataclass(frozen=True)
class Sizes:
    """Largest number of texts of a source that a target reads, of others that are scored, and of background texts."""

    read: int = READ
    own: int = OWN
    guests: int = GUESTS
    background: int = BACKGROUND

    def shrunk(self, share: float) -> "Sizes":
        """A share of each."""
        return Sizes(*(round(share * size) for size in astuple(self)))


@dataclass(frozen=True)
class Target:
    """A target, and an adapter calibrated on one of its sources."""

    reads: tuple[str, ...]  # sources that it was trained on
    calibrated: str  # the one of them that gives the benchmark
    seed: int  # of all draws

    @property
    def name(self) -> str:
        """In words."""
        return f"{len(self.reads)} sources, calibrated on {self.calibrated}, seed {self.seed}"


def sources(folder: str | None = None, names: Collection[str] = ()) -> dict[str, list[str]]:
    """Source → its texts, in random order: those that the package has, and each JSONL file of a folder.

    With `names`, these sources alone: to read the code of all installed packages takes a minute.
    """
    own: dict[str, Callable[[], list[str]]] = {
        "abstracts": lambda: [document.text for document in embedded.corpus("arxiv")],
        "articles": lambda: [document.text for document in embedded.corpus("wikipedia")],
        "docstrings": lambda: docstring_paragraphs(limit=DOCSTRINGS + BACKGROUND, seed=0)[BACKGROUND:],
        "code": lambda: [document.text for document in corpora.load("code").older],
    }
    texts = {name: make() for name, make in own.items() if not names or name in names}
    files = sorted(Path(folder).glob("*.jsonl")) if folder else []
    for file in (file for file in files if not names or file.stem in names):
        rows = map(json.loads, file.read_text(encoding="utf-8").splitlines())
        texts[file.stem] = [row.get("text") or row["input"] for row in rows]
    for found in texts.values():
        random.Random(0).shuffle(found)
    return texts


def targets(texts: dict[str, list[str]], counts: tuple[int, ...], draws: int, seed: int) -> list[Target]:
    """`draws` targets for each number of sources, calibrated on one that has enough texts."""
    large = [name for name, found in texts.items() if len(found) >= READ + OWN]
    drawn = []
    for count in counts:
        for draw in range(draws):
            rng = random.Random(f"{seed} {count} {draw}")
            calibrated = rng.choice(large)
            rest = [name for name in texts if name != calibrated]
            drawn.append(Target((calibrated, *rng.sample(rest, count - 1)), calibrated, draw))
    return drawn


def named(specification: str) -> Target:
    """A target from `first+second+third:seed`, calibrated on the first source."""
    reads, _, seed = specification.partition(":")
    return Target(tuple(reads.split("+")), reads.split("+")[0], int(seed or 0))


def scored(target: Target, texts: dict[str, list[str]], folder: Path, sizes: Sizes) -> tuple[pd.DataFrame, Any]:
    """Source, text, member, unseen and FSD of the texts, a row each, and (N, D) hidden states, kept in the folder."""
    smaller = "" if sizes == Sizes() else "-{}-{}-{}-{}".format(*astuple(sizes))
    file = folder / f"{target.name.replace(', ', '-').replace(' ', '_')}{smaller}.parquet"
    if not file.exists():
        table, states = _score(target, texts, sizes)
        np.save(file.with_suffix(".npy"), states.astype(np.float32))
        table.to_parquet(file)
    return pd.read_parquet(file), np.load(file.with_suffix(".npy"))


def _score(target: Target, texts: dict[str, list[str]], sizes: Sizes) -> tuple[pd.DataFrame, Any]:
    """Train the target, then the adapter, and score."""
    config = ModelConfig(model="embedded-twin", device="cpu", dtype="float32", cache="none")
    model, reference = language_model.load(config), language_model.load(config)
    rows, read = [], []
    for source, found in texts.items():
        mixed = random.Random(f"{target.seed} {source}").sample(found, len(found))
        known = sizes.read if source in target.reads else 0
        read += mixed[:known] * COPIES
        unread = mixed[known : known + (sizes.own if source == target.calibrated else sizes.guests)]
        rows += [{"source": source, "text": text, "member": False} for text in unread]
        if source == target.calibrated:
            rows += [{"source": source, "text": text, "member": True} for text in mixed[:known]]
    background = docstring_paragraphs(limit=DOCSTRINGS + BACKGROUND, seed=0)[: sizes.background]
    continue_pretraining(model, read + background, Recipe(seed=target.seed), shown=False)
    table = pd.DataFrame(rows)
    own = table.index[(table["source"] == target.calibrated) & ~table["member"]]
    table["unseen"] = table.index.isin(random.Random(target.seed).sample(own.tolist(), round(0.3 * own.size)))
    finetune(model, table["text"][table["unseen"]].tolist(), AdapterConfig(), seed=target.seed, shown=False)
    scorers = {"base": ModelScorer(model), "tuned": ModelScorer(model, tuned=True), "reference": ModelScorer(reference)}
    scored = score_texts(table["text"].tolist(), [detectors.load(name) for name in DETECTORS], scorers)
    return table.assign(**of_state(scored.columns, FSD)), hidden_states(model, table["text"].tolist())
