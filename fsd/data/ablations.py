"""What the papers change in a benchmark to see what a detector rests on: pure functions on documents and splits.

Length (DC-PDD Fig. 3), timestamps (FSD Table 5), which texts are trained on (Table 4), texts of other domains
(Table 15) and how many unseen texts (Fig. 4 and 6).
"""

import importlib
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Literal, NamedTuple

import numpy as np

from fsd.data import date_masking as timestamps
from fsd.data.documents import Document
from fsd.data.near_duplicates import _UNSPACED as UNSPACED
from fsd.data.near_duplicates import families
from fsd.data.splitting import Scheme, Split, reserve
from fsd.errors import UsageError

Words = Literal["characters", "jieba"]
Kind = Literal["non", "mem", "all"]
Stamps = Literal["keep", "delete", "replace"]


class Changed(NamedTuple):
    """Documents after a change, in order, how many of them it changed and how many it left out."""

    documents: tuple[Document, ...]
    changed: int
    left_out: int


def _changed(kept: Sequence[tuple[Document, Document]], documents: Sequence[Document]) -> Changed:
    changed = sum(old.text != new.text for old, new in kept)
    return Changed(tuple(new for _, new in kept), changed, len(documents) - len(kept))


_PIECE = re.compile(rf"[{UNSPACED}]|[^\s{UNSPACED}]+")
_ONE = re.compile(f"[{UNSPACED}]")


def _ends(text: str, words: Words) -> Iterator[tuple[int, float]]:
    """Where each piece of a text ends, and how many words there are up to there."""
    total, end = 0.0, 0
    if words == "jieba":
        for piece in _jieba(text):
            end += len(piece)
            if piece.strip():
                total += 1
                yield end, total
        return
    for match in _PIECE.finditer(text):
        begin = match.start()
        if _ONE.match(match[0]):
            total += 0.5
        elif begin == 0 or text[begin - 1].isspace() or re.search(r"\w", match[0]):
            total += 1
        yield match.end(), total


def _jieba(text: str) -> list[str]:
    try:
        jieba = importlib.import_module("jieba")
    except ImportError as error:
        raise UsageError("words=jieba must have the package jieba installed; or count by characters") from error
    pieces: list[str] = jieba.lcut(text)
    return pieces


def truncate(documents: Sequence[Document], size: int, *, words: Words = "characters") -> Changed:
    """The first `size` words of each text; shorter texts are left out, so that all are of one length.

    A word is what stands between white space, and white space is kept as it is. In scripts without spaces
    "characters" counts each character as half a word, as `fsd.data.near_duplicates` does, and "jieba" cuts the text
    into words as PatentMIA was cut (it needs the package, and is for Chinese alone).

    Args:
        documents: texts.
        size: words to keep, at least 1; the papers take 32 to 512.
        words: how words are counted in scripts without spaces.

    Raises:
        UsageError: for a size below 1, or if jieba is asked for and not installed.
    """
    if size < 1:
        raise UsageError(f"size must be at least 1 word; got {size}")
    cuts = [(d, next((end for end, total in _ends(d.text, words) if total >= size), None)) for d in documents]
    kept = [(d, replace(d, text=d.text[:end].lstrip())) for d, end in cuts if end is not None]
    return _changed(kept, documents)


def retime(documents: Sequence[Document], stamps: Stamps) -> Changed:
    """Timestamps in the texts kept, deleted, or their years replaced by 2023 (see `fsd.data.date_masking`).

    Without them a detector cannot tell old from new by the dates that a text names. A text of nothing but
    timestamps is left out when they are deleted. `Document.date` stays.

    Raises:
        UsageError: for anything else to do.
    """
    if stamps not in ("keep", "delete", "replace"):
        raise UsageError(f"timestamps must be keep, delete or replace; got {stamps!r}")
    changes: dict[str, Callable[[str], str]] = {"delete": timestamps.delete, "replace": timestamps.replace}
    change = changes.get(stamps, str)
    pairs = [(d, replace(d, text=change(d.text))) for d in documents]
    kept = [(old, new) for old, new in pairs if new.text.strip()]
    return _changed(kept, documents)


