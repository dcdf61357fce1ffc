"""Fields of a row of a file or a table, whatever its columns are called, and the document that they make.

A label is 1 or true for a member, 0 or false for a non-member, also in quotes or as 1.0. A date begins with an ISO date
or is eight digits, in UTC if it has an offset. An empty cell, null, NaN and a date of 0 are missing values.
"""

import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from datetime import date, datetime
from decimal import Decimal
from typing import Any, NamedTuple

from fsd.data import layouts
from fsd.data.cells import Row, RowError, checked_text, is_missing
from fsd.data.documents import Document, utc_day
from fsd.data.layouts import NOT_READ
from fsd.errors import UsageError, quoted
from fsd.plugs import first

Columns = Mapping[str, str]
FIELDS = ("text", "label", "group", "date", "period", "source")
"""Fields of a document; each is in the column of its name."""
NAMES = {"text": ("text", "input", "snippet"), "group": ("group", "book_id")}
"""Columns of a field that may have several; the first one that a row has is used.

`input` is WikiMIA's name, `snippet` and `book_id` are BookMIA's.
"""
CONTEXT = "context"
"""Field and column of what precedes a text, where that is asked for."""

SYNTAX = "--columns " + ",".join(f"{field}=NAME" for field in FIELDS)

PLACE_OF_TEXT = re.compile(
    r"\.(?:jsonl|ndjson|json|csv|tsv|parquet|arrow)(?:\.\w+)?:\d+$|^embedded corpus: |^lm-eval:.+:\d+$"
)
"""What tables of scores have in the column `source`: the place of one text, which is no collection.

So have the files of collectors and of runs, which are told by their column `sha256`.
"""

PLACE = re.compile(r"\{([^{}]+)\}")
"""A column in a template, such as `{question} {answer}`, of which the text of a row is made."""
JOINED = ("text", CONTEXT, layouts.PROMPT, layouts.COMPLETION)
"""Fields that a template may fill."""
NEXT_FIELD = re.compile(r",(?=\s*\w*\s*=)")
"""The comma before the next field of `--columns`: a template may have commas of its own."""

DAY = re.compile(r"^(?:\d{4}-\d{2}-\d{2}(?!\d)|\d{8}$)")
LABELS = {"0": False, "1": True, "0.0": False, "1.0": True, "false": False, "true": True}


def parse_columns(spec: str, *, answers: bool = False, unread: Iterable[str] = ()) -> dict[str, str]:
    """Column names by field from a string such as `text=A,label=B`; with `answers` also those of contexts and chats.

    A field whose name is - is not read; nor is one of `unread`, unless it is named.
    """
    columns: dict[str, str] = {}
    for part in NEXT_FIELD.split(spec) if spec.strip() else ():
        field, _, name = map(str.strip, part.partition("="))
        if not (field and name) or ("," in name and not is_template(name)):
            raise UsageError(f"columns must be written {SYNTAX} (any of them); got {spec!r}")
        if field in columns:
            raise UsageError(f"columns must name {field} once; got {spec!r}")
        columns[field] = name
    allowed = list(FIELDS)
    if answers:
        allowed += [CONTEXT]
        allowed += layouts.FIELDS
    unknown = [repr(field) for field in columns if field not in allowed]
    if unknown:
        raise UsageError(f"columns may name {', '.join(allowed)}; got {', '.join(unknown)}")
    for field, name in columns.items():
        if is_template(name) and field not in JOINED:
            raise UsageError(f"columns may be joined by a template for {', '.join(JOINED)}; got {field}={name!r}")
        check_template(f"columns {field}", name)
    return dict.fromkeys(unread, NOT_READ) | columns


def is_template(name: str) -> bool:
    """Whether the name of a column stands for several columns, as `{question} {answer}` does."""
    return "{" in name or "}" in name


def check_template(what: str, name: str) -> None:
    """Refuse a template with a brace that encloses no column."""
    if is_template(PLACE.sub("", name)):
        raise UsageError(
            f'{what} must have each column of a template in braces, like "{{question}} {{answer}}"; got {name!r}'
        )


def join_columns(template: str, row: Row, field: str, origin_url: str) -> str:
    r"""The template with the cells of a row in place of its columns; \n is a line break.

    A number stands as it is written, a list of texts with blanks between them, an empty cell for nothing. UsageError
    for a column that the row does not have, or that holds anything else; RowError where all cells are empty.
    """
    cells = {}
    for name in PLACE.findall(template):
        if name not in row:
            raise UsageError(
                f"{origin_url}: the template of {field} must name columns of the file; it has no {name!r}; "
                f"columns are {names_of(row)}"
            )
        cell = row[name]
        if isinstance(cell, list) and all(isinstance(part, str) for part in cell):
            # As the choices of a question.
            cell = " ".join(cell)
        if layouts.is_empty(cell):
            # As the input of most rows of Alpaca.
            cells[name] = ""
        elif isinstance(cell, int | float):
            cells[name] = str(cell)
        else:
            cells[name] = checked_text(cell, origin_url, f"column {name!r}")
    if not any(cells.values()):
        raise RowError(f"{origin_url}: the columns of the template of {field} must not all be empty", f"blank {field}")
    # The backslash is the template's: a cell keeps its own.
    pattern = template.replace("\\n", "\n")
    return PLACE.sub(lambda place: cells[place[1]], pattern)


