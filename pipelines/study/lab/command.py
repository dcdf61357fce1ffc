"""Compare every score on targets whose training texts are all known.

Small targets are trained on half of the older texts of a corpus a given number of times, and an adapter is fine-tuned
on later texts. Three kinds of text are then compared: members, contemporaries, which are as old and were never trained
on, and later texts. Finished cells are kept, so that an interrupted laboratory goes on. With --base a real model is
trained further in place of small ones; unchanged, it is the control and the reference.

Examples:
    fsd study lab --small
    fsd study lab --base smollm2 --corpora wikipedia arxiv own-code --exposures 0 1 --seeds 3
    fsd study lab --corpora wikipedia code --seeds 3 --dry-run
"""

import math
import os
from dataclasses import dataclass, replace
from functools import partial
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from tyro.conf import arg

from fsd.config import Columns, OptionalFloat, OptionalInt, OptionalModel, OptionalPath
from fsd.errors import UsageError
from pipelines.common.job import Job

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pipelines.study.lab.corpora import Corpus
    from pipelines.study.lab.targets import Base, Cell

EXPERIMENT = "fsd-lab"
FOLDER = "lab"
"""Folder in the cache with the models and finished cells."""
SMALL_TEXTS, SMALL_PARAGRAPHS, SMALL_PACKAGES = 120, 800, ("pandas",)


@dataclass(frozen=True)
class LabConfig:
    """Corpora, exposures and seeds."""

    corpora: tuple[str, ...] = ("wikipedia", "arxiv", "code")
    """`wikipedia` and `arxiv` (embedded), `code` (functions of installed packages), `own-code` (those of this one), or
    files of labelled texts."""
    columns: Columns = ""
    """Column names of the files that differ from the defaults, e.g. text=input."""
    exposures: tuple[int, ...] = (0, 1, 2, 4, 8)
    """How often a target is trained on its members; 0, the control, must be among them."""
    seeds: int = 5
    """Number of targets for each corpus and exposure, each with a draw of members of its own."""
    size: Literal["tiny", "1M", "8M"] = "1M"
    """Parameters of the targets."""
    base: OptionalModel = None
    """Model whose pretraining is continued, e.g. smollm2, in place of targets of `size`."""
    method: Literal["full", "lora"] = "full"
    """What of the base is trained: all weights, or an adapter that is merged into them."""
    dtype: Literal["bfloat16", "float32"] = "bfloat16"
    """Precision of the matrix products with a base; the weights are kept in float32."""
    learning_rate: OptionalFloat = None
    """Peak learning rate of the base. Default: 5e-5, with lora 5e-4."""
    texts: OptionalInt = None
    """Most older texts of a corpus, and most later ones. Default: all, with --small 120."""
    small: bool = False
    """A laboratory of a few minutes: tiny targets, two seeds, exposures 0 and 4, fewer texts."""
    paragraphs: int = 4000
    """Paragraphs of background, from the docstrings of installed packages."""
    workers: OptionalInt = None
    """Processes that compute cells side by side. Default: one a core, and with --base one."""
    cache: OptionalPath = None
    """Folder that keeps finished cells, so that an interrupted laboratory resumes. Default: $FSD_CACHE, else
    ~/.cache/fsd."""
    out: Annotated[str | None, arg(metavar="PATH", help_behavior_hint="")] = None
    """File for the raw results: .parquet, .csv or .jsonl."""


