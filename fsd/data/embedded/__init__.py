"""Data for offline use: a small target model with known members, its twin without them, and their corpus."""

import json
from collections.abc import Iterator
from datetime import date as Date  # noqa: N812 - the field `date` would hide it
from pathlib import Path

from fsd.data.documents import Document

HERE = Path(__file__).parent
CORPUS = HERE / "corpus.jsonl"
CUTOFF = Date(2025, 6, 30)
"""Last day of the corpus: no text published after it was read by the target."""


def corpus() -> Iterator[Document]:
    """The 420 abstracts written for this project, of which the embedded target read the members.

    Membership was drawn at random within each field, so that topic, style and length do not reveal it. Dates were drawn
    from one span of time (`random.Random(0)`, from 1 January 2023 to `CUTOFF`) without regard to membership, so that
    the date does not reveal it either: the non-members are contemporaries of the members (see `fsd.data.periods`).
    """
    for line in CORPUS.read_text(encoding="utf-8").splitlines():
        row = json.loads(line)
        yield Document(
            text=row["text"],
            member=bool(row["label"]),
            date=Date.fromisoformat(row["date"]),
            group=row["id"],
            source=f"embedded corpus: {row['title']}",
            period=row["period"],
        )
