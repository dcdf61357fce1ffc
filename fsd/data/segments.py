"""Excerpts of long texts: the first words, or segments of a book as in Dolma-Book (SURP, arXiv 2407.21248)."""

import re

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
