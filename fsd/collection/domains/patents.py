"""Chinese patents, as PatentMIA has them, from a dump or export of your own.

No office serves full texts with priority dates to everybody, so the texts come from a local JSONL, CSV or Parquet
file. The priority date decides: a description cannot have been published before the invention was first filed.
"""

import re
import warnings
from collections.abc import Iterator
from typing import Any

from fsd.collection.domains.local import dated
from fsd.collection.source import Journal, Window, sides
from fsd.data.documents import Document
from fsd.data.segments import cut
from fsd.errors import UsageError

LANGUAGE = "zh"
COLUMNS = "text=text,date=priority_date,group=publication_number"
PAGE = "https://patents.google.com/patent/"
NUMBER = re.compile(r"[A-Z]{2}\d+[A-Z]\d?")
NOISE = (
    (re.compile(r"<[^<>]{1,200}>"), ""),  # markup of exports
    (re.compile(r"[\[【〔]\s*\d{4,5}\s*[\]】〕]"), ""),  # numbers of paragraphs
    (re.compile(r"[ \t\u3000]+"), " "),
    (re.compile(r"\s*\n\s*"), "\n"),
)


def texts(
    window: Window,
    journal: Journal,
    *,
    path: str,
    columns: str = COLUMNS,
    language: str = LANGUAGE,
    words: int = 512,
) -> Iterator[Document]:
    """The first words of each description, cleaned of markup and paragraph numbers.

    Args:
        window: days of priority.
        journal: counts those that are shorter than a snippet.
        path: the file.
        columns: names of the columns.
        language: for zh, words are cut by jieba, else at spaces.
        words: length of a snippet; PatentMIA has 512.
    """
    for found in dated(path, columns, window):
        text = found.text
        for pattern, replacement in NOISE:
            text = pattern.sub(replacement, text)
        snippet = _snippet(text.strip(), words, language)
        if not snippet:
            journal.drop("shorter than a snippet")
            continue
        page = f"{PAGE}{found.group}" if NUMBER.fullmatch(found.group) else found.source
        yield Document(snippet, None, found.date, found.group, page)


nonmembers, members = sides(texts)


def _snippet(text: str, words: int, language: str) -> str:
    """The text up to the end of its first `words` words; "" if it has fewer."""
    if language != "zh":
        return cut(text, words) if len(text.split()) >= words else ""
    end = count = 0
    for word in _jieba().cut(text):
        end += len(word)
        count += bool(re.search(r"\w", word))
        if count == max(words, 1):
            return text[:end]
    return text if not words else ""


def _jieba() -> Any:
    try:
        with warnings.catch_warnings():
            # the package asks for features that setuptools and Python will drop one day; nothing a user can do
            warnings.simplefilter("ignore")
            import jieba
    except ImportError as error:
        raise UsageError(
            "patents in Chinese must be cut by jieba, which is not here: pip install 'fsd[chinese]'"
        ) from error
    jieba.setLogLevel("WARNING")
    return jieba
