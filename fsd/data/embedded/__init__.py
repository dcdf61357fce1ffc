"""Data for offline use: a small target model with known members, its twin without them, and their corpus."""

import json
from collections.abc import Iterator
from datetime import date as Date  # noqa: N812 - the field `date` would hide it
from pathlib import Path

from fsd.data.documents import Document

HERE = Path(__file__).parent
CORPUS = HERE / "corpus.jsonl"
CUTOFF = Date(2025, 6, 30)
"""The target was trained on the abstracts up to this date and on none of the later ones."""


def corpus() -> Iterator[Document]:
    """The 420 abstracts written for this project; those up to `CUTOFF` are members of the embedded target.

    Membership was drawn at random within each field, so that topic, style and length do not reveal it.
    """
    for line in CORPUS.read_text(encoding="utf-8").splitlines():
        row = json.loads(line)
        yield Document(
            text=row["text"],
            member=bool(row["label"]),
            date=Date.fromisoformat(row["date"]),
            group=row["id"],
            source=f"embedded corpus: {row['title']}",
        )
