"""The command: one data set and one model, or one table of several, each cell in a run of its own below the command's.

A cell that an earlier run has finished is not computed again: its tag is a hash of the weights, texts and settings.
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import pandas as pd

from extensions.contamination import accuracy
from extensions.contamination.dataset import Cell, examine, read
from extensions.contamination.report import P_AND_POWER, report
from extensions.contamination.settings import ContaminationConfig
from fsd.api import (
    AGAINST,
    Column,
    Finding,
    Model,
    Prompt,
    Report,
    Run,
    RunRecord,
    Section,
    Table,
    UsageError,
    entry_of,
    flags,
    holm,
    load_tokenizer,
    model_size,
    note,
    read_otherwise,
    tracking,
    weights_file,
)
from pipelines.api import (
    TIMES,
    Job,
    api_cost,
    deliver,
    examination,
    finished_cells,
    names,
    open_examined,
    publish,
    run_name,
    stage,
)

TASK = "contamination"
COLUMNS = {"contamination": "", "contamination_power": "", "contamination_accuracy": "accuracy_"}
"""Group of a run's numbers → what the columns of the table begin with."""
CAPTION = (
    "p is the smallest p-value of a cell, corrected for its tests; p (Holm) is corrected for the number of cells as "
    "well. The share of the data set that was used means something beside a small p alone. Power is the share of data "
    "sets, seen so often in training, that the cell's tests would have found."
)


def prepare(config: ContaminationConfig) -> Job:
    """The job of a single data set and model, or of all cells, each of which is read and checked."""
    models = dict.fromkeys(config.models or (config.model.model,))
    files = dict.fromkeys(config.files)
    if len(models) > 1 and any(name.startswith("api:") for name in models):
        raise UsageError(f"models must be on this machine, or one alone behind an API; got {', '.join(models)}")
    configs = [of_cell(config, model, file) for model in models for file in files]
    if len(configs) == 1:
        cell = read(configs[0])
        return replace(cell.job(partial(run, cell)), asked=partial(_cost, [cell]), read=read_otherwise(cell.suspect))
    cells = list(map(_read, configs))
    jobs = [cell.job(partial(run, cell)) for cell in cells]
    # The first cells are those of the first model; the others are checked before any is computed.
    of_model = jobs[: len(files)]
    notes: dict[str, None] = {}
    for job in of_model:
        notes.update(dict.fromkeys(job.notes))
    return replace(
        of_model[0],
        work=partial(run_all, config, cells),
        reads={"data sets": names([job.reads["data set"] for job in of_model]), "models": names(list(models))},
        parts=lambda: jobs,
        notes=[*notes, f"{len(cells)} cells; those that an earlier run has finished are not computed again"],
        asked=partial(_cost, cells[: len(files)]),
        checks=[partial(_check_later, job) for job in jobs[len(files) :: len(files)]],
    )


def _check_later(job: Job) -> None:
    """Refuse a model that could not be opened once those before it are computed."""
    job.check()
    model = job.model
    # The tokenizer of one that is not here yet is read after its download.
    if model and model_size(model.model, model.revision) and not weights_file(model.model):
        load_tokenizer(model.model, revision=model.revision)


def of_cell(config: ContaminationConfig, model: str, file: str) -> ContaminationConfig:
    """The settings of one cell: the training split of a task belongs to that task, other known texts to all files."""
    unread = []
    for place in config.known:
        entry = entry_of(place)
        if not entry or entry.split_of in ("", file):
            unread.append(place)
    return replace(config, files=(file,), models=(), known=tuple(unread), model=replace(config.model, model=model))


def _read(config: ContaminationConfig) -> Cell:
    """The texts of a cell of several, which a refusal names."""
    try:
        return read(config)
    except UsageError as error:
        raise UsageError(f"{config.model.model} on {config.files[0]}: {error}") from error


def _cost(cells: Sequence[Cell]) -> Any:
    """What an API is asked about all data sets, each prompt once."""
    config = cells[0].config
    asked = defaultdict[str, dict[Prompt, None]](dict)
    for cell in cells:
        for name, prompts in cell.asked():
            asked[name].update(dict.fromkeys(prompts))
    return api_cost(config.model, config.api, lambda: asked)


def run(cell: Cell) -> None:
    """Open the model, run the tests, track and print."""
    config = cell.config
    with stage("model"):
        model = open_examined(config, config.files[0])
    with examination(config, TASK, config.files) as tracked:
        with stage("scoring"):
            examined = examine(cell, model)
        deliver(partial(report, examined, cell), tracked)


