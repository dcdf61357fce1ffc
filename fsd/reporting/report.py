"""What a command found, in one form, and how the terminal and report.html show it."""

import math
import os
import re
import textwrap
from base64 import b64encode
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.resources import files
from itertools import chain
from operator import itemgetter
from typing import Any, NamedTuple

import pandas as pd
from jinja2 import Environment, PackageLoader, Template
from markupsafe import Markup
from rich.box import SIMPLE_HEAD
from rich.cells import cell_len
from rich.console import Console
from rich.measure import Measurement
from rich.table import Table as Grid
from rich.text import Text

from fsd.errors import counted, printable
from fsd.evaluation.findings import Finding
from fsd.statistics.intervals import shortened

PIPE_WIDTH = 160
"""Columns of a table that goes to a file or another program, where COLUMNS does not set them."""
NARROWEST = 20
"""Columns of a terminal that says it has fewer, or none."""
NARROW = 800
"""Pixels of a figure that can be read on a small screen as a whole."""
WORDS = 16
"""Columns that a column of longer texts has at least; half of them where the last column of numbers would leave."""
Facts = Sequence[tuple[str, str]]
"""Names and values."""
Sentences = Sequence[str]
"""Sentences or paragraphs, in their order."""
SCREEN = 24
"""Lines of the short form."""
ROWS = 6
"""Rows of the short form's table."""
UNLIMITED = 10**6
"""Columns of a console in which every table is as wide as it wants to be."""


class Column(NamedTuple):
    r"""A column of a table: heading, with `\n` where a narrow terminal may break it, and cells or their attribute."""

    heading: str
    cell: Callable[[Any], str] | str = ""  # by default the attribute of the heading's name
    words: bool = False  # aligned to the left and wrapped

    def text(self, line: Any) -> str:
        """Text of the column's cell in a line."""
        if callable(self.cell):
            return self.cell(line)
        return str(getattr(line, self.cell or self.heading))


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
        return {index for index, column in enumerate(self.columns) if column.words or index == 0}

    @property
    def rows(self) -> list[list[str]]:
        """Text of the cells."""
        lines = self.lines.itertuples(index=False) if isinstance(self.lines, pd.DataFrame) else self.lines
        return [[column.text(line) for column in self.columns] for line in lines]

    @property
    def numbers(self) -> pd.DataFrame | None:
        """The numbers of the JSON document, if any."""
        if self.frame is None and isinstance(self.lines, pd.DataFrame):
            return self.lines
        return self.frame


def plain(
    headings: Sequence[str], lines: Sequence[Sequence[str]], *, words: Sequence[int] = (), **options: Any
) -> Table:
    """Make a table of finished cells; `words` are the indices of its columns of words."""
    columns = [Column(name, itemgetter(index), index in words) for index, name in enumerate(headings)]
    return Table(lines, columns, **options)


def markdown(table: Table) -> str:
    """The table in Markdown."""
    rule = ["---" if index in table.left else "---:" for index in range(len(table.columns))]
    lines = list(map(markdown_row, [table.head, rule, *table.rows]))
    return "".join(f"{line}\n" for line in lines)


def markdown_row(cells: Iterable[object]) -> str:
    """Cells as a row of a table in Markdown."""
    return f"| {' | '.join(map(cell, cells))} |"


def cell(content: object) -> str:
    """What stands in a cell of a table in Markdown, which ends with its line, and by a bar."""
    line = " ".join(str(content).splitlines())
    # A backslash before a bar must not take away that of the bar.
    return re.sub(r"(\\*)\|", r"\1\1\|", line)


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
    paragraphs: Sentences = ()
    points: Sentences = ()
    tables: Sequence[Table] = ()
    pictures: Sequence[Picture] = ()


@dataclass(frozen=True)
class Reader:
    """What a page says to somebody who knows neither the software nor the field: sentences without its terms."""

    answer: Sentences
    errors: Sentences  # how often such an answer is wrong
    compared: Sentences
    tables: Sequence[Table] = ()


