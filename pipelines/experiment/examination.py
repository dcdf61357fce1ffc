"""What commands that examine one model have in common: its opening, the run that records it, the demonstration."""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any, TypeVar

from fsd.evaluation.findings import Finding
from fsd.reporting.report import Report, Section, Table
from fsd.scoring.model import Model, open_model
from fsd.tracking import Run
from pipelines.command.context import stage
from pipelines.command.deliver import deliver, run_name, show, tracked_run
from pipelines.experiment.adapter_files import fetched

Scored = TypeVar("Scored")


def open_examined(config: Any, texts: str, *, adapter: str | None = None, chat: bool = False) -> Model:
    """Open the model under test, of which an adapter is part; an API that is asked by messages is a `chat`.

    The answers of an API are kept beside the `texts`, where no other file is named.
    """
    answers = config.answers or f"{texts.rstrip('/')}.answers"
    folder = fetched(adapter)
    return open_model(config.model, states=("base",), adapter=folder, api=config.api, answers=answers, chat=chat)


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


def examine(
    config: Any,
    task: str,
    files: Sequence[str],
    score: Callable[[], Scored],
    report: Callable[[Scored, str], Report],
    *,
    method: str = "",
) -> None:
    """Score in the tracked run of an examination, and deliver the report, which is made of the scores and the run."""
    with examination(config, task, files, method=method, adapter=config.adapter or "") as tracked:
        with stage("scoring"):
            scored = score()
        deliver(lambda: report(scored, tracked.id), tracked)


def show_demonstration(findings: Sequence[Finding], table: Table, command: str) -> None:
    """Print what a demonstration found, and the command by which a user does the same with a model."""
    show(Report(findings=findings, sections=[Section("", tables=[table])], next=[command]))
