"""The folder of canaries: published.jsonl for the public, sealed.json to keep, commitment.txt to publish beside it."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from fsd.errors import UsageError
from fsd.evidence.canaries import Scheme

PUBLISHED, SEALED, COMMITMENT = "published.jsonl", "sealed.json", "commitment.txt"
VERSION = 1
BREAK = "\n\n"
"""Between a document and its canary."""


@dataclass(frozen=True)
class Entry:
    """One document of the sealed list.

    Attributes:
        id: of the document.
        published: index of the published variant.
        repetitions: number of times that the document is published.
        published_sha256: of the published text.
        variants_sha256: of all variants, joined by U+001F.
        variants: the variants themselves, where they were given; random ones follow from the seed.
    """

    id: str
    published: int
    repetitions: int
    published_sha256: str
    variants_sha256: str
    variants: Sequence[str] = ()


@dataclass(frozen=True)
class Sealed:
    """The sealed list.

    Attributes:
        kind: words, digits or paraphrase.
        scheme: how random variants follow from the seed.
        tokenizer: hash of the tokenizer in whose tokens all variants are equally long; "" without one.
        documents: one entry each.
    """

    kind: str
    scheme: Scheme
    tokenizer: str
    documents: Sequence[Entry]

    def candidates(self, entry: Entry) -> list[str]:
        """The variants of a document.

        Raises:
            UsageError: if they are not those that were sealed.
        """
        variants = list(entry.variants) or self.scheme.candidates(entry.id)
        if sha256("\x1f".join(variants)) != entry.variants_sha256:
            raise UsageError(f"the variants of document {entry.id} must be those that were sealed; their hash differs")
        return variants

    def to_json(self) -> str:
        """The list as JSON text."""
        documents = [{k: v for k, v in asdict(entry).items() if v or k != "variants"} for entry in self.documents]
        return json.dumps({"version": VERSION, **asdict(self), "documents": documents}, ensure_ascii=False) + "\n"


@dataclass(frozen=True)
class Canaries:
    """A folder of canaries: the sealed list, and for each document the text that precedes the canary ("" if none)."""

    sealed: Sealed
    contexts: Mapping[str, str]


def sha256(text: str) -> str:
    """The SHA-256 hash of a text in UTF-8, in hexadecimal digits."""
    return hashlib.sha256(text.encode()).hexdigest()


def write(folder: Path, sealed: Sealed, published: Mapping[str, str]) -> None:
    """Write the three files into an existing folder.

    Args:
        folder: an empty folder.
        sealed: the list.
        published: id → published text.
    """
    content = sealed.to_json()
    rows = [
        {"id": entry.id, "text": published[entry.id], "group": entry.id, "label": 1}
        for entry in sealed.documents
        for _ in range(entry.repetitions)
    ]
    (folder / PUBLISHED).write_text(
        "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8"
    )
    (folder / SEALED).write_text(content, encoding="utf-8")
    (folder / COMMITMENT).write_text(f"sha256 {sha256(content)}  {SEALED}\n", encoding="utf-8")


def read(folder: Path) -> Canaries:
    """Read a folder that `write` made, and check that its parts belong together.

    Raises:
        UsageError: if a file is missing or invalid, the list does not match its commitment, or a published text is
            not the sealed one.
    """
    content = _read(folder / SEALED)
    committed = _read(folder / COMMITMENT).split()
    if committed[:1] != ["sha256"] or sha256(content) not in committed[1:2]:
        raise UsageError(
            f"{folder / SEALED} must match its commitment; its SHA-256 is {sha256(content)}, committed is "
            f"{' '.join(committed[1:2]) or 'none'}"
        )
    sealed = _parse(content, folder / SEALED)
    texts: dict[str, str] = {}
    for at, line in enumerate(_read(folder / PUBLISHED).splitlines(), 1):
        try:
            row = json.loads(line)
            texts[str(row["id"])] = str(row["text"])
        except (ValueError, KeyError, TypeError) as error:
            raise UsageError(
                f"{folder / PUBLISHED}:{at}: must be a JSON object with id and text; got {error}"
            ) from error
    contexts = {}
    for entry in sealed.documents:
        text = texts.get(entry.id)
        if text is None or sha256(text) != entry.published_sha256:
            state = "is missing" if text is None else "differs"
            raise UsageError(f"{folder / PUBLISHED} must hold the texts that were sealed; document {entry.id} {state}")
        contexts[entry.id] = "" if entry.variants else text.removesuffix(sealed.candidates(entry)[entry.published])
    return Canaries(sealed, contexts)


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not UTF-8"
        raise UsageError(f"a folder of canaries must have a readable {path.name}; {path}: {reason.lower()}") from error


def _parse(content: str, path: Path) -> Sealed:
    try:
        values: dict[str, Any] = json.loads(content)
        if values["version"] != VERSION:
            raise KeyError(f"version {values['version']}")
        scheme = Scheme(**values["scheme"])
        documents = [Entry(**entry) for entry in values["documents"]]
    except (ValueError, KeyError, TypeError) as error:
        raise UsageError(
            f"{path} must be a sealed list of version {VERSION} made by pipelines.canary; got {error}"
        ) from error
    return Sealed(values["kind"], replace(scheme, words=tuple(scheme.words)), values["tokenizer"], documents)
