"""What a command found, in one form, and how the terminal and report.html show it."""

import math
import os
import textwrap
from base64 import b64encode
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib.resources import files
from operator import itemgetter
from typing import Any, NamedTuple

import pandas as pd
from jinja2 import Environment, PackageLoader
from markupsafe import Markup
from rich.box import SIMPLE_HEAD
from rich.cells import cell_len
from rich.console import Console
from rich.measure import Measurement
from rich.table import Table as Grid
from rich.text import Text

from fsd.errors import printable
from fsd.evaluation.metrics import Row, shortened

PIPE_WIDTH = 160
"""Columns of a table that goes to a file or another program, where COLUMNS does not set them."""
NARROWEST = 20
"""Columns of a terminal that says it has fewer, or none."""
NARROW = 800
"""Pixels of a figure that can be read on a small screen as a whole."""
WORDS = 16
"""Columns that a column of longer texts has at least; half of them where the last column of numbers would leave."""


class Column(NamedTuple):
    r"""A column of a table: heading, with `\n` where a narrow terminal may break it, and cells or their attribute."""

    heading: str
    cell: Callable[[Any], str] | str
    words: bool = False  # aligned to the left and wrapped


@dataclass(frozen=True)
class Table:
    """A table; the first column names its line."""

    lines: Sequence[Any] | pd.DataFrame  # one object a line; a data frame's lines are its rows
    columns: Sequence[Column]
    caption: str = ""  # on the page, one or two sentences
    title: str = ""  # on the terminal
    name: str = ""  # of its file in the run, and of its numbers in the JSON document; empty for neither
    frame: pd.DataFrame | None = None  # the numbers of the JSON document; by default `lines` that are a data frame
    marked: Sequence[int] = ()  # highlighted lines
    kept: Sequence[int] = ()  # columns that a narrow terminal keeps longest, the most important first
    printed: bool = True
    source: str = "the tracked run"  # where all columns are, for the terminal

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
        return [
            [cell(line) if callable(cell) else str(getattr(line, cell)) for _, cell, _ in self.columns]
            for line in lines
        ]

    @property
    def numbers(self) -> pd.DataFrame | None:
        """The numbers of the JSON document, if any."""
        return self.lines if self.frame is None and isinstance(self.lines, pd.DataFrame) else self.frame


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
    """A PNG file of this name in the tracked run; `alt` is for readers who do not see it, the caption if empty."""

    png: bytes
    caption: str
    alt: str = ""
    name: str = ""

    @property
    def base64(self) -> str:
        """The file as text, for the page."""
        return b64encode(self.png).decode("ascii")

    @property
    def wide(self) -> bool:
        """Whether a small screen has to scroll it, by the width in the header of the file."""
        return int.from_bytes(self.png[16:20], "big") > NARROW


@dataclass(frozen=True)
class Section:
    """A heading with paragraphs, points, tables and pictures below it, in this order."""

    title: str
    paragraphs: Sequence[str] = ()
    points: Sequence[str] = ()
    tables: Sequence[Table] = ()
    pictures: Sequence[Picture] = ()


class For(str):
    """A finding that speaks for the result; the short form of the terminal shows it after ✓."""


class Against(str):
    """A finding that speaks against the result, or limits it; the short form of the terminal shows it after !."""


def marked(good: bool | None, finding: str) -> str:
    """A finding with its sign: `For` for True, `Against` for False, none for None."""
    return finding if good is None else For(finding) if good else Against(finding)


@dataclass(frozen=True)
class Report:
    """What a command found."""

    title: str = ""  # of the page; without one there is no page
    question: str = ""
    findings: Sequence[str] = ()  # sentences, the most important first; one that starts with LEAK or WARNING is bold
    sections: Sequence[Section] = ()
    facts: Sequence[tuple[str, str]] = ()  # what is needed to repeat it: model, data, settings, versions
    answer: Sequence[str] = ()  # in plain words, for the page; by default the first of the findings
    sure: Sequence[str] = ()  # what it rests on, for the page, where the findings are then notes at the end
    changes: Sequence[str] = ()
    headline: str = ""  # the result in one line; by default the first of the findings
    score: str = ""  # the best score in a few characters, part of the run's name
    description: str = ""  # Markdown for the page of the run; by default the first findings
    metrics: Mapping[str, float] = field(default_factory=dict)
    artifacts: Mapping[str, Any] = field(default_factory=dict)  # further files: bytes, text, a table, or JSON
    page: str = ""  # artifact with the report in Markdown, for files and programs; without one the page is HTML
    files: Mapping[str, object] = field(default_factory=dict)
    printed: Sequence[Table] = ()  # tables that the terminal shows besides those of the sections
    brief: Table | None = None  # the table of the short form; by default the first that is printed
    signs: Sequence[tuple[bool, str]] = ()  # what speaks for it (True) and against; by default by `For`, `Against`
    next: Sequence[str] = ()
    verdicts: bool = True  # whether the adapter that the run registers can give verdicts

    @property
    def line(self) -> str:
        """The result in one line."""
        return self.headline or next(iter(self.findings), "")

    @property
    def spoken(self) -> list[tuple[bool, str]]:
        """The signs, or those of the findings."""
        own = [(isinstance(finding, For), finding) for finding in self.findings if isinstance(finding, For | Against)]
        return list(self.signs) or [(good, finding) for good, finding in own if finding != self.line]

    @property
    def tables(self) -> list[Table]:
        """The tables of all sections."""
        return [table for section in self.sections for table in section.tables]

    @property
    def pictures(self) -> list[Picture]:
        """The pictures of all sections."""
        return [picture for section in self.sections for picture in section.pictures]


