"""Segments of books: passages of a number of words, of which a benchmark is made."""

import re

Places = tuple[str, ...]
"""Some of `PLACES`, where in a book a segment is."""
PLACES = ("head", "middle", "tail")
WHOLE = "whole"
TAIL = 2
"""Segments at the end of a book that are its tail."""


def segments(text: str, words: int, places: Places) -> list[str]:
    """Segments of `words` words of a text, which is divided into n of them from its beginning; the rest is left out.

    The head is the first one, the middle is number n // 2, counted from 0, and the tail is the last two (SURP, arXiv
    2407.21248, §5.1). A segment that is at two of the places is taken once. The place `WHOLE` is all of the text.
    """
    if WHOLE in places:
        return [text]
    spans = [match.span() for match in re.finditer(r"\S+", text)]
    count = len(spans) // words
    if count == 0:
        return []
    numbers = {"head": [0], "middle": [count // 2], "tail": range(max(0, count - TAIL), count)}
    chosen = set[int]()
    for place in places:
        chosen.update(numbers[place])
    cuts = []
    for number in sorted(chosen):
        begin, _ = spans[number * words]
        _, end = spans[(number + 1) * words - 1]
        cuts.append(text[begin:end])
    return cuts