def fine_tuning_set(
    documents: Sequence[Document],
    kind: Kind = "non",
    *,
    share: float = 0.3,
    validation: float | None = None,
    scheme: Scheme = "grouped",
    seed: int = 42,
) -> Split:
    """A split that trains on the non-members, the members or all texts of one reserved share of a benchmark.

    The share is drawn from both classes with the same seed whatever the kind, and validation and test have
    nothing of it, so the three kinds are compared on the same texts. Under "paper", "non" is the paper's own
    split; `documents.split` drops the members of its 30 %, which "mem" and "all" train on here.

    Args:
        documents: labelled texts of both classes.
        kind: non, mem or all, as in FSD Table 4.
        share: what is reserved of both classes; in (0, 1).
        validation: as for `documents.split`.
        scheme: grouped reserves whole families, paper single rows.
        seed: of the shuffling.

    Raises:
        UsageError: for another kind, and as `documents.split`.
    """
    if kind not in ("non", "mem", "all"):
        raise UsageError(f"fine-tuning set must be non, mem or all; got {kind!r}")
    parts = reserve(documents, share=share, validation=validation, scheme=scheme, seed=seed)
    wanted = {"non": (False,), "mem": (True,), "all": (False, True)}[kind]
    chosen = tuple(d for d in parts.unseen if d.member in wanted)
    if not chosen:
        raise UsageError(f"share must leave texts to train on; {share} of {len(documents)} texts holds no {kind} text")
    return parts._replace(unseen=chosen)


def mix(parts: Split, foreign: Sequence[Document], share: float, *, seed: int = 42) -> Split:
    """A split in which texts of another domain take the places of a share of the unseen texts.

    The number of unseen texts stays, so that only their domain changes; 1 is another domain altogether.
    Foreign texts in one family with a validation or test text are not taken.

    Args:
        parts: the split.
        foreign: unseen texts of other domains.
        share: of the unseen texts to replace, from 0 to 1.
        seed: of the draw.

    Raises:
        UsageError: for a share out of range, a member among the foreign texts, or too few of them.
    """
    if not 0 <= share <= 1:
        raise UsageError(f"share of foreign texts must be from 0 to 1; got {share}")
    members = sum(d.member is True for d in foreign)
    if members:
        raise UsageError(f"foreign texts must be non-members; {members} of {len(foreign)} are members")
    count = round(share * len(parts.unseen))
    free = _apart(foreign, (*parts.validation, *parts.test))
    if count > len(free):
        raise UsageError(
            f"foreign texts must be at least {count} that share nothing with validation and test; "
            f"got {len(free)} of {len(foreign)}"
        )
    rng = np.random.default_rng(seed)
    own = _draw(parts.unseen, len(parts.unseen) - count, rng)
    return parts._replace(unseen=(*own, *(replace(d, member=False) for d in _draw(free, count, rng))))


def take_unseen(parts: Split, count: int, *, seed: int = 42) -> Split:
    """A split with only `count` of its unseen texts; with one seed, fewer are always a part of more.

    Raises:
        UsageError: for a count below 0 or above what there is.
    """
    if not 0 <= count <= len(parts.unseen):
        raise UsageError(f"count of unseen texts must be from 0 to {len(parts.unseen)}; got {count}")
    return parts._replace(unseen=_draw(parts.unseen, count, np.random.default_rng(seed)))


def _draw(documents: Sequence[Document], count: int, rng: np.random.Generator) -> tuple[Document, ...]:
    """Some of the texts, in their order."""
    return tuple(documents[i] for i in sorted(rng.permutation(len(documents))[:count]))


def _apart(documents: Sequence[Document], others: Sequence[Document]) -> list[Document]:
    """The texts in no family with one of the others."""
    both = [*others, *documents]
    family = families(both)
    taken = set(family[: len(others)])
    return [d for d, number in zip(documents, family[len(others) :], strict=True) if number not in taken]
