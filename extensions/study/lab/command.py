"""The laboratory: its cells, those that are not finished yet computed, and their report."""

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain
from pathlib import Path

from extensions.study import store
from extensions.study.docstrings import PACKAGES
from extensions.study.lab import corpora, results
from extensions.study.lab.corpora import LabCorpus, Sides
from extensions.study.lab.models import SIZES, Base, Lab, shared
from extensions.study.lab.report import report
from extensions.study.lab.settings import LabConfig, Reference
from extensions.study.lab.targets import Cell, Target, compute, learned
from extensions.study.pretrain import announced
from fsd.api import (
    Document,
    ModelConfig,
    Prompt,
    Run,
    UsageError,
    at_least,
    default_folder,
    flags,
    outline,
    refuse_copies,
    resolve_precision,
)
from pipelines.api import Job, Stated, check_table_path, deliver, names, stage, tracked_run, write_table

EXPERIMENT = "fsd-lab"
# Its docstrings alone are background enough for tiny targets.
SMALL_PACKAGES = ("pandas",)
# Name of a corpus, and what a seed draws of it.
DrawnCorpus = tuple[str, Sides]


def prepare(config: LabConfig) -> Job:
    """Check the settings and the corpora but `code`, which takes a minute to cut."""
    config = _with_defaults(config)
    _check(config)
    chats = _check_corpora(config)
    base = None
    model = announced(SIZES[config.size], 0)["model"]
    note = "a cell takes one to three minutes on a core; `tiny` ones are faster, those of 8M slower"
    if config.base:
        # For its refusals.
        resolve_precision(ModelConfig(dtype=config.dtype))
        base = Base.of(
            config.base,
            config.learning_rate,
            method=config.method,
            dtype=config.dtype,
            chats=config.chats if chats else "",
        )
        model = Stated(f"{base.model}, continued", base.model)
        note = "a cell of smollm2 takes 5 GB of memory, and for 320 texts eleven minutes of one core"
    folder = default_folder(config.cache) / "lab"
    cells = _count(config)
    reads = {"corpora": names(config.corpora), "cells": Stated(f"{cells:,}, less those that are finished", cells)}
    paragraphs = config.paragraphs
    reads["background"] = Stated(f"{paragraphs:,} paragraphs", {"paragraphs": paragraphs})
    reads["model"] = model
    return Job(
        partial(run, config, folder, base), reads, writes=[config.out, folder], experiment=EXPERIMENT, notes=[note]
    )


def _with_defaults(config: LabConfig) -> LabConfig:
    if not config.references:
        usual: Reference = "before" if config.base else "smaller"
        config = replace(config, references=(usual,))
    if not config.small:
        return config
    return replace(
        config,
        size="tiny",
        seeds=min(config.seeds, 2),
        exposures=(0, 4),
        paragraphs=min(config.paragraphs, 800),
        texts=config.texts or 120,
    )


def _count(config: LabConfig) -> int:
    """Number of cells: one for each corpus, target and reference."""
    seen = len(set(config.exposures)) - 1
    trained = seen * len(set(config.sources)) * config.seeds
    # An unchanged base is the control of all seeds of a corpus.
    controls = 1 if config.base else config.seeds
    targets = trained + controls
    return targets * len(config.corpora) * len(set(config.references))


def _check(config: LabConfig) -> None:
    """Refuse settings before anything is computed."""
    exposures = sorted(set(config.exposures))
    if exposures[:1] != [0] or len(exposures) < 2:
        listed = _listed(config.exposures)
        raise UsageError(f"exposures must be 0, for the control, and at least one number above; got {listed}")
    most = len(config.corpora)
    # More would teach a corpus twice.
    if not 1 <= min(config.sources, default=0) <= max(config.sources) <= most:
        raise UsageError(
            f"sources must be numbers from 1 to that of the corpora, {most}; got {_listed(config.sources)}"
        )
    at_least(1, seeds=config.seeds, workers=config.workers, texts=config.texts)
    at_least(100, paragraphs=config.paragraphs)
    unusual = set(config.references) - {"before", "earlier"}
    if config.base and unusual:
        names = _listed(sorted(unusual))
        raise UsageError(f"references must be before or earlier with a base, which has no other relatives; got {names}")
    check_table_path(config.out, config.corpora)


