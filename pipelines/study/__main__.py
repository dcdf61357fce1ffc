"""Reproduce a table or figure of the papers on a model and texts: python -m pipelines.study NAME, or --list.

Without a model and texts a study runs at a small scale, offline, on the embedded model and corpus. Cells are cached
by content: an interrupted study resumes, and cells shared by several studies run only once. `lab` in place of NAME runs
the laboratory, whose targets' training texts are all known: python -m pipelines.study lab --help.

Examples:
    fsd study --list
    fsd study fsd-t6
    fsd study fsd-t6 --scale full --model ./my-model --data corpus.jsonl --dry-run
"""

import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from operator import attrgetter
from typing import TYPE_CHECKING

from pipelines.common.cli import check_name, command
from pipelines.common.job import Job
from pipelines.study.grid import StudyConfig

if TYPE_CHECKING:
    from fsd.models.language_model import LanguageModel
    from fsd.tracking import Run
    from pipelines.study.catalogue import Study
    from pipelines.study.cells import CellResult, PreparedCell
    from pipelines.study.grid import Cell

LAB = "lab"
"""First argument that runs the laboratory in place of a study of the papers."""


def prepare(config: StudyConfig) -> Job:
    """Plan the cells, of which those that earlier runs hold are not computed again."""
    from fsd.data import benchmarks
    from fsd.data.readers import parse_columns
    from pipelines.common import job
    from pipelines.common.job import run_name
    from pipelines.study import catalogue
    from pipelines.study.cells import at_small_scale, load_detectors, parts_of
    from pipelines.study.grid import plan

    if config.list:
        return Job(show_catalogue, {"studies": "their declarations"})
    check_name("domain", config.domain)
    parse_columns(config.columns)
    name, study = catalogue.load(config.study)
    if config.scale == "small":
        given = {"reference": config.reference_model, "neighbour": config.neighbour_model}
        study = at_small_scale(study, [detector for detector, model in given.items() if model])
    cells = plan(name, study, config)
    models = list(dict.fromkeys(cell.config.model.model for cell in cells))
    data = list(dict.fromkeys(entry for cell in cells for entry in cell.config.data.data))
    first = cells[0]
    title = run_name(models[0] if len(models) == 1 else f"{len(models)} models", config.data, name)
    work = Job(
        partial(run, config, name, study, cells, f"{title} ({config.scale})"),
        {
            "cells": f"{len(cells):,}, less those that earlier runs hold",
            "models": ", ".join(models),
            "texts": ", ".join(data) or "the embedded corpus",
        },
        first.config.model,
        texts=None,
        rounds=len(cells),
        writes=[f"a run for each of {len(cells)} cells"],
        experiment=f"fsd-{config.domain}",
        notes=[_described(study, cell) for cell in cells],
    )
    if any(map(benchmarks.is_name, data)):
        return work
    parts = parts_of(first, study)
    texts = [document.text for document in (*parts.validation, *parts.test)]
    states = ("base", "tuned") if parts.unseen else ("base",)
    return replace(
        work,
        texts=texts,
        passes=job.passes(load_detectors(study.detectors), texts, first.config.model, states=states),
        trained=[document.text for document in parts.unseen],
        training=first.config.training if parts.unseen else None,
        notes=[f"the numbers are those of the first cell, {first.name}, times {len(cells)}", *work.notes],
    )


def _described(study: "Study", cell: "Cell") -> str:
    """Labels, model and texts of a cell, and the split if it is fine-tuned."""
    data, model = cell.config.data, cell.config.model
    parts = [f"model {model.model}", f"data {', '.join(data.data) or '(--data FILE)'}"]
    parts += [f"other {', '.join(cell.texts.other)}"] * (cell.texts.unseen_from != "own")
    parts += [f"reference model {model.reference_model}"] * bool(model.reference_model)
    parts += [f"split {data.split}, unseen {data.unseen}"] if study.trained else ["nothing is trained"]
    return f"cell {cell.name}: {'; '.join(parts)}"


def run(config: StudyConfig, name: str, study: "Study", planned: "Sequence[Cell]", title: str) -> None:
    """Run the cells that are not finished yet, and lay out table and figure as in the paper."""
    from pipelines.common.job import check_space, deliver, tracked_run
    from pipelines.study.cells import prepare_cell
    from pipelines.study.tables import report

    experiment = f"fsd-{config.domain}"
    cells = [prepare_cell(cell, study) for cell in planned]
    check_space(document.text for cell in cells for part in cell.parts for document in part)
    params = {"cells": len(cells), "scale": config.scale, "model": config.model, "data": config.data}
    with tracked_run(
        config, experiment, title, params=params, tags={"study": name}, description=study.title
    ) as tracked:
        deliver(report(study, run_cells(name, cells, tracked, experiment)), tracked)


