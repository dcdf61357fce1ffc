"""Readers of users' data files, with a check of every row.

Formats: JSONL (.jsonl, .ndjson, .json; also a JSON list of objects), CSV (.csv) and TSV (.tsv), each also compressed
(.gz, .zst, .bz2), and Parquet (.parquet). General loaders are not used, because they silently convert mixed types and
missing values.

A text must be a string that is not blank. A label is 1 or true for a member, 0 or false for a non-member, also in
quotes or as 1.0. A date must begin with an ISO date or be eight digits, 20230131; a time with an offset is converted to
UTC. A group or a period is a string or a number, 5.0 being the same as 5; missing ones are "". An empty cell of CSV or
TSV, null and NaN are missing values, and so is a date of 0. A column `source` names the collection, unless it is an
address or a file:line. Other columns are ignored.
"""

import csv
import io
import json
import math
import os
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import date, datetime
from io import StringIO
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

from fsd.data.documents import Document, utc_day
from fsd.errors import UsageError
from fsd.net.hub import data_files, first_line

COMPRESSIONS = {".gz": "gzip", ".zst": "zstd", ".bz2": "bz2"}
FORMATS = {
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".json": "jsonl",  # as C4 names its files
    ".csv": "csv",
    ".parquet": "parquet",
    ".txt": "text",
    ".text": "text",
}
PASSAGE = 2**17
"""Maximum length of a passage of a plain text file, in characters."""
CSV_BLOCK = 2**24
"""Maximum size of a row of a CSV file, in bytes."""


class Passage(NamedTuple):
    """A document or a part of one; `opens` is true for the first part."""

    text: str
    opens: bool = True


class Corpus:
    """The documents of a list of files, in order, without empty ones.

    Files are paths, or URLs of hub files as in `fsd.net.hub.data_files`; `column` is that of the text. For progress,
    `size` is the number of all bytes and `done` of those read so far.
    """

    def __init__(self, files: Sequence[Path | str], column: str = "text") -> None:
        if not files:
            raise UsageError("corpus must be at least one file; got none")
        for place in files:
            _format(str(place))
        self.files = [file for place in files for file in data_files(str(place))]
        self.column = column
        self.size = sum(file.size for file in self.files)
        self.done = 0

    def __iter__(self) -> Iterator[Passage]:
        import pyarrow as pa

        readers = {"jsonl": self._jsonl, "csv": self._csv, "parquet": self._parquet, "text": self._text}
        finished = 0
        for file in self.files:
            form, compression = _format(file.url)
            try:
                with file.open(whole=form != "parquet") as raw:
                    stream = pa.CompressedInputStream(pa.PythonFile(raw), compression) if compression else raw
                    for passage in readers[form](file.url, stream):
                        self.done = finished + (0 if raw.closed else raw.tell())
                        if passage.text:
                            yield passage
            except UsageError:
                raise
            except Exception as error:  # network libraries have no common base class of errors
                what = (f"{compression} of " if compression else "") + f"{form} in UTF-8"
                raise UsageError(f"{file.url} must be a whole file of {what}; {first_line(error)}") from error
            finished += file.size
            self.done = finished

    def _jsonl(self, file: str, stream: Any) -> Iterator[Passage]:
        with io.TextIOWrapper(stream, encoding="utf-8-sig", newline="\n") as lines:
            for number, line in enumerate(lines, 1):
                if not line.isspace():
                    yield Passage(self._parsed(f"{file}:{number}", line))

    def _parsed(self, where: str, line: str) -> str:
        try:
            row = json.loads(line)
        except (json.JSONDecodeError, RecursionError) as error:
            raise UsageError(f"every line must be a JSON object; {where}: {first_line(error)}") from error
        if not isinstance(row, dict):
            raise UsageError(f"every line must be a JSON object; {where} is {type(row).__name__}")
        self._check_column(where, list(row))
        text = self._checked(where, row[self.column])
        # an escaped half of a surrogate pair is valid JSON but not valid text
        halves = "\\ud" in line or "\\uD" in line
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace") if halves else text

    def _csv(self, file: str, stream: Any) -> Iterator[Passage]:
        import pyarrow as pa
        from pyarrow import csv

        reader = csv.open_csv(
            stream,
            read_options=csv.ReadOptions(block_size=CSV_BLOCK, use_threads=False),
            parse_options=csv.ParseOptions(newlines_in_values=True),
            convert_options=csv.ConvertOptions(column_types={self.column: pa.string()}, strings_can_be_null=False),
        )
        self._check_column(file, reader.schema.names)
        if reader.schema.names.count(self.column) > 1:
            raise UsageError(f"columns must have different names; {file} has {', '.join(reader.schema.names)}")
        for batch in reader:
            yield from (Passage(text) for text in batch.column(self.column).to_pylist())

    def _parquet(self, file: str, stream: Any) -> Iterator[Passage]:
        from pyarrow import parquet

        table = parquet.ParquetFile(stream)
        self._check_column(file, table.schema_arrow.names)
        for batch in table.iter_batches(batch_size=1024, columns=[self.column], use_threads=False):
            yield from (Passage(self._checked(file, value)) for value in batch.column(0).to_pylist())

    def _text(self, _: str, stream: Any) -> Iterator[Passage]:
        rest, opens = "", True
        with io.TextIOWrapper(stream, encoding="utf-8-sig", newline="") as reader:
            while block := reader.read(PASSAGE):
                rest += block
                end = last_cut(rest)
                yield Passage(rest[:end], opens)
                rest, opens = rest[end:], False
        if rest:
            yield Passage(rest, opens)

    def _check_column(self, where: str, names: Sequence[str]) -> None:
        if self.column not in names:
            raise UsageError(f"column must be one of {', '.join(map(str, names))}; {where} has no {self.column!r}")

    def _checked(self, where: str, value: object) -> str:
        if value is not None and not isinstance(value, str):
            raise UsageError(f"column {self.column!r} must hold text; {where} holds {type(value).__name__}")
        return value or ""


