"""Wikipedia articles about events, from the MediaWiki API.

The log of page creations goes back to 27 June 2018. It has the creation of a page of that name; articles are dated by
their first revision, which is requested together with the lead.
"""

import re
from collections.abc import Iterator
from datetime import date as Date  # noqa: N812 - the same name as in fsd.data.documents
from datetime import datetime
from typing import Any

from pydantic import BaseModel, Field

from fsd.collection.service import Service, json_object, record, well_formed
from fsd.collection.source import Journal, Window
from fsd.data.documents import Document, cut, utc_day
from fsd.errors import UsageError
from fsd.files import JSON
from fsd.net.http import TransientError

SERVICE = "wikipedia"
URL = "https://{language}.wikipedia.org"
FIRST = Date(2018, 6, 27)
LANGUAGE = "en"
KINDS = ("events", "all")
BUSY = frozenset({"maxlag", "ratelimited", "readonly", "internal_api_error_DBQueryError"})
LISTS = re.compile(r"(Lists?|Timeline|Index|Outline|Glossary) of |\d{4} in ")
BENCHMARK = "wikimia"


class Revision(BaseModel):
    """When an article was changed."""

    timestamp: datetime


class Category(BaseModel):
    """A category by its name."""

    title: str


class Article(BaseModel):
    """The lead of an article, its first revision and its categories."""

    title: str
    extract: str
    fullurl: str
    redirect: bool = False
    pageprops: JSON = {}
    categories: list[Category] = []
    revisions: list[Revision] = []

    @property
    def created(self) -> Date | None:
        """The day of the first revision, if it is known."""
        # Of a page that was imported there may be none.
        if not self.revisions:
            return None
        return utc_day(self.revisions[0].timestamp)


class Event(BaseModel):
    """The creation of a page; of one that is deleted it has number 0."""

    pageid: int


class Reply(BaseModel):
    """What a query found, and where it goes on."""

    query: JSON
    go_on: JSON | None = Field(None, alias="continue")


def check(*, kind: str, language: str, **_: object) -> None:
    """Refuse options without a meaning, before a request."""
    if kind not in KINDS:
        raise UsageError(f"option kind must be one of {', '.join(KINDS)}; got {kind!r}")
    if not re.fullmatch(r"[a-z][a-z-]*", language):
        raise UsageError(f"language must be that of an edition, like en, de or zh; got {language!r}")


def texts(
    window: Window,
    journal: Journal,
    *,
    language: str = LANGUAGE,
    kind: str = "events",
    words: int = 0,
    mirror: str = "",
) -> Iterator[Document]:
    """The current lead of each article created in the window, cut to `words` words, 0 for the whole.

    As in WikiMIA the articles are about events, unless `kind` is all: a category names the year of the first revision
    or the year before ("2024 floods in Europe", "Scheepsramp in 2024"), which works in every language.
    """
    check(kind=kind, language=language)
    service = Service(SERVICE, URL.format(language=language), interval=0.2, clock=journal.clock, mirror=mirror)
    begin = f"{window.first(FIRST)}T00:00:00Z"
    end = f"{window.last(journal.clock.today)}T23:59:59Z"
    log = {
        "list": "logevents",
        "letype": "create",
        "lenamespace": 0,
        "lelimit": 50,
        "leprop": "ids|title|timestamp",
        "ledir": "newer",
        "lestart": begin,
        "leend": end,
    }
    if window.newest_first:
        log |= {"ledir": "older", "lestart": end, "leend": begin}

    def read(event: object) -> tuple[str, Document] | None:
        article = _article(service, record(Event, event, SERVICE).pageid)
        if article is None:
            journal.drop("deleted since")
            return None
        text = cut(article.extract, words)
        document = Document(text, None, article.created, f"{SERVICE}:{article.title}", article.fullurl)
        return _unsuitable(article, kind), document

    while True:
        page = _query(service, log | (journal.cursor or {}))
        events = record(list[Any], page.query.get("logevents"), SERVICE)
        for reason, document in well_formed(events, read, journal):
            if reason:
                journal.drop(reason)
            else:
                yield document
        if page.go_on is None:
            return
        journal.save(page.go_on)


def _query(service: Service, params: JSON) -> Reply:
    # With maxlag, servers that are behind refuse to answer, as the API's etiquette asks of programs.
    common = {"action": "query", "format": "json", "formatversion": 2, "maxlag": 5}
    return record(Reply, service.get("/w/api.php", _reply, common | params), SERVICE)


def _reply(body: bytes) -> JSON:
    """The reply to a query; the API reports errors with status 200."""
    reply = json_object(body)
    error = reply.get("error")
    if error:
        if error.get("code") in BUSY:
            raise TransientError(str(error.get("info")))
        raise UsageError(f"{SERVICE} must understand the query; it says: {error.get('info')}")
    return reply


def _article(service: Service, number: int) -> Article | None:
    """Lead, first revision and categories of a page, None if deleted; the API gives first revisions one at a time."""
    # The log has page 0 for a page that is deleted.
    if not number:
        return None
    params = {
        "pageids": number,
        "prop": "extracts|revisions|info|categories|pageprops",
        "exintro": 1,
        "explaintext": 1,
        "rvdir": "newer",
        "rvlimit": 1,
        "rvprop": "timestamp",
        "inprop": "url",
        "cllimit": "max",
        "clshow": "!hidden",
        "ppprop": "disambiguation",
    }
    pages = record(list[Any], _query(service, params).query.get("pages"), SERVICE)
    if not pages or "missing" in pages[0]:
        return None
    return record(Article, pages[0], SERVICE)


def _unsuitable(article: Article, kind: str) -> str:
    """Why an article is left out; "" if it is not."""
    if article.redirect:
        return "redirect"
    if "disambiguation" in article.pageprops or LISTS.match(article.title):
        return "list or disambiguation"
    if not article.extract.strip():
        return "no lead"
    day = article.created
    if kind == "all" or day is None:
        return ""
    # An article on an event of late December is often begun in January.
    years = re.findall(r"\d{4}", " ".join(category.title for category in article.categories))
    if str(day.year) in years or str(day.year - 1) in years:
        return ""
    return "not about an event"
