"""Questions of Stack Overflow and the other Stack Exchange sites.

The sites are in the Pile, LLaMA's data, RedPajama and Dolma. One unauthenticated request returns 100 whole questions,
each with its creation date, the date of its last edit, and a licence that allows keeping it (CC BY-SA).
"""

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from datetime import date as Date  # noqa: N812 - the same name as in fsd.data.documents
from html import unescape
from html.parser import HTMLParser
from typing import Any

from fsd.collection.service import Service, field, json_object
from fsd.collection.source import Journal, Window
from fsd.data.documents import Document

URL = "https://api.stackexchange.com"
FIRST = Date(2008, 7, 31)
LANGUAGE = "en"
BLOCKS = frozenset({"p", "pre", "li", "br", "blockquote", "h1", "h2", "h3", "tr", "div", "hr"})


def texts(
    window: Window,
    journal: Journal,
    *,
    site: str = "stackoverflow",
    tags: tuple[str, ...] = (),
    mirror: str = "",
) -> Iterator[Document]:
    """Title and body of each question created in the window.

    Pages are requested by the time of the last question, because page numbers end at 25 without a key. As members,
    questions edited after the window are left out: their text may be later.

    Args:
        window: days of creation.
        journal: cursor and clock.
        site: as the API names it: stackoverflow, math, ru.stackoverflow, ...
        tags: a question must have all of them.
        mirror: another address of the API.
    """
    service = Service("stackexchange", URL, interval=0.5, clock=journal.clock, mirror=mirror)
    at: dict[str, Any] = journal.cursor or {
        "fromdate": _seconds(window.first(FIRST)),
        "todate": _seconds(window.last(journal.clock.today) + timedelta(days=1)) - 1,
        "seen": [],
    }
    order = "desc" if window.newest_first else "asc"
    query = {"sort": "creation", "order": order, "site": site, "filter": "withbody", "pagesize": 100, "page": 1}
    while True:
        dates = {"fromdate": at["fromdate"], "todate": at["todate"], "tagged": ";".join(tags)}
        page = service.get("/2.3/questions", json_object, query | dates)
        items = [
            item
            for item in field(page, "items", service.name, list)
            if field(item, "question_id", service.name) not in at["seen"]
        ]
        for item in items:
            edited = field({"last_edit_date": 0} | item, "last_edit_date", service.name, int)
            if window.before and edited and edited >= _seconds(window.before):
                journal.drop("edited after the window")
            else:
                yield _question(item, service.name)
        service.limiter.pause(field({"backoff": 0} | page, "backoff", service.name, int))
        if not field(page, "has_more", service.name) or not items:
            return
        edge = items[-1].get("creation_date")
        seen = [item["question_id"] for item in items if item.get("creation_date") == edge]
        at = {**at, "todate" if window.newest_first else "fromdate": edge, "seen": seen}
        journal.save(at)


def _seconds(day: Date) -> int:
    return int(datetime(day.year, day.month, day.day, tzinfo=UTC).timestamp())


def _question(item: Mapping[str, Any], service: str) -> Document:
    title, body, link = (field(item, name, service, str) for name in ("title", "body", "link"))
    created = field(item, "creation_date", service, int) if "creation_date" in item else None
    day = datetime.fromtimestamp(created, UTC).date() if created is not None else None
    return Document(f"{unescape(title)}\n{plain(body)}", None, day, f"{service}:{link}", link)


def plain(html: str) -> str:
    """The text of HTML, one line for each block; code keeps its lines."""
    reader = _Reader()
    reader.feed(html)
    reader.close()
    return "\n".join(line.rstrip() for line in reader.text.split("\n") if line.strip())


class _Reader(HTMLParser):
    text = ""

    def handle_starttag(self, tag: str, attrs: object = None) -> None:
        if tag in BLOCKS:
            self.text += "\n"

    handle_endtag = handle_starttag

    def handle_data(self, data: str) -> None:
        self.text += data
