"""What a command found, in one form: the terminal, JSON, the HTML page and MLflow are made from it."""

import math
from base64 import b64encode
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from operator import itemgetter
from typing import TYPE_CHECKING, Any, NamedTuple

import pandas as pd

from fsd.evaluation.intervals import shortened

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
