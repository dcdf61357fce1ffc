"""The folder of canaries: published.jsonl for the public, sealed.json to keep, commitment.txt to publish beside it."""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import chain
from pathlib import Path
from typing import Annotated, Literal, NamedTuple

from pydantic import Field

from extensions.canary.canaries import MOST_REPETITIONS, Scheme, published_index
from fsd.api import UsageError, content_hash, files_of_texts, read_rows, read_text
from fsd.api import value_of_json as from_json
from pipelines.api import new_folder

PUBLISHED = "published.jsonl"
SEALED = "sealed.json"
COMMITMENT = "commitment.txt"
VERSION: Literal[3] = 3
ROW = {"id", "text", "group", "label"}
"""Columns of what is published."""
NUMBER = re.compile(r"\d{6,}")
"""The id of a document."""
BREAK = "\n\n"
"""Between a document and its canary."""
SEPARATOR = "\x1f"
"""Between the variants of a paraphrased document, as its text."""


@dataclass(frozen=True)
class Entry:
    """One document of the sealed list; variants are listed where given: random ones follow from the seed."""

    id: str
    sha256: str
    """Of its text; of a paraphrased one, of its variants joined by U+001F."""
    published: int
    repetitions: Annotated[int, Field(ge=1, le=MOST_REPETITIONS)]
    variants: Sequence[str] = ()

    @property
    def key(self) -> tuple[str, str]:
        """What all draws for the document depend on, besides the seed."""
        return self.id, self.sha256


@dataclass(frozen=True)
class Sealed:
    """The sealed list; `tokenizer` is the hash of that in whose tokens all variants are equally long, "" without."""

    version: Literal[3]
    kind: Literal["words", "digits", "paraphrase"]
    scheme: Scheme
    tokenizer: str
    documents: Annotated[Sequence[Entry], Field(min_length=1)]

    def __post_init__(self) -> None:
        if self.kind != "paraphrase":
            self.scheme.check()
        ids = {entry.id for entry in self.documents}
        if len(ids) < len(self.documents):
            raise UsageError("documents must have different ids")
        for entry in self.documents:
            if bool(entry.variants) != (self.kind == "paraphrase"):
                raise UsageError(f"variants must be listed for paraphrases alone; document {entry.id} differs")
            # Whoever seals a list could name the variant that a model prefers: only the one that was drawn counts.
            drawn = published_index(self.scheme.seed, entry.key, self.count(entry))
            if entry.published != drawn:
                raise UsageError(
                    f"published must be {drawn} for document {entry.id}, as drawn by the seed; got {entry.published}"
                )

    @property
    def copies(self) -> int:
        """The number of texts to publish."""
        return sum(entry.repetitions for entry in self.documents)

    def count(self, entry: Entry) -> int:
        """The number of variants of a document."""
        return len(entry.variants) or self.scheme.variants

    def candidates(self, entry: Entry) -> list[str]:
        """The variants of a document."""
        return list(entry.variants) or self.scheme.candidates(entry.key)


class Canaries(NamedTuple):
    """A folder of canaries: the sealed list, the text before each canary by document, and the hash of the list."""

    sealed: Sealed
    contexts: dict[str, str]
    sha256: str = ""


def write(out: Path, sealed: Sealed, published: Mapping[str, str]) -> Canaries:
    """Write a new folder whose sealed list nobody else can read, and read it as a test would before it is in place."""
    content = _sealed_json(sealed)
    lines = []
    for entry in sealed.documents:
        # The label and the group make the file a benchmark of members as it is.
        row = {"id": entry.id, "text": published[entry.id], "group": entry.id, "label": 1}
        lines += [json.dumps(row, ensure_ascii=False) + "\n"] * entry.repetitions
    with new_folder(out) as folder:
        folder.chmod(0o700)
        secret = folder / SEALED
        # Created with its rights first, so that no moment is left in which others could open it.
        secret.touch(mode=0o600)
        secret.write_text(content, encoding="utf-8")
        (folder / PUBLISHED).write_text("".join(lines), encoding="utf-8")
        (folder / COMMITMENT).write_text(f"sha256 {content_hash(content)}  {SEALED}\n", encoding="utf-8")
        # What cannot be read back, such as a text that the file changes, must not be published.
        return read(folder)


def check_unpublished(paths: Sequence[str]) -> None:
    """Refuse documents that `write` has published: a second canary, of another list, would stand behind the first."""
    for file in chain.from_iterable(map(files_of_texts, map(Path, paths))):
        if file.suffix != Path(PUBLISHED).suffix:
            continue
        if all(_is_published(row) for _, row in read_rows([file])):
            raise UsageError(f"documents must be those before their publication; {file} holds canaries already")


def _is_published(row: Mapping[str, object]) -> bool:
    """Whether a row is as `write` makes it: a benchmark of somebody's may have these columns, too."""
    if set(row) != ROW or row["id"] != row["group"] or row["label"] != 1:
        return False
    return NUMBER.fullmatch(str(row["id"])) is not None


def _sealed_json(sealed: Sealed) -> str:
    """The content of the sealed file; random variants are left out, as they follow from the seed."""
    content = asdict(sealed)
    for entry in content["documents"]:
        if not entry["variants"]:
            # Whoever seals again by the same seed must get the hash that was published.
            del entry["variants"]
    return json.dumps(content, ensure_ascii=False) + "\n"


def read(folder: Path) -> Canaries:
    """Read a folder that `write` made, and check that its parts belong together."""
    path = folder / SEALED
    content = _text(path)
    # Tools and editors write hashes in capitals, or add a byte order mark, which `read_text` removes.
    committed = _text(folder / COMMITMENT).lower().split()
    digest = content_hash(content)
    if committed[:2] != ["sha256", digest]:
        raise UsageError(
            f"{path} must match its commitment; its SHA-256 is {digest}, committed is "
            f"{' '.join(committed[1:2]) or 'none'}"
        )
    sealed = from_json(Sealed, content, f"{path} must be a sealed list of version {VERSION}")
    return Canaries(sealed, _contexts(sealed, folder / PUBLISHED), digest)


def _text(path: Path) -> str:
    return read_text(path, f"a folder of canaries must have a readable {path}")


def _contexts(sealed: Sealed, path: Path) -> dict[str, str]:
    """The text before the canary of each document in the published file, which must be the one that was sealed."""
    must = f"{path} must hold the texts that were sealed; document"
    # A set of texts, as a document may be published several times: but always as the same text.
    published: dict[str, set[str]] = {entry.id: set() for entry in sealed.documents}
    for _, row in read_rows([path]):
        name = str(row.get("id"))
        if name not in published:
            raise UsageError(f"{must} {name} is not among them")
        published[name].add(str(row.get("text")))
    contexts = {}
    for entry in sealed.documents:
        texts = published[entry.id]
        if not texts:
            raise UsageError(f"{must} {entry.id} is missing")
        canary = sealed.candidates(entry)[entry.published]
        if entry.variants:
            # A paraphrase takes the place of its document, so that nothing is before it.
            document = SEPARATOR.join(entry.variants)
            context = ""
        else:
            document = min(texts).removesuffix(BREAK + canary)
            context = document + BREAK
        if texts != {context + canary} or content_hash(document) != entry.sha256:
            raise UsageError(f"{must} {entry.id} differs")
        contexts[entry.id] = context
    return contexts
