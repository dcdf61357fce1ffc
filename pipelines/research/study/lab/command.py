"""The laboratory: its cells, those that are not finished yet computed, and their report."""

import math
import os
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain
from operator import attrgetter
from pathlib import Path
from typing import Any

import pandas as pd

from fsd import tracking
from fsd.data.docstrings import PACKAGES
from fsd.data.documents import Document
from fsd.data.near_duplicates import refuse_copies
from fsd.errors import UsageError, at_least
from fsd.net.hub import default_folder
from fsd.tracking import Run
from pipelines.common.context import stage
from pipelines.common.deliver import deliver, tracked_run
from pipelines.common.job import Job, pretraining
from pipelines.common.output import check_table_path, write_table
from pipelines.research.study.lab import LabConfig, corpora, results
from pipelines.research.study.lab.corpora import LabCorpus
from pipelines.research.study.lab.targets import SIZES, Base, Cell, compute, shared

EXPERIMENT = "fsd-lab"
# Folder in the cache with the models and finished cells.
FOLDER = "lab"
SMALL_TEXTS = 120
SMALL_PARAGRAPHS = 800
# Its docstrings alone are background enough for tiny targets.
SMALL_PACKAGES = ("pandas",)


def prepare(config: LabConfig) -> Job:
    """Check the settings and the corpora but `code`, which takes a minute to cut."""
    if config.small:
        config = replace(
            config,
            size="tiny",
            seeds=min(config.seeds, 2),
            exposures=(0, 4),
            paragraphs=min(config.paragraphs, SMALL_PARAGRAPHS),
            texts=config.texts or SMALL_TEXTS,
        )
    _check(config)
    base = None
    model = pretraining(SIZES[config.size], 0)["model"]
    note = "a cell takes one to three minutes on a core; `tiny` ones are faster, those of 8M slower"
    # One for each corpus, number of exposures and seed.
    cells = len(config.corpora) * len(set(config.exposures)) * config.seeds
    if config.base:
        base = Base.of(
            config.base,
            config.learning_rate,
            method=config.method,
            dtype=config.dtype,
        )
        model = f"{base.model}, continued"
        note = "a cell of smollm2 takes 5 GB of memory, and for 320 texts eleven minutes of one core"
        # Unchanged, it is the control of all seeds of a corpus.
        cells -= len(config.corpora) * (config.seeds - 1)
    folder = default_folder(config.cache) / FOLDER
    reads = {
        "corpora": ", ".join(config.corpora),
        "cells": f"{cells:,}, less those that are finished",
        "background": f"{config.paragraphs:,} paragraphs",
        "model": model,
    }
    return Job(
        partial(run, config, folder, base),
        reads,
        writes=[config.out, folder],
        experiment=EXPERIMENT,
        notes=[note],
    )


def _check(config: LabConfig) -> None:
    """Refuse settings before anything is computed."""
    exposures = sorted(set(config.exposures))
    if exposures[:1] != [0] or len(exposures) < 2:
        listed = " ".join(map(str, config.exposures)) or "none"
        raise UsageError(f"exposures must be 0, for the control, and at least one number above; got {listed}")
    at_least(1, seeds=config.seeds, workers=config.workers, texts=config.texts)
    at_least(100, paragraphs=config.paragraphs)
    if len(set(config.corpora)) < len(config.corpora) or not config.corpora:
        raise UsageError(f"corpora must be at least one, each once; got {' '.join(config.corpora) or 'none'}")
    check_table_path(config.out, config.corpora)
    rate = config.learning_rate
    if rate is not None and not 0 < rate < math.inf:
        raise UsageError(f"learning-rate must be above 0 and finite; got {rate}")
    for name in config.corpora:
        # Functions of packages are cut when the work begins, since this takes a minute.
        if name not in (corpora.CODE, corpora.OWN_CODE):
            corpora.load(name, config.columns)


def _cells(config: LabConfig, corpus: LabCorpus, shared: dict[str, Any]) -> Iterator[Cell]:
    """The cells of a corpus, seed by seed."""
    for seed in range(config.seeds):
        sides = corpora.draw(corpus, seed, config.texts)
        for exposures in sorted(set(config.exposures)):
            # An unchanged base is the control of every seed, and is computed with the first.
            if exposures or not seed or not shared["base"]:
                yield Cell(
                    corpus.name,
                    exposures=exposures,
                    seed=seed,
                    sides=sides,
                    **shared,
                )


def run(config: LabConfig, folder: Path, base: Base | None) -> None:
    """Compute the cells that are not finished yet, and record tables and figure."""
    with stage("data"):
        packages = SMALL_PACKAGES if config.small else PACKAGES
        common = shared(folder, packages, config.paragraphs, base, config.size)
        background = [Document(text) for text in common["background"]]
        texts = {}
        cells: list[Cell] = []
        for name in config.corpora:
            corpus = corpora.load(name, config.columns)
            documents = texts[corpus.name] = list(chain(corpus.older, corpus.later))
            # A copy in the background would be trained on, whatever its label.
            refuse_copies(documents, background)
            cells += _cells(config, corpus, common)
        cells.sort(key=attrgetter("seed"))  # what an interrupted laboratory has finished are whole seeds
    params = {name: getattr(config, name) for name in ("corpora", "exposures", "seeds", "paragraphs")}
    params["size"] = common["size"]
    if base:
        params |= {
            "learning_rate": base.recipe.learning_rate,
            "dtype": base.dtype,
        }
    title = f"lab · {common['size']} · {len(cells)} cells"
    with tracked_run(config, EXPERIMENT, title, params=params, tags={"study": "lab"}) as tracked:
        with stage("scoring"):
            # A real model fills the memory, so that its cells follow one another.
            compute(cells, config.workers or (1 if base else os.cpu_count()) or 1)
            scores = [(cell.labels, pd.read_parquet(cell.file)) for cell in cells]
            measured = results.measure(results.joined(scores, texts))
            _track_cells(cells, measured, tracked)
        report = results.report(measured, len(cells))
        write_table(measured, config.out)
        files = {"results": config.out} if config.out else {}
        deliver(replace(report, files=files), tracked)


def _track_cells(cells: Sequence[Cell], measured: pd.DataFrame, parent: Run) -> None:
    """Record the AUCs of each cell in a run of its own."""
    by_cell = dict(list(measured.groupby(["corpus", "exposures", "seed"])))
    for cell in cells:
        tags = {"study": "lab", "kind": "cell", "cell": cell.file.stem}
        name = f"lab: {cell.corpus}, {cell.exposures} exposures, seed {cell.seed}"
        with tracking.run(EXPERIMENT, name, params=cell.labels, tags=tags, parent=parent) as child:
            child.log_metrics(results.tracked(by_cell[cell.corpus, cell.exposures, cell.seed]))
