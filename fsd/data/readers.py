"""Readers of users' data files, with a check of every row, and of reference corpora of any size, as streams.

Formats: JSONL (.jsonl, .ndjson, .json; also a JSON list of objects), CSV (.csv) and TSV (.tsv), each also compressed
(.gz, .zst, .bz2), and Parquet (.parquet). General loaders silently convert mixed types and missing values. A folder
stands for the files below it, also in linked folders, without hidden ones.

A label is 1 or true for a member, 0 or false for a non-member, also in quotes or as 1.0. A date begins with an ISO date
or is eight digits, in UTC if it has an offset. An empty cell, null, NaN and a date of 0 are missing values.
"""

import csv
import io
import json
import os
import re
import shlex
import sys
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from datetime import date, datetime
from decimal import Decimal
from functools import partial
from itertools import accumulate, chain, islice, product
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

from fsd.data import cells, layouts
from fsd.data.cells import RowError, checked_text, is_missing
from fsd.data.documents import Document, utc_day
from fsd.data.layouts import NOT_READ
from fsd.errors import UsageError, quoted, refusing
from fsd.files import JSON, LARGEST, check_regular, named_below, read_json, read_text
from fsd.net.hub import data_files
from fsd.plugs import Entry, entry_of, first

COMPRESSIONS = {".gz": "gzip", ".zst": "zstd", ".bz2": "bz2"}
PACKED = {b"\x1f\x8b": ".gz", b"PK\x03\x04": ".zip", b"\x28\xb5\x2f\xfd": ".zst", b"BZh": ".bz2"}
"""First bytes of packed files, which may have any name."""
SPREADSHEET = ": save the sheet as CSV UTF-8"
DOCUMENT = ": save it as plain text, .txt"
SAVED_AS = dict.fromkeys((".xlsx", ".xls", ".ods"), SPREADSHEET)
"""Ending of other files → how to save what is in them."""
SAVED_AS |= dict.fromkeys((".docx", ".doc", ".odt", ".rtf", ".pdf", ".epub", ".html", ".md"), DOCUMENT)
SAVED_AS |= dict.fromkeys((".feather", ".pkl", ".pickle"), ": read it with pandas and save it by to_parquet")
TABLES = (".jsonl", ".ndjson", ".json", ".csv", ".tsv", ".parquet")
PLAIN = (".txt", ".text")
ARROW = ".arrow"
SAVED_STATE = "state.json"
SAVED_INFO = "dataset_info.json"
"""Files of a data set that `datasets` saved in a folder."""
HUB_ID = re.compile(r"[\w.-]+/[\w.-]+")
PASSAGE = 2**17
"""Maximum length of a passage of a plain text file, in characters."""
Paths = Iterable[str | Path]
Columns = Mapping[str, str]
Row = cells.Row
Rows = Iterator[tuple[int, Row]]
Skipped = Counter[str] | None
"""Reason → rows that were left out; None where the first of them is an error."""


def _format(place: str, what: str, endings: Sequence[str]) -> tuple[str, str | None]:
    """Ending and compression of a file, from its name."""
    path = PurePosixPath(place.lower())
    compression = COMPRESSIONS.get(path.suffix)
    if compression:
        path = path.with_suffix("")
    ending = path.suffix
    if ending not in endings or (ending == ".parquet" and compression):
        allowed = f"{', '.join(endings)}, all but .parquet also with {', '.join(COMPRESSIONS)}"
        raise UsageError(f"{what} must end in {allowed}; got {PurePosixPath(place).name!r}{SAVED_AS.get(ending, '')}")
    return ending, compression


def _rows(where: str, ending: str, stream: Any, column: str | None = None, largest: int = sys.maxsize) -> Rows:
    """The rows of an open file with their numbers, of a Parquet file of one column, of others of at most so many bytes.

    What is compressed is expanded while it is read.
    """
    if ending == ".parquet":
        return parquet_rows(where, stream, column)
    lines = _lines(where, stream, largest)
    if "json" in ending:
        return json_rows(where, lines)
    return _csv_rows(where, lines, ending)


