"""Streaming of large corpora from files on disk or on the hub, in constant memory.

Files are JSON lines, CSV, Parquet or plain text; all but Parquet may be compressed. A plain text file is one document,
which is split into passages, so that files of any size can be streamed.
"""

import io
import json
from collections.abc import Iterator, Sequence
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

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
