"""Your own texts: a JSONL, CSV, TSV or Parquet file with a date column, or a folder of text files.

In a folder the name of each file must contain the date (2024-05-01 minutes.txt): its modification time proves nothing.
"""

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from datetime import date as Date  # noqa: N812 - the same name as in fsd.data.documents
from pathlib import Path

from fsd.collection.source import Journal, Window
from fsd.data.documents import Document, Documents, cut
from fsd.data.fields import SYNTAX, parse_columns
from fsd.data.readers import read_texts
from fsd.errors import UsageError, refusing

COLUMNS_OPTION = "--options columns=text=NAME,date=NAME,group=NAME"
DATE = re.compile(r"(?<!\d)\d{4}-\d{2}-\d{2}(?!\d)")


def texts(window: Window, journal: Journal, *, path: str, columns: str = "", words: int = 0) -> Iterator[Document]:
    """The texts of a file or folder, the day nearest to the cutoff first, cut to `words` words, 0 for whole texts."""
    for document in dated(path, columns, window, journal):
        yield replace(document, text=cut(document.text, words), member=None)


def dated(path: str, columns: str, window: Window, journal: Journal) -> list[Document]:
    """All texts of a file or folder, those without a date last; UsageError if none has a date."""
    documents, skipped = read(path, columns)
    _check_dated(path, documents)
    for reason in skipped.elements():
        journal.drop(reason)
    dated_texts = []
    undated = []
    for document in documents:
        if document.date:
            dated_texts.append(document)
        else:
            undated.append(document)
    dated_texts.sort(key=lambda document: document.date or Date.min, reverse=window.newest_first)
    # The collector drops and counts those without a date.
    return dated_texts + undated


def check(*, path: str, columns: str, **_: object) -> None:
    """Refuse files that cannot be read, or whose texts have no dates."""
    _check_dated(path, read(path, columns)[0])


def read(path: str, columns: str) -> tuple[list[Document], Counter[str]]:
    """The texts with the dates that they or their files name, and the number of rows without a text."""
    skipped = Counter[str]()
    try:
        documents = read_texts([path], parse_columns(columns), skipped=skipped)
    except UsageError as error:
        # What is a flag of the other commands is an option of the domain here.
        raise UsageError(str(error).replace(SYNTAX, COLUMNS_OPTION)) from error
    if Path(path).is_dir():
        documents = list(map(_named, documents))
    return documents, skipped


def _check_dated(path: str, documents: Documents) -> None:
    if not any(document.date for document in documents):
        raise UsageError(
            f"{path} must have the date of publication of each text; none of its {len(documents)} texts has a date: "
            "name the column by columns=date=NAME, or put the dates into the names of a folder's files (the files' own "
            "times prove nothing)"
        )


def _named(document: Document) -> Document:
    """A text with the date and the group that the name of its file gives; a row of a data file has its own."""
    file = Path(document.origin_url)
    if file.suffix.lower() != ".txt":
        return document
    match = DATE.search(file.stem)
    with refusing(f"{file} must carry a date that exists, year-month-day; ", ValueError):
        day = Date.fromisoformat(match[0]) if match else None
    return replace(document, date=day, group=file.stem)