@dataclass(frozen=True)
class Report:
    """What a command found."""

    title: str = ""  # of the page; without one there is no page
    question: str = ""
    findings: Sequence[Finding] = ()  # the most important first; one that starts with LEAK or WARNING is bold
    sections: Sequence[Section] = ()
    facts: Facts = ()  # what is needed to repeat it: model, data, settings, versions
    answer: Sentences = ()  # in plain words, for the page; by default the first of the findings
    sure: Sentences = ()  # what it rests on, for the page, where the findings are then notes at the end
    changes: Sentences = ()
    headline: str = ""  # the result in one line; by default the first of the findings
    score: str = ""  # the best score in a few characters, part of the run's name
    description: str = ""  # for the page of the run; by default the first findings
    metrics: Mapping[str, float] = field(default_factory=dict)
    numbers: Mapping[str, float | None] = field(default_factory=dict)  # of the answer, by the names of a gate
    artifacts: Mapping[str, Any] = field(default_factory=dict)  # further files: bytes, text, a table, or JSON
    page: str = ""  # artifact with the report in Markdown, for files and programs; without one the page is HTML
    files: Mapping[str, object] = field(default_factory=dict)
    printed: Sequence[Table] = ()  # tables that the terminal shows besides those of the sections
    brief: Table | None = None  # the table of the short form; by default the first that is printed
    signs: Sequence[Finding] = ()  # what speaks for it and against; by default the findings with a sign
    next: Sequence[str] = ()
    reader: Reader | None = None  # the page for somebody who is no engineer
    rate: float | None = None  # at which the adapter that the run registers gives verdicts; None if it gives none

    @property
    def notes(self) -> list[str]:
        """The findings without their signs."""
        return [finding.text for finding in self.findings]

    @property
    def line(self) -> str:
        """The result in one line."""
        return self.headline or next(iter(self.notes), "")

    @property
    def spoken(self) -> Sequence[Finding]:
        """The signs, or the findings that have one."""
        if self.signs:
            return self.signs
        # The line of the result is printed above all signs, so that it is not said twice.
        spoken = []
        for finding in self.findings:
            is_sign = finding.sign is not None
            if is_sign and finding.text != self.line:
                spoken.append(finding)
        return spoken

    @property
    def tables(self) -> list[Table]:
        """The tables of all sections."""
        tables: list[Table] = []
        for section in self.sections:
            tables += section.tables
        return tables

    @property
    def pictures(self) -> list[Picture]:
        """The pictures of all sections."""
        pictures: list[Picture] = []
        for section in self.sections:
            pictures += section.pictures
        return pictures


def p_value(p: float | None) -> str:
    """A p-value with three decimals; a dash for None or NaN."""
    if p is None or math.isnan(p):
        return "–"
    if p < 0.001:
        return "< .001"
    return shortened(p, ".3f")


def p_words(p: float) -> str:
    """A p-value in a sentence: p = .012, p < .001."""
    number = p_value(p)
    if number.startswith("<"):
        return f"p {number}"
    return f"p = {number}"


def p_column(heading: str, attribute: str) -> Column:
    """A column of p-values, which are an attribute of the lines."""
    return Column(heading, lambda line: p_value(getattr(line, attribute)))


def page(report: Report) -> str:
    """The report as one HTML page without external resources and scripts, all text escaped and made visible."""
    if report.answer:
        return _page("report.html", report, findings=report.notes)
    return _page("report.html", report, answer=report.notes[:1], findings=report.notes[1:])


def reader_page(report: Report, hashes: Facts) -> str:
    """The report for somebody who is no engineer, with the hashes of what was examined; one page for paper."""
    return _page("reader.html", report, hashes=hashes)


def _page(template: str, report: Report, **content: object) -> str:
    """HTML of a template with what the report holds, or `content` in its place."""
    date = dict(report.facts).get("Date", "")
    return _template(template, autoescape=True, finalize=_visible).render({**vars(report), **content, "date": date})


def document(template: str, **content: object) -> str:
    """Plain text or Markdown of a template."""
    return _template(template, finalize=_without_tags).render(content)


def _template(name: str, **options: Any) -> Template:
    templates = Environment(loader=PackageLoader("fsd.reporting"), trim_blocks=True, lstrip_blocks=True, **options)
    templates.filters["css"] = _css
    templates.filters["cell"] = cell
    return templates.get_template(name)


def _without_tags(value: object) -> object:
    """A value whose text begins no tag of HTML, which Markdown would pass on; what a filter has made stays."""
    if isinstance(value, str) and not isinstance(value, Markup):
        return re.sub(r"<(?=[A-Za-z/!?])", "&lt;", value)
    return value


