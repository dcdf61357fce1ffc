"""What a command found, in one form, and how the terminal and report.html show it."""

import math
import os
import textwrap
from base64 import b64encode
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from operator import itemgetter
from typing import TYPE_CHECKING, Any, NamedTuple

import pandas as pd
from jinja2 import Environment, PackageLoader
from markupsafe import Markup
from rich.cells import cell_len
from rich.console import Console
from rich.measure import Measurement
from rich.table import Table as Grid
from rich.text import Text

from fsd.errors import printable
from fsd.evaluation.metrics import shortened

if TYPE_CHECKING:
    from fsd.evaluation.metrics import Row


class Column(NamedTuple):
    r"""A column of a table as it is shown.

    Attributes:
        heading: its name; `\n` where a narrow terminal may break it.
        cell: the text of a line of the table, or the name of the attribute that holds it.
        words: whether it holds words, which are aligned to the left and wrapped.
    """

    heading: str
    cell: Callable[[Any], str] | str
    words: bool = False


@dataclass(frozen=True)
class Table:
    """A table; the first column names its line.

    Attributes:
        lines: what it shows, one object a line; a data frame's lines are its rows.
        columns: how each line is shown.
        caption: what it shows, in one or two sentences, on the page.
        title: the same in a few words, on the terminal.
        name: of its file in the tracked run, and of its numbers in the JSON document; empty for neither.
        frame: the numbers of the JSON document; `lines` if they are a data frame; None without either.
        marked: indices of highlighted lines.
        kept: indices of the columns that a narrow terminal keeps longest, the most important first.
        printed: whether the terminal shows it.
        source: where all columns are, for the terminal.
    """

    lines: Sequence[Any] | pd.DataFrame
    columns: Sequence[Column]
    caption: str = ""
    title: str = ""
    name: str = ""
    frame: pd.DataFrame | None = None
    marked: Sequence[int] = ()
    kept: Sequence[int] = ()
    printed: bool = True
    source: str = "the tracked run"

    @property
    def head(self) -> list[str]:
        """Names of the columns."""
        return [" ".join(column.heading.split()) for column in self.columns]

    @property
    def left(self) -> set[int]:
        """Indices of the columns of words."""
        return {at for at, column in enumerate(self.columns) if column.words or at == 0}

    @property
    def rows(self) -> list[list[str]]:
        """Text of the cells."""
        lines = self.lines.itertuples(index=False) if isinstance(self.lines, pd.DataFrame) else self.lines
        return [[_text(column, line) for column in self.columns] for line in lines]

    @property
    def numbers(self) -> pd.DataFrame | None:
        """The numbers of the JSON document, if any."""
        return self.lines if self.frame is None and isinstance(self.lines, pd.DataFrame) else self.frame


def _text(column: Column, line: Any) -> str:
    return column.cell(line) if callable(column.cell) else str(getattr(line, column.cell))


def plain(headings: Sequence[str], lines: Sequence[Sequence[str]], *, words: Sequence[int] = (), **how: Any) -> Table:
    """A table of finished cells."""
    columns = [Column(name, itemgetter(at), at in words) for at, name in enumerate(headings)]
    return Table(lines, columns, **how)


def markdown(table: Table) -> str:
    """The table in Markdown."""
    rule = ["---" if at in table.left else "---:" for at in range(len(table.columns))]
    return "".join(f"| {' | '.join(line)} |\n" for line in (table.head, rule, *table.rows))


def numbers(name: str, frame: pd.DataFrame) -> Table:
    """Numbers of the JSON document that are not shown."""
    return Table((), (), name=name, frame=frame, printed=False)


class Picture(NamedTuple):
    """A PNG file.

    Attributes:
        png: the file.
        caption: how to read it, in one or two sentences.
        alt: what it shows, for readers who do not see it; the caption if empty.
        name: of the file in the tracked run.
    """

    png: bytes
    caption: str
    alt: str = ""
    name: str = ""

    @property
    def base64(self) -> str:
        """The file as text, for the page."""
        return b64encode(self.png).decode("ascii")


@dataclass(frozen=True)
class Section:
    """A heading with paragraphs, points, tables and pictures below it, in this order."""

    title: str
    paragraphs: Sequence[str] = ()
    points: Sequence[str] = ()
    tables: Sequence[Table] = ()
    pictures: Sequence[Picture] = ()


