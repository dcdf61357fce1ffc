"""Dolma-Book: segments of books in Dolma and of books that Project Gutenberg released later (SURP, Table 2).

No hub dataset holds it. `dolma_book:MEMBERS,NONMEMBERS` builds it from two files: books of Dolma (rows with `id`
and `text`, unpacked to .jsonl), and what `pipelines.collect --domain books` wrote. Texts are cut as the collector
cuts them, to 512 words at the head, in the middle and at the tail; a text of just that length is one segment.
`...,middle` takes that place alone and `...,1024` that many words. A book is the group.
"""

from collections import Counter
from dataclasses import replace
from pathlib import Path

from fsd.data import local_files as _local
from fsd.data.benchmarks import Loaded
from fsd.data.documents import Document
from fsd.data.readers import read_files
from fsd.data.segments import PLACES, segments
from fsd.errors import UsageError

DATASET = ""
REVISION = None
COLUMNS = {"text": "text", "group": "id"}
GROUP = "book"
LABELS = "1: from the file of Dolma's books; 0: from the file of newer books (by the file, whatever rows say)"
PARTS = ("MEMBERS", "NONMEMBERS")
WORDS = 512


def load(part: str) -> Loaded:
    """The segments of both files.

    Raises:
        UsageError: for something that is neither file, place nor number, a side without a text that is long
            enough, or one place asked of a file that has several segments of a book.
    """
    pieces = [piece.strip() for piece in part.split(",")]
    sizes = [int(piece) for piece in pieces[2:] if piece.isdecimal() and int(piece)]
    places = tuple(place for place in PLACES if place in pieces[2:])
    if len(sizes) + len(places) < len(pieces[2:]) or len(sizes) > 1 or len(places) > 1:
        raise UsageError(
            f"dolma_book must be followed by two files, then one of {', '.join(PLACES)} or none, and one number of "
            f"words or none; got {part!r}"
        )
    files = _local.paths(",".join(pieces[:2]), PARTS, "dolma_book")
    words = sizes[0] if sizes else WORDS
    members = _side(read_files(files[:1], COLUMNS), "dolma:", True)
    others = _side(read_files(files[1:]), "new:", False)
    if places:
        _check_single(others, files[1], places[0])
    found = [*_cut(members, files[0], words, places), *_cut(others, files[1], words, places)]
    return Loaded(found, ", ".join(map(str, files)), _local.content(files))


def _side(documents: list[Document], prefix: str, member: bool) -> list[Document]:
    """One side, its groups told from those of the other side."""
    return [replace(d, member=member, group=prefix + (d.group or d.source)) for d in documents]


def _check_single(documents: list[Document], file: Path, place: str) -> None:
    """Rows do not say which segment they are, so that several of a book cannot be told apart."""
    book, count = Counter(d.group for d in documents).most_common(1)[0]
    if count > 1:
        raise UsageError(
            f"{file} must have one row a book if {place} alone is asked for; {book.removeprefix('new:')} has {count}: "
            f"collect with --options places={place}"
        )


def _cut(documents: list[Document], file: Path, words: int, places: tuple[str, ...]) -> list[Document]:
    found = [replace(d, text=text) for d in documents for text in segments(d.text, words, places or PLACES)]
    if not found:
        raise UsageError(f"{file} must have texts of at least {words} words; all {len(documents)} are shorter")
    return found