def _lines(where: str, stream: Any, largest: int) -> Iterator[str]:
    """The lines of a file in UTF-8. They end in a line feed alone: a cell keeps its line breaks, whatever they are."""
    size = 0
    # A line may be as long as a file that never ends: no more of it is read than is allowed.
    for number, line in enumerate(iter(partial(stream.readline, largest), b""), 1):
        size += len(line)
        _check_size(where, size, largest)
        yield as_text(where, line, number)


def json_rows(where: str, lines: Iterable[str], start: int = 1) -> Rows:
    """One object or one text a line, or one list of them, or a table; `start` is the number of the first line."""
    filled = ((line, text) for line, text in enumerate(lines, start) if text.strip())
    head = list(islice(filled, 2))
    if not head:
        return
    line, text = head[0]
    numbered = chain(head, filled)
    rows: Iterable[tuple[int, Any]] = ((line, _from_json(where, line, text)) for line, text in numbered)
    # What begins thus goes on until the end of the file.
    if len(head) == 1 or text.lstrip().startswith("[") or not text.rstrip().endswith(("}", '"')):
        rows = _document_rows(where, line, _from_json(where, line, "".join(text for _, text in numbered)))
    for number, row in rows:
        if isinstance(row, str):
            row = {"text": row}
        if not isinstance(row, dict):
            raise UsageError(f"{where}:{number}: a row must be a JSON object, or a text; got {quoted(row)}")
        yield number, row


TABLE_NAMES = ("data", "rows", "records", "examples", "instances", "samples", "train", "validation", "test")
"""Under which an object holds a table."""


def _document_rows(where: str, line: int, content: Any) -> Iterable[tuple[int, Any]]:
    """The rows of a file that is one JSON document: a list, a table, an object that holds one of these, or a row."""
    if isinstance(content, dict):
        content = _table_in(where, content)
    if isinstance(content, list):
        return enumerate(content, 1)
    return [(line, content)]


def _table_in(where: str, content: JSON) -> Any:
    """The rows of an object that is a table, as pandas and others write it, or that holds one; a row as it is."""
    if content.keys() >= {"columns", "data"}:
        return [dict(zip(content["columns"], row, strict=False)) for row in content["data"]]
    kinds = set(map(type, content.values()))
    if kinds == {dict} or (kinds == {list} and "text" in content):
        import pandas as pd

        with refusing(f"{where} must be a table; ", ValueError):
            frame = pd.DataFrame(content)
        # By rows or by columns, whichever have numbers.
        by_row = kinds == {dict} and all(map(str.isdigit, content))
        return (frame.T if by_row else frame).to_dict("records")
    tables = [name for name in TABLE_NAMES if isinstance(content.get(name), list)]
    if len(tables) > 1:
        raise UsageError(f"{where} must hold one table; it holds {', '.join(tables)}: save each in a file of its own")
    if not tables:
        return content
    return content[tables[0]]


def _from_json(where: str, line: int, content: str) -> Any:
    try:
        return json.loads(content.rstrip())
    except (ValueError, RecursionError) as error:
        # the decoder counts the lines of what it was given
        line += getattr(error, "lineno", 1) - 1
        raise UsageError(f"{where}:{line}: must be one JSON object a line, or one list of objects; {error}") from error


def _delimiter(head: str) -> str:
    # spreadsheets separate columns by semicolons where the comma is the decimal sign, and copied cells by tabs
    return next((sign for sign in ",;\t" if sign in head), ",")


def _csv_rows(where: str, lines: Iterable[str], ending: str) -> Rows:
    lines = iter(lines)
    head = next(lines, "")
    delimiter = "\t" if ending == ".tsv" else _delimiter(head)
    lines = chain([head], lines)
    rows = _tab_cells(where, lines) if delimiter == "\t" else _quoted_cells(where, lines, delimiter)
    header: list[str] = []
    for line, row in rows:
        if not header:
            header = [name.strip() for name in row]
            _check_header(header, f"{where}:{line}")
            continue
        if len(row) != len(header):
            raise UsageError(f"{where}:{line}: a row must have {len(header)} fields like the header; got {len(row)}")
        yield line, {name: cell or None for name, cell in zip(header, row, strict=True)}


