"""A grid of cells: each is computed once, in a run of its own, by whose tag later calls find it; and pivots of numbers.

Studies and the laboratory are two uses of it.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import pandas as pd

from fsd.api import Run, RunRecord, Table, note, plain, progress, tracking
from pipelines.api import finished_cells

SCORES = "scores.parquet"


# It has a `name` for people, and as `tag` a hash of all that its numbers depend on.
Cell = Any


def finish(
    study: str, cells: Sequence[Cell], parent: Run, compute: Callable[[Sequence[Cell]], Iterator[tuple[Cell, str]]]
) -> dict[str, RunRecord]:
    """Tag of a cell → the run that holds its numbers: those that no earlier run holds are computed, equal ones once.

    `compute` yields each cell of those that it is given, and what became of it, when its run has ended.
    """
    earlier = finished_cells(parent)
    shown = set()
    missing: dict[str, Cell] = {}
    for cell in cells:
        if cell.tag not in earlier:
            missing.setdefault(cell.tag, cell)
        elif cell.tag not in shown:
            shown.add(cell.tag)
            _show(earlier[cell.tag], parent)
    with progress(len(shown) + len(missing), study, "cell") as bar:
        bar.update(len(shown))
        for cell, outcome in compute(list(missing.values())):
            bar.update(1)
            note(f"{study}: {cell.name} ({outcome})")
    return finished_cells(parent)


def _show(record: RunRecord, parent: Run) -> None:
    """Show the numbers of a finished cell of an earlier call among those of this one; its scores stay there."""
    tags = {"study": record.tags["study"], "cell": record.tags["cell"], "kind": "reused cell", "from": record.id}
    about = f"Reused from run {record.id}, which holds the scores."
    with tracking.run(
        parent.experiment, record.name, params=record.params, tags=tags, description=about, parent=parent
    ) as opened:
        opened.log_metrics(record.metrics)


@contextmanager
def run_of(study: str, cell: Cell, params: Mapping[str, object], parent: Run) -> Iterator[Run]:
    """The run of a cell, in that of its grid; it is an error if it cannot be stored, since tables are made of it."""
    tags = {"study": study, "kind": "cell", "cell": cell.tag}
    with tracking.run(parent.experiment, f"{study}: {cell.name}", params=params, tags=tags, parent=parent) as opened:
        yield opened
    opened.check()


def stored(record: RunRecord, file: str = SCORES) -> pd.DataFrame:
    """A table that a cell has stored."""
    return pd.read_parquet(tracking.fetch_artifact(record.id, file))


def in_order(long: pd.DataFrame, axes: Sequence[str]) -> pd.DataFrame:
    """A table whose labels stay in the order of the cells, where a pivot would sort them as words."""
    ordered = long.copy()
    for axis in axes:
        if pd.api.types.is_string_dtype(ordered[axis].dtype):
            ordered[axis] = pd.Categorical(ordered[axis], ordered[axis].unique())
    return ordered


def pivot(long: pd.DataFrame, rows: Sequence[str], columns: Sequence[str], value: str) -> pd.DataFrame:
    """A long table with a row for each label in `rows` and a column for each in `columns`; NaN where there is none.

    Nested headings are one line, in which an empty label is left out.
    """
    ordered = in_order(long, [*rows, *columns])
    wide = ordered.pivot_table(value, list(rows), list(columns), "first", observed=True)
    labels = wide.columns.to_frame().to_numpy()
    wide.columns = pd.Index([" · ".join(filter(None, map(str, levels))) for levels in labels])
    return wide


def pivoted(long: pd.DataFrame, rows: Sequence[str], columns: Sequence[str], **options: Any) -> Table:
    """The same of texts, as a table with dashes where there is none."""
    wide = pivot(long, rows, columns, "text").reset_index().astype(object).fillna("–").astype(str)
    return plain(list(map(str, wide)), wide.to_numpy().tolist(), words=range(len(rows)), **options)