def _check_corpora(config: LabConfig) -> list[Prompt]:
    """The chats, and a template that writes them; functions of packages, which take a minute, are cut by the work."""
    chats = []
    for name in config.corpora:
        if name in (corpora.CODE, corpora.OWN_CODE):
            continue
        corpus = corpora.load(name, config.columns)
        if corpus.chats and not config.base:
            raise UsageError(
                f"corpus {corpus.name} must be learned by a base, whose template writes its chats; give --base, such "
                "as smollm2"
            )
        chats += corpus.chats
        for seed in range(config.seeds):
            corpora.draw(corpus, seed, config.texts)
    if chats and config.base:
        outline(ModelConfig(config.base)).check_chats(chats)
    return chats


def _listed(values: Iterable[object]) -> str:
    return " ".join(map(str, values)) or "none"


def _cells(config: LabConfig, loaded: Sequence[LabCorpus], lab: Lab) -> Iterator[Cell]:
    """The cells of all corpora, seed by seed, so that what an interrupted laboratory has finished are whole seeds."""
    for seed in range(config.seeds):
        drawn = [(corpus.name, corpora.draw(corpus, seed, config.texts)) for corpus in loaded]
        # An unchanged base is the control of every seed, and is computed with the first.
        if not lab.base or seed == 0:
            yield from _scored(config, Target(lab, 0, seed, ()), drawn)
        for exposures in sorted(set(config.exposures) - {0}):
            for number in sorted(set(config.sources)):
                for sources, judged in groups(drawn, number):
                    members = tuple(learned(sides[corpora.MEMBER]) for _, sides in sources)
                    yield from _scored(config, Target(lab, exposures, seed, members), judged)


def groups(drawn: Sequence[DrawnCorpus], size: int) -> Iterator[tuple[Sequence[DrawnCorpus], Sequence[DrawnCorpus]]]:
    """The corpora that each target learns, and those of them by which it is judged; each corpus is judged once."""
    for start in range(0, len(drawn), size):
        judged = drawn[start : start + size]
        # The last target begins the list anew, so that it learns as many as the others.
        yield [*judged, *drawn[: size - len(judged)]], judged


def _scored(config: LabConfig, target: Target, judged: Sequence[DrawnCorpus]) -> Iterator[Cell]:
    for name, sides in judged:
        for reference in dict.fromkeys(config.references):
            yield Cell(target, name, sides, reference, config.adapters, config.adapted)


def run(config: LabConfig, folder: Path, base: Base | None) -> None:
    """Compute the cells that are not finished yet, and record tables and figure."""
    with stage("data"):
        packages = SMALL_PACKAGES if config.small else PACKAGES
        lab = shared(folder, packages, config.paragraphs, base, config.size, continued="earlier" in config.references)
        trained_on = lab.background
        if {"earlier", "ordinary"}.intersection(config.references):
            trained_on += lab.other_texts
        background = list(map(Document, trained_on))
        texts = {}
        loaded = []
        for name in config.corpora:
            corpus = corpora.load(name, config.columns)
            documents = texts[corpus.name] = list(chain(corpus.older, corpus.later))
            # A copy in the background would be trained on, whatever its label.
            refuse_copies(documents, background)
            loaded.append(corpus)
        cells = list(_cells(config, loaded, lab))
    params = flags(config) | {"size": lab.size}
    if base:
        params |= {"learning_rate": base.recipe.learning_rate, "dtype": base.dtype, "chats": base.chats}
    with tracked_run(
        config, EXPERIMENT, f"lab · {lab.size} · {len(cells)} cells", params=params, tags={"study": "lab"}
    ) as tracked:
        with stage("scoring"):
            # A real model fills the memory, so that its cells follow one another.
            workers = config.workers or (1 if base else os.cpu_count()) or 1
            finished = store.finish("lab", cells, tracked, partial(_compute, workers, texts, tracked))
            scores = [(cell.labels, store.stored(finished[cell.tag])) for cell in cells]
            measured = results.measure(results.joined(scores, texts))
        page = report(measured, len(cells))
        write_table(measured, config.out)
        files = {"results": config.out} if config.out else {}
        deliver(replace(page, files=files), tracked)


def _compute(
    workers: int, texts: Mapping[str, Sequence[Document]], parent: Run, cells: Sequence[Cell]
) -> Iterator[tuple[Cell, str]]:
    """Each cell, its scores and AUCs in a run of its own."""
    for cell, table in compute(cells, workers):
        with store.run_of("lab", cell, cell.labels, parent) as opened:
            opened.log(store.SCORES, table)
            # Resamples are for intervals, which a single cell has not.
            measured = results.measure(results.joined([(cell.labels, table)], texts), resamples=2)
            opened.log_metrics(results.tracked(measured))
        yield cell, "computed"
