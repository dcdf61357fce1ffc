"""One finished run of the main job on a tiny random model, shared by all tests that read it."""

import contextlib
import io
import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from rich.cells import cell_len

from fsd.config import AdapterConfig, DataConfig, DetectorConfig, FSDConfig, ModelConfig


class FinishedRun(NamedTuple):
    """Where a run left its store, and what it was told."""

    folder: Path
    config: FSDConfig


def write_rows(path: Path, values: list[dict[str, object]]) -> Path:
    path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in values), encoding="utf-8")
    return path


@pytest.fixture(scope="session", autouse=True)
def tables_fit() -> Iterator[None]:
    """Every table that a pipeline prints in a test fits narrow and wide terminals, and has more than words in each."""
    from fsd.reporting import console

    table = console.table

    def checked(
        headings: Sequence[str],
        rows: Sequence[Sequence[str]],
        notes: Sequence[str],
        *,
        left: Any = (0,),
        **options: Any,
    ) -> None:
        numbers = [heading.partition("\n")[0] for at, heading in enumerate(headings) if at not in left]
        for width in (40, 80, 120):
            with pytest.MonkeyPatch.context() as patch, contextlib.redirect_stdout(io.StringIO()) as printed:
                patch.setenv("COLUMNS", str(width))
                table(headings, rows, [], left=left, **options)
            lines = [line for line in printed.getvalue().splitlines() if not line.startswith("•")]
            assert all(cell_len(line) <= width for line in lines), printed.getvalue()
            assert not rows or any(name in line for name in numbers for line in lines), printed.getvalue()
        table(headings, rows, notes, left=left, **options)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(console, "table", checked)
        yield


@pytest.fixture(autouse=True)
def light_runs(lighter: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch) -> None:
    """Every run in these tests, but those of session fixtures, goes without what is tested elsewhere."""
    lighter(monkeypatch)


@pytest.fixture(scope="session")
def finished_run(tiny: Path, make_rows: Callable, tmp_path_factory: pytest.TempPathFactory) -> FinishedRun:
    """A store with one run and its registered adapter; change into its folder to use it, and leave the run be."""
    from pipelines.fsd import main

    folder = tmp_path_factory.mktemp("finished")
    write_rows(folder / "data.jsonl", make_rows(200, seed=0))
    config = FSDConfig(
        data=DataConfig(data=("data.jsonl",), validation=0.4),
        model=ModelConfig(model=str(tiny), device="cpu"),
        training=AdapterConfig(batch_size=4, epochs=2),
        detection=DetectorConfig(detectors="loss,min_k,min_k_deviation", settings=("min_k.k=0.3",)),
        placebo="none",
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        main(config)
    return FinishedRun(folder, config)
