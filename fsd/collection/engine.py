"""The collector: read a source, drop unsuitable texts and count the reasons, write rows and manifest."""

import hashlib
import json
import platform
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from importlib.metadata import version
from itertools import islice
from pathlib import Path
from typing import Any

from fsd.collection import domains, language_check
from fsd.collection.domains import Domain
from fsd.collection.source import Journal, Window
from fsd.data import fields
from fsd.data.documents import Document, Documents, json_line
from fsd.data.near_duplicates import families, words
from fsd.data.periods import AFTER, UP_TO
from fsd.data.readers import data_files_of, read_files
from fsd.errors import UsageError, at_least, refusing, without_credentials
from fsd.files import JSON, SMALL, digest, read_json
from fsd.leftovers import replacing, write_whole
from fsd.net.http import Clock
from fsd.progress import progress
from fsd.unspaced import IS_UNSPACED

# Number of texts in a row without a suitable one after which a collection stops.
BARREN = 5_000
# End of the name of the file beside the rows.
MANIFEST = ".manifest.json"
# How a line of an unfinished collection begins that is not a row.
CURSOR = b'{"cursor"'
# Half of a pair of UTF-16, which JSON can hold and UTF-8 cannot.
_SURROGATE = re.compile("[\ud800-\udfff]")


def from_lines(lines: Iterable[bytes]) -> list[Document]:
    """The documents of lines that `json_line` made."""
    # A row says itself where its text comes from; the place in the file is no origin.
    return [fields.document(row, {}, row["source"], labelled=True) for row in map(json.loads, lines)]


def pretty_json(value: object) -> bytes:
    """A JSON file for people and programs."""
    return (json.dumps(value, ensure_ascii=False, indent=2) + "\n").encode()


def days(documents: Documents) -> list[str]:
    """The dates, sorted, as year-month-day."""
    return sorted(str(document.date) for document in documents if document.date)


def n_groups(documents: Documents) -> int:
    """Number of groups; texts whose group is unknown are none."""
    return len({document.group for document in documents} - {""})


def _counts(dropped: Counter[str]) -> str:
    return ", ".join(f"{count:,} {reason}" for reason, count in dropped.most_common())


def unfinished(out: Path) -> Path:
    """The file that holds a collection until it is finished."""
    return Path(f"{out}.partial")


def check_new(out: Path) -> None:
    """Refuse a file that exists, and that no interrupted collection has left."""
    if out.exists() and not unfinished(out).exists():
        raise UsageError(f"out must be a file that does not exist yet; {out} exists: move it or name another")


class PartialCollection(Journal):
    """The journal of a source with the rows taken from it, both on disk in FILE.partial, and the number `found`."""

    def __init__(self, out: Path, order: JSON, clock: Clock) -> None:
        import fcntl  # of Unix alone

        super().__init__(clock=clock)
        self.documents: list[Document] = []
        self.found = 0
        self.on_save: Callable[[], object] = lambda: None
        self._kept_at = 0
        self._lines: list[bytes] = []
        self._path = unfinished(out)
        check_new(out)
        try:
            out.parent.mkdir(parents=True, exist_ok=True)
            # To read and to append: it may be that of a killed run.
            self._file = self._path.open("a+b")
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            self._file.close()
            raise UsageError(
                f"{out} must be collected by one process at a time; another one is collecting it"
            ) from error
        except OSError as error:
            raise UsageError(f"out must be in a folder that can be written to; {out}: {error.strerror}") from error
        try:
            with refusing(f"{self._path} must be an unfinished collection of this command; delete it; "):
                self._restore(order)
        except UsageError:
            self._file.close()
            raise

    def add(self, document: Document) -> None:
        """Append a row, which is written with the next cursor."""
        self.documents.append(document)
        self._lines.append(json_line(document))
        self._kept_at = self.found

    def save(self, cursor: Any) -> None:
        """Save the cursor, and with it all rows so far; UsageError if none of the last `BARREN` texts was kept."""
        super().save(cursor)
        self._write({"cursor": cursor, "found": self.found, "dropped": self.dropped})
        self.on_save()
        # Only once the cursor is saved, so that the same command goes on behind these texts.
        barren = self.found - self._kept_at
        if barren >= BARREN:
            raise UsageError(
                f"the source must have suitable texts; none of the last {barren:,} was kept (dropped in all: "
                f"{_counts(self.dropped)}): change the specification, or run the same command again to go on"
            )

    def drop(self, reason: str) -> None:
        """Count a text that the source leaves out."""
        self.found += 1
        super().drop(reason)

    def close(self) -> None:
        """Close the file; it stays for another run if there is a cursor to resume from."""
        if self.cursor is None:
            self._path.unlink(missing_ok=True)
        self._file.close()

    def _write(self, state: JSON) -> None:
        """Append the rows since the last state, and the state."""
        self._file.write(b"".join(self._lines) + json.dumps(state).encode() + b"\n")
        self._file.flush()
        self._lines.clear()

    def _restore(self, order: JSON) -> None:
        """Take over the rows up to the last cursor, and cut off what follows; begin the file if it has none."""
        self._file.seek(0)
        # A killed run may have torn the last line.
        lines = self._file.read().split(b"\n")[:-1]
        if not lines:
            # Half a line may be there.
            self._file.truncate(0)
            self._write({"order": order})
            return
        previous = json.loads(lines[0])["order"]
        changed = [name for name in order if previous.get(name) != order[name]]
        if changed:
            raise UsageError(
                f"{self._path} must be of the same collection to resume; it has another {', '.join(changed)}: name "
                "another --out, or delete it"
            )
        saved = 1
        for number, line in enumerate(lines, 1):
            if line.startswith(CURSOR):
                saved = number
        # What follows the last cursor will be collected again.
        self._file.truncate(sum(map(len, lines[:saved])) + saved)
        if saved > 1:
            self.documents = from_lines(line for line in lines[1:saved] if not line.startswith(CURSOR))
            state = json.loads(lines[saved - 1])
            self.cursor = state["cursor"]
            self.found = self._kept_at = state["found"]
            self.dropped = Counter(state["dropped"])


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
    def order(self) -> JSON:
        """The specification as JSON values."""
        values: JSON = json.loads(json.dumps(asdict(self), default=str))
        for name, value in values["options"].items():
            # A mirror may be named with a password.
            if isinstance(value, str):
                values["options"][name] = without_credentials(value)
        return values


