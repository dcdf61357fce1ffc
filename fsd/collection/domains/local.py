"""Texts of your own: a JSONL, CSV, TSV or Parquet file with a date column, or a folder of text files.

The date must stand in the data. The time at which a file was written to a disk says nothing about when its text
was published, so it is never asked; in a folder the file's name must carry the date (2024-05-01 minutes.txt).
"""

import re
from collections.abc import Iterator
from datetime import date as Date  # noqa: N812 - the same name as in fsd.data.documents
from pathlib import Path

from fsd.collection.source import Journal, Window, sides
from fsd.data.documents import Document
from fsd.data.readers import SYNTAX, parse_columns, read_files
from fsd.data.segments import cut
from fsd.errors import UsageError

HERE = "--options columns=text=NAME,date=NAME,group=NAME"
DATE = re.compile(r"(?<!\d)\d{4}-\d{2}-\d{2}(?!\d)")


def texts(window: Window, journal: Journal, *, path: str, columns: str = "", words: int = 0) -> Iterator[Document]:
    """The texts of a file or folder, the day nearest to the cutoff first, those without a date last.

    Args:
        window: days of publication, by the date column or the file name.
        journal: counts; a local source is read anew after a break.
        path: the file or folder.
        columns: other names of the columns, text=NAME,date=NAME,group=NAME.
        words: length to cut the texts to; 0 keeps all of them.
    """
    for found in dated(path, columns, window):
        yield Document(cut(found.text, words), None, found.date, found.group, found.source)


nonmembers, members = sides(texts)


def dated(path: str, columns: str, window: Window) -> list[Document]:
    """All texts of a file or folder, sorted as `texts` says.

    Raises:
        UsageError: if it cannot be read or no text has a date.
    """
    found = _folder(Path(path)) if Path(path).is_dir() else _table(path, columns)
    if not any(document.date for document in found):
        raise UsageError(
            f"{path} must say when each text was published; none of its {len(found)} texts has a date: name the column "
            "by columns=date=NAME, in a folder put the date into the file names (the files' own times prove nothing)"
        )
    known = sorted(
        (document for document in found if document.date),
        key=lambda document: document.date or Date.min,
        reverse=window.newest_first,
    )
    return known + [document for document in found if not document.date]


def _table(path: str, columns: str) -> list[Document]:
    try:
        return read_files([path], parse_columns(columns))
    except UsageError as error:  # the other jobs have a flag for what is an option of a source here
        raise UsageError(str(error).replace(SYNTAX, HERE)) from error


def _folder(folder: Path) -> list[Document]:
    files = sorted(folder.rglob("*.txt"))
    if not files:
        raise UsageError(f"folder must hold .txt files; {folder} has none")
    found = []
    for file in files:
        try:
            text = file.read_bytes().decode("utf-8-sig")
        except UnicodeDecodeError as error:
            raise UsageError(f"{file} must be encoded in UTF-8; byte {error.start} is not") from error
        if not text.strip():
            raise UsageError(f"{file} must hold a text; it is empty")
        found.append(Document(text, None, _date(file), file.stem, str(file)))
    return found


def _date(file: Path) -> Date | None:
    named = DATE.search(file.stem)
    try:
        return Date.fromisoformat(named[0]) if named else None
    except ValueError as error:
        raise UsageError(f"{file} must carry a date that exists, year-month-day; {error}") from error