def run_all(config: ContaminationConfig, cells: Sequence[Cell]) -> None:
    """Compute the cells that no earlier run has finished, and print one table."""
    with examination(config, TASK, config.files) as tracked:
        finished = finished_cells(tracked, task=TASK)
        opened: dict[str, Model] = {}
        for cell in cells:
            if cell.tag in finished:
                note(f"{cell.name}: finished by run {finished[cell.tag].id}")
                continue
            name = cell.config.model.model
            if name not in opened:
                # One model at a time.
                opened.clear()
                with stage("model"):
                    opened[name] = open_examined(cell.config, cell.config.files[0])
            _compute(cell, opened[name], tracked)
        finished = finished_cells(tracked, task=TASK)
        deliver(table_of(config, cells, [finished[cell.tag] for cell in cells]), tracked)


def _compute(cell: Cell, model: Model, parent: Run) -> None:
    """Examine a cell in a run nested below the parent."""
    config = cell.config
    name = run_name(config.model.model, config.files, TASK)
    tags = {"task": TASK, "kind": "cell", "cell": cell.tag, "model": config.model.model}
    with tracking.run(parent.experiment, name, params=flags(config), tags=tags, parent=parent) as opened:
        with stage("scoring"):
            examined = examine(cell, model)
        publish(report(examined, cell), opened)
    # The table is made of what is stored.
    opened.check()
    note(f"{cell.name}: done")


def table_of(config: ContaminationConfig, cells: Sequence[Cell], records: Sequence[RunRecord]) -> Report:
    """One line a cell, and which of them show that a data set was used."""
    frame = pd.DataFrame(map(_row, cells, records))
    # A cell none of whose tests can succeed has no p-value.
    p_values = dict(zip((cell.name for cell in cells), frame["p"].astype(float), strict=True))
    corrected = holm({name: p for name, p in p_values.items() if pd.notna(p)})
    frame.insert(3, "p_holm", list(map(corrected.get, p_values)))
    evident = [name for name, p in corrected.items() if p <= config.level]
    return Report(
        title="Was it in the training data? Models and data sets",
        question="Which of these models was trained on which of these data sets?",
        findings=_conclusions(evident, frame, config),
        sections=[Section("Cells", tables=[_table(frame)])],
        facts=[
            ("Models", ", ".join(dict.fromkeys(frame["model"]))),
            ("Data sets", ", ".join(config.files)),
            ("Known non-members", ", ".join(config.known) or "none"),
            ("Seed", str(config.seed)),
        ],
        score=f"{len(evident)} of {len(cells)}",
        metrics={"contamination/cells": len(cells), "contamination/found": len(evident)},
    )


def _row(cell: Cell, record: RunRecord) -> dict[str, object]:
    """What the run of a cell found, by column."""
    row: dict[str, object] = {"model": cell.config.model.model, "data_set": cell.config.files[0]}
    row |= dict.fromkeys(("p", "share", "share_low", "share_high"))
    for name, value in record.metrics.items():
        group, _, number = name.partition("/")
        if group in COLUMNS:
            row[COLUMNS[group] + number.replace("read_", "power_")] = value
    row["run"] = record.id
    return row


def _conclusions(evident: Sequence[str], frame: pd.DataFrame, config: ContaminationConfig) -> list[Finding]:
    """The cells with evidence, and the power of those without."""
    result = f"no evidence of training in any of {len(frame)} cells; this does not show that there was none"
    if evident:
        result = f"evidence of training in {len(evident)} of {len(frame)} cells: {', '.join(evident)}"
    powers = []
    for times, word in TIMES.items():
        shares = frame[f"power_{times}"]
        powers.append(f"{word} {shares.min():.0%} to {shares.max():.0%}")
    power = (
        "power: of data sets seen in training, a cell alone finds about this share, by how often they were seen: "
        f"{', '.join(powers)}; simulated (docs/power.md)"
    )
    return [
        Finding(f"{result}, at level {config.level:g}, corrected for the number of cells"),
        Finding(power, AGAINST),
        Finding("the run of each cell has its tests, its doubts and its remarks"),
    ]


def _table(frame: pd.DataFrame) -> Table:
    """One line a cell; those of tasks have an accuracy, too."""
    columns = [
        Column("model", words=True),
        Column("data set", "data_set", words=True),
        Column("share [95 % CI]", lambda line: accuracy.interval(line._asdict(), "share")),
        *P_AND_POWER,
    ]
    caption = CAPTION
    if "accuracy_seen_items" in frame:
        caption += f" Accuracies come with their number of items. {accuracy.EASY}"
        for side, title in accuracy.SIDES.items():
            columns.append(Column(f"accuracy, {title}", partial(_accuracy, f"accuracy_{side}")))
    return Table(frame, columns, caption=caption, title="models and data sets", name="results", kept=(0, 1, 4, 2, 5, 3))


def _accuracy(name: str, line: Any) -> str:
    return accuracy.of_side(line._asdict(), name)
