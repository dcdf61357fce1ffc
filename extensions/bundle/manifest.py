"""A bundle of evidence: its manifest, what differs from it, and numbers that came out otherwise."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import Field

VERSION: Literal[2] = 2
"""Version of the form of a bundle."""
MANIFEST = "manifest.json"
PROTOCOL = "run/protocol.json"
"""Path of the protocol in a bundle."""
UNLISTED = (MANIFEST, f"{MANIFEST}.sig", f"{MANIFEST}.minisig")
"""What no manifest can list: itself, and its detached signatures by ssh-keygen and by minisign."""
RELATIVE = 1e-4
ABSOLUTE = 1e-5
"""Numbers of two machines that differ by no more are the same; trainings of two processors differ by 2e-6."""
RESULTS = (".verdict", ".request", ".reply", ".fingerprint")
"""Ends of the places of texts in an answer that must be the same when it is computed again."""

Sha256 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
Size = Annotated[int, Field(ge=0)]


@dataclass(frozen=True)
class Weights:
    """A model that took part: as what, its name, and file → SHA-256; no files where it is not on the machine."""

    role: str
    name: str
    files: Mapping[str, Sha256]


@dataclass(frozen=True)
class Entry:
    """A file of the bundle; `original` is the hash of the run's own, where its texts were replaced by hashes."""

    # Nothing is opened by it: it is looked for among the files that are there, and one that leads out is missing.
    path: str
    size: Size
    sha256: Sha256
    original: Sha256 | None = None


@dataclass(frozen=True)
class Manifest:
    """What a bundle holds: the run and its answer, and every file.

    `texts` says whether the inputs are in it, `text_hashes` are those of their texts by file, and `left_out` are the
    files of the run that quote texts.
    """

    version: Literal[2]
    made_by: str
    run: str
    command: str
    headline: str
    weights: Sequence[Weights]
    texts: bool
    text_hashes: Mapping[str, Sequence[Sha256]]
    files: Sequence[Entry]
    left_out: Sequence[Entry]

    @property
    def hashes(self) -> dict[str, str]:
        """Path → hash of every file of the bundle."""
        return {entry.path: entry.sha256 for entry in self.files}

    def below(self, folder: str) -> dict[str, str]:
        """Name → hash of each file of a folder as the run had it, before texts were left out."""
        originals = {}
        for entry in chain(self.files, self.left_out):
            top, _, name = entry.path.partition("/")
            if top == folder:
                originals[name] = entry.original or entry.sha256
        return originals

    @property
    def protocol(self) -> str | None:
        """The hash of the protocol of the run, if it had one."""
        return self.below("run").get("protocol.json")


class Alteration(NamedTuple):
    """A file that is not as the manifest says."""

    path: str
    what: str


def alterations(recorded: Mapping[str, str], present: Mapping[str, str]) -> list[Alteration]:
    """What differs between the hashes of a manifest and those of the files that are there."""
    altered = []
    for path, sha256 in recorded.items():
        if path not in present:
            altered.append(Alteration(path, "missing"))
        elif not present[path]:
            altered.append(Alteration(path, "no regular file"))
        elif present[path] != sha256:
            altered.append(Alteration(path, f"changed: SHA-256 {present[path]}, in the manifest {sha256}"))
    altered += [Alteration(path, "added") for path in present if path not in recorded]
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