@dataclass(frozen=True)
class Collection:
    """A finished collection: labelled and dated texts, the day nearest to the cutoff first, the manifest, the file."""

    documents: list[Document]
    manifest: JSON
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

    def check(self) -> None:
        """Refuse a file that exists, options without a meaning, and a benchmark that cannot be read."""
        if not self.finished:
            check_new(self.out)
            self.domain.check(**{**self.domain.options, **self.spec.options})
            self._benchmark()

    def _benchmark(self) -> list[str]:
        """The texts of the benchmark."""
        if not self.spec.benchmark:
            return []
        return [document.text for document in read_files(self.spec.benchmark)]

    def run(self) -> Collection:
        """Collect up to `limit` texts into a JSONL file, with a manifest beside it, unless it is finished."""
        if self.finished:
            return self.finished
        # Before the collection, which may take days, and in which they may change.
        benchmark = self._benchmark()
        hashes = {}
        for place in self.spec.benchmark:
            hashes[place] = digest(*data_files_of(Path(place)))
        partial = PartialCollection(self.out, self.spec.order, self.clock)
        try:
            ended = self._gather(partial, benchmark)
            return self._write(partial, benchmark, hashes, ended)
        finally:
            partial.close()

    def _gather(self, partial: PartialCollection, benchmark: Sequence[str]) -> bool:
        """Collect until `limit` rows are left without near-duplicates; whether the source ended."""
        suitable = self._suitable(partial, benchmark)
        with progress(self.limit, self.domain.name, "texts") as bar:
            partial.on_save = lambda: bar.set_postfix_str(
                f"{partial.found:,} found, {partial.dropped.total():,} dropped"
            )
            while True:
                n_distinct = len(distinct(partial.documents, benchmark)[0])
                bar.update(n_distinct - bar.n)
                missing = self.limit - n_distinct
                if missing <= 0:
                    return False
                # Some of these may be near-duplicates of earlier ones, which takes another round.
                for document in islice(suitable, missing):
                    partial.add(document)
                    bar.update()
                    missing -= 1
                if missing:
                    return True

    def _suitable(self, partial: PartialCollection, benchmark: Sequence[str]) -> Iterator[Document]:
        """Labelled texts of the source, without those that one text alone shows to be unsuitable or that come again."""
        spec = self.spec
        period = UP_TO if spec.window.before else AFTER
        reasons = dict.fromkeys((document.text for document in partial.documents), "duplicate")
        reasons |= dict.fromkeys(benchmark, "in the benchmark")
        for document in self.domain.texts(spec.window, partial, **spec.options):
            reason = self._unsuitable(document) or reasons.get(document.text)
            if reason:
                partial.drop(reason)
            else:
                partial.found += 1
                reasons[document.text] = "duplicate"
                yield replace(document, member=spec.member, period=period)

    def _unsuitable(self, document: Document) -> str:
        """Why a text is dropped; "" if it is not."""
        spec = self.spec
        if document.date is None:
            return "no date"
        if document.date > self.clock.today:
            return "dated in the future"
        if document.date not in spec.window:
            return "outside the dates"
        if _SURROGATE.search(document.text):
            return "not valid Unicode"
        tokens = words(document.text)
        # Each sign of a script without blanks is a token; about two of them make a word.
        n_signs = sum(IS_UNSPACED.match(token) is not None for token in tokens)
        if len(tokens) - n_signs / 2 < spec.min_words:
            return "too short"
        if not language_check.is_in(document.text, spec.language):
            return f"not in {spec.language}"
        return ""

    def _write(
        self, partial: PartialCollection, benchmark: Sequence[str], hashes: Mapping[str, str], ended: bool
    ) -> Collection:
        """Write the rows without near-duplicates, up to the limit, after their manifest."""
        spec = self.spec
        documents, duplicates = distinct(partial.documents, benchmark)
        dropped = partial.dropped + duplicates
        if not documents:
            # Nothing is worth resuming from: the partial file is deleted when it is closed.
            partial.cursor = None
            raise UsageError(
                f"{spec.domain} must have suitable texts published {spec.window}; "
                f"of {partial.found} found none is left: {_counts(dropped) or 'nothing'}"
            )
        # An earlier run with a larger limit may have left more rows than are wanted now. Where there are fewer, the
        # number is negative, and `+=` on counters leaves it out.
        dropped += Counter({"over the limit": len(documents) - self.limit})
        documents = documents[: self.limit]
        content = b"".join(map(json_line, documents))
        dates = days(documents)
        manifest = {
            "order": spec.order,
            "label": int(spec.member),
            "limit": self.limit,
            "kept": len(documents),
            "first_date": dates[0],
            "last_date": dates[-1],
            "groups": n_groups(documents),
            "language_checked": language_check.is_supported(spec.language),
            "sha256": hashlib.sha256(content).hexdigest(),
            "benchmark_sha256": hashes,
            "finished": datetime.fromtimestamp(self.clock.wall(), UTC).isoformat(timespec="seconds"),
            "versions": {"python": platform.python_version()} | {name: version(name) for name in ("fsd", "requests")},
            "found": partial.found,
            "dropped": dict(sorted(dropped.items())),
            "source_ended": ended,
        }
        with replacing(self.out) as rows:
            # A disk that is full refuses them before there is a manifest of rows that are nowhere.
            rows.write_bytes(content)
            # The manifest comes first and has the hash of the rows: a run that is killed in between starts anew.
            write_whole(self.out.with_suffix(MANIFEST), pretty_json(manifest))
        partial.cursor = None
        return Collection(documents, manifest, self.out)