def last_cut(text: str) -> int:
    """Position at which a text can be split without splitting a token: before the last single space between words.

    Without such a space, after the last line break, or at the end.
    """
    at = text.rfind(" ")
    while at > 0:
        if at + 1 < len(text) and not text[at - 1].isspace() and not text[at + 1].isspace():
            return at
        at = text.rfind(" ", 0, at)
    return text.rfind("\n") + 1 or len(text)


def endings(place: str) -> tuple[str, str]:
    """Lower-case extensions of a file name: that of the format, and that of the compression or ""."""
    path = PurePosixPath(place.lower())
    packed = path.suffix if path.suffix in COMPRESSIONS else ""
    return (PurePosixPath(path.stem).suffix if packed else path.suffix), packed


def _format(place: str) -> tuple[str, str | None]:
    """Format and compression of a file, from its name."""
    ending, packed = endings(place)
    form, compression = FORMATS.get(ending), COMPRESSIONS.get(packed)
    if form is None or (form == "parquet" and compression):
        allowed = f"{', '.join(FORMATS)}, all but .parquet also with {', '.join(COMPRESSIONS)}"
        raise UsageError(f"corpus files must end in {allowed}; got {PurePosixPath(place).name!r}")
    return form, compression


NAMES: dict[str, tuple[str, ...]] = {
    "text": ("text", "input", "snippet"),
    "label": ("label",),
    "group": ("group", "book_id"),
    "date": ("date",),
    "period": ("period",),
    "source": ("source",),
}
"""Default columns of each field; the first one that a row has is used.

`input` is WikiMIA's name, `snippet` and `book_id` are BookMIA's.
"""

SYNTAX = "--columns " + ",".join(f"{field}=NAME" for field in NAMES)

LOCATION = re.compile(r"://|:\d+$|^embedded corpus: ")
"""A source that tells the place of one text, as files of collectors and of runs have it, is no collection."""

LARGEST = 2**32
"""Bytes of a compressed file's content beyond which it is not read: a small file may expand without end."""

LABELS = {"0": False, "1": True, "0.0": False, "1.0": True, "false": False, "true": True}

