"""The files of a collection: a JSON line for each text, and files that appear whole."""

import json
import os
from datetime import date as Date  # noqa: N812 - the same name as in fsd.data.documents
from pathlib import Path

from fsd.data.documents import Document, content_hash


def json_line(document: Document) -> bytes:
    """A document as a JSON line: text, label, date, group, source, sha256 and, if it is known, period."""
    row = {
        "text": document.text,
        "label": int(bool(document.member)),
        "date": document.date.isoformat() if document.date else None,
        "group": document.group,
        "source": document.source,
        "sha256": content_hash(document.text),
        **({"period": document.period} if document.period else {}),
    }
    return (json.dumps(row, ensure_ascii=False) + "\n").encode()


def from_json(line: bytes) -> Document:
    """The document of a line that `json_line` made."""
    row = json.loads(line)
    day, period = Date.fromisoformat(row["date"]), row.get("period", "")
    return Document(row["text"], bool(row["label"]), day, row["group"], row["source"], period)


def pretty_json(value: object) -> bytes:
    """A JSON file for people and programs."""
    return (json.dumps(value, ensure_ascii=False, indent=2) + "\n").encode()


def write_atomically(path: Path, content: bytes) -> None:
    """Write a file so that no reader ever sees a part of it."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with temporary.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
