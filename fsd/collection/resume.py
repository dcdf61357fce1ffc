"""A collection that is not finished yet: rows so far, and where to go on.

Two files lie beside the one to come. FILE.partial has the rows; FILE.journal says up to which byte of it the rows
are settled and from which cursor the source goes on. Rows after that byte come from a part of the source that was
not finished: a resumed run cuts them off and asks for that part again. So no row is lost and none comes twice,
wherever the run was killed.
"""

import json
import os
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict
from datetime import date as Date  # noqa: N812 - the same name as in fsd.data.documents
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from fsd.collection.source import Journal
from fsd.data.documents import Document, content_hash
from fsd.errors import UsageError
from fsd.net.http import Clock

if TYPE_CHECKING:
    from filelock import FileLock


def to_row(document: Document) -> dict[str, Any]:
    """A document as a row of the file: text, label, date, group, source, sha256."""
    return {
        "text": document.text,
        "label": int(bool(document.member)),
        "date": document.date.isoformat() if document.date else None,
        "group": document.group,
        "source": document.source,
        "sha256": content_hash(document.text),
    }


def from_row(row: Mapping[str, Any]) -> Document:
    """The document of a row."""
    return Document(row["text"], bool(row["label"]), Date.fromisoformat(row["date"]), row["group"], row["source"])


def line(document: Document) -> bytes:
    """A row as a line of JSON."""
    return (json.dumps(to_row(document), ensure_ascii=False) + "\n").encode()


def as_json(value: object) -> bytes:
    """A file of JSON for people and programs."""
    return (json.dumps(value, ensure_ascii=False, indent=2) + "\n").encode()


def write_atomically(path: Path, content: bytes) -> None:
    """Write a file that is seen whole or not at all."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with temporary.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


class Partial(Journal):
    """The journal that a source reads and saves, and the rows that were taken from it.

    Args:
        out: the file to come.
        key: what is collected; a partial file of anything else is refused.
        clock: for waiting.

    Attributes:
        documents: the rows so far.
        found: texts that the source gave or left out so far.

    Raises:
        UsageError: if `out` is there already or cannot be, something else was begun beside it, or another process
            is at it.
    """

    def __init__(self, out: Path, key: Mapping[str, Any], clock: Clock) -> None:
        super().__init__(clock=clock)
        self.documents: list[Document] = []
        self.found = 0
        self._key = json.loads(json.dumps(key))
        self._rows, self._state = (out.with_name(out.name + ending) for ending in (".partial", ".journal"))
        if out.exists() and not self._state.exists():
            raise UsageError(f"out must be a file that is not there yet; {out} exists: move it or name another")
        self._lock = _locked(out)
        try:
            size = self._restore()
            self._file: BinaryIO = self._rows.open("r+b" if self._rows.exists() else "w+b")
            self._file.truncate(size)
            self._file.seek(0)
            self.documents = [from_row(json.loads(text)) for text in self._file]
        except BaseException:
            _unlock(self._lock)
            raise
        if not self._state.exists():
            self.save(None)

    def add(self, document: Document) -> None:
        """Keep a row."""
        self.documents.append(document)
        self._file.write(line(document))

    def save(self, cursor: Any) -> None:
        """Settle everything so far."""
        super().save(cursor)
        self._file.flush()
        os.fsync(self._file.fileno())
        state = {
            "order": self._key,
            "cursor": cursor,
            "bytes": self._file.tell(),
            "found": self.found,
            "dropped": dict(self.dropped),
        }
        write_atomically(self._state, as_json(state))

    def drop(self, reason: str) -> None:
        """Count a text that the source leaves out."""
        self.found += 1
        super().drop(reason)

    def close(self) -> None:
        """Leave the files for another run, if there is a place in them to go on from."""
        self._file.close()
        if self.cursor is None:
            self._rows.unlink(missing_ok=True)
            self._state.unlink(missing_ok=True)
        _unlock(self._lock)

    def remove(self) -> None:
        """Delete both files: the collection is finished."""
        self.close()
        self._rows.unlink(missing_ok=True)
        self._state.unlink(missing_ok=True)

    def _restore(self) -> int:
        """Read the journal; the number of bytes that are settled."""
        if not self._state.exists():
            return 0
        try:
            state = json.loads(self._state.read_bytes())
            settled = int(state["bytes"])
            self.cursor, self.found, self.dropped = state["cursor"], state["found"], Counter(state["dropped"])
        except (ValueError, KeyError) as error:
            raise UsageError(f"{self._state} must be a journal of this command; delete it and its .partial") from error
        if state["order"] != self._key:
            changed = [name for name in self._key if state["order"].get(name) != self._key[name]]
            raise UsageError(
                f"{self._rows} must be of the same collection to go on; {', '.join(changed) or 'something'} was "
                "another then: name another --out, or delete it and its .journal"
            )
        if not self._rows.exists() or self._rows.stat().st_size < settled:
            raise UsageError(f"{self._rows} must hold {settled} bytes, as its journal says; delete both to start anew")
        return settled


def _locked(out: Path) -> "FileLock":
    """A lock that the system gives up with the process, however that ends."""
    import filelock

    lock = filelock.FileLock(out.with_name(f".{out.name}.lock"))
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        lock.acquire(timeout=0)
    except filelock.Timeout as error:
        raise UsageError(f"{out} must be collected by one process at a time; another is at it") from error
    except OSError as error:
        raise UsageError(f"out must be in a folder that can be written to; {out}: {error.strerror}") from error
    return lock


def _unlock(lock: "FileLock") -> None:
    lock.release()
    Path(lock.lock_file).unlink(missing_ok=True)


def keyed(value: Any) -> Any:
    """A dataclass of dates and such as plain JSON."""
    return json.loads(json.dumps(asdict(value), default=str))
