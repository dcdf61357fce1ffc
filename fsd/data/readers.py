"""Readers of users' data files, with a check of every row.

Formats: JSONL (.jsonl, .json; also a JSON list of objects), CSV (.csv) and TSV (.tsv), each also compressed (.gz, .zst,
.bz2), and Parquet (.parquet). General loaders are not used, because they silently convert mixed types and missing
values.
"""

import csv
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import date, datetime
from io import StringIO
from pathlib import Path
from typing import Any

from fsd.data.documents import Document
from fsd.data.streaming import COMPRESSIONS, endings
from fsd.errors import UsageError
from fsd.net.hub import first_line

NAMES: dict[str, tuple[str, ...]] = {
    "text": ("text", "input", "snippet"),
    "label": ("label",),
    "group": ("group", "book_id"),
    "date": ("date",),
}
"""Default columns of each field; the first one that a row has is used.

`input` is WikiMIA's name, `snippet` and `book_id` are BookMIA's.
"""

SYNTAX = "--columns text=NAME,label=NAME,group=NAME,date=NAME"

Row = Mapping[str, Any]


def parse_columns(spec: str) -> dict[str, str]:
    """Column names by field from a string such as `text=Example_A,label=Label,group=ID`; empty for "".

    Raises:
        UsageError: for another syntax, an unknown field, or a field named twice.
    """
    columns: dict[str, str] = {}
    for part in spec.split(",") if spec.strip() else ():
        role, equals, name = (piece.strip() for piece in part.partition("="))
        if not (role and equals and name):
            raise UsageError(f"columns must be written {SYNTAX} (any of them); got {spec!r}")
        if role in columns:
            raise UsageError(f"columns must name {role} once; got {spec!r}")
        columns[role] = name
    _check_columns(columns)
    return columns


def _check_columns(columns: Mapping[str, str]) -> None:
    unknown = [role for role in columns if role not in NAMES]
    if unknown:
        raise UsageError(f"columns may name {', '.join(NAMES)}; got {', '.join(map(repr, unknown))}")


def read_files(
    paths: Iterable[str | Path], columns: Mapping[str, str] | None = None, *, labelled: bool = False
) -> list[Document]:
    """All rows of all files as one benchmark, in order; other columns are ignored.

    A text must be a string that is not blank. A label is 1 or true for a member, 0 or false for a non-member,
    also in quotes or as 1.0; without a label, `member` is None. A date must begin with an ISO date. Missing groups
    are "". An empty cell of CSV or TSV is a missing value. `source` is file:line, or file:row for a JSON list and
    for Parquet, counted from 1.

    Args:
        paths: files.
        columns: column of each field, in place of `NAMES`.
        labelled: whether a row without a label is an error.

    Raises:
        UsageError: for a file that cannot be read, or the first invalid row, with file and line.
    """
    columns = columns or {}
    _check_columns(columns)
    files = [Path(path) for path in paths]
    if not files:
        raise UsageError("at least one data file must be given; got none")
    if len({path.resolve() for path in files}) < len(files):
        raise UsageError(f"each data file must be given once; got {', '.join(map(str, files))}")
    documents: list[Document] = []
    for path in files:
        rows = [document(row, columns, f"{path}:{line}", labelled=labelled) for line, row in _reader(path)(path)]
        if not rows:
            raise UsageError(f"{path} must have at least one row; it has none")
        documents += rows
    return documents


def read_rows(paths: Iterable[str | Path]) -> list[tuple[str, Row]]:
    """All rows of all files with their sources (file:line), unchecked.

    Raises:
        UsageError: for a file that cannot be read, or has no rows.
    """
    rows = []
    for path in map(Path, paths):
        of_file = [(f"{path}:{line}", row) for line, row in _reader(path)(path)]
        if not of_file:
            raise UsageError(f"{path} must have at least one row; it has none")
        rows += of_file
    return rows


def document(row: Row, columns: Mapping[str, str], source: str, *, labelled: bool = False) -> Document:
    """One row as a document.

    Args:
        row: values by column.
        columns: column of each field, in place of `NAMES`.
        source: origin of the row, for the document and for errors.
        labelled: whether a missing label is an error.

    Raises:
        UsageError: for a missing column or an invalid value.
    """
    text = _text(_value(row, "text", columns, source), source)
    member = _member(_value(row, "label", columns, source, needed=labelled), source)
    if labelled and member is None:
        raise UsageError(f"{source}: label must be 1 (member) or 0 (non-member); there is none")
    day = _date(_value(row, "date", columns, source, needed=False), source)
    group = _value(row, "group", columns, source, needed=False)
    if not isinstance(group, str | int | float | None):
        raise UsageError(f"{source}: group must be a string or a number; got {_show(group)}")
    return Document(text, member, day, "" if group is None else str(group), source)


def _value(row: Row, role: str, columns: Mapping[str, str], source: str, *, needed: bool = True) -> Any:
    names = (columns[role],) if role in columns else NAMES[role]
    for name in names:
        if name in row:
            return row[name]
    if needed or role in columns:
        there = ", ".join(map(str, row)) or "none"
        wanted = " or ".join(map(repr, names))
        raise UsageError(f"{source}: {role} must be in column {wanted}; columns are {there}; name it by {SYNTAX}")
    return None


def _show(value: Any) -> str:
    shown = repr(value)
    return shown if len(shown) <= 60 else shown[:57] + "..."