def prepare(spec: CollectionSpec, limit: int, out: Path, *, clock: Clock | None = None) -> CollectionJob:
    """Check what is to be collected, without a request; UsageError for a specification that cannot be met."""
    clock = clock or Clock()
    domain = domains.load(spec.domain)
    at_least(1, limit=limit, min_words=spec.min_words)
    if out.suffix != ".jsonl":
        raise UsageError(f"out must be a file that ends in .jsonl; got {out}")
    for name, day in spec.window.bounds.items():
        if day is None:
            continue
        if day >= clock.today:
            raise UsageError(
                f"{name} must be a day before today, {clock.today}; got {day}: there are no such texts yet"
            )
        # Nothing was published before the first day, but after it.
        if day < domain.first or (name, day) == ("before", domain.first):
            raise UsageError(f"{name} must be a day of {domain.name}, which begins on {domain.first}; got {day}")
    return CollectionJob(spec, limit, out, domain, clock, _finished(spec, limit, out))


def _finished(spec: CollectionSpec, limit: int, out: Path) -> Collection | None:
    """The result of an earlier run, unless that run was killed before it removed its unfinished file."""
    file = out.with_suffix(MANIFEST)
    if not (out.is_file() and file.is_file()) or unfinished(out).exists():
        return None
    content = out.read_bytes()
    manifest = read_json(JSON, file, "the manifest of a collection", largest=SMALL)
    # The hash tells rows that somebody has edited, or that a killed run wrote before this manifest.
    expected = {"order": spec.order, "limit": limit, "sha256": hashlib.sha256(content).hexdigest()}
    if expected.items() <= manifest.items():
        return Collection(from_lines(content.splitlines()), manifest, out)
    return None


def distinct(documents: Documents, benchmark: Sequence[str]) -> tuple[list[Document], Counter[str]]:
    """The first of each family of near-duplicates that is not in the benchmark, and the number of others by reason."""
    # Texts alone: rows of one group, such as segments of a book, are no near-duplicates of each other.
    texts = list(benchmark) + [document.text for document in documents]
    family = families(list(map(Document, texts)))
    reasons = dict.fromkeys(family[: len(benchmark)], "near-duplicate of the benchmark")
    kept = []
    dropped = Counter[str]()
    for document, number in zip(documents, family[len(benchmark) :], strict=True):
        if number in reasons:
            dropped[reasons[number]] += 1
        else:
            reasons[number] = "near-duplicate"
            kept.append(document)
    return kept, dropped