def run_cells(name: str, cells: "Sequence[PreparedCell]", parent: "Run", experiment_name: str) -> "list[CellResult]":
    """Results of the cells of the study `name`: those that no earlier run holds are run, equal ones once."""
    from fsd.progress import note, progress
    from fsd.tracking import find_runs
    from pipelines.common import experiment
    from pipelines.study.cells import CellResult, reuse
    from pipelines.study.cells import run as run_cell

    finished = {r.tags.get("cell", ""): r for r in reversed(find_runs(experiment_name, {"kind": "cell"}))}
    by_tag: dict[str, CellResult] = {}
    results: dict[str, CellResult] = {}
    loaded: dict[str, LanguageModel] = {}
    with progress(len(cells), name, "cell") as bar:
        for prepared in sorted(cells, key=attrgetter("cell.config.model.model")):
            cell, start = prepared.cell, time.perf_counter()
            model = cell.config.model.model
            if prepared.tag in by_tag:
                result = replace(by_tag[prepared.tag], cell=cell, reused=True)
            elif prepared.tag in finished:
                result = reuse(finished[prepared.tag], cell, parent, experiment_name)
            else:
                if model not in loaded:
                    loaded.clear()  # one is released before the next is loaded
                    loaded[model] = experiment.load_model(cell.config)
                result = run_cell(name, prepared, loaded[model], parent, experiment_name)
            results[cell.name] = by_tag[prepared.tag] = result
            bar.update(1)
            status = "reused" if result.reused else f"{time.perf_counter() - start:.1f} s"
            note(f"{name} {len(results)}/{len(cells)}: {cell.name} ({status})")
    return [results[prepared.cell.name] for prepared in cells]


def show_catalogue() -> None:
    """Print the studies: name, research question, requirements, and the scales at which each can run now."""
    from fsd.net.hub import EMBEDDED, hub_reachable
    from fsd.reporting.report import Report
    from pipelines.common.job import show
    from pipelines.study import catalogue
    from pipelines.study.grid import plan

    online = "can run here" if hub_reachable() else "needs the hub, which cannot be reached"
    missing = ", ".join(model for model in catalogue.EMBEDDED_MODELS if not EMBEDDED[model].is_dir())
    small = f"missing: {missing}" if missing else "can run here"
    lines = []
    for name, study in catalogue.studies().items():
        cells = len(plan(name, study, StudyConfig()))
        aliases = f" (also {', '.join(study.aliases)})" if study.aliases else ""
        lines += [
            f"{name}{aliases}: {study.place}. {study.title}",
            f"    small: {small}; {cells} {'cell' if cells == 1 else 'cells'}, embedded model and corpus",
            f"    full:  {online}; {_requirements(study)}",
        ]
    show(Report(headline="studies", findings=lines), text=lambda: print("\n".join(lines)))


def _requirements(study: "Study") -> str:
    """Models, texts and flags that the study needs at full scale."""
    from pipelines.study.catalogue import DATA, MODEL

    axes = {axis.name: axis for axis in study.axes}
    models = axes[MODEL].levels if MODEL in axes else [study.model or "--model ID"]
    settings = [study.settings, *(level for axis in study.axes for level in axis.levels.values())]
    data = list(dict.fromkeys(entry for changes in settings for entry in changes.get("data.data", ())))
    data = list(axes[DATA].levels) if DATA in axes else data
    named = ", ".join(data if len(data) <= 4 else [*data[:3], f"… {len(data)} in all"])
    texts = f"data {named} (or --data FILE)" if data else "--data FILE"
    return "; ".join(filter(None, (f"models {', '.join(models)}", texts, study.needs)))


if __name__ == "__main__":
    if sys.argv[1:2] == [LAB]:
        from pipelines.common.cli import program
        from pipelines.study.lab import command as lab

        sys.argv[:2] = [f"{program()} {LAB}"]
        command(lab.LabConfig, lab.prepare, lab.__doc__ or "")
    else:
        command(StudyConfig, prepare, __doc__ or "")