Row = Mapping[str, Any]


class RowError(UsageError):
    """A row without a text, or without a label of 0 or 1; `reason` is what it lacks, for counts of such rows."""

    def __init__(self, message: str, reason: str) -> None:
        super().__init__(message)
        self.reason = reason


def parse_columns(spec: str) -> dict[str, str]:
    """Column names by field from a string such as `text=Example_A,label=Label,group=ID`; empty for ""."""
    columns: dict[str, str] = {}
    for part in spec.split(",") if spec.strip() else ():
        field, equals, name = (piece.strip() for piece in part.partition("="))
        if not (field and equals and name):
            raise UsageError(f"columns must be written {SYNTAX} (any of them); got {spec!r}")
        if field in columns:
            raise UsageError(f"columns must name {field} once; got {spec!r}")
        columns[field] = name
    if unknown := [field for field in columns if field not in NAMES]:
        raise UsageError(f"columns may name {', '.join(NAMES)}; got {', '.join(map(repr, unknown))}")
    return columns


def read_files(
    paths: Iterable[str | Path],
    columns: Mapping[str, str] | None = None,
    *,
    labelled: bool = False,
    skipped: Counter[str] | None = None,
) -> list[Document]:
    """All rows of all files as one benchmark, in order; sources are file:line, file:row for JSON lists and Parquet.

    Args:
        paths: files.
        columns: column of each field, in place of `NAMES`.
        labelled: whether a row without a label is an error.
        skipped: leave out rows without a text or with an invalid label, and count them here by reason.

    Raises:
        RowError: without `skipped`, for the first row without a text or with an invalid label, with file and line.
        UsageError: for a file that cannot be read, or the first row that is invalid in another way.
    """
    documents: list[Document] = []
    for path in _distinct(paths) or _none("data file"):
        rows = read_rows([path])
        read = list(parse_rows(rows, columns or {}, labelled=labelled, skipped=skipped))
        if not read:
            raise UsageError(
                f"{path} must have at least one valid row; all {len(rows)} have no text or no label of 0 or 1"
            )
        documents += read
    return documents


def read_rows(paths: Iterable[str | Path]) -> list[tuple[str, Row]]:
    """All rows of all files with their sources (file:line), unchecked; UsageError for a file without any."""
    rows = []
    for path in map(Path, paths):
        of_file = [(f"{path}:{line}", row) for line, row in _rows(path)]
        if not of_file:
            raise UsageError(f"{path} must have at least one row; it has none")
        rows += of_file
    return rows


def read_texts(
    paths: Iterable[str | Path], columns: Mapping[str, str] | None = None, *, skipped: Counter[str] | None = None
) -> list[Document]:
    """Texts with or without labels: rows of data files, .txt files as one text each, and the .txt files in folders.

    Arguments and errors are those of `read_files`; blank .txt files are refused or counted like rows.
    """
    documents: list[Document] = []
    for path in _distinct(paths) or _none("file with a text"):
        if os.path.isdir(path):  # noqa: PTH112 - a name may be too long for pathlib
            files = sorted(file for file in path.rglob("*.txt") if file.is_file())
            if not files:
                raise UsageError(f"a folder must hold .txt files, one text each; {path} has none")
            documents += _text_files(files, skipped)
        elif path.suffix.lower() == ".txt":
            documents += _text_files([path], skipped)
        else:
            documents += read_files([path], columns, skipped=skipped)
    return documents or _none("file with a text")


def _distinct(paths: Iterable[str | Path]) -> list[Path]:
    files = [Path(path) for path in paths]
    if len({os.path.realpath(path) for path in files}) < len(files):
        raise UsageError(f"each data file must be given once; got {', '.join(map(str, files))}")
    return files


def _none(what: str) -> Any:
    raise UsageError(f"at least one {what} must be given; got none")


