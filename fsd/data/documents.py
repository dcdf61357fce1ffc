"""Documents, and their split into unseen, validation and test."""

import hashlib
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import date as Date  # noqa: N812 - the field `date` would hide it
from typing import Literal, NamedTuple

import numpy as np

from fsd.data import splitting as drawing
from fsd.data.near_duplicates import families
from fsd.errors import UsageError


@dataclass(frozen=True, slots=True)
class Document:
    """A text and what is known about it.

    Attributes:
        text: the text itself, not empty.
        member: whether it was in the pretraining data; None where that is not known.
        date: first publication, by the source's own word.
        group: what must never be torn apart by a split: the article, paper or book that the text is from.
        source: where it came from: a URL, or file:line.
    """

    text: str
    member: bool | None = None
    date: Date | None = None
    group: str = ""
    source: str = ""


class Split(NamedTuple):
    """Three parts of a benchmark, disjoint by group; only `unseen` is ever trained on."""

    unseen: tuple[Document, ...]
    validation: tuple[Document, ...]
    test: tuple[Document, ...]


class GivenSplit(NamedTuple):
    """A split whose unseen texts were given, and the benchmark's texts that were left out for their sake."""

    parts: Split
    left_out: tuple[Document, ...]


Scheme = Literal["grouped", "paper"]
VALIDATION = 0.2
"""Share of the benchmark that the grouped split holds out for choosing thresholds and settings."""
LISTED = 10
"""Texts that a message about texts on both sides lists."""


def content_hash(text: str) -> str:
    """SHA-256 of the text in UTF-8, in hexadecimal: the identity of a text in manifests."""
    return hashlib.sha256(text.encode("utf-8")).hexdigest()


def split(
    documents: Sequence[Document],
    *,
    unseen: float = 0.3,
    validation: float | None = None,
    scheme: Scheme = "grouped",
    seed: int = 42,
) -> Split:
    """Divide a labelled benchmark: non-members to train on, texts to choose thresholds on, texts to test on.

    "grouped" keeps families whole (texts of one group, and near-duplicates: see `fsd.data.near_duplicates`), so that no
    article is trained on in one length and tested in another. `unseen` is the share of the non-members that
    is trained on, taken from families without a member; the rest is divided into validation and test with the
    same mix of classes, validation being `validation` / (1 − `unseen`) of it. Sizes are met to about half a
    family. Every document is used once.

    "paper" is the split of the FSD paper (§4.1) and its released code: rows are drawn at random, whatever
    their origin; the non-members among an `unseen` share of all rows are trained on and the members among
    them dropped; all other rows are the test set, on which the papers choose their thresholds too. So
    prefixes and copies leak from one part to another: it is for comparison with the papers' tables only.

    Args:
        documents: labelled texts of both classes.
        unseen: see above; in (0, 1).
        validation: share of the benchmark in [0, 1), together with `unseen` under 1; under "paper" a share of
            all rows. None is 0.2 for "grouped" and nothing for "paper".
        scheme: how to split.
        seed: of the shuffling.

    Returns:
        The parts, each in the order of `documents`.

    Raises:
        UsageError: for shares out of range, missing labels, one class only, or too few texts or families.
    """
    if validation is None:
        validation = VALIDATION if scheme == "grouped" else 0.0
    _check(documents, unseen, validation, scheme)
    rng = np.random.default_rng(seed)
    member = [bool(d.member) for d in documents]
    if scheme == "paper":
        part = drawing.paper(member, unseen, validation, rng)
    else:
        part = drawing.grouped(member, _families(documents), unseen, validation, rng)
    parts = _placed(documents, part)
    _check_parts(parts, documents, validation, scheme)
    return parts


def split_with(
    unseen: Sequence[Document], documents: Sequence[Document], *, validation: float | None = None, seed: int = 42
) -> GivenSplit:
    """Divide a labelled benchmark into validation and test, with unseen texts that were given.

    No text of the benchmark is trained on. Those in one family with an unseen text (the same group, or
    near-duplicates: see `fsd.data.near_duplicates`) are left out, because the model would be tested on what it was
    trained on. The other families are kept whole, with the same mix of classes in both parts.

    Args:
        unseen: texts that the model cannot have seen; they are marked as non-members.
        documents: labelled texts of both classes.
        validation: share of the benchmark in [0, 1) for choosing thresholds; None is 0.2.
        seed: of the shuffling.

    Returns:
        The parts, each in the order given, and what was left out.

    Raises:
        UsageError: for no unseen text or a member among them, a share out of range, missing labels, one class
            only, or too few families.
    """
    validation = VALIDATION if validation is None else validation
    if not unseen:
        raise UsageError("at least one unseen text must be given; got none")
    members = [_place(d) for d in unseen if d.member]
    if members:
        raise UsageError(f"unseen texts must be non-members; {len(members)} are members, the first {members[0]}")
    if not 0 <= validation < 1:
        raise UsageError(f"validation must be a share from 0 to below 1; got {validation}")
    _check_labels(documents)
    both = [*unseen, *documents]
    family = _families(both)
    trained = set(family[: len(unseen)])
    kept = [(d, f) for d, f in zip(documents, family[len(unseen) :], strict=True) if f not in trained]
    given = tuple(replace(d, member=False) for d in unseen)
    rng = np.random.default_rng(seed)
    held = drawing.hold_out([bool(d.member) for d, _ in kept], [f for _, f in kept], validation, rng)
    chosen = [tuple(d for (d, _), v in zip(kept, held, strict=True) if v is wanted) for wanted in (True, False)]
    parts = Split(given, *chosen)
    _check_parts(parts, [d for d, _ in kept], validation, "grouped")
    left_out = tuple(d for d, f in zip(documents, family[len(unseen) :], strict=True) if f in trained)
    return GivenSplit(parts, left_out)


