"""Texts with their labels, dates and origins."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from datetime import date as Date  # noqa: N812 - documents have a field date
from typing import Literal, NamedTuple

from fsd.data.layouts import columns_of
from fsd.token_stats import Chat, Prompt, of_chat

SHOWN = 8
"""Words of a text in its representation."""
ReadAs = Literal["text", "text after a context", "completion of a prompt", "chat"]
"""What a row is read as; the scores of one are not comparable with those of another."""
TEXT: ReadAs = "text"
AFTER_CONTEXT: ReadAs = "text after a context"
COMPLETED: ReadAs = "completion of a prompt"
CHAT: ReadAs = "chat"


@dataclass(frozen=True, slots=True, repr=False)
class Document:
    """A text and its metadata.

    Attributes:
        text: the text, not empty.
        member: whether the text was in the pretraining data; None if unknown.
        date: date of first publication according to the source.
        group: article, paper or book that the text comes from; texts of one group stay in one part of a split.
            "" if unknown.
        origin_url: URL or file:line that the text comes from.
        period: name of the period that the text comes from, see `fsd.data.periods`. "" if unknown.
        source: where the text was collected (a site, a publisher, a collection), as the column `source` names it;
            verdicts are calibrated by it. "" if unknown.
        context: what precedes the text, such as the question that it answers, and is not scored. "" for none.
        chat: the turns that the text is made of, of which the answers are scored; `text` has the words of all of them,
            without roles. None for a text that is no chat.
        column: column or template that the text was read from, where it is not `text`; "" for that one.
    """

    text: str
    member: bool | None = None
    date: Date | None = None
    group: str = ""
    origin_url: str = ""
    period: str = ""
    source: str = ""
    context: str = ""
    chat: Chat | None = None
    # What a text was read from makes it no other text.
    column: str = field(default="", compare=False)

    @property
    def prompt(self) -> Prompt:
        """What is scored of the document, and what it follows."""
        if self.chat:
            return of_chat(self.chat)
        return Prompt(self.text, self.context)

    @property
    def read_as(self) -> ReadAs:
        """What the row is."""
        if self.chat is None and self.context:
            return AFTER_CONTEXT
        if self.chat is None:
            return TEXT
        if self.chat.templated:
            return CHAT
        return COMPLETED

    @property
    def whole(self) -> str:
        """The text after its context."""
        return f"{self.context}\n{self.text}" if self.context else self.text

    def __repr__(self) -> str:
        """The beginning of the text, label, date, group and period."""
        fields = [repr(cut(self.text, SHOWN))]
        if self.member is not None:
            fields.append(f"member={self.member}")
        for name in ("date", "group", "period"):
            value = getattr(self, name)
            if value:
                fields.append(f"{name}={str(value)!r}")
        return f"Document({', '.join(fields)})"

    @property
    def origin(self) -> str:
        """The URL or file:line, or the beginning of the text if there is none; for messages."""
        return self.origin_url or repr(" ".join(self.text.split())[:40])


Texts = Sequence[str]
Documents = Sequence[Document]


class Benchmark(NamedTuple):
    """A published benchmark."""

    documents: list[Document]
    source: str  # id, or local files
    revision: str  # commit or hash
    left_out: Mapping[str, int] = {}  # reason → rows
    since: Date | None = None  # first day of non-members that are later than all members, if that is known


def content_hash(text: str) -> str:
    """SHA-256 of the text in UTF-8, in hexadecimal: the identity of a text in manifests."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def json_line(document: Document, *, labelled: bool = True) -> bytes:
    """A document as a JSON line: text, label, date, group, source, sha256; and period, context or turns, if any."""
    row: dict[str, object] = {"text": document.text}
    if labelled:
        row["label"] = int(bool(document.member))
    row["date"] = document.date and document.date.isoformat()
    row["group"] = document.group
    row["source"] = document.origin_url
    row["sha256"] = content_hash(document.text)
    if document.period:
        row["period"] = document.period
    if document.context:
        row["context"] = document.context
    if document.chat:
        row |= columns_of(document.chat)
    return (json.dumps(row, ensure_ascii=False) + "\n").encode()


def utc_day(stamp: datetime) -> Date:
    """The day of a time in UTC; without a time zone, the day that it names."""
    return (stamp.astimezone(UTC) if stamp.tzinfo else stamp).date()


def digest(documents: Documents) -> str:
    """16 hexadecimal digits of texts, labels and groups, and of contexts and turns, in their order."""
    state = hashlib.sha256()
    # as JSON, so that no text can end where another one's label begins
    for document in documents:
        identity: list[object] = [document.text, document.member, document.group]
        # Those of texts alone keep the digest that they have always had.
        if document.context or document.chat:
            identity += [document.context, document.chat and document.chat.identity]
        state.update(json.dumps(identity).encode())
    return state.hexdigest()[:16]


def cut(text: str, words: int) -> str:
    """The first `words` words of a text with their original spacing; the whole text for 0 words."""
    text = text.strip()
    if not words:
        return text
    pieces = text.split(maxsplit=words)
    if len(pieces) <= words:
        return text
    # the last piece is the rest, with its own spacing
    return text.removesuffix(pieces[-1]).rstrip()
