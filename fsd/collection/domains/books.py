"""Books released by Project Gutenberg, in segments as in Dolma-Book.

A release after the cutoff proves that this edition is new, not that the words are: most of these books were printed a
century ago, and a famous one may have been scanned before by others.
"""

import csv
import re
from collections.abc import Iterator, Mapping
from datetime import date as Date  # noqa: N812 - the same name as in fsd.data.documents
from io import StringIO
from itertools import pairwise

from fsd.collection.service import FormatError, RefusedError, Service, well_formed
from fsd.collection.source import Journal, Window
from fsd.data.documents import Document
from fsd.data.segments import PLACES, WHOLE, Places, segments
from fsd.errors import UsageError
from fsd.net.http import TransientError

# A mirror of the project's own foundation: www.gutenberg.org is for people alone and blocks programs.
URL = "https://gutenberg.pglaf.org"
PAGE = "https://www.gutenberg.org/ebooks/"
CATALOGUE = "/cache/epub/feeds/pg_catalog.csv"
COLUMNS = {"Text#", "Type", "Issued", "Title", "Language"}
FIRST = Date(1971, 12, 1)
LANGUAGE = "en"
START = re.compile(r"^\*\*\* ?START OF (?:THE|THIS) PROJECT GUTENBERG EBOOK.*?\*\*\*\s*$", re.M | re.I | re.S)
END = re.compile(
    r"^(?:\*\*\* ?END OF (?:THE|THIS) PROJECT GUTENBERG EBOOK|End of (?:the )?Project Gutenberg)", re.M | re.I
)
CREDITS = re.compile(
    r"^\W*(?:Transcriber|E-?text prepared|(?:This e-?(?:text|book) was )?Produced by|Credits:|Transcribed from)"
    r"|produced from|HTML version|Project Gutenberg|Internet Archive|Distributed Proofread|pgdp\.net|made available by",
    re.I,
)
NOTE = re.compile(r"\W*Transcriber['’]?s?['’]? Notes?\b", re.I)
HTML = re.compile(r"\s*<(?:!doctype html|html)\b", re.I)
# Sections at each end of a book that are searched for credits and notes: within it, such words may be the author's.
ENDS = 6
# Most words of a transcriber's note, of a paragraph of credits, and of a heading.
LONGEST_NOTE = 400
LONGEST_CREDIT = 120
HEADING = 6


def check(*, words: int, places: Places, **_: object) -> None:
    """Refuse options without a meaning, before a request."""
    if words < 1 or not places or not set(places) - {WHOLE} <= set(PLACES):
        raise UsageError(
            f"options must have words of 1 or more and places of {','.join(PLACES)} or {WHOLE}; got {words}, {places}"
        )


def texts(
    window: Window,
    journal: Journal,
    *,
    language: str = LANGUAGE,
    words: int = 512,
    places: Places = PLACES,
    mirror: str = "",
) -> Iterator[Document]:
    """Segments of each book released in the window that do not overlap, without header, licence and credits.

    `words` is the length of a segment (512 and 1,024 in Dolma-Book); `places` are among head, middle, tail,
    or whole for the book.
    """
    check(words=words, places=places)
    service = Service("gutenberg", URL, interval=2.0, clock=journal.clock, mirror=mirror)
    finished = journal.cursor
    for issued, number in _books(service, window, journal, language):
        key = [issued.isoformat(), number]
        # The catalogue may have got new books since: the place to go on from is a book, not a count of books.
        if finished and (key >= finished if window.newest_first else key <= finished):
            continue
        body, problem = _download(service, number)
        if problem:
            journal.drop(problem)
        for text in segments(body, words, places):
            yield Document(text, None, issued, f"gutenberg:{number}", f"{PAGE}{number}")
        journal.save(key)


def _download(service: Service, number: int) -> tuple[str, str]:
    """The text of a book and ""; or "" and why there is none."""
    try:
        return service.get(f"/cache/epub/{number}/pg{number}.txt", _body)
    except RefusedError as refusal:
        # Some books are there as images or TeX alone.
        if refusal.status not in (404, 410):
            raise
        return "", "no plain text"