def shown(row: Row | None) -> str:
    """A number with its interval, or a dash if there is none."""
    return "–" if row is None else str(row.estimate)


def p_value(p: float | None) -> str:
    """A p-value with three decimals; a dash for None or NaN."""
    if p is None or math.isnan(p):
        return "–"
    return "< .001" if p < 0.001 else shortened(p, ".3f")


def page(report: Report) -> str:
    """The report as one HTML page without external resources and scripts, all text escaped and made visible."""
    first = {} if report.answer else {"answer": report.findings[:1], "findings": report.findings[1:]}
    pages = Environment(
        loader=PackageLoader("fsd.reporting"),
        autoescape=True,
        finalize=lambda value: value if isinstance(value, Markup) else printable(str(value)),
        trim_blocks=True,
        lstrip_blocks=True,
    )
    pages.filters["css"] = _css
    day = dict(report.facts).get("Date", "")
    return pages.get_template("report.html").render({**vars(report), **first, "date": day})


def _css(text: str) -> Markup:
    """The text inside a string of a style sheet."""
    letters = (one if one.isalnum() or one == " " else f"\\{ord(one):x} " for one in printable(text))
    return Markup("".join(letters))


def document(template: str, **content: object) -> str:
    """Plain text or Markdown of a template."""
    pages = Environment(loader=PackageLoader("fsd.reporting"), trim_blocks=True, lstrip_blocks=True)
    return pages.get_template(template).render(content)


def limits(fpr: float | None = None) -> Section:
    """What such numbers never prove, with the chosen false-positive rate if the report gives verdicts."""
    points = (files("fsd.reporting") / "templates" / "limits.txt").read_text(encoding="utf-8").splitlines()
    if fpr is not None:
        points.insert(
            0,
            f"By design, about {fpr:.1%} of the texts that were not in the training data are called members; of 1,000 "
            f"such texts, about {fpr * 1000:.0f}.",
        )
    return Section("What this does not prove", points=points)


SCREEN, ROWS = 24, 6
"""Lines of the short form, and rows of its table."""


def print_report(report: Report, *, verbose: bool = True, facts: Sequence[tuple[str, str]] = ()) -> None:
    """Print result, tables, findings, facts; the short form has `SCREEN` lines, one table, and signs for findings."""
    console, piped, signs = _console(), _piped(_console()), report.spoken
    verbose = verbose or piped or not signs
    console.width = PIPE_WIDTH if piped else console.width
    printed = [table for table in (*report.printed, *report.tables) if table.printed and len(table.lines)]
    notes = [f"• {printable(finding)}" for finding in report.findings if finding != report.line]
    tables = printed if verbose else [report.brief] if report.brief else printed[:1]
    said = [f"{'✓' if good else '!'} {printable(sign)}" for good, sign in signs]
    lines = [] if verbose else packed(said, console.width, "   ")
    below = [f"{name}  {value}" for name, value in facts]
    room = SCREEN - 2 - sum(len(_wrapped(console, line)) for line in [*lines, *below])
    fewest = min(ROWS, max([2, *(len(table.marked) for table in tables)]))
    for rows in [None] if verbose else range(ROWS, fewest - 1, -1):
        with console.capture() as start:
            if report.line:
                console.print(Text(printable(report.line), style="bold"), soft_wrap=piped)
            hidden = [print_table(table, console, rows=rows) for table in tables]
        if start.get().count("\n") <= room:
            break
    print(start.get(), end="")
    _print_lines(console, lines or notes, wrapped=not verbose)
    if not verbose:
        said_of = {sign for _, sign in signs}
        remarks = sum(finding not in said_of and finding != report.line for finding in report.findings)
        more = [*filter(None, hidden), _counted((len(printed) - len(tables), "table"), (remarks, "remark"))]
        if any(more):
            left = ", ".join(filter(None, more))
            _print_lines(_console(), [f"more by --verbose{', or the report' if report.title else ''}: {left}"])
    if facts:
        print()
        print_facts(facts)


def packed(items: Sequence[str], width: int, between: str) -> list[str]:
    """The items in lines, as many in each as fit side by side."""
    lines: list[str] = []
    for item in items:
        beside = f"{lines[-1]}{between}{item}" if lines else ""
        lines[-1:] = [beside] if lines and len(beside) <= width else [*lines[-1:], item]
    return lines


