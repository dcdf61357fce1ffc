"""Papers on arXiv, from the Atom feed of its API.

The feed is parsed with the standard library: client packages hide the offset to resume from and Retry-After.
"""

import re
from collections.abc import Iterator
from datetime import date as Date  # noqa: N812 - the same name as in fsd.data.documents
from functools import partial
from typing import Any
from xml.etree import ElementTree

from fsd.collection.service import FormatError, Service, format_changed, iso_day, well_formed
from fsd.collection.source import Journal, Window
from fsd.data.documents import Document
from fsd.errors import UsageError

URL = "https://export.arxiv.org"
FIRST = Date(1991, 8, 14)
LANGUAGE = "en"
PAGE = 100
DEEPEST = 10_000
"""Offset from which the query is restarted at the last date: arXiv serves deep offsets badly."""
ATOM = "{http://www.w3.org/2005/Atom}"
SEARCH = "{http://a9.com/-/spec/opensearch/1.1/}"
BENCHMARK = "arxivtection"


def texts(
    window: Window, journal: Journal, *, categories: tuple[str, ...] = (), query: str = "", mirror: str = ""
) -> Iterator[Document]:
    """Title and abstract of each paper, dated by its first version.

    As members, papers revised after the window are left out: the feed has the newest abstract. Papers are in any of the
    `categories`, such as cs.CL; `query` is in arXiv's own syntax, such as `all:transformer ANDNOT ti:survey`.
    """
    service = Service("arxiv", URL, interval=3.0, clock=journal.clock, mirror=mirror)
    first, last = window.first(FIRST), window.last(journal.clock.today)
    at: dict[str, Any] = journal.cursor or {"from": f"{first:%Y%m%d}0000", "to": f"{last:%Y%m%d}2359", "start": 0}
    any_category = " OR ".join(f"cat:{category}" for category in categories)
    conditions = [f"({condition})" for condition in (any_category, query) if condition]
    while True:
        params = {
            "search_query": " AND ".join([*conditions, f"submittedDate:[{at['from']} TO {at['to']}]"]),
            "start": at["start"],
            "max_results": PAGE,
            "sortBy": "submittedDate",
            "sortOrder": "descending" if window.newest_first else "ascending",
        }
        # where the query was restarted, the papers that end the former one come again
        least = at["start"] or len(at.get("seen", ()))
        entries, total = service.get("/api/query", partial(_page, start=at["start"], least=least), params)
        if not total and journal.cursor is None:  # the API sometimes reports no results: it is believed the second time
            entries, total = service.get("/api/query", partial(_page, start=0, least=0), params)
        papers = list(well_formed(entries, _paper, journal))
        for document, revised in papers:
            if document.group in at.get("seen", ()):
                continue
            if window.before and revised and revised >= window.before:
                journal.drop("revised after the window")
            elif "paper has been withdrawn" in document.text:
                journal.drop("withdrawn")
            else:
                yield document
        at = at | {"start": at["start"] + len(entries)}
        if at["start"] >= total:
            return
        edge = papers[-1][0].date if papers else None
        at_edge = [document.group for document, _ in papers if document.date == edge]
        if edge:
            before = at.get("edge", ()) if at.get("day") == str(edge) else ()
            at |= {"day": str(edge), "edge": list(dict.fromkeys([*before, *at_edge]))}
        if at["start"] >= DEEPEST and edge and str(edge) != at.get("restarted"):
            at |= {
                "start": 0,
                "seen": at["edge"],
                "restarted": str(edge),
                **({"to": f"{edge:%Y%m%d}2359"} if window.newest_first else {"from": f"{edge:%Y%m%d}0000"}),
            }
        journal.save(at)


def _page(body: bytes, start: int, least: int) -> tuple[list[ElementTree.Element], int]:
    """The entries of a page, and the number of papers of all pages, of which at least `least` are known."""
    feed = ElementTree.fromstring(body)
    if feed.tag != f"{ATOM}feed":
        raise ValueError(f"<{feed.tag.rpartition('}')[2]}> in place of a feed")
    total = _need(feed, f"{SEARCH}totalResults", "feed").strip()
    if not total.isdecimal():
        raise format_changed("arxiv", "<totalResults> as a whole number", total)
    entries = list(feed.iter(f"{ATOM}entry"))
    # the API sometimes sends an empty page in the middle of a result
    if int(total) < least or (not entries and start < int(total)):
        raise ValueError(f"{len(entries)} papers at {start} of {total}")
    return entries, int(total)


def _paper(entry: ElementTree.Element) -> tuple[Document, Date | None]:
    """A paper, and the day of its newest version."""
    link = _need(entry, f"{ATOM}id", "entry")
    title, abstract = (" ".join(_need(entry, f"{ATOM}{name}", "entry").split()) for name in ("title", "summary"))
    if "/api/errors" in link:
        raise UsageError(f"arxiv must understand the query; it says: {abstract}")
    number = re.sub(r"v\d+$", "", link.rpartition("/abs/")[2])
    published, updated = (_day(entry, name) for name in ("published", "updated"))
    return Document(f"{title}\n{abstract}", None, published, f"arxiv:{number}", link), updated


def _need(element: ElementTree.Element, path: str, where: str) -> str:
    text = element.findtext(path)
    if text is None:
        name = path.rpartition("}")[2]
        raise FormatError(f"arxiv must give <{name}> in each {where}; it does not: its format may have changed")
    return text


def _day(entry: ElementTree.Element, name: str) -> Date | None:
    stamp = entry.findtext(f"{ATOM}{name}")
    return iso_day(stamp, name, "arxiv") if stamp and stamp.strip() else None