@dataclass(frozen=True)
class Report:
    """What a command found.

    Attributes:
        title: of the page; without one there is no page.
        question: one sentence.
        findings: the results in sentences, the most important first; one that starts with LEAK or WARNING is set in
            bold.
        sections: tables and pictures, in order.
        facts: label and value of what is needed to repeat it: model, data, settings, versions.
        answer: the answer in plain words, for the page; the first of the findings if empty.
        changes: what would change the answer.
        headline: the result in one line; the first of the findings if empty.
        score: the best score in a few characters, the end of the run's name.
        description: Markdown for the page of the run; the first findings if empty.
        metrics: numbers of the run.
        artifacts: further files of the run → bytes, text, a table, or an object to write as JSON.
        page: name of the artifact that holds the report in Markdown, which a file or another program gets in place of
            tables for a terminal; without one its page is HTML.
        files: what was written for the user → path.
        printed: tables that the terminal shows besides those of the sections.
    """

    title: str = ""
    question: str = ""
    findings: Sequence[str] = ()
    sections: Sequence[Section] = ()
    facts: Sequence[tuple[str, str]] = ()
    answer: Sequence[str] = ()
    changes: Sequence[str] = ()
    headline: str = ""
    score: str = ""
    description: str = ""
    metrics: Mapping[str, float] = field(default_factory=dict)
    artifacts: Mapping[str, Any] = field(default_factory=dict)
    page: str = ""
    files: Mapping[str, object] = field(default_factory=dict)
    printed: Sequence[Table] = ()

    @property
    def line(self) -> str:
        """The result in one line."""
        return self.headline or next(iter(self.findings), "")

    @property
    def tables(self) -> list[Table]:
        """The tables of all sections."""
        return [table for section in self.sections for table in section.tables]

    @property
    def pictures(self) -> list[Picture]:
        """The pictures of all sections."""
        return [picture for section in self.sections for picture in section.pictures]


def shown(row: "Row | None") -> str:
    """A number with its interval, or a dash if there is none."""
    return "–" if row is None else str(row.estimate)


def p_value(p: float | None) -> str:
    """A p-value with three decimals; a dash for None or NaN."""
    if p is None or math.isnan(p):
        return "–"
    return "< .001" if p < 0.001 else shortened(p, ".3f")


def page(report: Report) -> str:
    """The report as one HTML page with its figures inside, without external resources and scripts.

    All text is escaped, and control characters and overrides of its direction are made visible.
    """
    first = {} if report.answer else {"answer": report.findings[:1], "findings": report.findings[1:]}
    pages = Environment(
        loader=PackageLoader("fsd.reporting"),
        autoescape=True,
        finalize=lambda value: value if isinstance(value, Markup) else printable(str(value)),
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return pages.get_template("report.html").render({**vars(report), **first})


def limits(fpr: float | None = None) -> Section:
    """What such numbers never prove.

    Args:
        fpr: the chosen false-positive rate, if the report gives verdicts.
    """
    points = [
        "A high score is statistical evidence, not a copy found in the training data. Single texts can be misjudged in "
        "both directions.",
        "A text called “not shown” may still have been in the training data: the method often misses texts that the "
        "model saw only once.",
        "The error rates hold for texts of the same kind, language, length and period as the texts on which they were "
        "measured. For others they are unknown.",
        "A model may know a text through quotations, translations or copies elsewhere, although the text itself was "
        "never collected.",
        "A model may be familiar with the period of a text that it never saw. Only contemporaries, texts of the "
        "members' own period that are known not to be in the training data, distinguish this from membership.",
        "If a classifier that never sees the model separates members from non-members as well, the result shows how "
        "the texts differ, and nothing about the training data.",
    ]
    if fpr is not None:
        points.insert(
            0,
            f"By design, about {fpr:.1%} of the texts that were not in the training data are called members; of 1,000 "
            f"such texts, about {fpr * 1000:.0f}.",
        )
    return Section("What this does not prove", points=points)


PIPE_WIDTH = 160
"""Columns of a table that goes to a file or another program, where COLUMNS does not set them."""
WORDS = 16
"""Columns that a column of longer texts has at least; half of them where the last column of numbers would leave."""


def print_table(
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
) -> tuple[list[int], Grid]:
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
) -> Grid:
    grid = Grid(title=Text(printable(title)) if title else None, title_style="")
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


def print_facts(rows: Sequence[tuple[str, str]]) -> None:
    """Print one fact a line, with its name; nothing is wrapped, so that addresses can be copied."""
    console = Console()
    longest = max((len(name) for name, _ in rows), default=0)
    for name, value in rows:
        console.print(f"{name:<{longest}}  {printable(value)}", highlight=False, markup=False, soft_wrap=True)


def print_report(report: Report) -> None:
    """Print the result in one bold line, the tables, and the other findings."""
    console = Console()
    if report.line:
        whole = not (console.is_terminal or "COLUMNS" in os.environ)
        console.print(Text(printable(report.line), style="bold"), soft_wrap=whole)
    notes = [finding for finding in report.findings if finding != report.line]
    printed = [table for table in (*report.printed, *report.tables) if table.printed and table.rows]
    for each in printed:
        print_table(
            [column.heading for column in each.columns],
            each.rows,
            notes if each is printed[-1] else (),
            title=each.title,
            left=each.left,
            kept=each.kept,
            everything=each.source,
        )
    if not printed:
        print_table((), (), notes)
