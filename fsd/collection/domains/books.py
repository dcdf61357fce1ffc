"""Books released by Project Gutenberg, in segments as in Dolma-Book.

The project's catalogue, one CSV file, has the release date of each book. A release after the cutoff proves that this
edition is new, not that the words are: most of these books were printed a century ago, and a famous one may have been
scanned before by others.
"""

import csv
import re
from collections.abc import Iterator
from datetime import date as Date  # noqa: N812 - the same name as in fsd.data.documents
from io import StringIO

from fsd.collection.service import RefusedError, Service, field
from fsd.collection.source import Journal, Window
from fsd.data.documents import Document
from fsd.data.segments import PLACES, segments
from fsd.errors import UsageError

URL = "https://www.gutenberg.org"
CATALOGUE = "/cache/epub/feeds/pg_catalog.csv"
FIRST = Date(1971, 12, 1)
LANGUAGE = "en"
START = re.compile(r"^\*\*\* ?START OF (?:THE|THIS) PROJECT GUTENBERG EBOOK.*?\*\*\*\s*$", re.M | re.I | re.S)
END = re.compile(
    r"^(?:\*\*\* ?END OF (?:THE|THIS) PROJECT GUTENBERG EBOOK|End of (?:the )?Project Gutenberg)", re.M | re.I
)
CREDITS = re.compile(r"(?:\[?Transcriber|E-text prepared|(?:This e(?:text|book) was )?Produced by|Credits:)", re.I)


def texts(
    window: Window,
    journal: Journal,
    *,
    language: str = LANGUAGE,
    words: int = 512,
    places: tuple[str, ...] = PLACES,
    mirror: str = "",
) -> Iterator[Document]:
    """Segments of each book released in the window, without header, licence and credits.

    A book too short for all its segments yields the first of them that do not overlap.

    Args:
        window: days of release.
        journal: cursor and clock.
        language: code of the catalogue: en, fr, de, ...
        words: length of a segment; Dolma-Book has 512 and 1,024.
        places: among head, middle, tail.
        mirror: another address with the same paths; the project wants one used for many books.
    """
    if words < 1 or not places or not set(places) <= set(PLACES):
        raise UsageError(
            f"options must have words of 1 or more and places of {','.join(PLACES)}; got {words}, {places}"
        )
    service = Service("gutenberg", URL, interval=2.0, clock=journal.clock, mirror=mirror)
    last = tuple(journal.cursor or ())
    for issued, number in _books(service, window, journal, language):
        key = (issued.isoformat(), number)
        if last and (key >= last if window.newest_first else key <= last):
            continue
        try:
            body, problem = service.get(f"/cache/epub/{number}/pg{number}.txt", _body)
        except RefusedError as refusal:
            if refusal.status not in (403, 404, 410):
                raise
            body, problem = "", "no plain text"
        if problem:
            journal.drop(problem)
        for text in segments(body, words, places):
            yield Document(text, None, issued, f"gutenberg:{number}", f"{service.base_url}/ebooks/{number}")
        journal.save(list(key))


def _books(service: Service, window: Window, journal: Journal, language: str) -> list[tuple[Date, int]]:
    """Day of release and number of each book in the window, in the order of collection."""
    books = []
    for row in service.get(CATALOGUE, _catalogue):
        if row["Type"] != "Text" or language not in re.split(r"[;,\s]+", row["Language"].strip()):
            continue
        if not row["Issued"].strip():
            if journal.cursor is None:
                journal.drop("no date")
            continue
        try:
            book = Date.fromisoformat(row["Issued"].strip()), int(row["Text#"])
        except ValueError as error:
            raise UsageError(f"gutenberg must give 'Issued' as a date and 'Text#' as a number; {error}") from error
        if book[0] in window:
            books.append(book)
    return sorted(books, reverse=window.newest_first)


def _catalogue(body: bytes) -> list[dict[str, str]]:
    rows = list(csv.DictReader(StringIO(body.decode("utf-8-sig"), newline="")))
    for name in ("Text#", "Type", "Issued", "Title", "Language"):
        field(rows[0] if rows else {}, name, "gutenberg's catalogue")
    if None in rows[-1].values():
        raise ValueError("the catalogue ends inside a row")
    return rows


def _body(content: bytes) -> tuple[str, str]:
    """The text between the markers and ""; or "" and the problem."""
    try:
        text = content.decode("utf-8-sig").replace("\r\n", "\n")
    except UnicodeDecodeError:
        return "", "not UTF-8"
    start, end = START.search(text), END.search(text)
    if not start or not end or end.start() < start.end():
        return "", "no Gutenberg markers"
    paragraphs = re.split(r"\n\s*\n", text[start.end() : end.start()].strip())
    while paragraphs and CREDITS.match(paragraphs[0].strip()):
        paragraphs.pop(0)
    return "\n\n".join(paragraphs).strip(), ""