def _quoted_cells(where: str, lines: Iterable[str], delimiter: str) -> Iterator[tuple[int, list[str]]]:
    """The cells of each row of CSV, after the line where it begins; blank lines are no rows."""
    csv.field_size_limit(2**31 - 1)  # global; the default limit is 131,072 characters
    reader = csv.reader(lines, delimiter=delimiter, strict=True)
    line = 1
    try:
        for row in reader:
            if row:
                yield line, row
            # a quoted cell may hold line breaks, so a row begins after the last line of the one before
            line = reader.line_num + 1
    except csv.Error as error:
        raise UsageError(f"{where}:{line}: must be valid CSV; {error}") from error


QUOTED = re.compile(r'"(?:[^"]|"")*"')
"""A whole quoted cell."""
TAB_CELL = re.compile(rf"({QUOTED.pattern}|[^\t]*)\t")


def _tab_cells(where: str, lines: Iterable[str]) -> Iterator[tuple[int, list[str]]]:
    """The cells of each row of TSV, after the line where it begins; blank lines are no rows.

    TSV has no quotes of its own: a line with as many cells as the header is a row, whatever quotes are in it. Programs
    for CSV quote cells with tabs or line breaks: lines that are no rows by themselves may be parts of such cells.
    """
    width = 0
    start = 1
    begun: list[str] = []
    is_open = False
    for line, text in enumerate(lines, 1):
        size = text.count("\t") + 1
        # What begins with a whole row goes on with lines that are none.
        if is_open and not size == begun[0].count("\t") + 1 == width:
            begun.append(text)
            is_open ^= text.count('"') % 2 == 1
            continue
        if begun:
            yield start, _tab_row(where, start, begun, width)
        begun = [text] if text.strip("\r\n ") else []
        is_open = any(map(_opens, text.rstrip("\r\n").split("\t")))
        start = line
        if begun:
            width = width or size
    if begun:
        yield start, _tab_row(where, start, begun, width)


def _opens(cell: str) -> bool:
    """Whether a cell begins with a quote that does not end in it."""
    return cell.startswith('"') and cell.count('"') % 2 == 1


def _tab_row(where: str, start: int, lines: list[str], width: int) -> list[str]:
    """The cells of the lines of a row, of which those after the first are within a quoted cell."""
    text = "".join(lines).rstrip("\r\n")
    row = text.split("\t")
    if "\n" in text or len(row) != width:
        row = TAB_CELL.findall(f"{text}\t")
    torn = [cell for cell in row if "\n" in cell and not QUOTED.fullmatch(cell)]
    # In one column, a line within a quoted cell looks like a row.
    if torn or ("\n" in text and len(row) != width) or (width == 1 and _opens(text)):
        raise UsageError(
            f"{where}:{start}: a cell that begins with a quote, and goes on in the next line, must end with a quote; "
            f"lines {start} to {start + len(lines) - 1} are no row: save the file as JSONL or CSV"
        )
    return list(map(_unquoted, row))


def _unquoted(cell: str) -> str:
    if QUOTED.fullmatch(cell):
        return cell[1:-1].replace('""', '"')
    return cell


def parquet_rows(where: str, file: Any, column: str | None = None, rows: range | None = None) -> Rows:
    """The rows of a Parquet file, or of one of its columns, where there may be any number of them; or some `rows`."""
    import pyarrow.parquet as pq

    with _refusing_table(f"{where}: must be a Parquet file; "), pq.ParquetFile(file) as table:
        names = table.schema_arrow.names
        _check_header(names, where)
        rows = rows or range(table.metadata.num_rows)
        group_sizes = [table.metadata.row_group(group).num_rows for group in range(table.num_row_groups)]
        # groups before the first row are not even read
        ends = list(accumulate(group_sizes))
        skipped = bisect_right(ends, rows.start)
        start = sum(group_sizes[:skipped])
        columns = [column] if column in names else None
        size = 0
        for batch in table.iter_batches(1024, list(range(skipped, len(ends))), columns):
            if start >= rows.stop:
                break
            if column is None:
                size += batch.nbytes
                _check_size(where, size, LARGEST)
            begin = min(max(rows.start - start, 0), len(batch))
            part = batch.slice(begin, rows.stop - start - begin)
            yield from enumerate(part.to_pylist(), start + begin + 1)
            start += len(batch)


