"""The collector: read a source, drop unsuitable texts and count the reasons, write rows and manifest."""

import hashlib
import json
import platform
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from datetime import date as Date  # noqa: N812 - documents have a field date
from importlib import metadata
from itertools import islice
from pathlib import Path
from typing import Any

import filelock

from fsd.collection import domains, language_check
from fsd.collection.domains import Domain
from fsd.collection.source import Journal, Window
from fsd.data.documents import Document, json_line
from fsd.data.near_duplicates import families, words
from fsd.data.readers import read_files
from fsd.data.splitting import AFTER, UP_TO
from fsd.errors import UsageError, at_least
from fsd.files import SMALL, digest, read_json
from fsd.leftovers import write_whole
from fsd.net.http import Clock
from fsd.progress import progress

BARREN = 5_000
"""Number of texts in a row without a suitable one after which a collection stops."""
MANIFEST = ".manifest.json"
"""End of the name of the file beside the rows."""


def from_json(line: bytes) -> Document:
    """The document of a line that `json_line` made."""
    row = json.loads(line)
    day, period = Date.fromisoformat(row["date"]), row.get("period", "")
    return Document(row["text"], bool(row["label"]), day, row["group"], row["source"], period)


def pretty_json(value: object) -> bytes:
    """A JSON file for people and programs."""
    return (json.dumps(value, ensure_ascii=False, indent=2) + "\n").encode()


class PartialCollection(Journal):
    """The journal of a source with the rows taken from it, both on disk in FILE.partial, and the number `found`."""

    def __init__(self, out: Path, order: Mapping[str, Any], clock: Clock) -> None:
        super().__init__(clock=clock)
        self.documents: list[Document] = []
        self.found = self._kept_at = 0
        self.on_save: Callable[[], None] = lambda: None
        self._path = Path(f"{out}.partial")
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
            self._restore(order)
        except UsageError:
            self._release()
            raise

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

    def _restore(self, order: Mapping[str, Any]) -> None:
        """Read the rows up to the last cursor, and cut off what follows; begin the file if it has none."""
        self._file.seek(0)
        lines = [line for line in self._file if line.endswith(b"\n")]  # the last one may be torn
        cursors = [n for n, line in enumerate(lines) if line.startswith(b'{"cursor"')]
        try:
            before = json.loads(lines[0])["order"] if lines else order
            if cursors:
                rows = (line for line in lines[1 : cursors[-1]] if not line.startswith(b'{"cursor"'))
                self.documents = [from_json(line) for line in rows]
                state = json.loads(lines[cursors[-1]])
                self.cursor, self.found, self.dropped = state["cursor"], state["found"], Counter(state["dropped"])
        except (ValueError, KeyError, TypeError) as error:
            raise UsageError(f"{self._path} must be an unfinished collection of this command; delete it") from error
        if before != order:
            changed = [name for name in order if before.get(name) != order[name]]
            raise UsageError(
                f"{self._path} must be of the same collection to resume; it has another "
                f"{', '.join(changed) or 'format'}: name another --out, or delete it"
            )
        self._kept_at = self.found
        self._file.truncate(sum(map(len, lines[: cursors[-1] + 1 if cursors else 1])))
        if not lines:
            self._write({"order": order})


@dataclass(frozen=True)
class CollectionSpec:
    """What to collect; a run with an equal specification resumes an interrupted one."""

    domain: str
    window: Window
    language: str = ""  # "" for any
    options: Mapping[str, Any] = field(default_factory=dict)
    min_words: int = 32
    benchmark: tuple[str, ...] = ()  # files whose texts, and near-duplicates of them, are dropped
    because: str = ""  # the fact behind the day of the window, for the manifest
    contemporaries: bool = False

    @property
    def member(self) -> bool:
        """Label of the texts."""
        return self.window.after is None and not self.contemporaries

    @property
    def order(self) -> dict[str, Any]:
        """The specification as JSON values."""
        values: dict[str, Any] = json.loads(json.dumps(asdict(self), default=str))
        return values


@dataclass(frozen=True)
class Collection:
    """A finished collection: labelled and dated texts, the day nearest to the cutoff first, the manifest, the file."""

    documents: list[Document]
    manifest: dict[str, Any]
    path: Path


