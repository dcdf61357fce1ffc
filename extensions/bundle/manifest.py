"""A bundle of evidence: its manifest, what differs from it, and texts that stand as hashes."""

import hashlib
import io
import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

from pydantic import AfterValidator, Field

from fsd.data.documents import content_hash
from fsd.files import csv_text, from_json
from fsd.unspaced import UNSPACED

if TYPE_CHECKING:
    import pandas as pd

VERSION = 1
"""Version of the form of a bundle."""
MANIFEST = "manifest.json"
PROTOCOL = "run/protocol.json"
"""Path of the protocol in a bundle."""
UNLISTED = (MANIFEST, f"{MANIFEST}.sig", f"{MANIFEST}.minisig")
"""What no manifest can list: itself, and its detached signatures by ssh-keygen and by minisign."""
QUOTED_WORDS = 5
"""Words in a row that make a file a quotation of a text."""
REDACTED = "sha256:"
"""Stands before the hash of a text that is left out."""
RELATIVE = 1e-4
ABSOLUTE = 1e-5
"""Numbers of two machines that differ by no more are the same; trainings of two processors differ by 2e-6."""
RESULTS = (".verdict", ".request", ".reply", ".fingerprint")
"""Ends of the places of texts in an answer that must be the same when it is computed again."""
TABLES = (".parquet", ".csv", ".json", ".jsonl")

Sha256 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
Size = Annotated[int, Field(ge=0)]


def _current(version: int) -> int:
    # A ValueError, which pydantic reports with the name of the field.
    if version != VERSION:
        raise ValueError(f"got version {version}, this fsd reads version {VERSION}")
    return version


def _inside(path: str) -> str:
    """Refuse a path that leads out of the bundle, which may be somebody else's."""
    parts = PurePosixPath(path).parts
    if not parts or path.startswith("/") or ".." in parts or "\\" in path:
        raise ValueError(f"paths must lie in the bundle; got {path!r}")
    return path


Inside = Annotated[str, AfterValidator(_inside)]


@dataclass(frozen=True)
class InputFile:
    """A file of an input: its name in the input, empty for the input itself, and the hash of each text in it."""

    name: str
    size: Size
    sha256: Sha256
    texts: Sequence[Sha256] = ()


@dataclass(frozen=True)
class Input:
    """What a setting of the command named: its files, none if it is not on this machine, and its copy in the bundle."""

    flag: str
    name: str
    files: Sequence[InputFile] = ()
    path: str = ""


@dataclass(frozen=True)
class Provenance:
    """Where the numbers of a run come from, as recorded when it began."""

    command: str
    command_line: str
    inputs: Sequence[Input]
    code: Mapping[str, str]
    libraries: Mapping[str, str]
    environment: Mapping[str, str]
    seed: str


@dataclass(frozen=True)
class Weights:
    """Weights of a model that took part: as what, its name, the project's hash of the tensors, and its files."""

    role: str
    name: str
    fingerprint: str
    files: Sequence[InputFile] = ()


@dataclass(frozen=True)
class Entry:
    """A file of the bundle; `original` is the hash of the run's own, where its texts were replaced by hashes."""

    path: Inside
    size: Size
    sha256: Sha256
    original: Sha256 | None = None


@dataclass(frozen=True)
class Manifest:
    """What a bundle holds, and what it is evidence of; `left_out` are the files of the run that quote texts."""

    version: Annotated[int, AfterValidator(_current)]
    made_by: str
    run: str
    headline: str
    provenance: Provenance
    weights: Sequence[Weights]
    texts: bool
    files: Sequence[Entry]
    left_out: Sequence[Entry] = field(default_factory=tuple)

    @property
    def protocol(self) -> str | None:
        """The hash of the protocol of the run."""
        for entry in self.files:
            if entry.path == PROTOCOL:
                # Of the run's own, where texts stand as hashes.
                return entry.original or entry.sha256
        return None


def read_manifest(content: bytes, place: str) -> Manifest:
    """The manifest of a bundle; a UsageError names the field that is not of this version."""
    return from_json(Manifest, content, f"{place} must be the manifest of a bundle of version {VERSION}")


class Alteration(NamedTuple):
    """A file that is not as the manifest says."""

    path: str
    what: str


def alterations(manifest: Manifest, present: Mapping[str, str]) -> list[Alteration]:
    """What differs between a manifest and the files that are there, whose hash is "" if they are no regular ones."""
    altered = []
    listed = {entry.path: entry.sha256 for entry in manifest.files}
    for path, recorded in listed.items():
        present_hash = present.get(path)
        if present_hash is None:
            altered.append(Alteration(path, "missing"))
        elif not present_hash:
            altered.append(Alteration(path, "no regular file"))
        elif present_hash != recorded:
            altered.append(Alteration(path, f"changed: SHA-256 {present_hash}, in the manifest {recorded}"))
    altered += [Alteration(path, "added") for path in present if path not in listed]
    return altered


