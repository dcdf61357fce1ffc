"""One finished run of the main job on a tiny random model, shared by all tests that read it."""

import contextlib
import io
import shlex
import shutil
import sys
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from rich.cells import cell_len

from fsd.config import AdapterConfig, DataConfig, DetectorConfig, FSDConfig, ModelConfig
from tests.rows import write as write_rows


class FinishedRun(NamedTuple):
    """Where a run left its store, and what it was told."""

    folder: Path
    config: FSDConfig


@pytest.fixture(scope="session", autouse=True)
def tables_fit() -> Iterator[None]:
    """Every table that a pipeline prints in a test fits narrow and wide terminals, and has more than words in each."""
    from fsd.reporting import report

    print_table = report.print_table

    def checked(table: report.Table, *console: Any, rows: int | None = None) -> str:
        numbers = [column.heading.partition("\n")[0] for at, column in enumerate(table.columns) if at not in table.left]
        for width in (40, 80, 120):
            with pytest.MonkeyPatch.context() as patch, contextlib.redirect_stdout(io.StringIO()) as printed:
                patch.setenv("COLUMNS", str(width))
                print_table(table)
            lines = [line for line in printed.getvalue().splitlines() if not line.startswith("•")]
            assert all(cell_len(line) <= width for line in lines), printed.getvalue()
            assert not lines or any(name in line for name in numbers for line in lines), printed.getvalue()
        return print_table(table, *console, rows=rows)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(report, "print_table", checked)
        yield


@pytest.fixture(scope="session", autouse=True)
def empty_pictures() -> Iterator[None]:
    """Every picture of a run is an empty one: tests/fsd/reporting draws them."""
    from matplotlib.figure import Figure

    from fsd.reporting import figures

    empty = figures.png(Figure(figsize=(1, 1)))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(figures, "png", lambda *_, **__: empty)
        yield


@pytest.fixture(scope="session", autouse=True)
def requirements_are_not_compared() -> Iterator[None]:
    """MLflow compares the packages that are installed with those of each stored model, for half a second."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("mlflow.utils.environment.warn_dependency_requirement_mismatches", lambda *_, **__: None)
        yield


@pytest.fixture(scope="session")
def run_command() -> Callable[[str], str]:
    """`run_command("score --data ...")` runs it in this process and in the working folder, and gives its stdout."""

    def run(line: str) -> str:
        from pipelines import __main__ as program

        with (
            pytest.MonkeyPatch.context() as patch,
            warnings.catch_warnings(),
            contextlib.redirect_stdout(io.StringIO()) as printed,
        ):
            warnings.filterwarnings("ignore", ".*found in sys.modules", RuntimeWarning)  # runpy of what is imported
            patch.setattr(sys, "argv", ["fsd", *shlex.split(line)])
            program.main()
        return printed.getvalue()

    return run


FINISHED = (
    "run --data data.jsonl --model {tiny} --reference-model {other} --neighbour-model words --device cpu --cache cache "
    "--validation .4 --batch-size 4 --epochs 1 --settings min_k.k=0.3 surp.k=30 --placebo none --audit-repeats 1 --json"
)


@pytest.fixture(scope="session")
def finished_run(tiny, other, once, run_command, make_rows) -> FinishedRun:
    """A store with one run of all detectors and its registered adapter. Copy it to write to it: see `own_run`."""
    from pipelines.command.cli import read

    line = FINISHED.format(tiny=tiny, other=other)

    def make(folder: Path) -> None:
        write_rows(folder / "data.jsonl", make_rows(200, seed=0))
        with pytest.MonkeyPatch.context() as patch:
            patch.chdir(folder)
            (folder / "printed.json").write_text(run_command(line), encoding="utf-8")

    folder = once("finished", make)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", shlex.split(line))
        return FinishedRun(folder, read(FSDConfig, "")[0])


@pytest.fixture(scope="module")
def own_run(finished_run: FinishedRun, tmp_path_factory: pytest.TempPathFactory) -> Iterator[FinishedRun]:
    """A copy of the finished run, which is the working folder of the module."""
    folder = tmp_path_factory.mktemp("own") / "run"
    shutil.copytree(finished_run.folder, folder)
    with contextlib.chdir(folder):
        yield finished_run._replace(folder=folder)


@pytest.fixture
def job(tiny: Path, tmp_path: Path, make_rows: Callable, monkeypatch: pytest.MonkeyPatch) -> FSDConfig:
    """A short main job on 40 texts of the working folder, a new one; it caches in `kept`."""
    monkeypatch.chdir(tmp_path)
    write_rows(tmp_path / "data.jsonl", make_rows(40, seed=3))
    return FSDConfig(
        audit_repeats=1,
        data=DataConfig(data=("data.jsonl",)),
        model=ModelConfig(model=str(tiny), device="cpu", cache="kept"),
        training=AdapterConfig(batch_size=4, epochs=1),
        detection=DetectorConfig(detectors="loss"),
        placebo="none",
    )


@pytest.fixture
def passes(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Texts of every forward pass of the engine."""
    from fsd.scoring.model_scorer import ModelScorer

    made: list[int] = []
    forward = ModelScorer._forward

    def counting(self: Any, network: Any, batch: Any, ids: Any) -> Any:
        made.append(len(batch))
        return forward(self, network, batch, ids)

    monkeypatch.setattr(ModelScorer, "_forward", counting)
    return made
