"""Wikipedia articles about events, from the MediaWiki API.

The log of page creations goes back to 27 June 2018. It has the creation of a page of that name; articles are dated by
their first revision, which is requested together with the lead.
"""

import re
from collections.abc import Iterator
from datetime import date as Date  # noqa: N812 - the same name as in fsd.data.documents

from fsd.collection.service import Service, field, iso_day, json_object, well_formed
from fsd.collection.source import Journal, Window
from fsd.data.documents import Document, cut
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
        article = _article(service, field(event, "pageid", SERVICE, int))
        if article is None:
            journal.drop("deleted since")
            return None
        day = _created(article)
        text = cut(article["extract"], words)
        document = Document(text, None, day, f"{SERVICE}:{article['title']}", article["fullurl"])
        return _unsuitable(article, day, kind), document

    while True:
        page = _query(service, log | (journal.cursor or {}))
        events = field(field(page, "query", SERVICE), "logevents", SERVICE, list)
        for reason, document in well_formed(events, read, journal):
            if reason:
                journal.drop(reason)
            else:
                yield document
        if "continue" not in page:
            return
        journal.save(field(page, "continue", SERVICE, dict))


def _query(service: Service, params: JSON) -> JSON:
    # With maxlag, servers that are behind refuse to answer, as the API's etiquette asks of programs.
    common = {"action": "query", "format": "json", "formatversion": 2, "maxlag": 5}
    return service.get("/w/api.php", _reply, common | params)


def _reply(body: bytes) -> JSON:
    """The reply to a query; the API reports errors with status 200."""
    reply = json_object(body)
    error = reply.get("error")
    if error:
        if error.get("code") in BUSY:
            raise TransientError(str(error.get("info")))
        raise UsageError(f"{SERVICE} must understand the query; it says: {error.get('info')}")
    return reply


def _article(service: Service, number: int) -> JSON | None:
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
    pages = field(field(_query(service, params), "query", SERVICE), "pages", SERVICE, list)
    if not pages or "missing" in pages[0]:
        return None
    for name in ("extract", "fullurl", "title"):
        field(pages[0], name, SERVICE, str)
    article: JSON = pages[0]
    return article


def _unsuitable(article: JSON, day: Date | None, kind: str) -> str:
    """Why an article is left out; "" if it is not."""
    if article.get("redirect"):
        return "redirect"
    if "disambiguation" in article.get("pageprops", {}) or LISTS.match(article["title"]):
        return "list or disambiguation"
    if not article["extract"].strip():
        return "no lead"
    titles = [field(entry, "title", SERVICE, str) for entry in article.get("categories", ())]
    if kind == "all" or day is None:
        return ""
    # An article on an event of late December is often begun in January.
    years = re.findall(r"\d{4}", " ".join(titles))
    if str(day.year) in years or str(day.year - 1) in years:
        return ""
    return "not about an event"


def _created(article: JSON) -> Date | None:
    stamps = [field(revision, "timestamp", SERVICE, str) for revision in article.get("revisions", ())]
    if not stamps:
        return None
    return iso_day(stamps[0], "timestamp", SERVICE)