def arrow_rows(where: str) -> Rows:
    """The rows of an Arrow file in the stream format, as `datasets` saves them."""
    import pyarrow as pa

    must = f"{where}: must be an Arrow file of a saved data set; "
    # Mapped, not read: a batch at a time is in memory.
    with _refusing_table(must), pa.memory_map(where) as file, pa.ipc.open_stream(file) as batches:
        _check_header(batches.schema.names, where)
        yield from enumerate(chain.from_iterable(map(pa.RecordBatch.to_pylist, batches)), 1)


def _refusing_table(must: str) -> AbstractContextManager[None]:
    import pyarrow as pa

    # Python cannot hold all dates of a table, nor a text that is no UTF-8.
    return refusing(must, pa.ArrowException, OSError, OverflowError, ValueError)


def _check_header(names: list[str], where: str) -> None:
    if len(set(names)) < len(names):
        raise UsageError(f"{where}: columns must have different names; got {', '.join(names)}")


def _check_size(where: str, size: int, largest: int) -> None:
    if size > largest:
        raise UsageError(f"{where} must hold at most {largest:,} bytes when it is decompressed; there are more")


class Passage(NamedTuple):
    """A document or a part of one; `opens` is true for the first part, `origin_url` is its file and line."""

    text: str
    opens: bool = True
    origin_url: str = ""
    answer: str = ""
    """What the text answers, where a column or a task has it."""


Passages = Iterable[Passage]


def check_endings(places: Iterable[str | Path]) -> None:
    """Refuse files, on disk or elsewhere, whose names do not tell a format that can be read; folders and tasks may."""
    for place in map(str, places):
        if entry_of(place) or os.path.isdir(place):  # noqa: PTH112 - a name may be too long for pathlib
            continue
        # A folder that is not there.
        if not PurePosixPath(place).suffix and "://" not in place and not os.path.exists(place):  # noqa: PTH110
            raise UsageError(f"corpus must be files that exist; there is no file {place}")
        _format(place, "corpus files", TABLES + PLAIN)


class TextStream:
    """The documents of files, folders, hub URLs and tasks, in order, without empty ones; `done` of `size` bytes."""

    def __init__(self, files: Sequence[Path | str], column: str = "text", answer: str | None = None) -> None:
        if not files:
            raise UsageError("corpus must be at least one file; got none")
        self.entries: list[Entry] = []
        places: list[str] = []
        for place in map(str, files):
            entry = entry_of(place)
            if entry:
                self.entries.append(entry)
            elif os.path.isdir(place):  # noqa: PTH112 - a name may be too long for pathlib
                places += map(str, _files_below(place, TABLES + PLAIN, "a corpus"))
            else:
                places.append(place)
        check_endings(places)  # before any of them is looked up on the network
        check_template("column", column)
        self.files = list(chain.from_iterable(map(data_files, places)))
        self.column = column
        self.answer = answer
        self.size = sum(file.size for file in self.files)
        self.done = 0

    def check(self) -> None:
        """Read the first text, if it is on disk: another format is refused before hours of reading."""
        files = [file.url for file in self.files[:1] if "://" not in file.url]
        if files:
            next(iter(TextStream(files, self.column)), None)

    def __iter__(self) -> Iterator[Passage]:
        for entry in self.entries:
            for origin_url, row in entry.rows():
                yield Passage(row["text"], origin_url=origin_url, answer=row["answer"])
        finished = 0
        for file in self.files:
            ending, compression = _format(file.url, "corpus files", TABLES + PLAIN)
            content = ending[1:]
            if compression:
                content = f"{compression} of {content}"
            # network libraries have no common base class of errors
            with (
                refusing(f"{file.url} must be a whole file of {content} in UTF-8; "),
                file.open(whole=ending != ".parquet") as raw,
            ):
                for passage in self._read(file.url, ending, _expanded(raw, compression)):
                    # a reader closes the file at its end, before its last passage is given
                    self.done = finished + (0 if raw.closed else raw.tell())
                    if passage.text:
                        yield passage
            finished += file.size
            self.done = finished

    def _read(self, url: str, ending: str, stream: Any) -> Iterator[Passage]:
        if ending in PLAIN:
            with io.TextIOWrapper(stream, encoding="utf-8-sig", newline="") as text:
                yield from _cut(text, url)
        else:
            # the other columns of a Parquet file are not even read where one is enough
            rows = _rows(url, ending, stream, None if self.answer else self.column)
            yield from passages(url, rows, self.column, self.answer)


