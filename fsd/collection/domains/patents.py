"""Chinese patents, as in PatentMIA, from your own dump or export.

No patent office serves full texts with priority dates to the public. A description cannot have been published before
the invention was filed, so the priority date proves that a text is new; that of publication proves that it was there.
"""

import re
from collections.abc import Iterator
from dataclasses import replace
from zlib import crc32

from numpy.random import default_rng

from fsd.collection.domains.local import dated, read
from fsd.collection.source import Journal, Window
from fsd.data import chinese
from fsd.data.documents import Document
from fsd.errors import UsageError

LANGUAGE = "zh"
FILED = "text=text,date=priority_date,group=publication_number"
PUBLISHED = "text=text,date=publication_date,group=publication_number"
PAGE = "https://patents.google.com/patent/"
NUMBER = re.compile(r"[A-Z]{2}\d+[A-Z]\d?")
NOISE = {
    r"<[^<>]{1,200}>": "",  # markup of exports
    r"[\[【〔]\s*\d{4,5}\s*[\]】〕]": "",  # numbers of paragraphs
    r"[ \t\u3000]+": " ",
    r"\s*\n\s*": "\n",
}


def check(*, path: str, columns: str, snippet: str, **_: object) -> None:
    """Refuse options without a meaning, and files that cannot be read."""
    _check_snippet(snippet)
    read(path, columns)


def _check_snippet(snippet: str) -> None:
    if snippet not in ("random", "first"):
        raise UsageError(f"options must have snippet=random or snippet=first; got {snippet!r}")


def texts(
    window: Window,
    journal: Journal,
    *,
    path: str,
    columns: str = "",
    language: str = LANGUAGE,
    words: int = 512,
    snippet: str = "random",
    seed: int = 42,
) -> Iterator[Document]:
    """A snippet of `words` words of each description, by jieba where `language` is zh, cleaned.

    PatentMIA (DC-PDD, arXiv 2409.14781, §2.2) takes a random snippet of 512 words, members by the day of publication,
    and non-members by the priority date. So a window that ends with the model's data has the column of the former.

    Args:
        window: days that are wanted.
        journal: counts what is left out.
        path: file or folder of descriptions.
        columns: names of the columns; by default text, publication_number, and the date as above.
        language: of the descriptions.
        words: length of a snippet; 0 for whole descriptions.
        snippet: `random`, or `first` for the beginning of each description.
        seed: of the random snippets, each of which depends on its own text alone.
    """
    _check_snippet(snippet)
    columns = columns or (PUBLISHED if window.newest_first else FILED)
    for document in dated(path, columns, window, journal):
        text = document.text
        # In this order: markup may hide the number of a paragraph, and both leave blanks.
        for pattern, replacement in NOISE.items():
            text = re.sub(pattern, replacement, text)
        text = _snippet(text.strip(), words, language, seed if snippet == "random" else None)
        if not text:
            journal.drop("shorter than a snippet")
            continue
        origin_url = document.origin_url
        if NUMBER.fullmatch(document.group):
            origin_url = f"{PAGE}{document.group}"
        yield replace(document, text=text, member=None, origin_url=origin_url)


def _snippet(text: str, words: int, language: str, seed: int | None) -> str:
    """So many words of a text, from its beginning without a seed; "" if it has fewer."""
    if not words:
        return text
    ends = chinese.ends(text) if language == "zh" else [match.end() for match in re.finditer(r"\S+", text)]
    spare = len(ends) - words
    if spare < 0:
        return ""
    first_word = 0
    if seed is not None:
        # Each text has a draw of its own, so that a collection that resumes takes the same snippets.
        first_word = int(default_rng([seed, crc32(text.encode())]).integers(spare + 1))
    begin = ends[first_word - 1] if first_word else 0
    return text[begin : ends[first_word + words - 1]].strip()