def _text(value: Any, source: str) -> str:
    if not isinstance(value, str) or not value.strip():
        raise UsageError(f"{source}: text must be a string that is not blank; got {_show(value)}")
    try:
        value.encode("utf-8")
    except UnicodeEncodeError as error:
        raise UsageError(
            f"{source}: text must be valid Unicode; character {error.start + 1} is half of a surrogate pair"
        ) from error
    return value


def _member(value: Any, source: str) -> bool | None:
    if value is None:
        return None
    known = {"0": False, "1": True, "0.0": False, "1.0": True, "false": False, "true": True}
    key = str(value).strip().lower() if isinstance(value, str | bool | int | float) else ""
    if key not in known:
        raise UsageError(f"{source}: label must be 1 or true (member), 0 or false (non-member); got {_show(value)}")
    return known[key]


def _date(value: Any, source: str) -> date | None:
    if value is None:
        return None
    if isinstance(value, datetime):
        return value.date()
    if isinstance(value, date):
        return value
    start = re.match(r"\d{4}-\d{2}-\d{2}(?!\d)", value.strip()) if isinstance(value, str) else None
    try:
        return date.fromisoformat(start[0] if start else "")
    except ValueError as error:
        raise UsageError(f"{source}: date must begin as year-month-day, like 2023-01-31; got {_show(value)}") from error


def _reader(path: Path) -> Callable[[Path], Iterator[tuple[int, Row]]]:
    if path.is_dir():
        raise UsageError(f"data must be files; {path} is a folder")
    if not path.is_file():
        raise UsageError(f"data file must exist; there is no {path}")
    form, packed = endings(path.name)
    reader = _READERS.get(form)
    if reader is None or (packed and reader is _parquet_rows):
        raise UsageError(
            f"data file must end in {', '.join(_READERS)}, all but .parquet also in {', '.join(COMPRESSIONS)} after "
            f"that; got {path}"
        )
    return reader


def _decoded(path: Path) -> str:
    packed = endings(path.name)[1]
    try:
        if packed:
            import pyarrow as pa

            with pa.CompressedInputStream(pa.OSFile(str(path)), COMPRESSIONS[packed]) as stream:
                content: bytes = stream.read()
        else:
            content = path.read_bytes()
    except OSError as error:
        form = f"a whole {COMPRESSIONS[packed]} file" if packed else "readable"
        raise UsageError(f"{path} must be {form}; {first_line(error) if packed else error.strerror}") from error
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise UsageError(
            f"{path}:{line}: must be encoded in UTF-8; "
            f"byte 0x{content[error.start]:02x} at position {error.start} is not"
        ) from error


def _json_rows(path: Path) -> Iterator[tuple[int, Row]]:
    content = _decoded(path)
    listed = content.lstrip().startswith("[")
    # not splitlines, which also splits at separators that JSON allows inside strings
    pieces = [(1, content)] if listed else enumerate(content.split("\n"), 1)
    rows: list[tuple[int, Any]] = []
    for line, piece in pieces:
        if not piece.strip():
            continue
        try:
            rows.append((line, json.loads(piece)))
        except (ValueError, RecursionError) as error:
            at = line + getattr(error, "lineno", 1) - 1
            raise UsageError(f"{path}:{at}: must be one JSON object a line, or one list of objects; {error}") from error
    for line, row in enumerate(rows[0][1], 1) if listed else rows:
        if not isinstance(row, dict):
            raise UsageError(f"{path}:{line}: a row must be a JSON object; got {_show(row)}")
        yield line, row


def _table_rows(path: Path) -> Iterator[tuple[int, Row]]:
    content = _decoded(path)
    head = content.partition("\n")[0]
    # spreadsheets separate columns by semicolons where the comma is the decimal sign
    delimiter = "\t" if endings(path.name)[0] == ".tsv" else ";" if ";" in head and "," not in head else ","
    csv.field_size_limit(2**31 - 1)  # global; the default limit is 131,072 characters
    reader = csv.reader(StringIO(content, newline=""), delimiter=delimiter, strict=True)
    header: list[str] = []
    line = 1
    try:
        for cells in reader:
            if cells and not header:
                header = [name.strip() for name in cells]
                if len(set(header)) < len(header):
                    raise UsageError(f"{path}:{line}: columns must have different names; got {', '.join(header)}")
            elif cells:
                if len(cells) != len(header):
                    raise UsageError(
                        f"{path}:{line}: a row must have {len(header)} fields like the header; got {len(cells)}"
                    )
                yield line, {name: cell or None for name, cell in zip(header, cells, strict=True)}
            line = reader.line_num + 1
    except csv.Error as error:
        raise UsageError(f"{path}:{line}: must be valid CSV; {error}") from error


def _parquet_rows(path: Path) -> Iterator[tuple[int, Row]]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        with pq.ParquetFile(path) as file:
            names = file.schema_arrow.names
            if len(set(names)) < len(names):
                raise UsageError(f"{path}: columns must have different names; got {', '.join(names)}")
            rows = (row for batch in file.iter_batches(batch_size=1024) for row in batch.to_pylist())
            yield from enumerate(rows, 1)
    except (pa.ArrowException, OSError) as error:
        raise UsageError(f"{path}: must be a Parquet file; {str(error).splitlines()[0]}") from error


_READERS: dict[str, Callable[[Path], Iterator[tuple[int, Row]]]] = {
    ".jsonl": _json_rows,
    ".json": _json_rows,
    ".csv": _table_rows,
    ".tsv": _table_rows,
    ".parquet": _parquet_rows,
}