def _text_files(paths: Iterable[Path], skipped: Counter[str] | None) -> Iterator[Document]:
    for path in paths:
        try:
            if path.exists() and not path.is_file():  # a pipe or a device may have no end
                raise UsageError(f"{path} must be a readable text file in UTF-8; it is no regular file")
            text = path.read_text(encoding="utf-8-sig").strip()
        except (OSError, UnicodeDecodeError) as error:
            reason = "it is not" if isinstance(error, UnicodeDecodeError) else (error.strerror or "").lower()
            raise UsageError(f"{path} must be a readable text file in UTF-8; {reason}") from error
        if text:
            yield Document(text, source=str(path))
        elif skipped is None:
            raise RowError(f"{path} must hold a text that is not blank; it has none", "blank text")
        else:
            skipped["blank text"] += 1


def parse_rows(
    rows: Iterable[tuple[str, Row]],
    columns: Mapping[str, str],
    *,
    labelled: bool = False,
    skipped: Counter[str] | None = None,
) -> Iterator[Document]:
    """Rows, each after its origin, as documents; the other arguments and errors are those of `read_files`."""
    for source, row in rows:
        try:
            yield document(row, columns, source, labelled=labelled)
        except RowError as error:
            if skipped is None:
                raise
            skipped[error.reason] += 1


def document(row: Row, columns: Mapping[str, str], source: str, *, labelled: bool = False) -> Document:
    """One row as a document, with `source` as its origin; the other arguments and errors are those of `read_files`."""

    def value(field: str, *, needed: bool = False) -> Any:
        names = (columns[field],) if field in columns else NAMES[field]
        for name in names:
            if name in row:
                return row[name]
        if needed or field in columns:
            there = ", ".join(map(str, row)) or "none"
            wanted = " or ".join(map(repr, names))
            raise UsageError(f"{source}: {field} must be in column {wanted}; columns are {there}; name it by {SYNTAX}")
        return None

    text = _text(value("text", needed=True), source)
    member = _member(value("label", needed=labelled), source)
    if labelled and member is None:
        raise RowError(f"{source}: label must be 1 (member) or 0 (non-member); there is none", "no label")
    day = _date(value("date"), source)
    group, period, collection = (_name(field, value(field), source) for field in ("group", "period", "source"))
    return Document(text, member, day, group, source, period, "" if LOCATION.search(collection) else collection)


def _show(value: Any) -> str:
    shown = repr(value)
    return shown if len(shown) <= 60 else shown[:57] + "..."


def _missing(value: Any) -> bool:
    return value is None or (isinstance(value, float) and math.isnan(value))


def _text(value: Any, source: str) -> str:
    if not isinstance(value, str) or not value.strip():
        message = f"{source}: text must be a string that is not blank; got {_show(value)}"
        raise RowError(message, "blank text") if isinstance(value, str) or _missing(value) else UsageError(message)
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
    key = str(value).strip().lower()
    if not isinstance(value, str | bool | int | float) or key not in LABELS:
        raise RowError(
            f"{source}: label must be 1 or true (member), 0 or false (non-member); got {_show(value)}",
            "no label" if _missing(value) or not key else "label neither 0 nor 1",
        )
    return LABELS[key]


def _name(field: str, value: Any, source: str) -> str:
    if _missing(value):
        return ""
    if not isinstance(value, str | int | float) or (isinstance(value, float) and math.isinf(value)):
        raise UsageError(f"{source}: {field} must be a string or a number; got {_show(value)}")
    name = str(int(value)) if isinstance(value, float) and value.is_integer() else str(value).strip()
    whole = re.fullmatch(r"(-?\d+)\.0+", name)  # a number that a table has turned into a decimal one
    return whole[1] if whole else name


def _date(value: Any, source: str) -> date | None:
    if _missing(value):
        return None
    if isinstance(value, date):
        return utc_day(value) if isinstance(value, datetime) else value
    stamp = str(int(value)) if isinstance(value, float) and value.is_integer() else str(value).strip()
    if stamp == "0":  # a missing date in exports of patents
        return None
    start = re.match(r"\d{4}-\d{2}-\d{2}(?!\d)|\d{8}$", stamp)
    try:
        day = date.fromisoformat(start[0] if start else "")
    except ValueError as error:
        raise UsageError(f"{source}: date must begin as year-month-day, like 2023-01-31; got {_show(value)}") from error
    try:
        return utc_day(datetime.fromisoformat(stamp))
    except (ValueError, OverflowError):  # words after the date
        return day