def table_documents(name: str, table: Any, unread: Iterable[str] = ()) -> list[Document]:
    """The rows of a `pandas.DataFrame` or `datasets.Dataset` as documents, read with their answers as files are.

    `name` is what the table is called in messages; their errors are those of `read_files`. Fields that are `unread`
    have no use.
    """
    rows = table
    # A data set gives its rows by itself.
    if hasattr(table, "to_pylist"):
        rows = table.to_pylist()
    elif hasattr(table, "columns"):
        # Each kind of column has a missing value of its own.
        rows = table.astype(object).where(table.notna(), None).to_dict("records")
    documents = []
    for number, row in enumerate(rows):
        origin = f"{name}, row {number}"
        documents.append(document(row, dict.fromkeys(unread, NOT_READ), origin, answers=True))
    return documents


def document(row: Row, columns: Columns, origin_url: str, *, labelled: bool = False, answers: bool = False) -> Document:
    """One row as a document that comes from `origin_url`; the other arguments and errors are those of `read_files`."""
    fields = Fields(row, columns, origin_url)
    chat = None
    # a column that is named for the text is the text, whatever else a row has
    if "text" not in columns:
        if answers:
            chat = first("row", row, fields, origin_url, columns)
        else:
            layouts.check_text(row, origin_url)
    context = ""
    column = ""
    if chat:
        text = chat.words
    else:
        text = checked_text(fields("text", needed=True), origin_url)
        column = fields.read_from(answers=answers)
        if answers:
            context = fields.context()
    member = fields.member(needed=labelled)
    day = fields.day()
    group = fields.name("group")
    period = fields.name("period")
    source = fields.name("source")
    if "sha256" in row or PLACE_OF_TEXT.search(source):
        source = ""
    return Document(text, member, day, group, origin_url, period, source, context, chat, column)


class Fields(NamedTuple):
    """The fields of a row, whatever its columns are called; called with a field, its value."""

    row: Row
    columns: Columns
    origin_url: str

    def column(self, field: str) -> str:
        """The column of a field: the one that is named, else the first with a value of those that it may have."""
        if field in self.columns:
            return self.columns[field]
        names = NAMES.get(field, (field,))
        present = [name for name in names if name in self.row]
        for name in present:
            if not is_missing(self.row[name]):
                return name
        return (present or names)[0]

    def __call__(self, field: str, *, needed: bool = False) -> Any:
        """The value of a field; None where the row has no such column, unless that is needed, or named."""
        name = self.column(field)
        if name in self.row:
            return self.row[name]
        if is_template(name):
            return join_columns(name, self.row, field, self.origin_url)
        if needed or self.columns.get(field, NOT_READ) != NOT_READ:
            wanted = [name] if field in self.columns else NAMES.get(field, (field,))
            raise UsageError(
                f"{self.origin_url}: {field} must be in column {' or '.join(map(repr, wanted))}; columns are "
                f"{names_of(self.row)}; name it by {SYNTAX}"
            )
        return None

    def refusal(self, field: str, must: str) -> str:
        """The message for a value that may be something else in a column of that name."""
        return (
            f"{self.origin_url}: {field} must {must}; got {quoted(self(field))}; if the column is none of ours, leave "
            f"it out by --columns {field}={NOT_READ}"
        )

    def read_from(self, *, answers: bool) -> str:
        """Where the text was read, in words; "" for the column `text`, unless the row could be read otherwise."""
        words = f"texts from {self.column('text')}"
        if answers and "text" not in self.columns and layouts.layouts_in(self.row):
            return f"{words}, though {layouts.layouts_in(self.row)[0]} are there"
        return words.removesuffix("texts from text")

    def context(self) -> str:
        """What precedes a text; "" where there is nothing."""
        value = self(CONTEXT)
        if layouts.is_empty(value):
            return ""
        if not isinstance(value, str):
            raise UsageError(self.refusal(CONTEXT, "be a text"))
        return checked_text(value, self.origin_url, CONTEXT)

    def member(self, *, needed: bool) -> bool | None:
        """Whether the row is labelled a member; None without a label."""
        value = self("label", needed=needed)
        if layouts.is_empty(value):
            if needed:
                raise RowError(
                    f"{self.origin_url}: label must be 1 (member) or 0 (non-member); there is none", "no label"
                )
            return None
        if isinstance(value, Decimal):  # of Parquet; it may be written 1.00
            value = float(value)
        label = LABELS.get(str(value).strip().lower())
        if label is None:
            raise RowError(
                self.refusal("label", "be 1 or true (member), 0 or false (non-member)"), "label neither 0 nor 1"
            )
        return label

    def name(self, field: str) -> str:
        """A group, a period or a source; "" where there is none."""
        value = self(field)
        if is_missing(value):
            return ""
        if not isinstance(value, str | int | float | Decimal):
            raise UsageError(self.refusal(field, "be a string or a number"))
        # A number that a table has turned into a decimal one.
        return re.sub(r"^(-?\d+)\.0+$", r"\1", _shortest(value))

    def day(self) -> date | None:
        """The day of the date, in UTC; None where there is none."""
        value = self("date")
        if is_missing(value):
            return None
        if isinstance(value, datetime):  # it is a date too, for Python
            return utc_day(value)
        if isinstance(value, date):
            return value
        stamp = _shortest(value)
        if stamp == "0":  # a missing date in exports of patents
            return None
        # Without a match it is no day, and so "" is none.
        try:
            day = date.fromisoformat("".join(DAY.findall(stamp)))
        except ValueError as error:
            raise UsageError(self.refusal("date", "begin as year-month-day, like 2023-01-31")) from error
        # A time with an offset may be of another day in UTC, and words may follow.
        with suppress(ValueError, OverflowError):
            return utc_day(datetime.fromisoformat(stamp))
        return day


def names_of(row: Row) -> str:
    """The columns of a row."""
    return ", ".join(map(str, row)) or "none"


def _shortest(value: Any) -> str:
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return str(value).strip()
