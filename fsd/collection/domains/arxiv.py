"""Papers on arXiv, from the Atom feed of its API.

The feed is parsed with the standard library: client packages hide the offset to resume from and Retry-After.
"""

import re
from collections.abc import Iterator, Sequence
from datetime import date as Date  # noqa: N812 - the same name as in fsd.data.documents
from datetime import datetime
from functools import partial
from xml.etree import ElementTree

from fsd.collection.service import FormatError, Service, record, well_formed
from fsd.collection.source import Journal, Window
from fsd.data.documents import Document, utc_day
from fsd.errors import UsageError
from fsd.files import JSON

URL = "https://export.arxiv.org"
FIRST = Date(1991, 8, 14)
LANGUAGE = "en"
PAGE = 100
# The offset from which the query is restarted at the last date: arXiv serves deep offsets badly.
DEEPEST = 10_000
ATOM = "{http://www.w3.org/2005/Atom}"
SEARCH = "{http://a9.com/-/spec/opensearch/1.1/}"
BENCHMARK = "arxivtection"
# A paper, and the day of its newest version.
Paper = tuple[Document, Date | None]


def texts(
    window: Window, journal: Journal, *, categories: tuple[str, ...] = (), query: str = "", mirror: str = ""
) -> Iterator[Document]:
    """Title and abstract of each paper, dated by its first version.

    As members, papers revised after the window are left out: the feed has the newest abstract. Papers are in any of the
    `categories`, such as cs.CL; `query` is in arXiv's own syntax, such as `all:transformer ANDNOT ti:survey`.
    """
    service = Service("arxiv", URL, interval=3.0, clock=journal.clock, mirror=mirror)
    any_category = " OR ".join(f"cat:{category}" for category in categories)
    conditions = "".join(f"({condition}) AND " for condition in (any_category, query) if condition)
    begin = window.first(FIRST)
    end = window.last(journal.clock.today)
    cursor = journal.cursor or {"from": f"{begin:%Y%m%d}0000", "to": f"{end:%Y%m%d}2359", "start": 0}
    while True:
        start = cursor["start"]
        # Where the query was restarted, the papers that end the former one come again.
        seen = cursor.get("seen", ())
        params = {
            "search_query": f"{conditions}submittedDate:[{cursor['from']} TO {cursor['to']}]",
            "start": start,
            "max_results": PAGE,
            "sortBy": "submittedDate",
            "sortOrder": "descending" if window.newest_first else "ascending",
        }
        read = partial(_page, start=start, least=start or len(seen))
        request = partial(service.get, "/api/query", read, params)
        entries, total = request()
        # The API sometimes reports no results: it is believed the second time.
        if not total and journal.cursor is None:
            entries, total = request()
        papers = list(well_formed(entries, _paper, journal))
        for paper in papers:
            document = paper[0]
            if document.group in seen:
                continue
            reason = _unsuitable(paper, window)
            if reason:
                journal.drop(reason)
            else:
                yield document
        # The offset counts entries, malformed ones too, as the API does.
        cursor = cursor | {"start": start + len(entries)}
        if cursor["start"] >= total:
            return
        cursor |= _at_edge(cursor, papers, window)
        journal.save(cursor)


def _unsuitable(paper: Paper, window: Window) -> str:
    """Why a paper is left out; "" if it is not."""
    document, revised = paper
    # A member must be as it was when the model was trained: the feed has the newest abstract.
    if window.before and revised and revised >= window.before:
        return "revised after the window"
    if "paper has been withdrawn" in document.text:
        return "withdrawn"
    return ""


def _at_edge(cursor: JSON, papers: Sequence[Paper], window: Window) -> JSON:
    """What the cursor must know of the last day so far; beyond `DEEPEST`, the query that is restarted there."""
    if not papers or papers[-1][0].date is None:
        return {}
    edge = papers[-1][0].date
    day = str(edge)
    # A day may span several pages, whose papers are all needed: they come again after a restart.
    groups = cursor["edge"] if cursor.get("day") == day else []
    groups = groups + [document.group for document, _ in papers if document.date == edge]
    groups = list(dict.fromkeys(groups))
    changes: JSON = {"day": day, "edge": groups}
    # A day that has more papers than the deepest offset is restarted once, or it would never end.
    if cursor["start"] >= DEEPEST and cursor.get("restarted") != day:
        changes |= {"start": 0, "seen": groups, "restarted": day}
        if window.newest_first:
            changes["to"] = f"{edge:%Y%m%d}2359"
        else:
            changes["from"] = f"{edge:%Y%m%d}0000"
    return changes


def _page(body: bytes, start: int, least: int) -> tuple[list[ElementTree.Element], int]:
    """The entries of a page, and the number of papers of all pages, of which at least `least` are known."""
    feed = ElementTree.fromstring(body)
    if feed.tag != f"{ATOM}feed":
        raise ValueError(f"<{feed.tag.rpartition('}')[2]}> in place of a feed")
    total = record(int, _need(feed, f"{SEARCH}totalResults", "feed"), "arxiv")
    entries = list(feed.iter(f"{ATOM}entry"))
    # The API sometimes sends an empty page in the middle of a result.
    if total < least or (not entries and start < total):
        raise ValueError(f"{len(entries)} papers at {start} of {total}")
    return entries, total


def _paper(entry: ElementTree.Element) -> Paper:
    link = _need(entry, f"{ATOM}id", "entry")
    title = _words(entry, "title")
    abstract = _words(entry, "summary")
    # The API answers a query that it does not understand with a paper that describes the error.
    if "/api/errors" in link:
        raise UsageError(f"arxiv must understand the query; it says: {abstract}")
    number = re.sub(r"v\d+$", "", link.rpartition("/abs/")[2])
    document = Document(f"{title}\n{abstract}", None, _day(entry, "published"), f"arxiv:{number}", link)
    return document, _day(entry, "updated")


def _words(entry: ElementTree.Element, name: str) -> str:
    """The text of an element on one line: the feed breaks lines at its own width."""
    return " ".join(_need(entry, f"{ATOM}{name}", "entry").split())


def _need(element: ElementTree.Element, path: str, where: str) -> str:
    text = element.findtext(path)
    if text is None:
        name = path.rpartition("}")[2]
        raise FormatError(f"arxiv must give <{name}> in each {where}; it does not: its format may have changed")
    return text


def _day(entry: ElementTree.Element, name: str) -> Date | None:
    stamp = (entry.findtext(f"{ATOM}{name}") or "").strip()
    if not stamp:
        return None
    return utc_day(record(datetime, stamp, "arxiv"))
