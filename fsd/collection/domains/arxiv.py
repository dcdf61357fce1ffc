"""Papers on arXiv, from the Atom feed of its API.

The feed is parsed with the standard library: client packages hide the offset to resume from and Retry-After.
"""

import re
from collections.abc import Iterator
from datetime import date as Date  # noqa: N812 - the same name as in fsd.data.documents
from functools import partial
from typing import Any
from xml.etree import ElementTree

from fsd.collection.service import Service, format_changed, iso_day
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
"""Name of the published benchmark in `fsd.data.benchmarks`."""


def texts(
    window: Window, journal: Journal, *, categories: tuple[str, ...] = (), query: str = "", mirror: str = ""
) -> Iterator[Document]:
    """Title and abstract of each paper, dated by its first version.

    The feed has the abstract of the newest version. As members, papers revised after the window are left out, because
    their text may be later than the window.

    Args:
        window: days of the first version.
        journal: cursor and clock.
        categories: such as cs.CL; papers in any of them.
        query: in arXiv's own syntax, such as `all:transformer ANDNOT ti:survey`.
        mirror: another address of the API.
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
        papers, total = service.get("/api/query", partial(_page, start=at["start"]), params)
        for document, revised in papers:
            if window.before and revised and revised >= window.before:
                journal.drop("revised after the window")
            elif "paper has been withdrawn" in document.text:
                journal.drop("withdrawn")
            else:
                yield document
        at = at | {"start": at["start"] + len(papers)}
        if at["start"] >= total:
            return
        edge = papers[-1][0].date
        if at["start"] >= DEEPEST and edge:
            at |= {
                "start": 0,
                **({"to": f"{edge:%Y%m%d}2359"} if window.newest_first else {"from": f"{edge:%Y%m%d}0000"}),
            }
        journal.save(at)


def _page(body: bytes, start: int) -> tuple[list[tuple[Document, Date | None]], int]:
    """Each paper of a page with the day of its newest version, and the number of papers of all pages."""
    feed = ElementTree.fromstring(body)
    total = _need(feed, f"{SEARCH}totalResults", "feed").strip()
    if not total.isdecimal():
        raise format_changed("arxiv", "<totalResults> as a whole number", total)
    papers = [_paper(entry) for entry in feed.iter(f"{ATOM}entry")]
    if not papers and start < int(total):  # the API sometimes sends an empty page in the middle of a result
        raise ValueError(f"no papers at {start} of {total}")
    return papers, int(total)


def _paper(entry: ElementTree.Element) -> tuple[Document, Date | None]:
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
        raise UsageError(f"arxiv must give <{name}> in each {where}; it does not: its format may have changed")
    return text


def _day(entry: ElementTree.Element, name: str) -> Date | None:
    stamp = entry.findtext(f"{ATOM}{name}")
    return iso_day(stamp, name, "arxiv") if stamp and stamp.strip() else None
