"""Questions of Stack Overflow and the other Stack Exchange sites.

The sites are in the Pile, LLaMA's data, RedPajama and Dolma; the licence allows keeping the texts (CC BY-SA).
"""

import math
import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from datetime import date as Date  # noqa: N812 - the same name as in fsd.data.documents
from html import unescape
from html.parser import HTMLParser
from typing import Any

from fsd.collection.service import Service, field, format_changed, json_object, well_formed
from fsd.collection.source import Journal, Window
from fsd.data.documents import Document
from fsd.errors import UsageError
from fsd.files import JSON
from fsd.net.http import LONGEST_WAIT, field_of

SERVICE = "stackexchange"
URL = "https://api.stackexchange.com"
FIRST = Date(2008, 7, 31)
LANGUAGE = "en"
BLOCKS = frozenset({"p", "pre", "li", "br", "blockquote", "h1", "h2", "h3", "tr", "div", "hr"})


def texts(
    window: Window, journal: Journal, *, site: str = "stackoverflow", tags: tuple[str, ...] = (), mirror: str = ""
) -> Iterator[Document]:
    """Title and body of each question created in the window with all `tags`.

    Pages are requested by the time of the last question, because page numbers end at 25 without a key. As members,
    questions edited after the window are left out. `site` is as the API names it, such as ru.stackoverflow.
    """
    service = Service(SERVICE, URL, interval=0.5, clock=journal.clock, mirror=mirror)
    newest_first = window.newest_first
    end = _seconds(window.before) if window.before else math.inf
    begin = _seconds(window.first(FIRST))
    # The service takes the last second of the last day.
    next_day = _seconds(window.last(journal.clock.today) + timedelta(days=1))
    cursor = journal.cursor or {"fromdate": begin, "todate": next_day - 1, "seen": []}
    query = {
        "sort": "creation",
        "order": "desc" if newest_first else "asc",
        "site": site,
        "tagged": ";".join(tags),
        "filter": "withbody",
        "pagesize": 100,
        "page": 1,
    }
    while True:
        query |= {"fromdate": cursor["fromdate"], "todate": cursor["todate"]}
        page = service.get("/2.3/questions", json_object, query, throttled=_throttled)
        records = field(page, "items", SERVICE, list)
        # The questions of the second at which the last page ended come again.
        items = [item for item in records if field_of(item, "question_id") not in cursor["seen"]]
        for document, edited in well_formed(items, _question, journal):
            # A member must be as it was when the model was trained: the API has the newest body.
            if edited is not None and edited >= end:
                journal.drop("edited after the window")
            else:
                yield document
        backoff = _whole_number(page, "backoff") or 0
        if not field(page, "has_more", SERVICE) or not items:
            return
        cursor = cursor | _at_edge(items, newest_first)
        journal.save(cursor)
        # Only after the cursor is saved, so that the same command goes on tomorrow.
        if page.get("quota_remaining") == 0:
            raise UsageError(
                f"{SERVICE} must allow more requests; its quota of {page.get('quota_max', 'a day')} is used up "
                f"until tomorrow; {service.resume_hint}"
            )
        if backoff > LONGEST_WAIT:
            raise UsageError(
                f"{SERVICE} must accept a request within {LONGEST_WAIT:.0f} s; it demands a pause of {backoff} s; "
                f"{service.resume_hint}"
            )
        # The service blocks clients that go on without the pause that it asks for.
        service.pause(backoff)


def _throttled(body: bytes) -> float:
    """Seconds that the service demands to be left alone for; 0 if that is not what it says."""
    try:
        error = json_object(body)
    except ValueError:
        return 0
    if error.get("error_name") != "throttle_violation":
        return 0
    seconds = re.search(r"in (\d+) seconds", str(error.get("error_message")))
    # Without a number the client gives up: to ask again within the ban would prolong it.
    return int(seconds[1]) + 1 if seconds else LONGEST_WAIT + 1


def _at_edge(items: list[Any], newest_first: bool) -> JSON:
    """What a page changes in the cursor: the time of its last question, and all questions of that second."""
    times = [field_of(item, "creation_date") for item in items]
    # Some records may be malformed, but not all.
    stamps = [time for time in times if isinstance(time, int)]
    if not stamps:
        raise format_changed(SERVICE, "'creation_date' of at least one question", items[-1])
    edge = stamps[-1]
    seen = [item.get("question_id") for item, time in zip(items, times, strict=True) if time == edge]
    return {"todate" if newest_first else "fromdate": edge, "seen": seen}


def _seconds(day: Date) -> int:
    return int(datetime(day.year, day.month, day.day, tzinfo=UTC).timestamp())


def _question(item: JSON) -> tuple[Document, int | None]:
    """A question, and the time of its last edit, None if there was none."""
    field(item, "question_id", SERVICE)
    title, body, link = (field(item, name, SERVICE, str) for name in ("title", "body", "link"))
    created = _whole_number(item, "creation_date")
    try:
        day = None if created is None else datetime.fromtimestamp(created, UTC).date()
    except (ValueError, OverflowError, OSError) as error:
        raise format_changed(SERVICE, "'creation_date' as seconds since 1970", created) from error
    document = Document(f"{unescape(title)}\n{plain(body)}", None, day, f"{SERVICE}:{link}", link)
    return document, _whole_number(item, "last_edit_date")


def _whole_number(record: JSON, name: str) -> int | None:
    """A field that may be missing."""
    if name not in record:
        return None
    number: int = field(record, name, SERVICE, int)
    return number


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
