"""Targets of the laboratory, and one cell: the scores of the texts of a corpus by a target, against a reference.

All targets continue one model that was pretrained on the background alone, so that the targets of a corpus differ in
nothing but what they are trained on: `exposures` copies of each member of their sources, shuffled with some of the
background. The control of a seed, the target with 0 exposures, is trained on that background and nothing else: members
and contemporaries do not differ there, and whatever a score shows between older and later texts is a difference of the
texts.

Given a real model as base, all targets continue that one. Unchanged, it is the control. A base that learns chats reads
nothing else, as in a fine-tuning. What chats say as a whole is scored, and their answers alone.
"""

import json
import multiprocessing
import os
import random
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from itertools import chain, groupby
from operator import attrgetter

import pandas as pd
import torch

from extensions.study.lab import models
from extensions.study.lab.corpora import UNSEEN, Sides
from extensions.study.lab.models import Lab
from extensions.study.lab.results import ADAPTED, TEXT
from extensions.study.lab.settings import Reference
from fsd.api import (
    AdapterConfig,
    Document,
    Documents,
    FSDConfig,
    LanguageModel,
    Model,
    Prompt,
    Split,
    content_hash,
    continue_pretraining,
    load_detector,
    open_model,
)
from fsd.api import load_model as load
from pipelines.api import detector_settings, experiment

# Parts of chats that are scored.
ANSWERS = "answers"
WHOLE = "whole"


@dataclass(frozen=True)
class Target:
    """A model whose every training text is known; the seed is that of the order of training, and of the adapter."""

    lab: Lab
    exposures: int
    seed: int
    sources: tuple[tuple[str | Prompt, ...], ...]
    """The members of each corpus that it is trained on, see `learned`."""


@dataclass(frozen=True)
class Cell:
    """The texts of a corpus, and what they are scored by."""

    target: Target
    corpus: str
    sides: Sides
    reference: Reference
    adapters: bool = True
    """Whether an adapter is trained on the unseen texts, for FSDs."""
    adapted: bool = False
    """Whether the reference is fine-tuned on half of them, for the scores of `ADAPTED`."""

    @property
    def scored(self) -> tuple[str, ...]:
        """What is scored of its texts: the texts, or of chats the answers and the whole."""
        for side in self.sides.values():
            if any(document.chat for document in side):
                return (ANSWERS, WHOLE)
        return (TEXT,)

    @property
    def labels(self) -> dict[str, str | int]:
        """What its scores are labelled with."""
        target = self.target
        return {
            "corpus": self.corpus,
            "size": target.lab.size,
            "sources": len(target.sources),
            "reference": self.reference,
            "exposures": target.exposures,
            "seed": target.seed,
        }

    @property
    def config(self) -> FSDConfig:
        """What its target is loaded and scored with."""
        return FSDConfig(model=self.target.lab.model(self.reference), seed=self.target.seed)

    @property
    def name(self) -> str:
        """What its run is called."""
        return f"{self.corpus}, {self.target.exposures} exposures, seed {self.target.seed}"

    @cached_property
    def tag(self) -> str:
        """Hash of what its scores depend on, by which they are found again."""
        target = self.target
        lab = target.lab
        content = [lab.models.name, lab.continued, target.exposures, target.seed, self.reference]
        content += map(_hashes, target.sources)
        for kind, side in self.sides.items():
            content += [kind, _hashes(learned(side))]
        if self.adapted:
            content.append(ADAPTED)
        if self.adapters:
            content.append(asdict(AdapterConfig()))
        if lab.base:
            content.append(asdict(lab.base))
        return experiment.tag(content)


def learned(documents: Documents) -> tuple[str | Prompt, ...]:
    """What targets are trained on of documents: texts, or answers with what they answer."""
    return tuple(document.prompt if document.chat or document.context else document.text for document in documents)


def _hashes(texts: Iterable[str | Prompt]) -> list[str]:
    return sorted(map(_hash, texts))


def _hash(text: str | Prompt) -> str:
    if isinstance(text, str):
        return content_hash(text)
    # The same chat of another file is the same.
    chat = text.chat and text.chat._replace(origin="")
    return content_hash(json.dumps([text.text, text.context, chat]))


