"""Several models, and several data sets: one table of the tests, each cell in a run of its own below the command's.

A cell that an earlier run has finished is not computed again: its tag is a hash of the weights, texts and settings.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, replace
from functools import partial
from itertools import groupby
from typing import Any, NamedTuple

import pandas as pd

from extensions.contamination import accuracy, dataset
from extensions.contamination.dataset import Inputs
from extensions.contamination.settings import ContaminationConfig
from fsd import tracking
from fsd.config import ModelConfig, flags
from fsd.data.documents import Document, content_hash
from fsd.errors import UsageError
from fsd.evaluation.findings import AGAINST, Finding, as_findings
from fsd.models.devices import resolve_precision
from fsd.models.language_model import load_tokenizer
from fsd.net.hub import model_size, weights_file
from fsd.plugs import entry_of
from fsd.progress import note
from fsd.reporting.report import Report, Section, Table, p_value, plain
from fsd.scores import BASE
from fsd.scoring.model_checks import check_model
from fsd.scoring.services import Cost
from fsd.scoring.token_frequencies import fingerprint
from fsd.statistics.intervals import Estimate
from fsd.statistics.multiplicity import holm
from fsd.tracking import Run, RunRecord
from pipelines.command.context import stage
from pipelines.command.deliver import deliver, finished_cells, publish, run_name
from pipelines.command.job import Job, names
from pipelines.experiment.detector_settings import shots_of
from pipelines.experiment.examination import examination, open_examined
from pipelines.experiment.experiment import read_besides, tag, weights_of
from pipelines.experiment.power_sentences import TIMES

HEADINGS = ["model", "data set", "share [95 % CI]", "p", "p (Holm)"]
CAPTION = (
    "p is the smallest p-value of a cell, corrected for its tests; p (Holm) is corrected for the number of cells as "
    "well. The share of the data set that was used means something beside a small p alone. Power is the share of data "
    "sets, seen so often in training, that the cell's tests would have found."
)


class Cell(NamedTuple):
    """One data set and one model, and the tag by which its finished run is found."""

    config: ContaminationConfig
    inputs: Inputs
    tag: str

    @property
    def name(self) -> str:
        """The model and the data set."""
        return f"{self.config.model.model} on {self.config.files[0]}"


def prepare(config: ContaminationConfig) -> Job:
    """The job of a single data set and model, or of all cells, each of which is read and checked."""
    models = config.models or (config.model.model,)
    if len(models) == 1 and len(config.files) == 1:
        return dataset.prepare(_cell_config(config, models[0], config.files[0]))
    _check(models, config.files)
    cells = []
    for model in models:
        cells += [_cell(_cell_config(config, model, file)) for file in config.files]
    return _job(config, cells, models)


def _check(models: Sequence[str], files: Sequence[str]) -> None:
    """Refuse what stands twice, and several models of which one is behind an API."""
    for name, entries in (("models", models), ("files", files)):
        if len(set(entries)) < len(entries):
            raise UsageError(f"{name} must be different; got {', '.join(entries)}")
    if len(models) > 1 and any(name.startswith("api:") for name in models):
        raise UsageError(f"models must be on this machine, or one alone behind an API; got {', '.join(models)}")


def _job(config: ContaminationConfig, cells: Sequence[Cell], models: Sequence[str]) -> Job:
    """What all cells cost: the jobs of one model's data sets together, as often as there are models."""
    # The first cells are those of the first model.
    of_first_model = cells[: len(config.files)]
    jobs = [dataset.job(cell.config, cell.inputs, _no_work) for cell in of_first_model]
    texts: list[str] = []
    trained: list[str] = []
    notes = []
    passes = Counter[str]()
    for job in jobs:
        texts += job.texts or ()
        trained += job.trained
        notes += [line for line in job.notes if line not in notes]
        passes.update(job.passes)
    notes.append(f"{len(cells)} cells; those that an earlier run has finished are not computed again")
    return Job(
        partial(run, config, cells),
        {"data sets": names([job.reads["data set"] for job in jobs]), "models": names(models)},
        jobs[0].model,
        texts=texts,
        passes=passes,
        trained=trained,
        training=config.training,
        rounds=len(models),
        experiment=f"fsd-{config.domain}",
        notes=notes,
        api=config.api,
        asked=partial(_asked, jobs),
        checks=[partial(_check_model, replace(config.model, model=model)) for model in models[1:]],
    )


def _asked(jobs: Sequence[Job]) -> Cost:
    """What an API is asked about all data sets; several models are on this machine."""
    total = Cost()
    for job in jobs:
        if job.asked:
            total = total.plus(job.asked())
    return total


