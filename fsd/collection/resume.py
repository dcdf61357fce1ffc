"""An unfinished collection on disk: its rows so far, and the cursor to resume from.

FILE.partial has the rows; FILE.journal has the cursor of the source and the number of bytes of FILE.partial that belong
to what was read before it. Rows after those bytes come from a page that was not finished: a resumed run cuts them off
and requests that page again. So no row is lost and none comes twice, wherever the run was killed.
"""

import json
import os
import tempfile
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import asdict
from datetime import date as Date  # noqa: N812 - the same name as in fsd.data.documents
from pathlib import Path
from typing import Any, BinaryIO

import filelock

from fsd.collection.source import Journal
from fsd.data.documents import Document, content_hash
from fsd.errors import UsageError
from fsd.net.http import Clock


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


def plain(value: Any) -> Any:
    """A dataclass as JSON values; dates become strings."""
    return json.loads(json.dumps(asdict(value), default=str))


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


BARREN = 5_000
"""Number of texts in a row without a suitable one after which a collection stops."""


class PartialCollection(Journal):
    """The journal of a source together with the rows taken from it, both on disk.

    Args:
        out: the final file.
        spec: what is collected, as JSON values; a partial file of another collection is refused.
        clock: the time.

    Attributes:
        documents: the rows so far.
        found: number of texts that the source has yielded or left out so far.
        on_save: called at every save.

    Raises:
        UsageError: if `out` exists or cannot be written, its partial file belongs to another collection, or another
            process is collecting it.
    """

    def __init__(self, out: Path, spec: Mapping[str, Any], clock: Clock) -> None:
        super().__init__(clock=clock)
        self.found = 0
        self.on_save: Callable[[], None] = lambda: None
        self._spec = spec
        self._rows, self._state = (out.with_name(out.name + ending) for ending in (".partial", ".journal"))
        if out.exists() and not self._state.exists():
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
        try:
            size = self._restore()
            self._file: BinaryIO = self._rows.open("r+b" if self._rows.exists() else "w+b")
            self._file.truncate(size)
            self._file.seek(0)
            self.documents = [from_json(line) for line in self._file]
            self._kept_at = self.found
        except BaseException:
            self._release()
            raise
        if not self._state.exists():
            self.save(None)

    def add(self, document: Document) -> None:
        """Append a row."""
        self.documents.append(document)
        self._file.write(json_line(document))
        self._kept_at = self.found

    def save(self, cursor: Any) -> None:
        """Save the cursor, and with it all rows so far.

        Raises:
            UsageError: if none of the last `BARREN` texts was kept: a specification that nothing meets would make
                requests without end.
        """
        super().save(cursor)
        self._file.flush()
        os.fsync(self._file.fileno())
        state = {
            "order": self._spec,
            "cursor": cursor,
            "bytes": self._file.tell(),
            "found": self.found,
            "dropped": dict(self.dropped),
        }
        write_atomically(self._state, pretty_json(state))
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
        """Close the files; they stay for another run if there is a cursor to resume from."""
        self._file.close()
        if self.cursor is None:
            self._rows.unlink(missing_ok=True)
            self._state.unlink(missing_ok=True)
        self._release()

    def remove(self) -> None:
        """Delete both files: the collection is finished."""
        self.cursor = None
        self.close()

    def _release(self) -> None:
        self._lock.release()
        Path(self._lock.lock_file).unlink(missing_ok=True)

    def _restore(self) -> int:
        """Read the journal; the number of bytes of the rows that it covers."""
        if not self._state.exists():
            return 0
        try:
            state = json.loads(self._state.read_bytes())
            size = int(state["bytes"])
            self.cursor, self.found, self.dropped = state["cursor"], state["found"], Counter(state["dropped"])
        except (ValueError, KeyError) as error:
            raise UsageError(f"{self._state} must be a journal of this command; delete it and its .partial") from error
        if state["order"] != self._spec:
            changed = [name for name in self._spec if state["order"].get(name) != self._spec[name]]
            raise UsageError(
                f"{self._rows} must be of the same collection to resume; it has another "
                f"{', '.join(changed) or 'format'}: name another --out, or delete it and its .journal"
            )
        if not self._rows.exists() or self._rows.stat().st_size < size:
            raise UsageError(f"{self._rows} must hold the {size} bytes in its journal; delete both to start over")
        return size