class Difference(NamedTuple):
    """A value of an answer that came out otherwise."""

    place: str
    recorded: str
    recomputed: str


def differences(recorded: Any, recomputed: Any, place: str = "") -> Iterator[Difference]:
    """Where two tables of an answer, as JSON, differ in numbers beyond rounding, or in verdicts."""
    if isinstance(recorded, dict) and isinstance(recomputed, dict):
        # in the order of the record, which a set of names would leave to chance
        for name in {**recorded, **recomputed}:
            yield from differences(recorded.get(name), recomputed.get(name), f"{place}.{name}".lstrip("."))
    elif isinstance(recorded, list) and isinstance(recomputed, list):
        if len(recorded) != len(recomputed):
            yield Difference(f"{place}: rows", str(len(recorded)), str(len(recomputed)))
        for index, values in enumerate(zip(recorded, recomputed, strict=False)):
            yield from differences(*values, f"{place}[{index}]")
    elif not _same(recorded, recomputed, place):
        yield Difference(place, str(recorded), str(recomputed))


def _same(recorded: Any, recomputed: Any, place: str) -> bool:
    if isinstance(recorded, str) and isinstance(recomputed, str):
        # Sentences and places of texts are told differently elsewhere; a verdict is a result, and so is a reply.
        return recorded == recomputed or not place.endswith(RESULTS)
    if isinstance(recorded, float | int) and isinstance(recomputed, float | int):
        return math.isclose(recorded, recomputed, rel_tol=RELATIVE, abs_tol=ABSOLUTE)
    return bool(recorded == recomputed)


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

    def in_file(self, name: str, content: bytes) -> bool:
        """Whether a file quotes a text; a picture shows none."""
        if name.endswith((".png", ".safetensors", ".npz")):
            return False
        if name.endswith(".parquet"):
            import pandas as pd

            frame = pd.read_parquet(io.BytesIO(content))
            return any(self._in_column(frame[column]) for column in frame)
        if name.endswith((".json", ".jsonl")):
            # JSON may write letters as escapes.
            values = list(map(json.loads, _documents(name, content)))
            return any(map(self.in_text, _leaves(values)))
        text = content.decode("utf-8", errors="replace")
        return self.in_text(text) or any(map(self.in_text, text.splitlines()))

    def _in_column(self, column: "pd.Series[Any]") -> bool:
        return any(map(self.in_text, _leaves(column.tolist())))

    def without(self, name: str, content: bytes) -> bytes | None:
        """A table of the run with hashes in place of the texts; None if the file is none."""
        if not name.endswith(TABLES):
            return None
        if name.endswith((".json", ".jsonl")):
            lines = []
            for line in _documents(name, content):
                hashed = self._hashed(json.loads(line))
                lines.append(json.dumps(hashed, ensure_ascii=False) + "\n")
            return "".join(lines).encode()
        import pandas as pd

        parquet = name.endswith(".parquet")
        frame = pd.read_parquet(io.BytesIO(content)) if parquet else pd.read_csv(io.BytesIO(content))
        for column in frame:
            if self._in_column(frame[column]):
                frame[column] = frame[column].map(self._hashed)
        if parquet:
            return frame.to_parquet(index=False)
        return csv_text(frame).encode()

    def _hashed(self, value: Any) -> Any:
        if isinstance(value, dict):
            return {key: self._hashed(entry) for key, entry in value.items()}
        if isinstance(value, list):
            return list(map(self._hashed, value))
        if isinstance(value, str) and self.in_text(value):
            return REDACTED + content_hash(value)
        return value


def _documents(name: str, content: bytes) -> list[bytes]:
    """The JSON documents of a file: one, or one a line."""
    if name.endswith(".json"):
        return [content]
    return list(filter(bytes.strip, content.splitlines()))


def _leaves(value: Any) -> Iterator[str]:
    """The strings in a JSON value."""
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list):
        for entry in value:
            yield from _leaves(entry)
    elif isinstance(value, str):
        yield value


def _words(text: str) -> list[str]:
    # A page writes signs as entities, whose letters are no words of the text.
    return re.findall(rf"[{UNSPACED}]|[^\W{UNSPACED}]+", re.sub(r"&#?\w+;", " ", text.lower()))


def _pieces(words: Sequence[str]) -> Iterator[tuple[str, ...]]:
    for start in range(len(words) - QUOTED_WORDS + 1):
        yield tuple(words[start : start + QUOTED_WORDS])


def sha256(content: bytes) -> str:
    """The hash of a content in hexadecimal digits."""
    return hashlib.sha256(content).hexdigest()