def print_facts(rows: Sequence[tuple[str, str]]) -> None:
    """Print one fact a line, with its name; nothing is wrapped, so that addresses can be copied."""
    longest = max((len(name) for name, _ in rows), default=0)
    for name, value in rows:
        _console().print(f"{name:<{longest}}  {printable(value)}", highlight=False, markup=False, soft_wrap=True)


def print_notes(notes: Sequence[str]) -> None:
    """Print one paragraph per note."""
    _print_lines(_console(), [f"• {printable(note)}" for note in notes])


class _Console(Console):
    def on_broken_pipe(self) -> None:  # rich's own ends the process with code 1
        raise BrokenPipeError


def _console() -> Console:
    """The terminal; where it says that it has hardly a column, it has `NARROWEST`."""
    console = _Console()
    return console if console.width >= NARROWEST else _Console(width=NARROWEST)


def _print_lines(console: Console, lines: Sequence[str], *, wrapped: bool = False) -> None:
    for line in lines:
        shown = "\n".join(_wrapped(console, line)) if wrapped or console.is_terminal else line
        _console().print(shown, highlight=False, markup=False, soft_wrap=True)


def _wrapped(console: Console, line: str) -> list[str]:
    return textwrap.wrap(
        line,
        console.width,
        subsequent_indent="  ",
        break_long_words=False,
        break_on_hyphens=False,
    )


def _piped(console: Console) -> bool:
    return not (console.is_terminal or "COLUMNS" in os.environ)


def print_table(table: Table, console: Console | None = None, *, rows: int | None = None) -> str:
    """Print a table, at most `rows`, the marked ones first, that fits the terminal; returns what was left out."""
    whole, console = table.rows, console or _console()
    if not whole:
        return ""
    console.width = PIPE_WIDTH if _piped(console) else console.width
    shown: Sequence[int] = range(len(whole))
    if rows is not None and len(whole) > rows + 2 * (rows == ROWS):
        shown = sorted([*table.marked, *(at for at in shown if at not in table.marked)][:rows])
        table = replace(table, marked=[at for at, row in enumerate(shown) if row in table.marked])
    cells = [whole[at] for at in shown]
    columns = list(range(len(table.columns)))
    leaving = [at for at in reversed(columns) if at not in table.kept] + list(reversed(table.kept))
    while (grid := _fitting(console, table, cells, columns, leaving)) is None:
        columns.remove(leaving.pop(0))
    console.print(grid)
    gone = [name for at, name in enumerate(table.head) if at not in columns]
    if rows is None and gone:
        note = f"• not shown in {console.width} columns: {', '.join(gone)}; {table.source} has all of them"
        console.print("\n".join(_wrapped(console, note)), highlight=False, markup=False, soft_wrap=True)
    return _counted((len(whole) - len(cells), "row"), (len(gone), "column"))


def _counted(*counts: tuple[int, str]) -> str:
    """Each number above 0 with its noun."""
    return ", ".join(f"{count} {name}{'s' * (count > 1)}" for count, name in counts if count)


def _fitting(
    console: Console, table: Table, rows: Sequence[Sequence[str]], columns: Sequence[int], leaving: Sequence[int]
) -> Grid | None:
    """The columns in the width of the console; None if one has to leave, which the last two never do."""
    last_number = leaving and {at for at in columns if at not in table.left} == {leaving[0]}
    for broken, words in ((False, WORDS), (True, WORDS), *([(True, WORDS // 2)] if last_number else [])):
        grid = _grid(table, rows, columns, broken=broken, words=words)
        if Measurement.get(console, console.options.update_width(10**6), grid).minimum <= console.width:
            return grid
    return None if len(columns) > 2 else _grid(table, rows, columns, broken=True, words=0)


def _grid(table: Table, rows: Sequence[Sequence[str]], columns: Sequence[int], *, broken: bool, words: int) -> Grid:
    """Columns of a table, with cells in several lines if `broken`, and of words at least so wide; all wrapped for 0."""
    title = Text(printable(table.title)) if table.title else None
    grid = Grid(title=title, title_style="", title_justify="left", box=SIMPLE_HEAD, show_edge=False, pad_edge=False)
    left, shown = table.left if words else {*columns}, []
    for at in columns:
        breaks = "\n" if broken and at not in table.left else " "  # texts of users are never broken
        heading = _lines(table.columns[at].heading, "\n" if broken else " ")
        shown.append([_lines(row[at], breaks) for row in rows])
        longest = max(cell_len(line) for cell in (heading, *shown[-1]) for line in cell.split("\n"))
        grid.add_column(
            heading,
            justify="left" if at in left else "right",
            no_wrap=at not in left,
            overflow="fold",
            min_width=(min(longest, words) if at in left else longest) or None,
        )
    for at, row in enumerate(zip(*shown, strict=True)):
        grid.add_row(*map(Text, row), style="bold" if at in table.marked else None)
    return grid


def _lines(cell: str, between: str) -> str:
    return between.join(map(printable, cell.split("\n")))
