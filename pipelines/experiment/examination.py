"""What commands that examine one model have in common: its opening, the run that records it, the demonstration."""

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any

from fsd.evaluation.findings import Finding
from fsd.reporting.report import Report, Section, Table
from fsd.scoring.model import Model, open_model
from fsd.tracking import Run
from pipelines.command.deliver import run_name, show, tracked_run
from pipelines.experiment.adapter_files import fetched


def open_examined(config: Any, texts: str, *, adapter: str | None = None) -> Model:
    """Open the model under test, of which an adapter is part.

    The answers of an API are kept beside the `texts`, where no other file is named.
    """
    answers = config.answers or f"{texts.rstrip('/')}.answers"
    return open_model(config.model, states=("base",), adapter=fetched(adapter), api=config.api, answers=answers)


def examined(config: Any) -> str:
    """The model under test in words, with its adapter if it has one."""
    if config.adapter:
        return f"{config.model.model} with {config.adapter}"
    return str(config.model.model)


def examination(
    config: Any, task: str, files: Sequence[str], *, method: str = "", **tags: object
) -> AbstractContextManager[Run]:
    """Open the tracked run of an examination of `files`; its name says the method, by default the task."""
    model = config.model.model
    return tracked_run(
        config,
        f"fsd-{config.domain}",
        run_name(model, files, method or task),
        tags={"task": task, "model": model, **tags},
    )


def show_demonstration(findings: Sequence[Finding], table: Table, command: str) -> None:
    """Print what a demonstration found, and the command by which a user does the same with a model."""
    show(Report(findings=findings, sections=[Section("", tables=[table])], next=[command]))
