"""Texts with their labels, dates and origins."""

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from datetime import date as Date  # noqa: N812 - documents have a field date
from types import MappingProxyType
from typing import NamedTuple

SHOWN = 8
"""Words of a text in its representation."""


@dataclass(frozen=True, slots=True, repr=False)
class Document:
    """A text and its metadata.

    Attributes:
        text: the text, not empty.
        member: whether the text was in the pretraining data; None if unknown.
        date: date of first publication according to the source.
        group: article, paper or book that the text comes from; texts of one group stay in one part of a split.
            "" if unknown.
        source: URL or file:line that the text comes from.
        period: name of the period that the text comes from, see `fsd.data.splitting`. "" if unknown.
        collection: where the text was collected, as the column `source` names it (a site, a publisher, a collection);
            verdicts are calibrated by it. "" if unknown.
        context: what precedes the text, such as the question that it answers, and is not scored. "" for none.
    """

    text: str
    member: bool | None = None
    date: Date | None = None
    group: str = ""
    source: str = ""
    period: str = ""
    collection: str = ""
    context: str = ""

    @property
    def whole(self) -> str:
        """The text after its context."""
        return f"{self.context}\n{self.text}" if self.context else self.text

    def __repr__(self) -> str:
        """The beginning of the text, label, date, group and period."""
        known = {
            "member": self.member,
            "date": self.date and str(self.date),
            "group": self.group,
            "period": self.period,
        }
        said = [f"{name}={value!r}" for name, value in known.items() if value not in (None, "")]
        return f"Document({', '.join([repr(cut(self.text, SHOWN)), *said])})"

    @property
    def origin(self) -> str:
        """The source, or the beginning of the text if there is none; for messages."""
        return self.source or repr(" ".join(self.text.split())[:40])


class Benchmark(NamedTuple):
    """A published benchmark."""

    documents: list[Document]
    source: str  # id, or local files
    revision: str  # commit or hash
    left_out: Mapping[str, int] = MappingProxyType({})  # reason → rows
    since: Date | None = None  # first day of non-members that are later than all members, if that is known


def content_hash(text: str) -> str:
    """SHA-256 of the text in UTF-8, in hexadecimal: the identity of a text in manifests."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def json_line(document: Document, *, labelled: bool = True) -> bytes:
    """A document as a JSON line: text, label, date, group, source, sha256 and, if it is known, period."""
    row = {
        "text": document.text,
        **({"label": int(bool(document.member))} if labelled else {}),
        "date": document.date.isoformat() if document.date else None,
        "group": document.group,
        "source": document.source,
        "sha256": content_hash(document.text),
        **({"period": document.period} if document.period else {}),
    }
    return (json.dumps(row, ensure_ascii=False) + "\n").encode()


def utc_day(stamp: datetime) -> Date:
    """The day of a time in UTC; without a time zone, the day that it names."""
    return (stamp.astimezone(UTC) if stamp.tzinfo else stamp).date()


def digest(documents: Sequence[Document]) -> str:
    """16 hexadecimal digits of texts, labels and groups, in their order."""
    state = hashlib.sha256()
    for document in documents:
        state.update(json.dumps([document.text, document.member, document.group]).encode())
    return state.hexdigest()[:16]


PLACES = ("head", "middle", "tail")


def segments(text: str, words: int, places: tuple[str, ...]) -> list[str]:
    """Segments of `words` words at the head, in the middle and at the tail of a text, as many as do not overlap."""
    spans = [match.span() for match in re.finditer(r"\S+", text)]
    room = len(spans) // words
    if not room:
        return []
    starts = {"head": 0, "middle": (len(spans) - words) // 2, "tail": len(spans) - words}
    if room < 3 and len(places) > 1:
        starts.pop("middle", None)
    chosen = [place for place in PLACES if place in places and place in starts][:room]
    return [text[spans[starts[place]][0] : spans[starts[place] + words - 1][1]] for place in chosen]


def cut(text: str, words: int) -> str:
    """The first `words` words of a text with their original spacing; the whole text for 0 words."""
    text = text.strip()
    pieces = text.split(maxsplit=words) if words else []  # the last piece is the rest
    return text[: len(text) - len(pieces[-1])].rstrip() if len(pieces) > words > 0 else text