def prepare(config: LabConfig) -> Job:
    """Check the settings and the corpora but `code`, which takes a minute to cut."""
    from fsd.net.hub import default_folder
    from pipelines.common import job
    from pipelines.common.output import check_table_path
    from pipelines.study.lab import corpora
    from pipelines.study.lab.targets import SIZES

    if config.small:
        paragraphs, seeds = min(config.paragraphs, SMALL_PARAGRAPHS), min(config.seeds, 2)
        texts = config.texts or SMALL_TEXTS
        config = replace(config, size="tiny", seeds=seeds, exposures=(0, 4), paragraphs=paragraphs, texts=texts)
    exposures = sorted(set(config.exposures))
    if exposures[:1] != [0] or len(exposures) < 2:
        shown = " ".join(map(str, config.exposures)) or "none"
        raise UsageError(f"exposures must be 0, for the control, and at least one number above; got {shown}")
    for name, least in (("seeds", 1), ("paragraphs", 100), ("workers", 1), ("texts", 1)):
        value = getattr(config, name)
        if value is not None and value < least:
            raise UsageError(f"{name} must be at least {least}; got {value}")
    if len(set(config.corpora)) < len(config.corpora) or not config.corpora:
        raise UsageError(f"corpora must be at least one, each once; got {' '.join(config.corpora) or 'none'}")
    if config.out:
        check_table_path(Path(config.out), config.corpora)
    rate = config.learning_rate
    if rate is not None and not 0 < rate < math.inf:
        raise UsageError(f"learning-rate must be above 0 and finite; got {rate}")
    for name in config.corpora:
        if name not in (corpora.CODE, corpora.OWN_CODE):
            corpora.load(name, config.columns)
    base = _base(config)
    folder = (Path(config.cache).expanduser() if config.cache else default_folder()) / FOLDER
    count = len(config.corpora) * (len(exposures) * config.seeds - (config.seeds - 1 if base else 0))
    return Job(
        partial(run, config, folder, base),
        {
            "corpora": ", ".join(config.corpora),
            "cells": f"{count:,}, less those that are finished",
            "background": f"{config.paragraphs:,} paragraphs",
            "model": f"{base.model}, continued" if base else job.pretraining(SIZES[config.size], 0)["model"],
        },
        writes=[config.out, folder],
        experiment=EXPERIMENT,
        notes=[
            "a cell of smollm2 takes 5 GB of memory, and for 320 texts eleven minutes of one core"
            if base
            else "a cell takes one to three minutes on a core; `tiny` ones are faster, those of 8M slower"
        ],
    )


def _base(config: LabConfig) -> "Base | None":
    from fsd.net.hub import fingerprint, locate
    from pipelines.study.lab.targets import BASE_RECIPE, LORA_RATE, Base

    if config.base is None:
        return None
    rate = config.learning_rate or (LORA_RATE if config.method == "lora" else BASE_RECIPE.learning_rate)
    weights, recipe = fingerprint(locate(config.base)[0]), replace(BASE_RECIPE, learning_rate=rate)
    return Base(config.base, weights, config.dtype, config.method, recipe)


def _cells(config: LabConfig, corpus: "Corpus", *, base: "Base | None", **shared: Any) -> "Iterator[Cell]":
    """The cells of a corpus; an unchanged base is the same for every seed."""
    from pipelines.study.lab import corpora
    from pipelines.study.lab.targets import Cell

    for seed in range(config.seeds):
        sides = corpora.draw(corpus, seed, config.texts)
        for exposures in sorted(set(config.exposures)):
            if exposures or not (base and seed):
                yield Cell(corpus.name, exposures=exposures, seed=seed, sides=sides, base=base, **shared)


def run(config: LabConfig, folder: Path, base: "Base | None") -> None:
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
        from pipelines.study.lab.targets import compute, shared_models

        packages = SMALL_PACKAGES if config.small else docstrings.PACKAGES
        size = base.name if base else config.size
        background = tuple(docstrings.docstring_paragraphs(packages=packages, limit=config.paragraphs, seed=0))
        models = shared_models(folder, config.size, background, base)
        cells: list[Cell] = []
        family: dict[tuple[str, str], int] = {}
        for corpus in [corpora.load(name, config.columns) for name in config.corpora]:
            texts = [*corpus.older, *corpus.later]
            refuse_copies(texts, list(map(Document, background)))
            numbers = zip(texts, families(texts), strict=True)
            family |= {(corpus.name, content_hash(document.text)): number for document, number in numbers}
            cells += _cells(config, corpus, size=size, background=background, models=models, base=base)
        cells.sort(key=attrgetter("seed"))  # what an interrupted laboratory has finished are whole seeds
    params = {name: getattr(config, name) for name in ("corpora", "exposures", "seeds", "paragraphs")}
    params |= {"size": size} | ({"learning_rate": base.recipe.learning_rate, "dtype": base.dtype} if base else {})
    title = f"lab · {size} · {len(cells)} cells"
    with tracked_run(config, EXPERIMENT, title, params=params, tags={"study": "lab"}) as tracked:
        with stage("scoring"):
            compute(cells, config.workers or (1 if base else os.cpu_count()) or 1)
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