def _books(service: Service, window: Window, journal: Journal, language: str) -> list[tuple[Date, int]]:
    """Day of release and number of each book in the window, in the order of collection."""
    # A run that resumes reads the catalogue again, whose rows without a date are counted already.
    counted = Journal() if journal.cursor else journal
    rows = []
    for row in service.get(CATALOGUE, _catalogue):
        languages = re.split(r"[;,\s]+", row["Language"].strip())
        if row["Type"] != "Text" or language not in languages:
            continue
        if row["Issued"].strip():
            rows.append(row)
        else:
            counted.drop("no date")
    books = [book for book in well_formed(rows, _book, counted) if book[0] in window]
    return sorted(books, reverse=window.newest_first)


def _book(row: Mapping[str, str]) -> tuple[Date, int]:
    """Day of release and number of a row of the catalogue."""
    try:
        return Date.fromisoformat(row["Issued"].strip()), int(row["Text#"])
    except ValueError as error:
        raise FormatError(f"gutenberg must give 'Issued' as a date and 'Text#' as a number; {error}") from error


def _catalogue(body: bytes) -> list[dict[str, str]]:
    try:
        rows = list(csv.DictReader(StringIO(body.decode("utf-8-sig"), newline="")))
    except csv.Error as error:
        raise ValueError(f"the catalogue is no CSV: {error}") from error
    missing = COLUMNS - set(rows[0] if rows else ())
    if missing:
        raise FormatError(f"gutenberg's catalogue must have {', '.join(sorted(missing))}: its format may have changed")
    # A connection that ends early leaves half a row, whose missing fields are None.
    if None in rows[-1].values():
        raise ValueError("the catalogue ends inside a row")
    return rows


def _body(content: bytes) -> tuple[str, str]:
    """The text between the markers and ""; or "" and the problem. A reply that is cut off is requested again."""
    try:
        text = content.decode("utf-8-sig").replace("\r\n", "\n")
    except UnicodeDecodeError:
        return "", "not UTF-8"
    if not text.strip():
        raise TransientError("nothing in place of the text")
    # Such as a page on maintenance.
    if HTML.match(text):
        raise TransientError("an HTML page in place of the text")
    start = START.search(text)
    if not start:
        return "", "no Gutenberg markers"
    end = END.search(text, start.end())
    if not end:
        raise TransientError("a text without the marker of its end")
    return without_credits(text[start.end() : end.start()]), ""


def without_credits(body: str) -> str:
    """A book without credits and transcriber's notes at its ends, marks of italics, and places of illustrations."""
    sections = [re.split(r"\n[ \t]*\n", section) for section in re.split(r"\n(?:[ \t]*\n){2,}", body.strip())]
    _clear_credits(sections[:ENDS])
    _clear_credits(sections[-ENDS:])
    text = "\n\n\n".join(map("\n\n".join, filter(None, sections)))
    text = re.sub(r"\[Illustration(?:: [^\]]*)?\]", "", text)
    # Underscores around words are italics; those within a word belong to it.
    return re.sub(r"(?<![^\W_])_([^_]+)_(?![^\W_])", r"\1", text).strip()


def _clear_credits(sections: list[list[str]]) -> None:
    """Empty notes, and remove credits from other sections, each a list of paragraphs that is changed in place."""
    for section, following in pairwise([*sections, []]):
        # A longer note is kept: the marker may stand before the text itself.
        if section and NOTE.match(section[0].lstrip()) and _length(section) <= LONGEST_NOTE:
            is_heading = len(section) == 1 and _length(section) <= HEADING
            section.clear()
            # After a heading that stands alone, the note itself is the next section.
            if is_heading and _length(following) <= LONGEST_NOTE:
                following.clear()
        else:
            kept = []
            for paragraph in section:
                is_short = len(paragraph.split()) <= LONGEST_CREDIT
                if not is_short or not CREDITS.search(paragraph):
                    kept.append(paragraph)
            section[:] = kept


def _length(section: list[str]) -> int:
    """Number of words."""
    return len(" ".join(section).split())
