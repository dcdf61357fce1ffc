"""Compare every score on targets whose training texts are all known.

Small targets are trained on half of the older texts of a corpus a given number of times, and an adapter is fine-tuned
on later texts. Three kinds of text are then compared: members, contemporaries, which are as old and were never trained
on, and later texts. Finished cells are kept, so that an interrupted laboratory goes on.

Examples:
    fsd study lab --small
    fsd study lab --corpora wikipedia code --seeds 3 --dry-run
"""

import os
from dataclasses import dataclass, replace
from functools import partial
from itertools import product
from pathlib import Path
from typing import Annotated, Literal

from tyro.conf import arg

from fsd.config import Columns, OptionalInt, OptionalPath
from fsd.errors import UsageError
from pipelines.common.job import Job

EXPERIMENT = "fsd-lab"
FOLDER = "lab"
"""Folder in the cache with the models and finished cells."""
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
    """Check the settings and the corpora but `code`, which takes a minute to cut."""
    from fsd.scoring.cache import default_folder
    from pipelines.common import job
    from pipelines.common.output import check_table_path
    from pipelines.study.lab import corpora
    from pipelines.study.lab.targets import SIZES

    if config.small:
        paragraphs, seeds = min(config.paragraphs, SMALL_PARAGRAPHS), min(config.seeds, 2)
        config = replace(config, size="tiny", seeds=seeds, exposures=(0, 4), paragraphs=paragraphs)
    exposures = sorted(set(config.exposures))
    if exposures[:1] != [0] or len(exposures) < 2:
        shown = " ".join(map(str, config.exposures)) or "none"
        raise UsageError(f"exposures must be 0, for the control, and at least one number above; got {shown}")
    for name, least in (("seeds", 1), ("paragraphs", 100), ("workers", 1)):
        value = getattr(config, name)
        if value is not None and value < least:
            raise UsageError(f"{name} must be at least {least}; got {value}")
    if len(set(config.corpora)) < len(config.corpora) or not config.corpora:
        raise UsageError(f"corpora must be at least one, each once; got {' '.join(config.corpora) or 'none'}")
    if config.out:
        check_table_path(Path(config.out), config.corpora)
    for name in config.corpora:
        if name != corpora.CODE:
            corpora.load(name, config.columns)
    folder = (Path(config.cache).expanduser() if config.cache else default_folder()) / FOLDER
    count = len(config.corpora) * len(exposures) * config.seeds
    return Job(
        partial(run, config, folder),
        {
            "corpora": ", ".join(config.corpora),
            "cells": f"{count:,}, less those that are finished",
            "background": f"{config.paragraphs:,} paragraphs",
            "model": job.pretraining(SIZES[config.size], 0)["model"],
        },
        writes=[config.out, folder],
        experiment=EXPERIMENT,
        notes=["a cell takes one to three minutes on a core; `tiny` ones are faster, those of 8M slower"],
    )


def run(config: LabConfig, folder: Path) -> None:
    """Compute the cells that are not finished yet, and record tables and figure."""
    from pipelines.common.job import deliver, stage, tracked_run

    with stage("data"):
        import pandas as pd

        from fsd import tracking
        from fsd.data import docstrings
        from fsd.data.documents import Document, content_hash
        from fsd.data.near_duplicates import families, refuse_copies
        from pipelines.common.output import write_table
        from pipelines.study.lab import corpora, results
        from pipelines.study.lab.targets import Cell, compute, shared_models

        packages, limit = (SMALL_PACKAGES, SMALL_TEXTS) if config.small else (docstrings.PACKAGES, None)
        background = tuple(docstrings.docstring_paragraphs(packages=packages, limit=config.paragraphs, seed=0))
        models = shared_models(folder, config.size, background)
        cells: list[Cell] = []
        family: dict[tuple[str, str], int] = {}
        for corpus in [corpora.load(name, config.columns) for name in config.corpora]:
            texts = [*corpus.older, *corpus.later]
            refuse_copies(texts, list(map(Document, background)))
            numbers = zip(texts, families(texts), strict=True)
            family |= {(corpus.name, content_hash(document.text)): number for document, number in numbers}
            sides = [corpora.draw(corpus, seed, limit) for seed in range(config.seeds)]
            for exposures, seed in product(sorted(set(config.exposures)), range(config.seeds)):
                cells.append(Cell(corpus.name, config.size, exposures, seed, sides[seed], background, models))
    params = {name: getattr(config, name) for name in ("corpora", "exposures", "seeds", "size", "paragraphs")}
    title = f"lab · {config.size} · {len(cells)} cells"
    with tracked_run(config, EXPERIMENT, title, params=params, tags={"study": "lab"}) as tracked:
        with stage("scoring"):
            compute(cells, config.workers or os.cpu_count() or 1)
            scores = pd.concat([pd.read_parquet(cell.file).assign(**cell.labels) for cell in cells], ignore_index=True)
            scores["family"] = [family[place] for place in zip(scores["corpus"], scores["text"], strict=True)]
            table = results.measure(scores)
            measured = dict(list(table.groupby(["corpus", "exposures", "seed"])))
            for cell in cells:
                of_cell = measured[cell.corpus, cell.exposures, cell.seed]
                names = "auc_" + of_cell["contrast"] + "/" + of_cell["detector"] + "." + of_cell["state"]
                tags = {"study": "lab", "kind": "cell", "cell": cell.file.stem}
                name = f"lab: {cell.corpus}, {cell.exposures} exposures, seed {cell.seed}"
                with tracking.run(EXPERIMENT, name, params=cell.labels, tags=tags, parent=tracked) as child:
                    child.log_metrics(dict(zip(names, of_cell["auc"].astype(float), strict=True)))
        found = results.report(table, len(cells))
        if config.out:
            write_table(table, Path(config.out))
            found = replace(found, files={"results": config.out})
        deliver(found, tracked)