def _check_model(model: ModelConfig) -> None:
    """Refuse a model that could not be opened once those before it are computed."""
    check_model(model)
    # The tokenizer of one that is not here yet is read after its download.
    if model_size(model.model, model.revision) and not weights_file(model.model):
        load_tokenizer(model.model, revision=model.revision)


def _no_work() -> None:
    """The work of a job that is asked for its cost alone: the cells are computed by the job of the table."""


def _cell_config(config: ContaminationConfig, model: str, file: str) -> ContaminationConfig:
    """The settings of one cell: the training split of a task belongs to that task, other known texts to all files."""
    nonmembers = []
    for place in config.known:
        entry = entry_of(place)
        of_other = entry and entry.split_of not in ("", file)
        if not of_other:
            nonmembers.append(place)
    return replace(config, files=(file,), models=(), known=tuple(nonmembers), model=replace(config.model, model=model))


def _cell(config: ContaminationConfig) -> Cell:
    try:
        inputs = dataset.read(config)
    except UsageError as error:
        raise UsageError(f"{config.model.model} on {config.files[0]}: {error}") from error
    return Cell(config, inputs, result_key(config, inputs))


def result_key(config: ContaminationConfig, inputs: Inputs) -> str:
    """The tag of a cell: a hash of all that its numbers depend on, of weights and texts themselves, not of their names.

    It has no `known`, `columns`, `cutoff`, `near_duplicates`: they choose the texts, which are in it. Nor `chats`,
    `chat_template`: a chat is read as its words. Nor `samples`, `neighbours`: no cheap detector takes them. Nor
    `domain`, `answers`, `cache`, `max_batch_tokens`, and how fast an API is asked: they change no number.
    """
    model = config.model
    device, dtype = resolve_precision(model)
    content: dict[str, Any] = dict(read_besides(model, inputs.detectors))
    # What is behind an API has no other identity than its name.
    content["model"] = model.model
    if not model.by_api:
        content["model"] = weights_of(model.model, model.revision)
    content["precision"] = [device.type, str(dtype), model.bits]
    content["first token"] = model.first_token
    content["api"] = [config.api.base_url, config.api.start_token, _tokenizer(config)]
    content["texts"] = [list(map(_identity, side)) for side in (inputs.suspect, inputs.nonmembers)]
    # The tests compare base scores alone.
    content["detectors"] = {detector.name: dict(detector.settings_in(BASE)) for detector in inputs.detectors}
    content["shots"] = shots_of(config.detection, model.model)
    content["training"] = asdict(config.training)
    content["tests"] = [config.shard, config.orders, config.sets, config.level, config.seed]
    # A cell that was finished before accuracy was computed is computed again; others are as they were.
    if inputs.questions:
        content["questions"] = [question.prompts for question in inputs.questions]
    return tag(content)


def _identity(document: Document) -> tuple[str, str, str]:
    """What moves the numbers of a text; where it was read does not."""
    return content_hash(document.text), document.group, str(document.date)


def _tokenizer(config: ContaminationConfig) -> str:
    """Hash of the tokenizer by which texts are sent to an API; "" without one."""
    if not config.api.tokenizer:
        return ""
    tokenizer, _ = load_tokenizer(config.api.tokenizer, revision=config.model.revision)
    return fingerprint(tokenizer, special=True)


def run(config: ContaminationConfig, cells: Sequence[Cell]) -> None:
    """Compute the cells that no earlier run has finished, and print one table."""
    with examination(config, "contamination", config.files) as tracked:
        finished = finished_cells(tracked, task="contamination")
        for _, group in groupby(cells, key=lambda cell: cell.config.model.model):
            of_model = list(group)
            left = [cell for cell in of_model if cell.tag not in finished]
            for cell in of_model:
                if cell not in left:
                    note(f"{cell.name}: finished by run {finished[cell.tag].id}")
            _compute(left, tracked)
        finished = finished_cells(tracked, task="contamination")
        deliver(report(config, cells, [finished[cell.tag] for cell in cells]), tracked)


def _compute(cells: Sequence[Cell], parent: Run) -> None:
    """Run the cells of one model, each in a run nested below the parent."""
    if not cells:
        return
    with stage("model"):
        model = open_examined(cells[0].config, cells[0].config.files[0])
    for cell in cells:
        config = cell.config
        name = run_name(config.model.model, config.files, "contamination")
        experiment = parent.experiment
        with tracking.run(
            experiment,
            name,
            params=flags(config),
            tags={"task": "contamination", "kind": "cell", "cell": cell.tag, "model": config.model.model},
            parent=parent,
        ) as opened:
            with stage("scoring"):
                inputs = cell.inputs.planned(config, model)
                examined = dataset.examine(config, inputs, model)
            publish(dataset.report(examined, config, inputs.doubts, inputs.remarks), opened)
        # The table is made of what is stored.
        opened.check()
        note(f"{cell.name}: done")


