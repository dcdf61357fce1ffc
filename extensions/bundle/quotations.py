"""Texts that must not be handed over: found in the files of a run, and replaced by their hashes."""

import io
import json
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import PurePath
from typing import Any

from fsd.api import UNSPACED, content_hash

QUOTED_WORDS = 5
"""Words in a row that make a file a quotation of a text."""
REDACTED = "sha256:"
"""Stands before the hash of a text that is left out."""
NUMBERS = (".png", ".safetensors", ".npz")
"""Endings of files that hold no words."""


class Quotations:
    """Recognises texts in files, and replaces them by their hashes."""

    def __init__(self, texts: Iterable[str]) -> None:
        self._pieces: set[tuple[str, ...]] = set()
        self._short: set[str] = set()
        for text in texts:
            words = _words(text)
            if len(words) < QUOTED_WORDS:
                self._short.add(text.strip())
            self._pieces.update(_pieces(words))

    def in_text(self, text: str) -> bool:
        """Whether a text is one of them, or shares `QUOTED_WORDS` words in a row with one."""
        if text.strip() in self._short:
            return True
        return not self._pieces.isdisjoint(_pieces(_words(text)))

    def without(self, name: str, content: bytes) -> bytes | None:
        """A file with hashes in place of the texts that it quotes; None if it quotes some and is no table."""
        ending = PurePath(name).suffix
        if ending in NUMBERS:
            return content
        if ending == ".json":
            return self._json(content)
        if ending == ".jsonl":
            return b"".join(map(self._json, filter(bytes.strip, content.splitlines(keepends=True))))
        if ending in (".parquet", ".csv"):
            return self._table(content, parquet=ending == ".parquet")
        text = content.decode("utf-8", errors="replace")
        quotes = self.in_text(text) or any(map(self.in_text, text.splitlines()))
        return None if quotes else content

    def _json(self, content: bytes) -> bytes:
        value = json.loads(content)
        hashed = self._hashed(value)
        if hashed == value:
            return content
        return (json.dumps(hashed, ensure_ascii=False) + "\n").encode()

    def _table(self, content: bytes, *, parquet: bool) -> bytes:
        import pandas as pd

        frame = pd.read_parquet(io.BytesIO(content)) if parquet else pd.read_csv(io.BytesIO(content))
        hashed = frame.copy()
        for column in frame.select_dtypes(exclude=["number", "bool"]):
            hashed[column] = frame[column].map(self._hashed)
        if hashed.equals(frame):
            return content
        return hashed.to_parquet(index=False) if parquet else hashed.to_csv(index=False).encode()

    def _hashed(self, value: Any) -> Any:
        if isinstance(value, dict):
            return {key: self._hashed(entry) for key, entry in value.items()}
        if isinstance(value, list):
            return list(map(self._hashed, value))
        if isinstance(value, str) and self.in_text(value):
            return REDACTED + content_hash(value)
        return value


def _words(text: str) -> list[str]:
    # A page writes signs as entities, whose letters are no words of the text.
    return re.findall(rf"[{UNSPACED}]|[^\W{UNSPACED}]+", re.sub(r"&#?\w+;", " ", text.lower()))


def _pieces(words: Sequence[str]) -> Iterator[tuple[str, ...]]:
    for start in range(len(words) - QUOTED_WORDS + 1):
        yield tuple(words[start : start + QUOTED_WORDS])
