"""Reproduce a table or figure of the papers on a model and texts: fsd study NAME, or --list.

Without a model and texts a study runs at a small scale, offline, on the embedded model and corpus. Cells are cached
by content: an interrupted study resumes, and cells shared by several studies run only once. `lab` in place of NAME runs
the laboratory, whose targets' training texts are all known, and `real` one real model: see --help of both.

Examples:
    fsd study --list
    fsd study fsd-t6
    fsd study fsd-t6 --scale full --model ./my-model --data corpus.jsonl --dry-run
"""

import sys
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from pipelines.common.cli import command, deferred, program
from pipelines.common.job import Job, check_space, deliver, run_name, show, stage, tracked_run
from pipelines.study.grid import StudyConfig
from pipelines.study.lab import LabConfig, RealConfig

if TYPE_CHECKING:
    from pipelines.study.catalogue import Study
    from pipelines.study.grid import Cell

STAGES = {"data": "settings and texts", "scoring": "cells", "recording": "recording: tables, figure"}
REAL = {"data": "texts", "trained": "the trained model", "untouched": "the untouched model", "recording": "recording"}
OWN: dict[str, tuple[type[Any], str, dict[str, str]]] = {
    "lab": (LabConfig, "pipelines.study.lab.command", STAGES),
    "real": (RealConfig, "pipelines.study.real", REAL),
}
"""First arguments that run the laboratory, or the page of a real model, in place of a study of the papers."""


def prepare(config: StudyConfig) -> Job:
    """Plan the cells, of which those that earlier runs hold are not computed again."""
    from fsd.data import benchmarks
    from fsd.data.readers import parse_columns
    from pipelines.common import experiment
    from pipelines.study import catalogue, cells
    from pipelines.study.grid import plan

    if config.list:
        return Job(show_catalogue, {"studies": "their declarations"})
    parse_columns(config.columns)
    name, study = catalogue.load(config.study)
    if config.scale == "small":
        given = {"reference": config.reference_model, "neighbour": config.neighbour_model}
        study = cells.at_small_scale(study, [detector for detector, model in given.items() if model])
    planned = plan(name, study, config)
    models, data = _used(planned)
    first, notes = planned[0], [_described(study, cell) for cell in planned]
    if any(map(benchmarks.is_name, data)):
        inputs = experiment.Inputs(first.config, cells.load_detectors(study.detectors))
    else:
        inputs = cells.read(first, study)
        notes[:0] = inputs.remarks
        notes.insert(0, f"the numbers are those of the first cell, {first.name}, times {len(planned)}")
    return replace(
        experiment.job(partial(run, config, name, study, planned), inputs),
        reads={
            "cells": f"{len(planned):,}, less those that earlier runs hold",
            "models": ", ".join(models),
            "texts": ", ".join(data) or "the embedded corpus",
        },
        rounds=len(planned),
        writes=[f"a run for each of {len(planned)} cells"],
        notes=notes,
    )


def _used(cells: "Sequence[Cell]") -> tuple[list[str], list[str]]:
    models = dict.fromkeys(cell.config.model.model for cell in cells)
    return list(models), list(dict.fromkeys(entry for cell in cells for entry in cell.config.data.data))


def _described(study: "Study", cell: "Cell") -> str:
    """Labels, model and texts of a cell, and the split if it is fine-tuned."""
    data, model = cell.config.data, cell.config.model
    parts = [f"model {model.model}", f"data {', '.join(data.data) or '(--data FILE)'}"]
    parts += [f"other {', '.join(cell.texts.other)}"] * (cell.texts.unseen_from != "own")
    parts += [f"reference model {model.reference_model}"] * bool(model.reference_model)
    parts += [f"split {data.split}, unseen {data.unseen}"] if study.trained else ["nothing is trained"]
    return f"cell {cell.name}: {'; '.join(parts)}"


def run(config: StudyConfig, name: str, study: "Study", planned: "Sequence[Cell]") -> None:
    """Run the cells that are not finished yet, and lay out table and figure as in the paper."""
    with stage("data"):
        from pipelines.study.cells import prepare_cell, run_cells
        from pipelines.study.tables import report

        cells = [prepare_cell(cell, study) for cell in planned]
        check_space(document.text for cell in cells for part in cell.inputs.split for document in part)
    models, _ = _used(planned)
    title = run_name(models[0] if len(models) == 1 else f"{len(models)} models", config.data, name)
    with tracked_run(
        config,
        f"fsd-{config.domain}",
        f"{title} ({config.scale})",
        params={"cells": len(cells), "scale": config.scale, "model": config.model, "data": config.data},
        tags={"study": name},
        description=study.title,
    ) as tracked:
        with stage("scoring"):
            results, left_out = run_cells(name, study, cells, tracked)
        own = {record.id for _, record in results if record.parent == tracked.id}
        tracked.log_metrics({"cells/run": len(own), "cells/reused": len(results) - len(own)})
        deliver(partial(report, study, results, left_out), tracked)


def show_catalogue() -> None:
    """Print the studies: name, research question, requirements, and the scales at which each can run now."""
    from fsd.net.hub import hub_reachable
    from fsd.reporting.report import Report
    from pipelines.study import catalogue
    from pipelines.study.grid import plan

    online = "can run here" if hub_reachable() else "needs the hub, which cannot be reached"
    lines = []
    for name, study in catalogue.studies().items():
        cells = len(plan(name, study, StudyConfig()))
        axes = [axis.name for axis in study.axes]
        given = StudyConfig(
            scale="full",
            model=() if study.model or catalogue.MODEL in axes else ("--model ID",),
            frequencies=("FILE",) * (catalogue.FREQUENCIES in axes),
        )
        models, data = _used(plan(name, study, given))
        named = ", ".join(data if len(data) <= 4 else [*data[:3], f"… {len(data)} in all"])
        texts = f"data {named} (or --data FILE)" if data else "--data FILE"
        aliases = f" (also {', '.join(study.aliases)})" if study.aliases else ""
        lines += [
            f"{name}{aliases}: {study.place}. {study.title}",
            f"    small: can run here; {cells} {'cell' if cells == 1 else 'cells'}, embedded model and corpus",
            f"    full:  {'; '.join(filter(None, (online, 'models ' + ', '.join(models), texts, study.needs)))}",
        ]
    show(Report(headline="studies", findings=lines), text=lambda: print("\n".join(lines)))


if __name__ == "__main__":
    if own := OWN.get("".join(sys.argv[1:2])):
        sys.argv[:2] = [f"{program()} {sys.argv[1]}"]
        config, module, stages = own
        command(config, deferred(module), config.__doc__ or "", stages=stages)
    else:
        command(StudyConfig, prepare, __doc__ or "", stages=STAGES)
