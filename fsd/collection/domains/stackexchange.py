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

from pydantic import BaseModel

from fsd.collection.service import FormatError, Service, json_object, record, well_formed
from fsd.collection.source import Journal, Window
from fsd.data.documents import Document, utc_day
from fsd.errors import UsageError, quoted
from fsd.files import JSON
from fsd.net.http import LONGEST_WAIT, field_of

SERVICE = "stackexchange"
URL = "https://api.stackexchange.com"
FIRST = Date(2008, 7, 31)
LANGUAGE = "en"
BLOCKS = frozenset({"p", "pre", "li", "br", "blockquote", "h1", "h2", "h3", "tr", "div", "hr"})


class Question(BaseModel):
    """What the service tells of a question; times are in seconds since 1970."""

    question_id: int
    title: str
    body: str
    link: str
    creation_date: datetime | None = None
    last_edit_date: datetime | None = None


class Page(BaseModel):
    """A page of questions, of which some may be malformed, and what the service demands."""

    items: list[Any]
    has_more: bool
    backoff: int = 0
    quota_remaining: int | None = None
    quota_max: int | str = "a day"


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
        page = record(Page, service.get("/2.3/questions", json_object, query, throttled=_throttled), SERVICE)
        # The questions of the second at which the last page ended come again.
        items = [item for item in page.items if field_of(item, "question_id") not in cursor["seen"]]
        for document, edited in well_formed(items, _question, journal):
            # A member must be as it was when the model was trained: the API has the newest body.
            if edited >= end:
                journal.drop("edited after the window")
            else:
                yield document
        if not page.has_more or not items:
            return
        cursor = cursor | _at_edge(items, newest_first)
        journal.save(cursor)
        # Only after the cursor is saved, so that the same command goes on tomorrow.
        if page.quota_remaining == 0:
            raise UsageError(
                f"{SERVICE} must allow more requests; its quota of {page.quota_max} is used up until tomorrow; "
                f"{service.resume_hint}"
            )
        if page.backoff > LONGEST_WAIT:
            raise UsageError(
                f"{SERVICE} must accept a request within {LONGEST_WAIT:.0f} s; it demands a pause of {page.backoff} s; "
                f"{service.resume_hint}"
            )
        # The service blocks clients that go on without the pause that it asks for.
        service.pause(page.backoff)


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
        raise FormatError(f"{SERVICE} must give 'creation_date' of at least one question; got {quoted(items[-1])}")
    edge = stamps[-1]
    seen = []
    for item, time in zip(items, times, strict=True):
        question = item.get("question_id")
        if time == edge:
            seen.append(question)
    return {"todate" if newest_first else "fromdate": edge, "seen": seen}


def _seconds(day: Date) -> int:
    return int(datetime(day.year, day.month, day.day, tzinfo=UTC).timestamp())


def _question(item: object) -> tuple[Document, float]:
    """A question, and the time of its last edit, 0 if there was none."""
    question = record(Question, item, SERVICE)
    created = question.creation_date
    # Without an edit it is as it was asked.
    edited = question.last_edit_date
    text = f"{unescape(question.title)}\n{plain(question.body)}"
    document = Document(text, None, created and utc_day(created), f"{SERVICE}:{question.link}", question.link)
    return document, edited.timestamp() if edited else 0


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