def _expanded(raw: Any, compression: str | None) -> Any:
    import pyarrow as pa

    if not compression:
        return raw
    return io.BufferedReader(pa.CompressedInputStream(pa.PythonFile(raw), compression))


def passages(url: str, rows: Rows, column: str, answer: str | None = None) -> Iterator[Passage]:
    """The texts of a column, or of a template of columns, and their answers; a missing one is empty."""
    for number, row in rows:
        origin_url = f"{url}:{number}"
        text = _cell(row, column, origin_url)
        # An escaped half of a surrogate pair is valid JSON, but not valid text.
        text = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
        # As a template, since an answer may be a number.
        of_row = ""
        if answer:
            of_row = _cell(row, f"{{{answer}}}", origin_url, "answer")
        yield Passage(text, origin_url=origin_url, answer=of_row)


def _cell(row: Row, column: str, origin_url: str, field: str = "column") -> str:
    """The text of a row of a corpus; empty if it, or a column of its template, is missing."""
    if column not in row:
        if not is_template(column):
            raise UsageError(f"column must be one of {_names(row)}; {origin_url} has no {column!r}")
        with suppress(RowError):
            return join_columns(column, row, field, origin_url)
        return ""
    text = row[column] or ""
    if not isinstance(text, str):
        raise UsageError(f"column {column!r} must hold text; {origin_url} holds {type(text).__name__}")
    return text


def _files_below(folder: str | Path, endings: Sequence[str], what: str) -> list[Path]:
    """The files below a folder that have one of the endings, compressed ones included, in order; there must be some."""
    files = named_below(folder, with_packed(endings))
    if not files:
        raise UsageError(f"a folder of {what} must hold files that end in {', '.join(endings)}; {folder} has none")
    return files


def with_packed(endings: Iterable[str]) -> list[str]:
    """Endings of files, and of compressed ones."""
    return list(map("".join, product(endings, ("", *COMPRESSIONS))))


def data_files_of(path: Path) -> list[Path]:
    """The data files below a folder, or those of a data set that `datasets` saved there; the path of a file itself.

    A UsageError for a folder without any, or with the splits of a data set, of which one must be chosen.
    """
    if not os.path.isdir(path):  # noqa: PTH112 - a name may be too long for pathlib
        return [path]
    state = path / SAVED_STATE
    if state.is_file() and (path / SAVED_INFO).is_file():
        saved = read_json(JSON, state, "the state of a saved data set")
        with refusing(f"{state} must list the files of a saved data set; "):
            # Others beside them are caches, or of an earlier saving. Whatever a name says, the file is of this folder.
            return [path / Path(entry["filename"]).name for entry in saved["_data_files"]]
    splits = sorted(file.parent.name for file in path.glob(f"*/{SAVED_STATE}"))
    if splits:
        raise UsageError(
            f"data must be one split of a saved data set; {path} holds {', '.join(splits)}: give {path / splits[0]}"
        )
    return _files_below(path, TABLES, "data")


def _cut(file: io.TextIOWrapper, origin_url: str) -> Iterator[Passage]:
    rest = ""
    opens = True
    while block := file.read(PASSAGE):
        rest += block
        end = last_cut(rest)
        yield Passage(rest[:end], opens, origin_url)
        rest = rest[end:]
        opens = False
    if rest:
        yield Passage(rest, opens, origin_url)


