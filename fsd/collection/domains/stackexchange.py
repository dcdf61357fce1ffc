"""Questions of Stack Overflow and the other Stack Exchange sites.

The sites are in the Pile, LLaMA's data, RedPajama and Dolma; the licence allows keeping the texts (CC BY-SA).
"""

import re
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from datetime import date as Date  # noqa: N812 - the same name as in fsd.data.documents
from functools import partial
from html import unescape
from html.parser import HTMLParser
from typing import Any

from fsd.collection.service import Service, field, format_changed, json_object, well_formed
from fsd.collection.source import Journal, Window
from fsd.data.documents import Document
from fsd.errors import UsageError
from fsd.net.http import LONGEST_WAIT

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
    """Title and body of each question created in the window with all `tags`.

    Pages are requested by the time of the last question, because page numbers end at 25 without a key. As members,
    questions edited after the window are left out. `site` is as the API names it, such as ru.stackoverflow.
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
        page = service.get("/2.3/questions", json_object, query | dates, throttled=_throttled)
        listed = field(page, "items", service.name, list)
        items = [item for item in listed if not isinstance(item, Mapping) or item.get("question_id") not in at["seen"]]
        for document, edited in well_formed(items, partial(_question, service=service.name), journal):
            if window.before and edited and edited >= _seconds(window.before):
                journal.drop("edited after the window")
            else:
                yield document
        service.pause(field({"backoff": 0} | page, "backoff", service.name, int))
        if not field(page, "has_more", service.name) or not items:
            return
        stamps = [stamp for stamp in map(_created, items) if isinstance(stamp, int)]
        if not stamps:
            raise format_changed(service.name, "'creation_date' of at least one question", items[-1])
        edge = stamps[-1]
        seen = [item.get("question_id") for item in items if _created(item) == edge]
        at = {**at, "todate" if window.newest_first else "fromdate": edge, "seen": seen}
        journal.save(at)
        if page.get("quota_remaining") == 0:
            raise UsageError(
                f"{service.name} must allow more requests; its quota of {page.get('quota_max', 'a day')} is used up "
                f"until tomorrow; {service.resume_hint}"
            )


def _throttled(body: bytes) -> float:
    """Seconds that the service demands to be left alone for; 0 if that is not what it says."""
    try:
        error = json_object(body)
    except ValueError:
        return 0
    if error.get("error_name") != "throttle_violation":
        return 0
    seconds = re.search(r"in (\d+) seconds", str(error.get("error_message")))
    return int(seconds[1]) + 1 if seconds else LONGEST_WAIT + 1


def _created(item: object) -> object:
    return item.get("creation_date") if isinstance(item, Mapping) else None


def _seconds(day: Date) -> int:
    return int(datetime(day.year, day.month, day.day, tzinfo=UTC).timestamp())


def _question(item: Mapping[str, Any], service: str) -> tuple[Document, int]:
    """A question, and the time of its last edit, 0 if there was none."""
    field(item, "question_id", service)
    title, body, link = (field(item, name, service, str) for name in ("title", "body", "link"))
    created = field(item, "creation_date", service, int) if "creation_date" in item else None
    day = datetime.fromtimestamp(created, UTC).date() if created is not None else None
    edited = field({"last_edit_date": 0} | dict(item), "last_edit_date", service, int)
    return Document(f"{unescape(title)}\n{plain(body)}", None, day, f"{service}:{link}", link), edited


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
