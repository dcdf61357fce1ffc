"""Papers on arXiv.

New papers come from the API's Atom feed, read with the standard library rather than through a client package:
what matters here is what such clients hide, the offset to resume from and how long a refusal asks to wait.
"""

import re
from collections.abc import Iterator
from datetime import date as Date  # noqa: N812 - the same name as in fsd.data.documents
from functools import partial
from itertools import islice
from typing import Any, NamedTuple
from xml.etree import ElementTree

from fsd.collection.service import Service, format_changed, iso_day
from fsd.collection.source import Journal, Window, sides
from fsd.data import benchmarks
from fsd.data.documents import Document
from fsd.errors import UsageError

URL = "https://export.arxiv.org"
FIRST = Date(1991, 8, 14)
LANGUAGE = "en"
PAGE = 100
DEEPEST = 10_000
"""Offset after which the query starts anew from the last date: arXiv serves deep offsets badly."""
ATOM = "{http://www.w3.org/2005/Atom}"
SEARCH = "{http://a9.com/-/spec/opensearch/1.1/}"


BENCHMARK = "arxivtection"
"""Name of the published benchmark in `fsd.data.benchmarks`."""


def benchmark(*, limit: int | None = None) -> Iterator[Document]:
    """arXivTection; see `fsd.data.benchmarks.arxivtection`."""
    return islice(benchmarks.load(BENCHMARK).documents, limit)


def texts(
    window: Window, journal: Journal, *, categories: tuple[str, ...] = (), query: str = "", mirror: str = ""
) -> Iterator[Document]:
    """Title and abstract of each paper; the date of its first version decides.

    The feed has the abstract of the newest version. That of a paper first published after a cutoff is younger
    still; for members a paper revised after the window is left out, because its text may be younger than it.

    Args:
        window: days of the first version.
        journal: where to go on.
        categories: like cs.CL; a paper in any of them is taken.
        query: in arXiv's own syntax, like `all:transformer ANDNOT ti:survey`.
        mirror: another address of the API.
    """
    service = Service("arxiv", URL, interval=3.0, clock=journal.clock, mirror=mirror)
    first, last = window.first(FIRST), window.last(journal.clock.today)
    at: dict[str, Any] = journal.cursor or {"from": f"{first:%Y%m%d}0000", "to": f"{last:%Y%m%d}2359", "start": 0}
    while True:
        asked = {
            "search_query": _query(categories, query, at),
            "start": at["start"],
            "max_results": PAGE,
            "sortBy": "submittedDate",
            "sortOrder": "descending" if window.newest_first else "ascending",
        }
        page = service.get("/api/query", partial(_page, start=at["start"]), asked)
        for paper in page.papers:
            if window.before and paper.revised and paper.revised >= window.before:
                journal.drop("revised after the window")
            elif "paper has been withdrawn" in paper.document.text:
                journal.drop("withdrawn")
            else:
                yield paper.document
        at = {**at, "start": at["start"] + len(page.papers)}
        if at["start"] >= page.total:
            return
        edge = page.papers[-1].document.date
        if at["start"] >= DEEPEST and edge:
            at = {**at, "start": 0} | (
                {"to": f"{edge:%Y%m%d}2359"} if window.newest_first else {"from": f"{edge:%Y%m%d}0000"}
            )
        journal.save(at)


nonmembers, members = sides(texts)


class _Paper(NamedTuple):
    document: Document
    revised: Date | None


class _Page(NamedTuple):
    papers: list[_Paper]
    total: int


def _query(categories: tuple[str, ...], query: str, at: dict[str, Any]) -> str:
    named = " OR ".join(f"cat:{category}" for category in categories)
    parts = [f"({part})" for part in (named, query) if part]
    return " AND ".join([*parts, f"submittedDate:[{at['from']} TO {at['to']}]"])


def _page(body: bytes, start: int) -> _Page:
    feed = ElementTree.fromstring(body)
    total = _need(feed, f"{SEARCH}totalResults", "feed").strip()
    if not total.isdecimal():
        raise format_changed("arxiv", "<totalResults> as a whole number", total)
    papers = [_paper(entry) for entry in feed.iter(f"{ATOM}entry")]
    if not papers and start < int(total):  # the API now and then sends an empty page in the middle of a result
        raise ValueError(f"no papers at {start} of {total}")
    return _Page(papers, int(total))


def _paper(entry: ElementTree.Element) -> _Paper:
    link = _need(entry, f"{ATOM}id", "entry")
    title, abstract = (" ".join(_need(entry, f"{ATOM}{name}", "entry").split()) for name in ("title", "summary"))
    if "/api/errors" in link:
        raise UsageError(f"arxiv must understand the query; it says: {abstract}")
    number = re.sub(r"v\d+$", "", link.rpartition("/abs/")[2])
    published, updated = (_day(entry, name) for name in ("published", "updated"))
    return _Paper(Document(f"{title}\n{abstract}", None, published, f"arxiv:{number}", link), updated)


def _need(element: ElementTree.Element, path: str, where: str) -> str:
    text = element.findtext(path)
    if text is None:
        name = path.rpartition("}")[2]
        raise UsageError(f"arxiv must give <{name}> in each {where}; it does not: its format may have changed")
    return text


def _day(entry: ElementTree.Element, name: str) -> Date | None:
    stamp = entry.findtext(f"{ATOM}{name}")
    return iso_day(stamp, name, "arxiv") if stamp and stamp.strip() else None
