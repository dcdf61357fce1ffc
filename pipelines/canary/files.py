"""The folder of canaries: published.jsonl for the public, sealed.json to keep, commitment.txt to publish beside it."""

import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Literal, NamedTuple

from pydantic import AfterValidator, Field

from fsd.data.documents import content_hash
from fsd.data.readers import read_rows
from fsd.errors import UsageError
from fsd.evidence.canaries import MOST_REPETITIONS, Scheme, published_index
from fsd.files import from_json, read_text
from pipelines.common.output import new_folder

PUBLISHED, SEALED, COMMITMENT = "published.jsonl", "sealed.json", "commitment.txt"
VERSION = 2
BREAK = "\n\n"
"""Between a document and its canary."""
SEPARATOR = "\x1f"
"""Between the variants of a paraphrased document, as its text."""


def _current(version: int) -> int:
    if version != VERSION:
        old = ", in which one seed gave other documents the same canaries: make them anew" if version < VERSION else ""
        raise ValueError(f"got version {version}{old}")
    return version


@dataclass(frozen=True)
class Entry:
    """One document of the sealed list; variants are listed where given: random ones follow from the seed."""

    id: str
    sha256: str
    """Of its text; of a paraphrased one, of its variants joined by U+001F."""
    published: int
    repetitions: Annotated[int, Field(ge=1, le=MOST_REPETITIONS)]
    variants: Sequence[str] = ()


@dataclass(frozen=True)
class Sealed:
    """The sealed list; `tokenizer` is the hash of that in whose tokens all variants are equally long, "" without."""

    version: Annotated[int, AfterValidator(_current)]
    kind: Literal["words", "digits", "paraphrase"]
    scheme: Scheme
    tokenizer: str
    documents: Annotated[Sequence[Entry], Field(min_length=1)]

    def __post_init__(self) -> None:
        if self.kind != "paraphrase":
            self.scheme.check()
        if len({entry.id for entry in self.documents}) < len(self.documents):
            raise UsageError("documents must have different ids")
        for entry in self.documents:
            if bool(entry.variants) != (self.kind == "paraphrase"):
                raise UsageError(f"variants must be listed for paraphrases alone; document {entry.id} differs")
            drawn = published_index(self.scheme.seed, (entry.id, entry.sha256), self.count(entry))
            if entry.published != drawn:
                raise UsageError(
                    f"published must be {drawn} for document {entry.id}, as drawn by the seed; got {entry.published}"
                )

    def count(self, entry: Entry) -> int:
        """The number of variants of a document."""
        return len(entry.variants) or self.scheme.variants

    def candidates(self, entry: Entry) -> list[str]:
        """The variants of a document."""
        return list(entry.variants) or self.scheme.candidates((entry.id, entry.sha256))


class Canaries(NamedTuple):
    """A folder of canaries: the sealed list, the hash of its file, and the text before each canary by document."""

    sealed: Sealed
    sha256: str
    contexts: dict[str, str]


def write(out: Path, sealed: Sealed, published: Mapping[str, str]) -> Canaries:
    """Write a new folder whose sealed list nobody else can read, and read it as a test would before it is in place."""
    documents = [{k: v for k, v in asdict(entry).items() if v or k != "variants"} for entry in sealed.documents]
    content = json.dumps({**asdict(sealed), "documents": documents}, ensure_ascii=False) + "\n"
    rows = [
        {"id": entry.id, "text": published[entry.id], "group": entry.id, "label": 1}
        for entry in sealed.documents
        for _ in range(entry.repetitions)
    ]
    lines = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
    with new_folder(out) as folder:
        folder.chmod(0o700)
        (folder / SEALED).touch(mode=0o600)
        (folder / SEALED).write_text(content, encoding="utf-8")
        (folder / PUBLISHED).write_text(lines, encoding="utf-8")
        (folder / COMMITMENT).write_text(f"sha256 {content_hash(content)}  {SEALED}\n", encoding="utf-8")
        return read(folder)


def read(folder: Path) -> Canaries:
    """Read a folder that `write` made, and check that its parts belong together."""
    content, commitment = (
        read_text(folder / name, f"a folder of canaries must have a readable {folder / name}")
        for name in (SEALED, COMMITMENT)
    )
    committed = commitment.lower().split()
    digest = content_hash(content)
    if committed[:2] != ["sha256", digest]:
        raise UsageError(
            f"{folder / SEALED} must match its commitment; its SHA-256 is {digest}, committed is "
            f"{' '.join(committed[1:2]) or 'none'}"
        )
    sealed = from_json(Sealed, content, f"{folder / SEALED} must be a sealed list of version {VERSION}")
    texts: defaultdict[str, set[str]] = defaultdict(set)
    for _, row in read_rows([folder / PUBLISHED]):
        texts[str(row.get("id"))].add(str(row.get("text")))
    known = {entry.id: entry for entry in sealed.documents}
    problem = next((f"{name} is not among them" for name in texts if name not in known), "")
    contexts = {}
    for name, entry in known.items():
        canary = sealed.candidates(entry)[entry.published]
        document = SEPARATOR.join(entry.variants) or min(texts[name], default="").removesuffix(BREAK + canary)
        contexts[name] = "" if entry.variants else document + BREAK
        if texts[name] != {contexts[name] + canary} or content_hash(document) != entry.sha256:
            problem = problem or f"{name} {'differs' if texts[name] else 'is missing'}"
    if problem:
        raise UsageError(f"{folder / PUBLISHED} must hold the texts that were sealed; document {problem}")
    return Canaries(sealed, digest, contexts)