def _visible(value: object) -> str:
    """Text of a value with its control characters replaced; what a filter has made stays."""
    if isinstance(value, Markup):
        return value
    return printable(str(value))


def _css(text: str) -> Markup:
    """The text inside a string of a style sheet."""
    # A quote, a backslash or "</style>" would end the string; an escaped letter is always a letter.
    return Markup(re.sub(r"[^\w ]|_", lambda sign: f"\\{ord(sign[0]):x} ", printable(text)))


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


# The terminal


def print_report(report: Report, *, verbose: bool = True, facts: Facts = ()) -> None:
    """Print the result, tables, findings and facts; the short form has one table, and signs in place of findings."""
    # A file or another program gets everything, and a report without signs has no short form.
    if verbose or _piped(Console()) or not report.spoken:
        _print_whole(report)
    else:
        _print_short(report, facts)
    if facts:
        print()
        print_facts(facts)


def _print_whole(report: Report) -> None:
    console = _console()
    _print_result(report, console)
    for table in _printed_tables(report):
        print_table(table, console)
    print_notes([note for note in report.notes if note != report.line])


def _print_short(report: Report, facts: Facts) -> None:
    """Print what fits one screen: the rows of the table give way to signs and facts."""
    console = _console()
    printed = _printed_tables(report)
    tables = [report.brief] if report.brief else printed[:1]
    signs = packed(list(map(_signed, report.spoken)), console.width, "   ")
    # Three further lines are that of what is hidden, the empty one above the facts, and the prompt of the shell.
    below = signs + list(map("  ".join, facts))
    room = SCREEN - 3 - sum(len(_wrapped(line, console)) for line in below)
    fewest = max([2, *(len(table.marked) for table in tables)])
    # How high a table is, depends on the columns that fit and on the wrapping: only printing tells.
    for rows in range(ROWS, min(ROWS, fewest) - 1, -1):
        with console.capture() as screen:
            _print_result(report, console)
            hidden = [print_table(table, console, rows=rows) for table in tables]
        if screen.get().count("\n") <= room:
            break
    print(screen.get(), end="")
    _print_lines(signs, wrapped=True)
    told = {report.line, *(finding.text for finding in report.spoken)}
    remarks = sum(note not in told for note in report.notes)
    hidden.append(_counted((len(printed) - len(tables), "table"), (remarks, "remark")))
    if any(hidden):
        place = "--verbose or the report" if report.title else "--verbose"
        _print_lines([f"hidden: {', '.join(filter(None, hidden))}; {place} shows them"])


def _signed(finding: Finding) -> str:
    words = printable(finding.short or finding.text)
    if finding.sign:
        return f"✓ {words}"
    return f"! {words}"


def _printed_tables(report: Report) -> list[Table]:
    return [table for table in chain(report.printed, report.tables) if table.printed and len(table.lines)]


def _print_result(report: Report, console: Console) -> None:
    if report.line:
        console.print(Text(printable(report.line), style="bold"), soft_wrap=_piped(console))


def packed(items: Sequence[str], width: int, between: str) -> list[str]:
    """The items in lines, as many in each as fit side by side."""
    lines: list[str] = []
    for item in items:
        if lines and len(lines[-1]) + len(between) + len(item) <= width:
            lines[-1] += between + item
        else:
            lines.append(item)
    return lines


def print_facts(rows: Facts) -> None:
    """Print one fact a line, with its name; nothing is wrapped, so that addresses can be copied."""
    longest = max(map(len, dict(rows)), default=0)
    for name, value in rows:
        _print_plain(f"{name:<{longest}}  {printable(value)}")


def print_notes(notes: Sentences) -> None:
    """Print one paragraph per note."""
    _print_lines([f"• {printable(note)}" for note in notes])


class _Console(Console):
    def on_broken_pipe(self) -> None:  # rich's own ends the process with code 1
        raise BrokenPipeError


def _console() -> Console:
    """The terminal, of at least `NARROWEST` columns, or the wide page of a file or another program."""
    console = _Console()
    if _piped(console):
        console.width = PIPE_WIDTH
    elif console.width < NARROWEST:
        console.width = NARROWEST
    return console