def last_cut(text: str) -> int:
    """Position of the last single space between words, else after the last line break, else at the end."""
    words = re.search(r"(?s:.*\S)(?= \S)", text)
    if words:
        return words.end()
    return text.rfind("\n") + 1 or len(text)


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
                f"columns are {_names(row)}"
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


def read_files(
    paths: Paths,
    columns: Columns | None = None,
    *,
    labelled: bool = False,
    answers: bool = False,
    contexts: bool = False,
    skipped: Skipped = None,
) -> list[Document]:
    """All rows of all files, or tasks of lm-evaluation-harness, as one benchmark, in order; sources are file:line.

    `columns` are those of fields that have others; `labelled` refuses a row without a label. `answers` reads what is an
    answer with what it answers: chats, and the column `context`; `contexts` gives the answers of a task after its
    questions. Rows without a text or with an invalid label are counted in `skipped` by reason; without it, the first is
    a `RowError`.
    """
    documents = []
    for path in _distinct(paths, "data file"):
        entry = entry_of(path)
        if entry:
            rows = list(entry.rows(contexts=contexts))
            names: Columns = {}
        else:
            names = columns or {}
            rows = _with_named(read_rows([path]), names)
        read = list(parse_rows(rows, names, labelled=labelled, answers=answers or contexts, skipped=skipped))
        if not read:
            raise UsageError(
                f"{path} must have at least one valid row; all {len(rows)} have no text or no label of 0 or 1"
            )
        documents += read
    return documents


def _with_named(rows: list[tuple[str, Row]], columns: Columns) -> list[tuple[str, Row]]:
    """The rows of a file, in which a named column may be missing in some, as in JSON an empty cell is."""
    named = set(columns.values()).union(*map(PLACE.findall, columns.values()))
    held = dict.fromkeys(named.intersection(chain.from_iterable(row for _, row in rows)))
    if not held:
        return rows
    return [(origin_url, held | dict(row)) for origin_url, row in rows]


def read_rows(paths: Paths) -> list[tuple[str, Row]]:
    """All rows of all files with their sources (file:line), unchecked; UsageError for a file without any.

    A folder stands for its data files, or for the data set that `datasets` saved there.
    """
    rows = []
    for path in chain.from_iterable(map(data_files_of, map(Path, paths))):
        if not os.path.exists(path):  # noqa: PTH110 - a name may be too long for pathlib
            raise UsageError(f"data file must exist; there is no {path}{_way_to_hub(str(path))}")
        of_file = [(f"{path}:{line}", row) for line, row in _rows_of(path)]
        if not of_file:
            raise UsageError(f"{path} must have at least one row; it has none")
        rows += of_file
    return rows


def _way_to_hub(place: str) -> str:
    """How to get a data set of the hub, where a place that does not exist could be the id of one."""
    if not HUB_ID.fullmatch(place) or place.lower().endswith(TABLES + PLAIN):
        return ""
    return (
        "; of a data set of the hub, save a split first: "
        f"datasets.load_dataset({place!r}, split='train').to_json('data.jsonl')"
    )


def _rows_of(path: Path) -> Rows:
    where = str(path)
    check_regular(path, f"{path} must be readable")
    if path.suffix == ARROW:
        yield from arrow_rows(where)
        return
    ending, compression = _format(where, "data file", TABLES)
    must = f"{path} must be readable; "
    if compression:
        must = f"{path} must be a whole {compression} file; "
    with refusing(must, OSError), path.open("rb") as raw:
        yield from _rows(where, ending, _expanded(raw, compression), largest=LARGEST)


