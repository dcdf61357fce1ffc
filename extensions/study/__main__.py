"""Reproduce a table or figure of the papers on a model and texts: fsd study NAME, or --list.

Without a model and texts a study runs at a small scale, offline, on the embedded model and corpus. Cells are cached
by content: an interrupted study resumes, and cells shared by several studies run only once. `lab` in place of NAME runs
the laboratory, whose targets' training texts are all known: see its --help.

Examples:
    fsd study --list
    fsd study fsd-t6
    fsd study fsd-t6 --scale full --model ./my-model --data corpus.jsonl --dry-run
"""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from itertools import chain

from extensions.study import catalogue
from extensions.study.catalogue import Study
from extensions.study.grid import Cell, StudyConfig, plan
from extensions.study.lab.settings import LabConfig
from pipelines.api import Job, Stated, command, deferred, deliver, names, program, run_name, show, stage, tracked_run

STAGES = {"data": "settings and texts", "scoring": "cells", "recording": "recording: tables, figure"}


def prepare(config: StudyConfig) -> Job:
    """Plan the cells, of which those that earlier runs hold are not computed again."""
    from extensions.study import cells
    from fsd.api import benchmarks, parse_columns

    if config.list:
        return Job(show_catalogue, {"studies": "their declarations"})
    parse_columns(config.columns)
    name, study = catalogue.load(config.study)
    if config.scale == "small":
        # A detector stays that a model was given for, although it takes further passes.
        asked = [name for name in ("reference", "neighbour") if getattr(config, f"{name}_model")]
        study = cells.at_small_scale(study, asked)
    if config.fpr_bound == "exclusive":
        study = cells.below_the_bounds(study)
    planned = list(map(cells.with_counted_table, plan(name, study, config)))
    models, data = _used(planned)
    _check_texts(name, study, data)

    # Published texts are read when the work begins, so that a dry run downloads nothing.
    sources = map(benchmarks.source_of, data)
    local = not any(source and source.dataset for source in sources)
    inputs = list(map(partial(cells.read, study=study, local=local), planned))
    count = len(planned)
    reads = {
        "cells": Stated(f"{count:,}, less those that earlier runs hold", count),
        "models": names(models),
        "texts": names(data, "the embedded corpus"),
    }
    writes = [Stated(f"a run for each of {count} cells", {"runs": count})]
    checks = [partial(cells.check_settings, planned, study)]
    notes = list(inputs[0].remarks) + list(map(partial(_described, study), planned))
    job = inputs[0].job(partial(run, config, name, study, planned))
    job = replace(job, reads=reads, rounds=count, writes=writes, checks=checks, notes=notes)
    # The numbers of the cells make those of the study.
    return replace(job, parts=lambda: [texts.job(lambda: None) for texts in inputs])


def _check_texts(name: str, study: "Study", data: "Sequence[str]") -> None:
    """Refuse a study whose texts are in files that are not given, and say how to get them."""
    from fsd.api import UsageError, benchmarks

    source = benchmarks.source_of(study.benchmark)
    if data or source is None:
        return
    files = f"{study.benchmark}:{','.join(source.parts)}"
    raise UsageError(f"study {name} must have texts: give --data {files} ({source.obtain}), or labelled files")


def _used(cells: "Sequence[Cell]") -> tuple[list[str], list[str]]:
    """The models and the texts of the cells, each once."""
    models = dict.fromkeys(cell.config.model.model for cell in cells)
    data = dict.fromkeys(chain.from_iterable(cell.config.data.data for cell in cells))
    return list(models), list(data)


def _described(study: "Study", cell: "Cell") -> str:
    """Labels, model and texts of a cell, and the split if it is fine-tuned."""
    data = cell.config.data
    model = cell.config.model
    description = f"cell {cell.name}: model {model.model}; data {', '.join(data.data) or '(--data FILE)'}"
    if cell.texts.unseen_from != "own":
        description += f"; other {', '.join(cell.texts.other)}"
    if model.reference_model:
        description += f"; reference model {model.reference_model}"
    if study.trained:
        return f"{description}; split {data.split}, unseen {data.unseen}"
    return f"{description}; nothing is trained"


def run(config: StudyConfig, name: str, study: "Study", planned: "Sequence[Cell]") -> None:
    """Run the cells that are not finished yet, and lay out table and figure as in the paper."""
    with stage("data"):
        from extensions.study.cells import prepare_cell, run_cells
        from extensions.study.tables import report

        # All cells are checked before the first is run.
        cells = [prepare_cell(cell, study) for cell in planned]
    models, _ = _used(planned)
    title = run_name(models[0] if len(models) == 1 else f"{len(models)} models", config.data, name)
    params = {"cells": len(cells), "scale": config.scale, "model": config.model, "data": config.data}
    with tracked_run(
        config,
        f"fsd-{config.domain}",
        f"{title} ({config.scale})",
        params=params,
        tags={"study": name},
        description=study.title,
    ) as tracked:
        with stage("scoring"):
            results, left_out = run_cells(name, study, cells, tracked)
        # Equal cells share a run, so that runs are counted and not cells.
        computed = {record.id for _, record in results if record.parent == tracked.id}
        tracked.log_metrics({"cells/run": len(computed), "cells/reused": len(results) - len(computed)})
        deliver(partial(report, study, results, left_out), tracked)


def show_catalogue() -> None:
    """Print the studies: name, research question, requirements, and the scales at which each can run now."""
    from fsd.api import Report, as_findings, counted, hub_reachable

    online = "can run here" if hub_reachable() else "needs the hub, which cannot be reached"
    lines = []
    for name, study in catalogue.studies().items():
        cells = len(plan(name, study, StudyConfig()))
        aliases = f" (also {', '.join(study.aliases)})" if study.aliases else ""
        lines.append(f"{name}{aliases}: {study.place}. {study.title}")
        lines.append(f"    --scale small: can run here; {counted(cells, 'cell')}, embedded model and corpus")
        lines.append(f"    --scale full:  {'; '.join([online, *_requirements(name, study)])}")
    show(Report(headline="studies", findings=as_findings(lines)), text=lambda: print("\n".join(lines)))


def _requirements(name: str, study: "Study") -> list[str]:
    """What a study needs at full scale: models, texts and flags."""
    axes = {axis.name for axis in study.axes}
    # What the paper does not name has to be given, and is shown as a flag.
    full = StudyConfig(scale="full")
    if not study.model and catalogue.MODEL not in axes:
        full = replace(full, model=("--model ID",))
    if catalogue.FREQUENCIES in axes:
        full = replace(full, frequencies=("FILE",))
    models, data = _used(plan(name, study, full))
    if len(data) > 4:
        data[3:] = [f"… {len(data)} in all"]
    texts = "--data FILE"
    if data:
        texts = f"data {', '.join(data)} (or --data FILE)"
    requirements = [f"models {', '.join(models)}", texts]
    if study.references:
        requirements.append("the paper's reference models (or --reference-model)")
    if study.needs:
        requirements.append(study.needs)
    return requirements


if __name__ == "__main__":
    if program().endswith(" lab"):
        command(LabConfig, deferred("extensions.study.lab.command"), LabConfig.__doc__, stages=STAGES)
    else:
        command(StudyConfig, prepare, __doc__, stages=STAGES)