def report(config: ContaminationConfig, cells: Sequence[Cell], records: Sequence[RunRecord]) -> Report:
    """One line a cell, and which of them show that a data set was used."""
    rows = [_row(cell, record) for cell, record in zip(cells, records, strict=True)]
    frame = pd.DataFrame(rows)
    names = [cell.name for cell in cells]
    # A cell none of whose tests can succeed has no p-value.
    p_values = pd.Series(frame["p"].to_numpy(float), names).dropna()
    corrected = holm({str(name): float(p) for name, p in p_values.items()})
    frame.insert(3, "p_holm", [corrected.get(name) for name in names])
    shown_trained = [name for name, p in corrected.items() if p <= config.level]
    tables = [_table(frame)]
    tables += _accuracies(cells, records)
    return Report(
        title="Was it in the training data? Models and data sets",
        question="Which of these models was trained on which of these data sets?",
        findings=_conclusions(shown_trained, frame, config),
        sections=[Section("Cells", tables=tables)],
        facts=[
            ("Models", ", ".join(dict.fromkeys(frame["model"]))),
            ("Data sets", ", ".join(config.files)),
            ("Known non-members", ", ".join(config.known) or "none"),
            ("Seed", str(config.seed)),
        ],
        score=f"{len(shown_trained)} of {len(cells)}",
        metrics={"contamination/cells": len(cells), "contamination/found": len(shown_trained)},
    )


def _row(cell: Cell, record: RunRecord) -> dict[str, str | float | None]:
    """What the run of a cell found, by column."""
    metrics = record.metrics
    row = {"model": cell.config.model.model, "data_set": cell.config.files[0], "p": metrics.get("contamination/p")}
    for end in ("", "_low", "_high"):
        row[f"share{end}"] = metrics.get(f"contamination/share{end}")
    for times in TIMES:
        row[f"power_{times}"] = metrics.get(f"contamination_power/read_{times}")
    # Only the cells of tasks have an accuracy.
    for name, value in metrics.items():
        group, _, number = name.partition("/")
        if group == accuracy.PREFIX:
            row[f"accuracy_{number}"] = value
    row["run"] = record.id
    return row


def _accuracies(cells: Sequence[Cell], records: Sequence[RunRecord]) -> list[Table]:
    """The accuracy of the cells that have one, on the items judged seen and on the others."""
    lines = []
    for cell, record in zip(cells, records, strict=True):
        of_cell = accuracy.tracked(record.metrics)
        if of_cell:
            lines.append([cell.config.model.model, cell.config.files[0], str(of_cell.seen), str(of_cell.others)])
    if not lines:
        return []
    return [
        plain(
            ["model", "data set", "accuracy, items judged seen", "accuracy, other items"],
            lines,
            words=(0, 1),
            caption=f"With 95 % intervals, and numbers of items in brackets. {accuracy.EASY}",
            title="accuracy on items judged seen and on the others",
        )
    ]


def _conclusions(shown_trained: Sequence[str], frame: pd.DataFrame, config: ContaminationConfig) -> list[Finding]:
    """The cells with evidence, and the power of those without."""
    if shown_trained:
        names = ", ".join(shown_trained)
        result = f"evidence of training in {len(shown_trained)} of {len(frame)} cells: {names}"
    else:
        result = f"no evidence of training in any of {len(frame)} cells; this does not show that there was none"
    findings = [Finding(f"{result}, at level {config.level:g}, corrected for the number of cells")]
    powers = []
    for times, word in TIMES.items():
        shares = frame[f"power_{times}"]
        powers.append(f"{word} {shares.min():.0%} to {shares.max():.0%}")
    findings.append(
        Finding(
            f"power: of data sets seen in training, a cell alone finds about this share, by how often they were seen: "
            f"{', '.join(powers)}; simulated (docs/power.md)",
            AGAINST,
        )
    )
    return findings + as_findings(["the run of each cell has its tests, its doubts and its remarks"])


def _table(frame: pd.DataFrame) -> Table:
    lines = []
    for row in frame.to_dict("records"):
        share = "–"
        if pd.notna(row["share"]):
            share = str(Estimate(row["share"], row["share_low"], row["share_high"]))
        powers = [f"{row[f'power_{times}']:.0%}" for times in TIMES]
        line = [row["model"], row["data_set"], share, p_value(row["p"]), p_value(row["p_holm"])]
        lines.append(line + powers)
    return plain(
        [*HEADINGS, *(f"power, {word}" for word in TIMES.values())],
        lines,
        words=(0, 1),
        caption=CAPTION,
        title="models and data sets",
        name="results",
        frame=frame,
        kept=(0, 1, 4, 2, 5, 3),
    )
