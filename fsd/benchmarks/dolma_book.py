"""Dolma-Book: segments of books in Dolma and of books that Project Gutenberg released later (SURP, Table 2).

No hub dataset holds it. `dolma_book:MEMBERS,NONMEMBERS` builds it from two files: books of Dolma (rows with `id`
and `text`, unpacked to .jsonl), and what `pipelines.collect --domain books` wrote. Texts are cut to 512 words of
their head, middle and tail, shorter ones are left out; `...,middle` takes that segment alone and `...,1024` that
many words. A book is the group.
"""

from dataclasses import replace
from typing import get_args

from fsd.benchmarks import Loaded, _local
from fsd.documents import Document
from fsd.errors import UsageError
from fsd.rows import read_files
from fsd.transforms import Where, segment

DATASET = ""
REVISION = None
COLUMNS = {"text": "text", "group": "id"}
GROUP = "book"
LABELS = "1: from the file of Dolma's books; 0: from the file of newer books (by the file, whatever rows say)"
PARTS = ("MEMBERS", "NONMEMBERS")
WORDS = 512
PLACES: tuple[Where, ...] = get_args(Where)


def load(part: str) -> Loaded:
    """The segments of both files.

    Raises:
        UsageError: for something that is neither file, segment nor number, or a side without a text that is
            long enough.
    """
    pieces = [piece.strip() for piece in part.split(",")]
    sizes = [int(piece) for piece in pieces[2:] if piece.isdigit()]
    places = tuple(place for place in PLACES if place in pieces[2:]) or PLACES
    odd = [piece for piece in pieces[2:] if piece not in PLACES and not piece.isdigit()]
    if odd or len(sizes) > 1:
        allowed = f"{', '.join(PLACES)} or one number of words"
        raise UsageError(f"dolma_book must be followed by two files, then {allowed}; got {part!r}")
    files = _local.paths(",".join(pieces[:2]), PARTS, "dolma_book")
    size = sizes[0] if sizes else WORDS
    members = _side(read_files(files[:1], COLUMNS), "dolma:", True)
    others = _side(read_files(files[1:]), "new:", False)
    found = []
    for side, file in ((members, files[0]), (others, files[1])):
        cut = [d for place in places for d in segment(side, size, place).documents]
        if not cut:
            raise UsageError(f"{file} must have texts of at least {size} words; all {len(side)} are shorter")
        found += list(dict.fromkeys(cut))  # a text of just that many words is its own head, middle and tail
    return Loaded(found, ", ".join(map(str, files)), _local.content(files))


def _side(documents: list[Document], prefix: str, member: bool) -> list[Document]:
    """One side, its groups told from those of the other side."""
    return [replace(d, member=member, group=prefix + (d.group or d.source)) for d in documents]