def reserve(
    documents: Sequence[Document],
    *,
    share: float = 0.3,
    validation: float | None = None,
    scheme: Scheme = "grouped",
    seed: int = 42,
) -> Split:
    """Divide a labelled benchmark like `split`, but with members too in the first part.

    The first part has a share of both classes, and validation and test have nothing of it, so that models
    trained on its members, its non-members or all of it are compared on the same texts. "grouped" draws whole
    families, also those with a member; under "paper" validation and test are those of `split`.

    Raises:
        UsageError: as `split`.
    """
    if validation is None:
        validation = VALIDATION if scheme == "grouped" else 0.0
    _check(documents, share, validation, scheme)
    rng = np.random.default_rng(seed)
    member = [bool(d.member) for d in documents]
    if scheme == "paper":
        part = ["unseen" if p == "dropped" else p for p in drawing.paper(member, share, validation, rng)]
    else:
        part = drawing.reserved(member, _families(documents), share, validation, rng)
    parts = _placed(documents, part)
    _check_parts(parts, documents, validation, scheme)
    return parts


def refuse_shared(documents: Sequence[Document]) -> None:
    """Refuse a benchmark with the same text, but for white space, on both sides: its label cannot be right.

    Raises:
        UsageError: that lists the texts, the first `LISTED` of them with where they are from.
    """
    sides: dict[str, dict[bool, Document]] = defaultdict(dict)
    for d in documents:
        if d.member is not None:
            sides[content_hash(" ".join(d.text.split()))].setdefault(d.member, d)
    shared = [side for side in sides.values() if len(side) == 2]
    if not shared:
        return
    listed = "; ".join(f"{_place(side[True])} = {_place(side[False])}" for side in shared[:LISTED])
    more = f"; and {len(shared) - LISTED} more" if len(shared) > LISTED else ""
    raise UsageError(
        f"members and non-members must not share texts; {len(shared)} {'is' if len(shared) == 1 else 'are'} "
        f"labelled both 1 and 0 (member = non-member): {listed}{more}"
    )


def _place(document: Document) -> str:
    return document.source or repr(" ".join(document.text.split())[:40])


def _check(documents: Sequence[Document], unseen: float, validation: float, scheme: str) -> None:
    if scheme not in ("grouped", "paper"):
        raise UsageError(f"split must be grouped or paper; got {scheme!r}")
    if not 0 < unseen < 1:
        raise UsageError(f"unseen must be a share above 0 and below 1; got {unseen}")
    if not 0 <= validation < 1:
        raise UsageError(f"validation must be a share from 0 to below 1; got {validation}")
    if unseen + validation >= 1 - 1e-9:
        raise UsageError(
            f"unseen and validation must sum to less than 1, so that texts are left to test on; "
            f"got {unseen} + {validation}"
        )
    _check_labels(documents)


def _check_labels(documents: Sequence[Document]) -> None:
    unlabelled = sum(d.member is None for d in documents)
    if unlabelled:
        raise UsageError(
            f"every text to be split must be labelled 1 (member) or 0 (non-member); "
            f"{unlabelled} of {len(documents)} are not"
        )
    members = sum(d.member is True for d in documents)
    if members in (0, len(documents)):
        raise UsageError(
            f"texts to be split must be of both classes; "
            f"got {members} members and {len(documents) - members} non-members"
        )


def _check_parts(parts: Split, documents: Sequence[Document], validation: float, scheme: str) -> None:
    unit = "families (texts of one group, and near-duplicates)" if scheme == "grouped" else "texts"
    if not parts.unseen:
        members = sum(d.member is True for d in documents)
        raise UsageError(
            f"some non-members must be left to train on, in {unit} without a member; "
            f"got {members} members and {len(documents) - members} non-members and none to take"
        )
    wanted = {"test": parts.test} | ({"validation": parts.validation} if validation else {})
    for name, part in wanted.items():
        members = sum(d.member is True for d in part)
        if members in (0, len(part)):
            raise UsageError(
                f"too few {unit} for the {name} part, which must have members and non-members: from "
                f"{len(documents)} texts it got {members} members and {len(part) - members} non-members; "
                f"give more texts or other shares"
            )


def _families(documents: Sequence[Document]) -> list[int]:
    return families([d.group for d in documents], [d.text for d in documents])


def _placed(documents: Sequence[Document], part: Sequence[str]) -> Split:
    placed = list(zip(documents, part, strict=True))
    return Split(*(tuple(d for d, p in placed if p == name) for name in Split._fields))