def _piped(console: Console) -> bool:
    return not (console.is_terminal or "COLUMNS" in os.environ)


def _print_plain(text: str) -> None:
    _console().print(text, highlight=False, markup=False, soft_wrap=True)


def _print_lines(lines: Sequence[str], *, wrapped: bool = False) -> None:
    """Print lines, wrapped on a terminal in any case; a program finds each paragraph on one line."""
    console = _console()
    for line in lines:
        _print_plain("\n".join(_wrapped(line, console)) if wrapped or console.is_terminal else line)


def _wrapped(line: str, console: Console) -> list[str]:
    # Names, paths and numbers such as -0.5 stay whole, so that they can be found and copied.
    return textwrap.wrap(line, console.width, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False)


def print_table(table: Table, console: Console | None = None, *, rows: int | None = None) -> str:
    """Print a table, at most `rows`, the marked ones first, that fits the terminal; returns what was left out."""
    console = console or _console()
    visible = dict(enumerate(table.rows))
    if not visible:
        return ""
    hidden_rows = 0
    # A line about one or two hidden rows would take the place of as many rows.
    if rows is not None and len(visible) > (rows + 2 if rows == ROWS else rows):
        marked_first = sorted(visible, key=lambda index: index not in table.marked)
        hidden_rows = len(visible) - rows
        visible = {index: visible[index] for index in sorted(marked_first[:rows])}
    # Each column once, the most important first.
    columns = list(dict.fromkeys(chain(table.kept, range(len(table.columns)))))
    while (grid := _fitting(table, visible, columns, console)) is None:
        columns.pop()
    console.print(grid)
    missing = [name for index, name in enumerate(table.head) if index not in columns]
    if rows is None and missing:
        note = f"• not shown in {console.width} columns: {', '.join(missing)}; {table.source} has all of them"
        _print_lines([note], wrapped=True)
    return _counted((hidden_rows, "row"), (len(missing), "column"))


def _counted(*counts: tuple[int, str]) -> str:
    """Each number above 0 with its noun."""
    return ", ".join(counted(count, name) for count, name in counts if count)


def _fitting(table: Table, rows: Mapping[int, Sequence[str]], columns: Sequence[int], console: Console) -> Grid | None:
    """The columns, most important first, in the width of the console; None if the last of more than two must go."""
    styles = [(False, WORDS), (True, WORDS)]
    # The words are squeezed only before the last column of numbers would go.
    if [index for index in columns if index not in table.left] == [columns[-1]]:
        styles.append((True, WORDS // 2))
    # rich shrinks columns below their minimum to fit a console; in a wide one it tells what they need.
    wide = console.options.update_width(UNLIMITED)
    for broken, words in styles:
        grid = _grid(table, rows, columns, broken=broken, words=words)
        if Measurement.get(console, wide, grid).minimum <= console.width:
            return grid
    if len(columns) > 2:
        return None
    return _grid(table, rows, columns, broken=True, words=0)


def _grid(table: Table, rows: Mapping[int, Sequence[str]], columns: Sequence[int], *, broken: bool, words: int) -> Grid:
    """Columns of a table, with cells in several lines if `broken`; words may wrap to `words`, all cells for 0."""
    grid = Grid(
        title=Text(printable(table.title)) if table.title else None,
        title_style="",
        title_justify="left",
        box=SIMPLE_HEAD,
        show_edge=False,
        pad_edge=False,
    )
    body = []
    for index in sorted(columns):
        heading = _lines(table.columns[index].heading, broken)
        of_words = index in table.left
        # A line break in a text of the user's has no meaning for the table.
        cells = [_lines(row[index], broken and not of_words) for row in rows.values()]
        longest = max(map(cell_len, "\n".join([heading, *cells]).split("\n")))
        wraps = of_words or not words
        least = min(longest, words) if wraps else longest
        grid.add_column(
            heading, justify="left" if wraps else "right", no_wrap=not wraps, overflow="fold", min_width=least or None
        )
        body.append(cells)
    for index, *cells in zip(rows, *body, strict=True):
        # As Text, since rich would read brackets in a text of the user's as its own markup.
        grid.add_row(*map(Text, cells), style="bold" if index in table.marked else None)
    return grid


def _lines(cell: str, broken: bool) -> str:
    return ("\n" if broken else " ").join(map(printable, cell.split("\n")))
