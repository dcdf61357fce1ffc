"""Texts with their labels, dates and origins."""

import hashlib
import json
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date as Date  # noqa: N812 - the field `date` would hide it
from typing import NamedTuple

from fsd.errors import UsageError

LISTED = 10
"""Maximum number of texts listed in the error for texts labelled both 1 and 0."""


@dataclass(frozen=True, slots=True)
class Document:
    """A text and its metadata.

    Attributes:
        text: the text, not empty.
        member: whether the text was in the pretraining data; None if unknown.
        date: date of first publication according to the source.
        group: article, paper or book that the text comes from; texts of one group stay in one part of a split.
            "" if unknown.
        source: URL or file:line that the text comes from.
    """

    text: str
    member: bool | None = None
    date: Date | None = None
    group: str = ""
    source: str = ""

    @property
    def origin(self) -> str:
        """The source, or the beginning of the text if there is none; for messages."""
        return self.source or repr(" ".join(self.text.split())[:40])


class Benchmark(NamedTuple):
    """A published benchmark.

    Attributes:
        documents: its labelled texts.
        source: id on the hub, or the local files.
        revision: commit on the hub, or the hash of the local files.
    """

    documents: list[Document]
    source: str
    revision: str


def content_hash(text: str) -> str:
    """SHA-256 of the text in UTF-8, in hexadecimal: the identity of a text in manifests."""
    return hashlib.sha256(text.encode("utf-8")).hexdigest()


def refuse_shared(documents: Sequence[Document]) -> None:
    """Refuse a benchmark with a text, white space aside, that is labelled both member and non-member.

    Raises:
        UsageError: with the number of such texts and the origins of the first `LISTED`.
    """
    sides: dict[str, dict[bool, Document]] = defaultdict(dict)
    for d in documents:
        if d.member is not None:
            sides[content_hash(" ".join(d.text.split()))].setdefault(d.member, d)
    shared = [side for side in sides.values() if len(side) == 2]
    if not shared:
        return
    listed = "; ".join(f"{side[True].origin} = {side[False].origin}" for side in shared[:LISTED])
    more = f"; and {len(shared) - LISTED} more" if len(shared) > LISTED else ""
    raise UsageError(
        f"members and non-members must not share texts; {len(shared)} {'is' if len(shared) == 1 else 'are'} "
        f"labelled both 1 and 0 (member = non-member): {listed}{more}"
    )


def digest(documents: Sequence[Document]) -> str:
    """16 hexadecimal digits of texts, labels and groups, in their order."""
    state = hashlib.sha256()
    for document in documents:
        state.update(json.dumps([document.text, document.member, document.group]).encode())
    return state.hexdigest()[:16]
