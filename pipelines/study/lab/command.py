"""Compare every score on targets whose training texts are all known.

Small targets read half of the older texts of a corpus a given number of times, and an adapter is fine-tuned on later
texts. Three kinds of text are then compared: members, contemporaries, which are as old and were never read, and later
texts. Finished cells are kept, so that an interrupted laboratory goes on.

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

from fsd.config import Columns, OptionalInt, OptionalPath, Recipe
from fsd.errors import UsageError
from pipelines.common.job import Job
from pipelines.study.lab.targets import READ_WITH, Cell, one_thread, reference_model, run_cell

EXPERIMENT = "fsd-lab"
FOLDER = "lab"
"""Folder in the cache with the models and finished cells."""
SIZES = {
    "tiny": Recipe(hidden_size=64, layers=2, heads=2, vocabulary=1024, context=256, passes=2, learning_rate=3e-3),
    "1M": Recipe(passes=2),
    "8M": Recipe(hidden_size=256, layers=10, heads=8, passes=2, learning_rate=1e-3),
}
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
    """How often a target reads its members; 0, the control, must be among them."""
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
        config = shrunk(config)
    check(config)
    if config.out:
        check_table_path(Path(config.out), config.corpora)
    cells = plan(config)
    missing = [cell for cell in cells if not cell.file.exists()]
    first, background = cells[0], sum(map(len, cells[0].background))
    shared = background * first.recipe.passes if missing else 0
    beside = background * min(1.0, READ_WITH / len(first.background))
    own = sum(beside + cell.exposures * sum(map(len, cell.members)) for cell in missing)
    return Job(
        partial(run, config, cells),
        {
            "corpora": ", ".join(config.corpora),
            "cells": f"{len(cells):,}, of which {len(cells) - len(missing):,} are finished",
            "background": f"{len(first.background):,} paragraphs",
            **job.pretraining(first.recipe, (shared + own) / job.TOKEN),
        },
        writes=[config.out, first.folder],
        experiment=EXPERIMENT,
        notes=["the numbers are those of pretraining; adapters and scores are added to them"],
    )


def run(config: LabConfig, cells: "Sequence[Cell]") -> None:
    """Compute the cells that are not finished yet, and record tables and figure."""
    import pandas as pd

    from fsd import tracking
    from fsd.reporting.figures import png
    from fsd.reporting.report import Report, Section, numbers
    from pipelines.common import outcome
    from pipelines.common.output import write_table
    from pipelines.study.lab import results
    from pipelines.study.lab.figure import figure

    params = {
        "corpora": config.corpora,
        "exposures": config.exposures,
        "seeds": config.seeds,
        "size": config.size,
        "paragraphs": config.paragraphs,
    }
    with outcome.tracked_run(
        config, EXPERIMENT, f"lab · {config.size} · {len(cells)} cells", params=params, tags={"study": "lab"}
    ) as tracked:
        compute(cells, config.workers or os.cpu_count() or 1)
        table = results.measure([(cell, pd.read_parquet(cell.file)) for cell in cells])
        measured = dict(list(table.groupby(["corpus", "exposures", "seed"])))
        for cell in cells:
            cell_numbers = measured[cell.corpus, cell.exposures, cell.seed]
            tags = {"study": "lab", "kind": "cell", "cell": cell.key}
            facts = {"corpus": cell.corpus, "exposures": cell.exposures, "seed": cell.seed, "size": cell.size}
            with tracking.run(EXPERIMENT, f"lab: {cell.name}", params=facts, tags=tags, parent=tracked) as child:
                child.log_metrics(results.headline(cell_numbers))
        page = results.page(table)
        if config.out:
            write_table(table, Path(config.out))
        report = Report(
            headline=f"laboratory of {len(cells)} cells",
            sections=[Section("", tables=[numbers("results", table)])],
            artifacts={
                "results.parquet": table,
                "summary.csv": results.summarise(table),
                "lab.md": page,
                "lab.png": png(figure(table)),
            },
            files={"results": config.out} if config.out else {},
        )
        outcome.publish(report, tracked)
        outcome.show(report, tracked, text=lambda: print(page), page="lab.md")


def shrunk(config: LabConfig) -> LabConfig:
    """The settings of `--small`; corpora, cache and files stay as given."""
    return replace(
        config,
        size="tiny",
        seeds=min(config.seeds, 2),
        exposures=(0, 4),
        paragraphs=min(config.paragraphs, SMALL_PARAGRAPHS),
    )


def check(config: LabConfig) -> None:
    """Check the grid.

    Raises:
        UsageError: for the first value out of range.
    """
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
    """The cells, in the order of corpora, exposures and seeds.

    Raises:
        UsageError: for a corpus that cannot be read, has too few texts, or shares texts with the background.
    """
    from fsd.data import docstrings
    from fsd.scoring.cache import default_folder
    from pipelines.study.code_version import code_version
    from pipelines.study.lab import corpora

    folder = (Path(config.cache).expanduser() if config.cache else default_folder()) / FOLDER
    loaded = [corpora.load(name, config.columns) for name in config.corpora]
    packages = SMALL_PACKAGES if config.small else docstrings.PACKAGES
    background = docstrings.docstring_paragraphs(packages=packages, limit=config.paragraphs, seed=0)
    for corpus in loaded:
        corpora.check_background(corpus, background)
    code = code_version(("pipelines.study.lab.targets",))
    return [
        Cell(
            corpus=corpus.name,
            size=config.size,
            exposures=exposures,
            seed=seed,
            **corpora.draw(corpus, seed, limit=SMALL_TEXTS if config.small else None),
            recipe=SIZES[config.size],
            background=tuple(background),
            folder=folder,
            code=code,
        )
        for corpus in loaded
        for exposures in sorted(set(config.exposures))
        for seed in range(config.seeds)
    ]


def compute(cells: Sequence[Cell], workers: int) -> None:
    """Compute the cells that no earlier call has finished."""
    from fsd.progress import progress

    missing = [cell for cell in cells if not cell.file.exists()]
    for folder in {cell.folder for cell in missing}:
        folder.mkdir(parents=True, exist_ok=True)
    with progress(len(cells), "lab", "cell") as bar:
        bar.update(len(cells) - len(missing))
        if not missing:
            return
        context = multiprocessing.get_context("spawn")
        with context.Pool(
            min(workers, len(missing)), one_thread, maxtasksperchild=8
        ) as pool:  # its end terminates them
            pool.apply(reference_model, (missing[0],))  # and the background model, which it needs
            for _ in pool.imap_unordered(run_cell, missing):
                bar.update(1)
