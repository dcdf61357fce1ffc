"""The laboratory: its cells, those that are not finished yet computed, and their report."""

import math
import os
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
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
from pipelines.common.job import Job, deliver, pretraining, stage, tracked_run
from pipelines.common.output import check_table_path, write_table
from pipelines.study.lab import LabConfig, corpora, results
from pipelines.study.lab.corpora import Corpus
from pipelines.study.lab.targets import SIZES, Base, Cell, compute, shared

EXPERIMENT = "fsd-lab"
FOLDER = "lab"
"""Folder in the cache with the models and finished cells."""
SMALL_TEXTS, SMALL_PARAGRAPHS, SMALL_PACKAGES = 120, 800, ("pandas",)


def prepare(config: LabConfig) -> Job:
    """Check the settings and the corpora but `code`, which takes a minute to cut."""
    if config.small:
        paragraphs, seeds = min(config.paragraphs, SMALL_PARAGRAPHS), min(config.seeds, 2)
        texts = config.texts or SMALL_TEXTS
        config = replace(config, size="tiny", seeds=seeds, exposures=(0, 4), paragraphs=paragraphs, texts=texts)
    exposures = sorted(set(config.exposures))
    if exposures[:1] != [0] or len(exposures) < 2:
        shown = " ".join(map(str, config.exposures)) or "none"
        raise UsageError(f"exposures must be 0, for the control, and at least one number above; got {shown}")
    at_least(1, seeds=config.seeds, workers=config.workers, texts=config.texts)
    at_least(100, paragraphs=config.paragraphs)
    if len(set(config.corpora)) < len(config.corpora) or not config.corpora:
        raise UsageError(f"corpora must be at least one, each once; got {' '.join(config.corpora) or 'none'}")
    check_table_path(config.out, config.corpora)
    rate = config.learning_rate
    if rate is not None and not 0 < rate < math.inf:
        raise UsageError(f"learning-rate must be above 0 and finite; got {rate}")
    for name in config.corpora:
        if name not in (corpora.CODE, corpora.OWN_CODE):
            corpora.load(name, config.columns)
    base = Base.of(config.base, rate, method=config.method, dtype=config.dtype) if config.base else None
    folder = default_folder(config.cache) / FOLDER
    count = len(config.corpora) * (len(exposures) * config.seeds - (config.seeds - 1 if base else 0))
    return Job(
        partial(run, config, folder, base),
        {
            "corpora": ", ".join(config.corpora),
            "cells": f"{count:,}, less those that are finished",
            "background": f"{config.paragraphs:,} paragraphs",
            "model": f"{base.model}, continued" if base else pretraining(SIZES[config.size], 0)["model"],
        },
        writes=[config.out, folder],
        experiment=EXPERIMENT,
        notes=[
            "a cell of smollm2 takes 5 GB of memory, and for 320 texts eleven minutes of one core"
            if base
            else "a cell takes one to three minutes on a core; `tiny` ones are faster, those of 8M slower"
        ],
    )


def _cells(config: LabConfig, corpus: Corpus, shared: dict[str, Any]) -> Iterator[Cell]:
    """The cells of a corpus; an unchanged base is the same for every seed."""
    for seed in range(config.seeds):
        sides = corpora.draw(corpus, seed, config.texts)
        for exposures in sorted(set(config.exposures)):
            if exposures or not (shared["base"] and seed):
                yield Cell(corpus.name, exposures=exposures, seed=seed, sides=sides, **shared)


def run(config: LabConfig, folder: Path, base: Base | None) -> None:
    """Compute the cells that are not finished yet, and record tables and figure."""
    with stage("data"):
        packages = SMALL_PACKAGES if config.small else PACKAGES
        common = shared(folder, packages, config.paragraphs, base, config.size)
        size = common["size"]
        loaded = [corpora.load(name, config.columns) for name in config.corpora]
        texts = {corpus.name: [*corpus.older, *corpus.later] for corpus in loaded}
        for documents in texts.values():
            refuse_copies(documents, list(map(Document, common["background"])))
        cells = [cell for corpus in loaded for cell in _cells(config, corpus, common)]
        cells.sort(key=attrgetter("seed"))  # what an interrupted laboratory has finished are whole seeds
    params = {name: getattr(config, name) for name in ("corpora", "exposures", "seeds", "paragraphs")}
    params |= {"size": size} | ({"learning_rate": base.recipe.learning_rate, "dtype": base.dtype} if base else {})
    title = f"lab · {size} · {len(cells)} cells"
    with tracked_run(config, EXPERIMENT, title, params=params, tags={"study": "lab"}) as tracked:
        with stage("scoring"):
            compute(cells, config.workers or (1 if base else os.cpu_count()) or 1)
            table = results.measure(
                results.joined(((cell.labels, pd.read_parquet(cell.file)) for cell in cells), texts)
            )
            measured = dict(list(table.groupby(["corpus", "exposures", "seed"])))
            for cell in cells:
                tags = {"study": "lab", "kind": "cell", "cell": cell.file.stem}
                name = f"lab: {cell.corpus}, {cell.exposures} exposures, seed {cell.seed}"
                with tracking.run(EXPERIMENT, name, params=cell.labels, tags=tags, parent=tracked) as child:
                    child.log_metrics(results.tracked(measured[cell.corpus, cell.exposures, cell.seed]))
        found = results.report(table, len(cells))
        write_table(table, config.out)
        deliver(replace(found, files={"results": config.out} if config.out else {}), tracked)