@dataclass(frozen=True)
class CollectionJob:
    """A file to be collected, after all checks that need no request; `finished` if an earlier run has done so."""

    spec: CollectionSpec
    limit: int
    out: Path
    domain: Domain
    clock: Clock
    finished: Collection | None

    def run(self) -> Collection:
        """Collect up to `limit` texts into a JSONL file, with a manifest beside it, unless it is finished."""
        if self.finished:
            return self.finished
        benchmark = [document.text for document in read_files(self.spec.benchmark)] if self.spec.benchmark else []
        partial = PartialCollection(self.out, self.spec.order, self.clock)
        try:
            ended = self._gather(partial, benchmark)
            return self._write(partial, benchmark, ended)
        finally:
            partial.close()

    def _gather(self, partial: PartialCollection, benchmark: Sequence[str]) -> bool:
        """Collect until `limit` rows are left without near-duplicates; whether the source ended."""
        suitable = self._suitable(partial, benchmark)
        with progress(self.limit, self.domain.name, "texts", shown=True) as bar:
            partial.on_save = lambda: bar.set_postfix_str(
                f"{partial.found:,} found, {partial.dropped.total():,} dropped"
            )
            while True:
                missing = self.limit - len(distinct(partial.documents, benchmark)[0])
                bar.update(self.limit - missing - bar.n)
                if missing <= 0:
                    return False
                before = len(partial.documents)
                for document in islice(suitable, missing):  # some of them may be near-duplicates
                    partial.add(document)
                    bar.update()
                if len(partial.documents) < before + missing:
                    return True

    def _suitable(self, partial: PartialCollection, benchmark: Sequence[str]) -> Iterator[Document]:
        """Labelled texts of the source, without those that one text alone shows to be unsuitable or that come again."""
        period = AFTER if self.spec.window.before is None else UP_TO
        known = dict.fromkeys((document.text for document in partial.documents), "duplicate")
        known |= dict.fromkeys(benchmark, "in the benchmark")
        for document in self.domain.texts(self.spec.window, partial, **self.spec.options):
            reason = self._unsuitable(document) or known.setdefault(document.text, "")
            if reason:
                partial.drop(reason)
            else:
                partial.found += 1
                known[document.text] = "duplicate"
                yield replace(document, member=self.spec.member, period=period)

    def _unsuitable(self, document: Document) -> str:
        """Why a text is dropped; "" if it is not."""
        spec, text = self.spec, document.text
        if document.date is None:
            return "no date"
        if document.date > self.clock.today:
            return "dated in the future"
        if document.date not in spec.window:
            return "outside the dates"
        if any("\ud800" <= sign <= "\udfff" for sign in text):
            return "not valid Unicode"
        tokens = words(text)
        unspaced = sum(len(token) == 1 and ord(token) > 0x2E7F for token in tokens)
        if len(tokens) - unspaced / 2 < spec.min_words:
            return "too short"
        return f"not in {spec.language}" if spec.language and not language_check.is_in(text, spec.language) else ""

    def _write(self, partial: PartialCollection, benchmark: Sequence[str], ended: bool) -> Collection:
        """Write the rows without near-duplicates, up to the limit, after their manifest."""
        spec = self.spec
        documents, duplicates = distinct(partial.documents, benchmark)
        dropped = partial.dropped + duplicates + Counter({"over the limit": max(0, len(documents) - self.limit)})
        documents = documents[: self.limit]
        if not documents:
            partial.cursor = None
            reasons = ", ".join(f"{count} {reason}" for reason, count in dropped.most_common()) or "nothing"
            raise UsageError(
                f"{spec.domain} must have suitable texts published {spec.window}; "
                f"of {partial.found} found none is left: {reasons}"
            )
        content = b"".join(map(json_line, documents))
        days = [document.date.isoformat() for document in documents if document.date]
        manifest = {
            "order": spec.order,
            "label": int(spec.member),
            "limit": self.limit,
            "kept": len(documents),
            "first_date": min(days),
            "last_date": max(days),
            "groups": len({document.group for document in documents} - {""}),
            "language_checked": bool(spec.language) and language_check.is_supported(spec.language),
            "sha256": hashlib.sha256(content).hexdigest(),
            "benchmark_sha256": {file: digest(file) for file in spec.benchmark},
            "finished": datetime.fromtimestamp(self.clock.wall(), UTC).isoformat(timespec="seconds"),
            "versions": {
                "fsd": metadata.version("fsd"),
                "python": platform.python_version(),
                "requests": metadata.version("requests"),
            },
            "found": partial.found,
            "dropped": dict(sorted(dropped.items())),
            "source_ended": ended,
        }
        write_whole(self.out.with_suffix(MANIFEST), pretty_json(manifest))
        write_whole(self.out, content)
        partial.cursor = None
        return Collection(documents, manifest, self.out)


def prepare(spec: CollectionSpec, limit: int, out: Path, *, clock: Clock | None = None) -> CollectionJob:
    """Check what is to be collected, without a request; UsageError for a specification that cannot be met."""
    clock, domain = clock or Clock(), domains.load(spec.domain)
    at_least(1, limit=limit, min_words=spec.min_words)
    if out.suffix != ".jsonl":
        raise UsageError(f"out must be a file that ends in .jsonl; got {out}")
    for name, day in (("after", spec.window.after), ("before", spec.window.before)):
        if day and day >= clock.today:
            raise UsageError(
                f"{name} must be a day before today, {clock.today}; got {day}: there are no such texts yet"
            )
        if day and (day < domain.first or (name == "before" and day == domain.first)):
            raise UsageError(f"{name} must be a day of {domain.name}, which begins on {domain.first}; got {day}")
    return CollectionJob(spec, limit, out, domain, clock, _finished(spec, limit, out))


def _finished(spec: CollectionSpec, limit: int, out: Path) -> Collection | None:
    """The result of an earlier run, unless that run was killed before it removed its unfinished file."""
    if not (out.is_file() and out.with_suffix(MANIFEST).is_file()) or Path(f"{out}.partial").exists():
        return None
    content = out.read_bytes()
    manifest = read_json(dict[str, Any], out.with_suffix(MANIFEST), "the manifest of a collection", largest=SMALL)
    expected = {"order": spec.order, "limit": limit, "sha256": hashlib.sha256(content).hexdigest()}
    if any(manifest.get(name) != value for name, value in expected.items()):
        return None
    return Collection([from_json(line) for line in content.splitlines()], manifest, out)


def distinct(documents: Sequence[Document], benchmark: Sequence[str]) -> tuple[list[Document], Counter[str]]:
    """The first of each family of near-duplicates that is not in the benchmark, and the number of others by reason."""
    family = families([Document(text) for text in (*benchmark, *(document.text for document in documents))])
    seen = dict.fromkeys(family[: len(benchmark)], "near-duplicate of the benchmark")
    first, dropped = [], Counter[str]()
    for document, number in zip(documents, family[len(benchmark) :], strict=True):
        if number in seen:
            dropped[seen[number]] += 1
        else:
            seen[number] = "near-duplicate"
            first.append(document)
    return first, dropped
