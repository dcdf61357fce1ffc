"""Compare every score on targets whose training texts are all known.

Small targets are trained on half of the older texts of a corpus a given number of times, and an adapter is fine-tuned
on later texts. Three kinds of text are then compared: members, contemporaries, which are as old and were never trained
on, and later texts. Finished cells are kept, so that an interrupted laboratory goes on.

Examples:
    fsd study lab --small
    fsd study lab --corpora wikipedia code --seeds 3 --dry-run
"""

import multiprocessing
import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Annotated, Literal

from tyro.conf import arg

from fsd.config import Columns, OptionalInt, OptionalPath
from fsd.errors import UsageError
from pipelines.common.job import Job
from pipelines.study.lab.targets import SIZES, TRAINED_WITH, Cell, run_cell, start_worker, train_shared_models

EXPERIMENT = "fsd-lab"
FOLDER = "lab"
"""Folder in the cache with the models and finished cells."""
TASKS = 8
"""Cells after which a worker is replaced, since its memory grows."""
SMALL_TEXTS, SMALL_PARAGRAPHS, SMALL_PACKAGES = 120, 800, ("pandas",)


@dataclass(frozen=True)
class LabConfig:
    """Corpora, exposures and seeds."""

    corpora: tuple[str, ...] = ("wikipedia", "arxiv", "code")
    """`wikipedia` and `arxiv` (embedded), `code` (functions of installed packages), or files of labelled texts."""
    columns: Columns = ""
    """Column names of the files that differ from the defaults, e.g. text=input."""
    exposures: tuple[int, ...] = (0, 1, 2, 4, 8)
    """How often a target is trained on its members; 0, the control, must be among them."""
    seeds: int = 5
    """Number of targets for each corpus and exposure, each with a draw of members of its own."""
    size: Literal["tiny", "1M", "8M"] = "1M"
    """Parameters of the targets."""
    small: bool = False
    """A laboratory of a few minutes: tiny targets, two seeds, exposures 0 and 4, fewer texts."""
    paragraphs: int = 4000
    """Paragraphs of background, from the docstrings of installed packages."""
    workers: OptionalInt = None
    """Processes that compute cells side by side. Default: one a core."""
    cache: OptionalPath = None
    """Folder that keeps finished cells, so that an interrupted laboratory resumes. Default: $FSD_CACHE, else
    ~/.cache/fsd."""
    out: Annotated[str | None, arg(metavar="PATH", help_behavior_hint="")] = None
    """File for the raw results: .parquet, .csv or .jsonl."""


def prepare(config: LabConfig) -> Job:
    """Plan the cells: a target for each that is not finished yet, after the model that all of them continue."""
    from pipelines.common import job
    from pipelines.common.output import check_table_path

    if config.small:
        paragraphs, seeds = min(config.paragraphs, SMALL_PARAGRAPHS), min(config.seeds, 2)
        config = replace(config, size="tiny", seeds=seeds, exposures=(0, 4), paragraphs=paragraphs)
    _check(config)
    if config.out:
        check_table_path(Path(config.out), config.corpora)
    cells = plan(config)
    missing = [cell for cell in cells if not cell.file.exists()]
    first, recipe = cells[0], SIZES[config.size]
    background = sum(map(len, first.background))
    shared = background * recipe.passes if missing else 0
    beside = background * min(1.0, TRAINED_WITH / len(first.background))
    own = sum(beside + cell.exposures * sum(len(d.text) for d in cell.sides.members) for cell in missing)
    return Job(
        partial(run, config, cells),
        {
            "corpora": ", ".join(config.corpora),
            "cells": f"{len(cells):,}, of which {len(cells) - len(missing):,} are finished",
            "background": f"{len(first.background):,} paragraphs",
            **job.pretraining(recipe, (shared + own) / job.TOKEN),
        },
        writes=[config.out, first.folder],
        experiment=EXPERIMENT,
        notes=["the numbers are those of pretraining; adapters and scores are added to them"],
    )


