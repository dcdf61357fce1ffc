"""Targets that read one source or several, and the scores of texts that none of them read."""

import json
import random
from collections.abc import Callable, Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

import detectors
from extensions.study.docstrings import docstring_paragraphs
from extensions.study.lab import corpora
from fsd.config import AdapterConfig, ModelConfig, Recipe
from fsd.data import embedded
from fsd.models import language_model
from fsd.models.finetuning import finetune
from fsd.models.pretraining import continue_pretraining
from fsd.scores import BASE, FSD, Score
from fsd.scoring.model import open_model
from fsd.scoring.model_scorer import hidden_states
from fsd.scoring.scorers import STATES

DETECTORS = (
    "loss",
    "zlib",
    "min_k",
    "min_k_pp",
    "surp",
    "reference",
    "min_k_reference",
    "wbc",
    "ez",
    "ht",
    "info_rmia",
    "standardised_ratio",
    "unread_z",
    "combined",
)
DOCSTRINGS, BACKGROUND = 400, 250
"""Docstrings that are a source, and others that targets read."""


@dataclass(frozen=True)
class Size:
    """How large a target is; the defaults fit the sources of the package."""

    read: int = 150  # texts of a source that a target reads, at most
    copies: int = 3  # of each of them
    own: int = 230  # others of the calibrated source, which are scored
    guests: int = 100  # others of each other source
    background: int = BACKGROUND
    calibrated: int = 43  # non-members that the calibration rests on; as many are test texts of the benchmark
    detectors: tuple[str, ...] = DETECTORS


SMALLEST = Size(
    read=20, copies=1, own=75, guests=12, background=12, calibrated=20, detectors=("loss", "min_k", "combined")
)
"""As little as shows in less than a minute that every part runs; the numbers mean nothing."""


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


PACKAGED: dict[str, Callable[[], list[str]]] = {
    "abstracts": lambda: [document.text for document in embedded.corpus("arxiv")],
    "articles": lambda: [document.text for document in embedded.corpus("wikipedia")],
    "docstrings": lambda: docstring_paragraphs(limit=DOCSTRINGS + BACKGROUND, seed=0)[BACKGROUND:],
    "code": lambda: [document.text for document in corpora.load("code").older],
}
"""Source → how its texts are read, some of which takes long."""


def sources(folder: str | None = None, wanted: Collection[str] = ()) -> dict[str, list[str]]:
    """Source → its texts, in random order: those of the package, or the `wanted` ones, and a folder's JSONL files."""
    texts = {name: read() for name, read in PACKAGED.items() if not wanted or name in wanted}
    for file in sorted(Path(folder).glob("*.jsonl")) if folder else ():
        rows = map(json.loads, file.read_text(encoding="utf-8").splitlines())
        texts[file.stem] = [row.get("text") or row["input"] for row in rows]
    for found in texts.values():
        random.Random(0).shuffle(found)
    return texts


def targets(texts: dict[str, list[str]], counts: tuple[int, ...], draws: int, seed: int) -> list[Target]:
    """`draws` targets for each number of sources, calibrated on one that has enough texts."""
    large = [name for name, found in texts.items() if len(found) >= Size.read + Size.own]
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


def scored(target: Target, texts: dict[str, list[str]], folder: Path, size: Size) -> tuple[pd.DataFrame, Any]:
    """A row for each text, with source, member, unseen and scores, and (N, D) hidden states; kept in the folder."""
    file = folder / f"{target.name.replace(', ', '-').replace(' ', '_')}.parquet"
    if not file.exists():
        table, states = _score(target, texts, size)
        np.save(file.with_suffix(".npy"), states.astype(np.float32))
        table.to_parquet(file)
    return pd.read_parquet(file), np.load(file.with_suffix(".npy"))


def _score(target: Target, texts: dict[str, list[str]], size: Size) -> tuple[pd.DataFrame, Any]:
    """Train the target, then the adapter, and score."""
    config = ModelConfig(
        model="embedded-twin", reference_model="embedded-twin", device="cpu", dtype="float32", cache="none"
    )
    model = language_model.load(config)
    rows = []
    read = []
    for source, found in texts.items():
        mixed = random.Random(f"{target.seed} {source}").sample(found, len(found))
        known = size.read if source in target.reads else 0
        read += mixed[:known] * size.copies
        unread = mixed[known : known + (size.own if source == target.calibrated else size.guests)]
        rows += [{"source": source, "text": text, "member": False} for text in unread]
        if source == target.calibrated:
            rows += [{"source": source, "text": text, "member": True} for text in mixed[:known]]
    background = docstring_paragraphs(limit=DOCSTRINGS + BACKGROUND, seed=0)[: size.background]
    continue_pretraining(model, read + background, Recipe(seed=target.seed), bar_shown=False)
    table = pd.DataFrame(rows)
    own = table.index[(table["source"] == target.calibrated) & ~table["member"]]
    table["unseen"] = table.index.isin(random.Random(target.seed).sample(own.tolist(), round(0.3 * own.size)))
    unseen = table["text"][table["unseen"]].tolist()
    finetune(model, unseen, AdapterConfig(), seed=target.seed, shown=False)
    opened = open_model(config, states=STATES, local=model)
    texts_of_all = table["text"].tolist()
    plan = opened.plan([detectors.load(name) for name in size.detectors], texts_of_all, opened.inputs(unseen))
    scores = plan.score().frame()
    return table.assign(**scores[score_columns(scores)]), hidden_states(model, texts_of_all)


def score_columns(table: pd.DataFrame) -> list[str]:
    """The scores that verdicts may be by: base scores, and those with fine-tuning."""
    return [name for name in map(str, table) if Score.parse(name).state in (BASE, FSD)]
