"""Passages: reference corpora of any size, as streams of documents or of parts of them."""

import io
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

from fsd.data.cells import Row, RowError
from fsd.data.fields import check_template, is_template, join_columns, names_of
from fsd.data.formats import PLAIN, READABLE, Rows, expanded, files_below, format_of, rows_in
from fsd.errors import UsageError, refusing
from fsd.net.data_files import data_files
from fsd.plugs import Entry, entry_of

PASSAGE = 2**17
"""Maximum length of a passage of a plain text file, in characters."""


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
        if not place.startswith("hf:") and not os.path.isfile(place):  # noqa: PTH113
            raise UsageError(f"corpus must be files that exist; there is no file {place}")
        format_of(place, "corpus files", READABLE)


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
                places += map(str, files_below(place, READABLE, "a corpus"))
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
            ending, compression = format_of(file.url, "corpus files", READABLE)
            content = ending[1:]
            if compression:
                content = f"{compression} of {content}"
            # network libraries have no common base class of errors
            with (
                refusing(f"{file.url} must be a whole file of {content} in UTF-8; "),
                file.open(whole=ending != ".parquet") as raw,
            ):
                for passage in self._read(file.url, ending, expanded(raw, compression)):
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
            rows = rows_in(url, ending, stream, None if self.answer else self.column)
            yield from passages(url, rows, self.column, self.answer)


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
            raise UsageError(f"column must be one of {names_of(row)}; {origin_url} has no {column!r}")
        with suppress(RowError):
            return join_columns(column, row, field, origin_url)
        return ""
    text = row[column] or ""
    if not isinstance(text, str):
        raise UsageError(f"column {column!r} must hold text; {origin_url} holds {type(text).__name__}")
    return text


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