def run(config: LabConfig, cells: "Sequence[Cell]") -> None:
    """Compute the cells that are not finished yet, and record tables and figure."""
    import pandas as pd

    from fsd import tracking
    from pipelines.common.job import deliver, tracked_run
    from pipelines.common.output import write_table
    from pipelines.study.lab import results
    from pipelines.study.lab.report import report

    params = {name: getattr(config, name) for name in ("corpora", "exposures", "seeds", "size", "paragraphs")}
    title = f"lab · {config.size} · {len(cells)} cells"
    with tracked_run(config, EXPERIMENT, title, params=params, tags={"study": "lab"}) as tracked:
        compute(cells, config.workers or os.cpu_count() or 1)
        table = results.measure(pd.concat([cell.scores() for cell in cells], ignore_index=True))
        measured = dict(list(table.groupby(["corpus", "exposures", "seed"])))
        for cell in cells:
            numbers = measured[cell.corpus, cell.exposures, cell.seed]
            names = "auc_" + numbers["contrast"] + "/" + numbers["detector"] + "." + numbers["state"]
            tags = {"study": "lab", "kind": "cell", "cell": cell.key}
            with tracking.run(EXPERIMENT, f"lab: {cell.name}", params=cell.labels, tags=tags, parent=tracked) as child:
                child.log_metrics(dict(zip(names, numbers["auc"].astype(float), strict=True)))
        found = report(table, len(cells))
        if config.out:
            write_table(table, Path(config.out))
            found = replace(found, files={"results": config.out})
        deliver(found, tracked)


def _check(config: LabConfig) -> None:
    """Refuse the first value out of range."""
    if 0 not in config.exposures or min(config.exposures) < 0 or len(set(config.exposures)) < 2:
        raise UsageError(
            "exposures must be 0, for the control, and at least one number above; got "
            f"{' '.join(map(str, config.exposures)) or 'none'}"
        )
    for name, least, value in (
        ("seeds", 1, config.seeds),
        ("paragraphs", 100, config.paragraphs),
        ("workers", 1, 1 if config.workers is None else config.workers),
    ):
        if value < least:
            raise UsageError(f"{name} must be at least {least}; got {value}")
    if len(set(config.corpora)) < len(config.corpora) or not config.corpora:
        raise UsageError(f"corpora must be at least one, each once; got {' '.join(config.corpora) or 'none'}")


def plan(config: LabConfig) -> list[Cell]:
    """The cells, in the order of corpora, exposures and seeds."""
    from fsd.data import docstrings
    from fsd.scoring.cache import default_folder
    from pipelines.study.lab import corpora

    folder = (Path(config.cache).expanduser() if config.cache else default_folder()) / FOLDER
    loaded = [corpora.load(name, config.columns) for name in config.corpora]
    packages = SMALL_PACKAGES if config.small else docstrings.PACKAGES
    background = tuple(docstrings.docstring_paragraphs(packages=packages, limit=config.paragraphs, seed=0))
    for corpus in loaded:
        corpora.check_background(corpus, background)
    sides = [
        [corpora.draw(corpus, seed, limit=SMALL_TEXTS if config.small else None) for seed in range(config.seeds)]
        for corpus in loaded
    ]
    return [
        Cell(corpus.name, config.size, exposures, seed, drawn[seed], background, folder)
        for corpus, drawn in zip(loaded, sides, strict=True)
        for exposures in sorted(set(config.exposures))
        for seed in range(config.seeds)
    ]


def compute(cells: Sequence[Cell], workers: int) -> None:
    """Compute the cells that no earlier call has finished."""
    from fsd.progress import progress

    missing = [cell for cell in cells if not cell.file.exists()]
    with progress(len(cells), "lab", "cell") as bar:
        bar.update(len(cells) - len(missing))
        if not missing:
            return
        missing[0].folder.mkdir(parents=True, exist_ok=True)
        context = multiprocessing.get_context("spawn")
        with context.Pool(
            min(workers, len(missing)), start_worker, maxtasksperchild=TASKS
        ) as pool:  # its end terminates them
            pool.apply(train_shared_models, (missing[0],))
            for _ in pool.imap_unordered(run_cell, missing):
                bar.update(1)
