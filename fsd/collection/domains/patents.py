"""Chinese patents, as in PatentMIA, from your own dump or export.

No patent office serves full texts with priority dates to the public. A description cannot have been published before
the invention was filed.
"""

import re
import warnings
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from fsd.collection.domains.local import dated
from fsd.collection.source import Journal, Window
from fsd.data.documents import Document, cut
from fsd.errors import UsageError

LANGUAGE = "zh"
COLUMNS = "text=text,date=priority_date,group=publication_number"
PAGE = "https://patents.google.com/patent/"
NUMBER = re.compile(r"[A-Z]{2}\d+[A-Z]\d?")
NOISE = {
    r"<[^<>]{1,200}>": "",  # markup of exports
    r"[\[【〔]\s*\d{4,5}\s*[\]】〕]": "",  # numbers of paragraphs
    r"[ \t\u3000]+": " ",
    r"\s*\n\s*": "\n",
}


def texts(
    window: Window,
    journal: Journal,
    *,
    path: str,
    columns: str = COLUMNS,
    language: str = LANGUAGE,
    words: int = 512,
) -> Iterator[Document]:
    """The first `words` words of each description (512 in PatentMIA), by jieba where `language` is zh, cleaned."""
    for document in dated(path, columns, window, journal):
        text = document.text
        # In this order: markup may hide the number of a paragraph, and both leave blanks.
        for pattern, replacement in NOISE.items():
            text = re.sub(pattern, replacement, text)
        snippet = _snippet(text.strip(), words, language)
        if not snippet:
            journal.drop("shorter than a snippet")
            continue
        origin_url = document.origin_url
        if NUMBER.fullmatch(document.group):
            origin_url = f"{PAGE}{document.group}"
        yield replace(document, text=snippet, member=None, origin_url=origin_url)


def _snippet(text: str, words: int, language: str) -> str:
    """The text up to the end of its first `words` words; "" if it has fewer."""
    if language != "zh":
        return cut(text, words) if len(text.split()) >= words else ""
    end = 0
    count = 0
    for word in _jieba().cut(text):
        end += len(word)
        # jieba gives punctuation as words of its own.
        count += bool(re.search(r"\w", word))
        if count == max(words, 1):
            return text[:end]
    return text if not words else ""


def _jieba() -> Any:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of deprecations inside the package
            import jieba
    except ImportError as error:
        raise UsageError(
            "patents in Chinese must be segmented by jieba, which is not installed: pip install 'fsd[chinese]'"
        ) from error
    jieba.setLogLevel("WARNING")
    return jieba
