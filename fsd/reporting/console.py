"""Tables in the terminal, as wide as it is: columns leave, the least important first, before a table would break."""

import os
import textwrap
from collections.abc import Collection, Sequence

from rich.cells import cell_len
from rich.console import Console
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from fsd.errors import printable
from fsd.reporting.report import Report

PIPE_WIDTH = 160
"""Columns of a table that goes to a file or another program, where COLUMNS does not set them."""
WORDS = 16
"""Columns that a column of longer texts has at least; half of them where the last column of numbers would leave."""


def table(
    headings: Sequence[str],
    rows: Sequence[Sequence[str]],
    notes: Sequence[str],
    *,
    title: str = "",
    left: Collection[int] = (0,),
    kept: Sequence[int] = (),
    everything: str = "the tracked run",
) -> None:
    r"""Print a table that fits the terminal and, under it, one paragraph per note."""
    console = Console()
    width = console.width if console.is_terminal or "COLUMNS" in os.environ else PIPE_WIDTH
    console.width = width
    if rows:
        columns, grid = _fitting(console, headings, rows, title, left, kept)
        console.print(grid)
        gone = [" ".join(heading.split()) for at, heading in enumerate(headings) if at not in columns]
        if gone:
            notes = [f"not shown in {width} columns: {', '.join(gone)}; {everything} has all of them", *notes]
    for note in notes:
        shown = printable(note)
        if console.is_terminal:
            shown = textwrap.fill(
                shown, width - 2, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False
            )
        console.print(f"• {shown}", highlight=False, markup=False, soft_wrap=True)


def _fitting(
    console: Console,
    headings: Sequence[str],
    rows: Sequence[Sequence[str]],
    title: str,
    left: Collection[int],
    kept: Sequence[int],
) -> tuple[list[int], Table]:
    """The columns that fit the width of the console, at least two if there are as many, and their table."""
    columns = list(range(len(headings)))
    leaving = [at for at in reversed(columns) if at not in kept] + list(reversed(kept))
    while True:
        last_number = leaving and {at for at in columns if at not in left} == {leaving[0]}
        for broken, words in ((False, WORDS), (True, WORDS), *([(True, WORDS // 2)] if last_number else [])):
            grid = _grid(columns, headings, rows, title, left, broken=broken, words=words)
            if Measurement.get(console, console.options.update_width(10**6), grid).minimum <= console.width:
                return columns, grid
        if len(columns) <= 2:
            return columns, _grid(columns, headings, rows, title, columns, broken=True, words=0)
        columns.remove(leaving.pop(0))


def _grid(
    columns: Sequence[int],
    headings: Sequence[str],
    rows: Sequence[Sequence[str]],
    title: str,
    left: Collection[int],
    *,
    broken: bool,
    words: int,
) -> Table:
    grid = Table(title=Text(printable(title)) if title else None, title_style="")
    shown: list[list[str]] = []
    for at in columns:
        heading = _lines(headings[at], broken=broken)
        cells = [_lines(row[at], broken=broken and at not in left) for row in rows]  # texts of users are never broken
        longest = max(cell_len(line) for cell in (heading, *cells) for line in cell.split("\n"))
        grid.add_column(
            heading,
            justify="left" if at in left else "right",
            no_wrap=at not in left,
            overflow="fold",
            min_width=(min(longest, words) if at in left else longest) or None,
        )
        shown.append(cells)
    for row in zip(*shown, strict=True):
        grid.add_row(*map(Text, row))
    return grid


def _lines(cell: str, *, broken: bool) -> str:
    r"""What a cell shows: its lines below each other where it may be broken (`\n`), else in one."""
    return ("\n" if broken else " ").join(map(printable, cell.split("\n")))


def facts(rows: Sequence[tuple[str, str]]) -> None:
    """Print one fact a line, with its name; nothing is wrapped, so that addresses can be copied."""
    console = Console()
    longest = max((len(name) for name, _ in rows), default=0)
    for name, value in rows:
        console.print(f"{name:<{longest}}  {printable(value)}", highlight=False, markup=False, soft_wrap=True)


def show(report: Report) -> None:
    """Print the result in one bold line, the tables, and the other findings."""
    console = Console()
    if report.line:
        whole = not (console.is_terminal or "COLUMNS" in os.environ)
        console.print(Text(printable(report.line), style="bold"), soft_wrap=whole)
    notes = [finding for finding in report.findings if finding != report.line]
    printed = [table for table in (*report.printed, *report.tables) if table.printed and table.rows]
    for each in printed:
        table(
            [column.heading for column in each.columns],
            each.rows,
            notes if each is printed[-1] else (),
            title=each.title,
            left=each.left,
            kept=each.kept,
            everything=each.source,
        )
    if not printed:
        table((), (), notes)
