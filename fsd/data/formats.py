"""Formats of data files: JSON, CSV, TSV, Parquet and Arrow, also compressed → rows with their numbers.

JSONL (.jsonl, .ndjson, .json; also a JSON list of objects), CSV (.csv) and TSV (.tsv), each also compressed (.gz, .zst,
.bz2), and Parquet (.parquet). General loaders silently convert mixed types and missing values.
"""

import csv
import io
import json
import re
import shlex
import sys
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from functools import partial
from itertools import accumulate, chain, islice, product
from pathlib import Path, PurePosixPath
from typing import Any

from fsd.data.cells import Row
from fsd.errors import UsageError, quoted, refusing
from fsd.files import JSON, LARGEST, check_regular, named_below

COMPRESSIONS = {".gz": "gzip", ".zst": "zstd", ".bz2": "bz2"}
PACKED = {b"\x1f\x8b": ".gz", b"PK\x03\x04": ".zip", b"\x28\xb5\x2f\xfd": ".zst", b"BZh": ".bz2"}
"""First bytes of packed files, which may have any name."""
SAVED_AS = dict.fromkeys((".xlsx", ".xls", ".ods"), ": save the sheet as CSV UTF-8")
"""Ending of other files → how to save what is in them."""
SAVED_AS |= dict.fromkeys(
    (".docx", ".doc", ".odt", ".rtf", ".pdf", ".epub", ".html", ".md"), ": save it as plain text, .txt"
)
SAVED_AS |= dict.fromkeys((".feather", ".pkl", ".pickle"), ": read it with pandas and save it by to_parquet")
TABLES = (".jsonl", ".ndjson", ".json", ".csv", ".tsv", ".parquet")
PLAIN = (".txt", ".text")
READABLE = TABLES + PLAIN
Rows = Iterator[tuple[int, Row]]


def format_of(place: str, what: str, endings: Sequence[str]) -> tuple[str, str | None]:
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


def file_rows(path: Path) -> Rows:
    """The rows of a file on disk with their numbers."""
    where = str(path)
    check_regular(path, f"{path} must be readable")
    if path.suffix == ".arrow":
        yield from arrow_rows(where)
        return
    ending, compression = format_of(where, "data file", TABLES)
    must = f"{path} must be readable; "
    if compression:
        must = f"{path} must be a whole {compression} file; "
    with refusing(must, OSError), path.open("rb") as raw:
        yield from rows_in(where, ending, expanded(raw, compression), largest=LARGEST)


def rows_in(where: str, ending: str, stream: Any, column: str | None = None, largest: int = sys.maxsize) -> Rows:
    """The rows of an open file with their numbers; of a Parquet file one column, of others at most so many bytes."""
    if ending == ".parquet":
        return parquet_rows(where, stream, column)
    lines = _lines(where, stream, largest)
    if "json" in ending:
        return json_rows(where, lines)
    if ending == ".tsv":
        return _csv_rows(where, lines, "\t")
    # Spreadsheets separate columns by semicolons where the comma is the decimal sign, and copied cells by tabs.
    return _csv_rows(where, lines, ",;\t")


def expanded(raw: Any, compression: str | None) -> Any:
    """An open file, of which what is compressed is expanded while it is read."""
    import pyarrow as pa

    if not compression:
        return raw
    return io.BufferedReader(pa.CompressedInputStream(pa.PythonFile(raw), compression))


def _lines(where: str, stream: Any, largest: int) -> Iterator[str]:
    """The lines of a file in UTF-8. They end in a line feed alone: a cell keeps its line breaks, whatever they are."""
    size = 0
    # A line may be as long as a file that never ends: no more of it is read than is allowed.
    for number, line in enumerate(iter(partial(stream.readline, largest), b""), 1):
        size += len(line)
        _check_size(where, size, largest)
        yield as_text(where, line, number)


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
        if kinds == {dict} and all(map(str.isdigit, content)):
            frame = frame.T
        return frame.to_dict("records")
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


def _csv_rows(where: str, lines: Iterator[str], signs: str) -> Rows:
    """The rows of a table whose cells are apart by the first of the signs that its header has."""
    head = next(lines, "")
    delimiter = next((sign for sign in signs if sign in head), signs[0])
    lines = chain([head], lines)
    rows = _tab_cells(where, lines) if delimiter == "\t" else _quoted_cells(where, lines, delimiter)
    line, names = next(rows, (1, []))
    header = list(map(str.strip, names))
    _check_header(header, f"{where}:{line}")
    for line, row in rows:
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
        starts = list(accumulate(group_sizes, initial=0))
        first = bisect_right(starts, rows.start) - 1
        start = starts[first]
        columns = [column] if column in names else None
        size = 0
        for batch in table.iter_batches(1024, list(range(first, len(group_sizes))), columns):
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


def files_below(folder: str | Path, endings: Sequence[str], what: str) -> list[Path]:
    """The files below a folder that have one of the endings, compressed ones included, in order; there must be some."""
    files = named_below(folder, with_packed(endings))
    if not files:
        raise UsageError(f"a folder of {what} must hold files that end in {', '.join(endings)}; {folder} has none")
    return files


def with_packed(endings: Iterable[str]) -> list[str]:
    """Endings of files, and of compressed ones."""
    return list(map("".join, product(endings, ("", *COMPRESSIONS))))
