"""The files of a collection: its rows, an unfinished one with the cursor to resume from, and files that appear whole.

FILE.partial begins with a line that has the order. Rows follow, and after each page a line with the cursor of the
source. Rows after the last cursor come from a page that was not finished: a resumed run cuts them off and requests that
page again. So no row is lost and none comes twice, wherever the run was killed.
"""

import json
import os
import tempfile
from collections import Counter
from collections.abc import Callable, Mapping
from datetime import date as Date  # noqa: N812 - the same name as in fsd.data.documents
from pathlib import Path
from typing import Any

import filelock

from fsd.collection.source import Journal
from fsd.data.documents import Document, content_hash
from fsd.errors import UsageError
from fsd.net.http import Clock

BARREN = 5_000
"""Number of texts in a row without a suitable one after which a collection stops."""


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
        temporary.write_bytes(content)
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def partial_path(out: Path) -> Path:
    """FILE.jsonl -> FILE.jsonl.partial."""
    return out.with_name(f"{out.name}.partial")


class PartialCollection(Journal):
    """The journal of a source together with the rows taken from it, `documents`, both on disk.

    `found` is the number of texts that the source has yielded or left out so far; `on_save` is called at every save.
    """

    def __init__(self, out: Path, order: Mapping[str, Any], clock: Clock) -> None:
        super().__init__(clock=clock)
        self.documents: list[Document] = []
        self.found = 0
        self.on_save: Callable[[], None] = lambda: None
        self._path = partial_path(out)
        if out.exists() and not self._path.exists():
            raise UsageError(f"out must be a file that does not exist yet; {out} exists: move it or name another")
        self._lock = filelock.FileLock(out.with_name(f".{out.name}.lock"))
        try:
            out.parent.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryFile(dir=out.parent):  # a lock that cannot be made there looks like a taken one
                self._lock.acquire(timeout=0)
        except filelock.Timeout as error:
            message = f"{out} must be collected by one process at a time; another one is collecting it"
            raise UsageError(message) from error
        except OSError as error:
            raise UsageError(f"out must be in a folder that can be written to; {out}: {error.strerror}") from error
        self._file = self._path.open("a+b")
        try:
            size = self._restore(order)
        except UsageError:
            self._release()
            raise
        self._file.truncate(size)
        if not size:
            self._write({"order": order})
        self._kept_at = self.found

    def add(self, document: Document) -> None:
        """Append a row."""
        self.documents.append(document)
        self._file.write(json_line(document))
        self._kept_at = self.found

    def save(self, cursor: Any) -> None:
        """Save the cursor, and with it all rows so far; UsageError if none of the last `BARREN` texts was kept."""
        super().save(cursor)
        self._write({"cursor": cursor, "found": self.found, "dropped": self.dropped})
        self.on_save()
        if self.found - self._kept_at >= BARREN:
            reasons = ", ".join(f"{count:,} {reason}" for reason, count in self.dropped.most_common())
            raise UsageError(
                f"the source must have suitable texts; none of the last {self.found - self._kept_at:,} was kept "
                f"(dropped in all: {reasons}): change the specification, or run the same command again to go on"
            )

    def drop(self, reason: str) -> None:
        """Count a text that the source leaves out."""
        self.found += 1
        super().drop(reason)

    def close(self) -> None:
        """Close the file; it stays for another run if there is a cursor to resume from."""
        if self.cursor is None:
            self._path.unlink(missing_ok=True)
        self._release()

    def _release(self) -> None:
        self._file.close()
        self._lock.release()
        Path(self._lock.lock_file).unlink(missing_ok=True)

    def _write(self, line: Mapping[str, Any]) -> None:
        """Append a line that is not a row, so that a killed run finds it and all before it."""
        self._file.write((json.dumps(line) + "\n").encode())
        self._file.flush()

    def _restore(self, order: Mapping[str, Any]) -> int:
        """Read the rows up to the last cursor; the number of bytes up to there."""
        self._file.seek(0)
        lines = [line for line in self._file if line.endswith(b"\n")]  # the last one may be torn
        if not lines:
            return 0
        try:
            before = json.loads(lines[0])["order"]
            at = max((n for n, line in enumerate(lines) if line.startswith(b'{"cursor"')), default=0)
            self.documents = [from_json(line) for line in lines[1:at] if not line.startswith(b'{"cursor"')]
            state = json.loads(lines[at]) if at else {"cursor": None, "found": 0, "dropped": {}}
            self.cursor, self.found, self.dropped = state["cursor"], state["found"], Counter(state["dropped"])
        except (ValueError, KeyError, TypeError) as error:
            raise UsageError(f"{self._path} must be an unfinished collection of this command; delete it") from error
        if before != order:
            changed = [name for name in order if before.get(name) != order[name]]
            raise UsageError(
                f"{self._path} must be of the same collection to resume; it has another "
                f"{', '.join(changed) or 'format'}: name another --out, or delete it"
            )
        return sum(map(len, lines[: at + 1]))
