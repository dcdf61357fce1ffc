"""Data for offline use: small target models with known members, their twins without them, their corpora, and chats.

The models of `wikipedia` were made from its articles; the twin, trained on the background alone, is that of both:

    python -m extensions.study.pretrain --members articles.jsonl --columns group=id --hold-out 0.5 --out wikipedia
"""

from collections.abc import Iterator
from datetime import date as Date  # noqa: N812 - the field `date` would hide it
from functools import cache, lru_cache
from pathlib import Path
from typing import NamedTuple

from fsd.data.documents import Document
from fsd.data.fields import document
from fsd.data.near_duplicates import SHORTEST_OPENING, ngrams, words
from fsd.data.readers import read_rows

HERE = Path(__file__).parent
CORPUS = HERE / "corpus.jsonl"
CHATS = HERE / "chats" / "chats.jsonl"
"""480 chats that were written for this project, of which no model here was trained on."""
CUTOFF = Date(2025, 6, 30)
"""Last day of the corpus: the target was trained on no text published after it."""


class EmbeddedCorpus(NamedTuple):
    """Name of the target (see `fsd.net.hub.EMBEDDED`), file of the texts, and last day of what it was trained on."""

    model: str
    file: Path
    cutoff: Date


CORPORA = {
    "arxiv": EmbeddedCorpus("embedded", CORPUS, CUTOFF),
    "wikipedia": EmbeddedCorpus("embedded-wikipedia", HERE / "wikipedia" / "corpus.jsonl", Date(2016, 12, 31)),
}
"""Domain → its embedded corpus."""


RUN = 13
"""Words in a row by which a text was read with a corpus, as in the papers' tests for contamination."""


@lru_cache(maxsize=4)  # a run asks for the same texts several times
def domains_of(texts: tuple[str, ...]) -> frozenset[str]:
    """The domains of which one of the texts shares a run of words with the corpus, or all its words if it is shorter.

    What was cut out of a corpus, laid out anew or put behind other words was read with it all the same.
    """
    domains: set[str] = set()
    for text in texts:
        size = min(RUN, len(words(text)))
        # So few words stand in other texts by chance.
        if size < SHORTEST_OPENING:
            continue
        runs = ngrams(text, size)
        for domain in CORPORA.keys() - domains:
            if not runs.isdisjoint(_runs(domain, size)):
                domains.add(domain)
    return frozenset(domains)


@cache
def _runs(domain: str, size: int) -> frozenset[tuple[str, ...]]:
    return frozenset().union(*(ngrams(document.text, size) for document in corpus(domain)))


def unread() -> list[str]:
    """The abstracts that the embedded target was not trained on."""
    return [document.text for document in corpus() if not document.member]


def corpus(domain: str = "arxiv") -> Iterator[Document]:
    """The texts written for this project in a domain, labelled 1 if the embedded target was trained on them.

    `arxiv` has 420 abstracts. Membership was drawn at random within each field, so that topic, style and length do not
    reveal it. Dates were drawn from one span of time (`random.Random(0)`, from 1 January 2023 to `CUTOFF`) without
    regard to membership, so that the date does not reveal it either: the non-members are contemporaries of the members
    (see `fsd.data.periods`).

    `wikipedia` has 540 short articles: 280 on subjects of 2012 to 2016, half of them members, drawn at random, and
    260 on subjects of July 2023 to 2025. Each was written as it could have been written in its own period.
    """
    for _, row in read_rows([CORPORA[domain].file]):
        yield document(row, {"group": "id"}, f"embedded corpus: {row['title']}", labelled=True)