def _rows(path: Path) -> Iterator[tuple[int, Row]]:
    """The rows of a file with their numbers."""
    # os.path, because pathlib raises for a name that is too long
    if os.path.isdir(path):  # noqa: PTH112
        raise UsageError(f"data must be files; {path} is a folder")
    if not os.path.isfile(path):  # noqa: PTH113
        raise UsageError(f"data file must exist; there is no {path}")
    form, packed = endings(path.name)
    reader = _READERS.get(form)
    if reader is None or (packed and reader is _parquet_rows):
        raise UsageError(
            f"data file must end in {', '.join(_READERS)}, all but .parquet also in {', '.join(COMPRESSIONS)} after "
            f"that; got {path}"
        )
    return reader(path)


def _decoded(path: Path) -> str:
    import pyarrow as pa

    compression = COMPRESSIONS.get(endings(path.name)[1])
    parts: list[bytes] = []
    try:
        if not compression:
            parts.append(path.read_bytes())
        else:
            with pa.input_stream(str(path), compression=compression) as stream:
                while part := stream.read(2**24):
                    parts.append(part)
                    _check_size(path, sum(map(len, parts)))
    except OSError as error:
        form = f"a whole {compression} file" if compression else "readable"
        raise UsageError(f"{path} must be {form}; {first_line(error) if compression else error.strerror}") from error
    content = b"".join(parts)
    nul = content.find(b"\0")
    try:
        if nul < 0:
            return content.decode("utf-8-sig")
        at, what = nul, "it has NUL bytes, as UTF-16 has"  # valid UTF-8, but of no text
    except UnicodeDecodeError as error:
        at = error.start
        what = f"byte 0x{content[at]:02x} at position {at} is not"
    line = content.count(b"\n", 0, at) + 1
    raise UsageError(f"{path}:{line}: must be encoded in UTF-8; {what}")


def _check_size(path: Path, size: int) -> None:
    if size > LARGEST:
        raise UsageError(f"{path} must hold at most {LARGEST:,} bytes when it is decompressed; there are more")


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
            rows.append((line, json.loads(piece, object_pairs_hook=_object)))
        except (ValueError, RecursionError) as error:
            at = line + getattr(error, "lineno", 1) - 1
            raise UsageError(f"{path}:{at}: must be one JSON object a line, or one list of objects; {error}") from error
    for line, row in enumerate(rows[0][1], 1) if listed else rows:
        if not isinstance(row, dict):
            raise UsageError(f"{path}:{line}: a row must be a JSON object; got {_show(row)}")
        yield line, row


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """A JSON object, which must have each key once; Python's own reader keeps the last of several values."""
    read = dict(pairs)
    if len(read) < len(pairs):
        key, count = Counter(key for key, _ in pairs).most_common(1)[0]
        raise ValueError(f"the key {_show(key)} occurs {count} times in one object")
    return read


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
                _check_header(header, f"{path}:{line}")
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
            _check_header(file.schema_arrow.names, str(path))
            size, line = 0, 0
            for batch in file.iter_batches(batch_size=1024):
                size += batch.nbytes
                _check_size(path, size)
                yield from enumerate(batch.to_pylist(), line + 1)
                line += len(batch)
    except (pa.ArrowException, OSError) as error:
        raise UsageError(f"{path}: must be a Parquet file; {first_line(error)}") from error


def _check_header(names: list[str], where: str) -> None:
    if len(set(names)) < len(names):
        raise UsageError(f"{where}: columns must have different names; got {', '.join(names)}")


_READERS: dict[str, Callable[[Path], Iterator[tuple[int, Row]]]] = {
    ".jsonl": _json_rows,
    ".ndjson": _json_rows,
    ".json": _json_rows,
    ".csv": _table_rows,
    ".tsv": _table_rows,
    ".parquet": _parquet_rows,
}