def compute(cells: Sequence[Cell], workers: int) -> Iterator[tuple[Cell, pd.DataFrame]]:
    """Each cell with its scores, targets side by side."""
    if not cells:
        return
    lab = cells[0].target.lab
    targets = [list(group) for _, group in groupby(cells, attrgetter("target"))]
    # A forked worker would share locks with the threads of torch.
    spawn = multiprocessing.get_context("spawn")
    # Targets after which a worker is replaced, since its memory grows.
    tasks = 1 if lab.base else 8
    with spawn.Pool(min(workers, len(targets)), start_worker, maxtasksperchild=tasks) as pool:  # ends them too
        # Once, before the cells, all of which read them.
        pool.apply(models.train, (lab, tuple({cell.reference for cell in cells})))
        yield from chain.from_iterable(pool.imap_unordered(run_cells, targets))


def start_worker() -> None:
    """Let a worker compute on one core, since there is one worker a core, and draw no progress bars of its own."""
    torch.set_num_threads(1)
    sys.stderr = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115, PTH123 - until the process ends


def run_cells(cells: Sequence[Cell]) -> list[tuple[Cell, pd.DataFrame]]:
    """The cells of a target, which is trained once, and their scores."""
    tables = []
    with cells[0].target.lab.precision:
        model = trained(cells[0].target)
        corpus = ""
        for cell in cells:
            # Cells that differ in the reference alone share the adapter, which the first of them trains.
            tables.append((cell, scores(cell, model, adapted=cell.corpus == corpus)))
            corpus = cell.corpus
    return tables


def trained(target: Target, more: Sequence[str] = ()) -> LanguageModel:
    """The target, trained on `more` texts too; a real model of 0 exposures is the unchanged one."""
    lab = target.lab
    base = lab.base
    model = load(lab.model("before"))
    if base and not target.exposures:
        return model
    texts: list[str | Prompt] = list(more)
    for source in target.sources:
        texts += source * target.exposures
    # Paragraphs of the background that the members are shuffled with.
    amount = 125 if base else 250
    if any(isinstance(text, Prompt) and text.chat for text in texts):
        amount = 0
    rng = random.Random(target.seed)
    texts += rng.sample(lab.background, min(amount, len(lab.background)))
    recipe = base.recipe if base else models.SIZES[lab.size]
    lora = AdapterConfig() if base and base.method == "lora" else None
    continue_pretraining(model, texts, replace(recipe, seed=target.seed), lora=lora, bar_shown=False)
    return model


def scoring(model: Model, part: str) -> Model:
    """The model, scoring this part of chats; texts are scored as they are."""
    if part == TEXT:
        return model
    config = replace(model.config, chats=part)  # type: ignore[arg-type] # one of its two values
    return replace(model, config=config)


def scores(cell: Cell, model: LanguageModel, *, adapted: bool = False) -> pd.DataFrame:
    """`kind`, `text` (its hash), `scored` of each text of a cell, and a column a score; the target keeps the adapter.

    `recall` and `neighbour`, which take several further passes over each text, are left out, and for a real model
    `lowercase`, which takes one. The unchanged one is scored once: its numbers are kept beside the models. A model that
    is `adapted` has the adapter of the cell's unseen texts already.
    """
    config = cell.config
    detectors = detector_settings.cheap(detector_settings.load_detectors(config.detection))
    if cell.adapted:
        detectors += map(load_detector, ADAPTED)
    if cell.target.lab.base:
        detectors = [detector for detector in detectors if "lower" not in detector.views]
    documents: list[Document] = []
    rows = []
    for kind, side in cell.sides.items():
        if kind != UNSEEN:
            documents += side
            rows += [{"kind": kind, "text": content_hash(document.text)} for document in side]
    split = Split(cell.sides[UNSEEN], (), documents)
    states = ("base", "tuned") if cell.adapters else ("base",)
    opened = open_model(config.model, states=states, local=model, seed=config.seed)
    scored = experiment.Experiment(config, detectors, split=split)
    if cell.adapters and not adapted:
        # For its refusals.
        scored.prepare(opened)
        scored.train(opened, None)
    scored.adapt_reference(opened)
    tables = []
    for part in cell.scored:
        plan = scored.planned(scoring(opened, part))
        texts = pd.DataFrame(rows).assign(scored=part)
        tables.append(pd.concat([texts, plan.score().frame()], axis=1))
    return pd.concat(tables, ignore_index=True)