def as_text(where: str, content: bytes, start: int = 1) -> str:
    """The content of a file, or its part from line `start` on, which must be UTF-8."""
    for magic, ending in PACKED.items():
        if start == 1 and content.startswith(magic):
            raise UsageError(f"{where} must be encoded in UTF-8; it is packed, as files that end in {ending} are")
    position = content.find(b"\0")
    fault = "it has NUL bytes, as UTF-16 has"  # valid UTF-8, but of no text
    encoding = "UTF-16"
    if position < 0:
        try:
            return content.decode("utf-8-sig")
        except UnicodeDecodeError as error:
            position = error.start
            fault = f"byte 0x{content[position]:02x} at position {position} is not"
            encoding = "WINDOWS-1252"
    line = content.count(b"\n", 0, position) + start
    way = f"iconv -f {encoding} -t UTF-8 {shlex.quote(where)} > utf8{PurePosixPath(where).suffix}"
    raise UsageError(
        f"{where}:{line}: must be encoded in UTF-8; {fault}: save it as UTF-8, or, if it is in {encoding}, run: {way}"
    )


def read_texts(
    paths: Paths,
    columns: Columns | None = None,
    *,
    answers: bool = False,
    contexts: bool = False,
    skipped: Skipped = None,
) -> list[Document]:
    """Texts with or without labels: rows of data files, .txt files as one text each, and folders of the ones or others.

    Rows without a text, and blank .txt files, are counted in `skipped`, as by `read_files`.
    """
    documents: list[Document] = []
    for path in _distinct(paths, "file with a text"):
        files = _plain_files(path)
        if files:
            documents += _text_files(files, skipped)
        else:
            documents += read_files([path], columns, answers=answers, contexts=contexts, skipped=skipped)
    return documents


def files_of_texts(path: Path) -> list[Path]:
    """The files of texts that a path stands for, in the order in which `read_texts` reads them."""
    return _plain_files(path) or data_files_of(path)


def _plain_files(path: Path) -> list[Path]:
    """The .txt files that a path stands for: itself, or those below a folder; none where there are data files."""
    if not os.path.isdir(path):  # noqa: PTH112 - a name may be too long for pathlib
        return [path] if path.suffix.lower() == ".txt" else []
    texts = named_below(path, [".txt"])
    tables = named_below(path, with_packed(TABLES))
    if texts and tables:
        names = f"{texts[0].name} and {tables[0].name}"
        raise UsageError(f"a folder must hold .txt files, one text each, or data files alone; {path} has {names}")
    if not (texts or tables):
        raise UsageError(
            f"a folder must hold .txt files, one text each, or data files ({', '.join(TABLES)}); {path} has neither"
        )
    return texts


def _distinct(paths: Paths, what: str) -> list[Path]:
    files = [Path(path) for path in paths]
    if not files:
        raise UsageError(f"at least one {what} must be given; got none")
    if len(set(map(os.path.realpath, files))) < len(files):
        raise UsageError(f"each data file must be given once; got {', '.join(map(str, files))}")
    return files


def _text_files(paths: Iterable[Path], skipped: Skipped) -> Iterator[Document]:
    for path in paths:
        # a character has up to four bytes
        text = read_text(path, largest=4 * cells.LONGEST).strip()
        if text:
            cells.check_characters(text, str(path), "text")
            yield Document(text, origin_url=str(path))
        else:
            _skip(skipped, RowError(f"{path} must hold a text that is not blank; it has none", "blank text"))


def _skip(skipped: Skipped, error: RowError) -> None:
    """Count what is left out, or raise the error where nothing is counted."""
    if skipped is None:
        raise error
    skipped[error.reason] += 1


def parse_rows(
    rows: Iterable[tuple[str, Row]],
    columns: Columns,
    *,
    labelled: bool = False,
    answers: bool = False,
    skipped: Skipped = None,
) -> Iterator[Document]:
    """Rows, each after its origin, as documents; the other arguments and errors are those of `read_files`."""
    for origin_url, row in rows:
        try:
            yield document(row, columns, origin_url, labelled=labelled, answers=answers)
        except RowError as error:
            _skip(skipped, error)


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
                f"{_names(self.row)}; name it by {SYNTAX}"
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
        if label is None or not isinstance(value, str | int | float):
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


def _names(row: Row) -> str:
    """The columns of a row."""
    return ", ".join(map(str, row)) or "none"


def _shortest(value: Any) -> str:
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return str(value).strip()
