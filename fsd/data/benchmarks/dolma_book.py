"""Dolma-Book: segments of books in Dolma and of later Project Gutenberg releases (SURP, arXiv 2407.21248, Table 2).

It is not on the hub. `dolma_book:MEMBERS,NONMEMBERS` builds it from two files: books of Dolma (rows with `id` and
`text`, unpacked to .jsonl), and the output of `pipelines.collect --domain books`. Segments are 512 words at the
head, in the middle and at the tail of a text, as in the collector; a text of exactly that length is one segment.
`...,middle` selects one place and `...,1024` another length. The group is the book.
"""

from collections import Counter
from dataclasses import replace
from pathlib import Path

from fsd.data import local_files
from fsd.data.documents import Benchmark, Document
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


def load(part: str) -> Benchmark:
    """The segments of both files.

    Raises:
        UsageError: for a part that is not a file, place or number, a file without a text of that length, or a
            single place where a file has several rows per book.
    """
    pieces = [piece.strip() for piece in part.split(",")]
    sizes = [int(piece) for piece in pieces[2:] if piece.isdecimal() and int(piece)]
    places = tuple(place for place in PLACES if place in pieces[2:])
    if len(sizes) + len(places) < len(pieces[2:]) or len(sizes) > 1 or len(places) > 1:
        raise UsageError(
            f"dolma_book must be followed by two files, then one of {', '.join(PLACES)} or none, and one number of "
            f"words or none; got {part!r}"
        )
    files = local_files.paths(",".join(pieces[:2]), PARTS, "dolma_book")
    words = sizes[0] if sizes else WORDS
    left_out = Counter[str]()
    members = _side(read_files(files[:1], COLUMNS, skipped=left_out), "dolma:", True)
    others = _side(read_files(files[1:], skipped=left_out), "new:", False)
    if places:
        _check_single(others, files[1], places[0])
    documents = [*_cut(members, files[0], words, places), *_cut(others, files[1], words, places)]
    return Benchmark(documents, ", ".join(map(str, files)), local_files.digest(files), left_out)


def _side(documents: list[Document], prefix: str, member: bool) -> list[Document]:
    """One class, with groups that are distinct from those of the other class."""
    return [replace(d, member=member, group=prefix + (d.group or d.source)) for d in documents]


def _check_single(documents: list[Document], file: Path, place: str) -> None:
    """Refuse several rows per book: rows do not record their place in the book."""
    book, count = Counter(d.group for d in documents).most_common(1)[0]
    if count > 1:
        raise UsageError(
            f"{file} must have one row a book if {place} alone is asked for; {book.removeprefix('new:')} has {count}: "
            f"collect with --options places={place}"
        )


def _cut(documents: list[Document], file: Path, words: int, places: tuple[str, ...]) -> list[Document]:
    cut = [replace(d, text=text) for d in documents for text in segments(d.text, words, places or PLACES)]
    if not cut:
        raise UsageError(f"{file} must have texts of at least {words} words; all {len(documents)} are shorter")
    return cut
