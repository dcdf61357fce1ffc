"""Documents, and their split into unseen, validation and test."""

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import date as Date  # noqa: N812 - the field `date` would hide it
from typing import Literal, NamedTuple

import numpy as np

from fsd.duplicates import families
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


Scheme = Literal["grouped", "paper"]
VALIDATION = 0.2
"""Share of the benchmark that the grouped split holds out for choosing thresholds and settings."""


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

    "grouped" keeps families whole (texts of one group, and near-duplicates: see `fsd.duplicates`), so that no
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
    draw = {"grouped": _grouped, "paper": _paper}[scheme]
    part = draw(documents, unseen, validation, np.random.default_rng(seed))
    placed = list(zip(documents, part, strict=True))
    parts = Split(*(tuple(d for d, p in placed if p == name) for name in Split._fields))
    _check_parts(parts, documents, validation, scheme)
    return parts


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


def _fill(sizes: Iterable[Sequence[float]], target: Sequence[float]) -> list[bool]:
    """Go through families in order and take each that brings the sum of their sizes closer to the target.

    Args:
        sizes: (members, non-members) of each family.
        target: (members, non-members) wanted.
    """
    missing = np.asarray(target, np.float64)
    taken = []
    for size in np.asarray(sizes, np.float64):
        closer = bool(((missing - size) ** 2).sum() < (missing**2).sum())
        taken.append(closer)
        missing = missing - size * closer
    return taken


def _grouped(documents: Sequence[Document], unseen: float, validation: float, rng: np.random.Generator) -> list[str]:
    family = families([d.group for d in documents], [d.text for d in documents])
    sizes = np.zeros((max(family) + 1, 2))
    for d, number in zip(documents, family, strict=True):
        sizes[number, 0 if d.member else 1] += 1
    order = rng.permutation(len(sizes))
    part = np.full(len(sizes), "test", dtype=object)

    free = order[sizes[order, 0] == 0]
    part[free[_fill(sizes[free], (0, unseen * sizes[:, 1].sum()))]] = "unseen"
    rest = order[part[order] == "test"]
    share = validation / (1 - unseen)
    part[rest[_fill(sizes[rest], share * sizes[rest].sum(0))]] = "validation"
    return [part[number] for number in family]


def _paper(documents: Sequence[Document], unseen: float, validation: float, rng: np.random.Generator) -> list[str]:
    order = rng.permutation(len(documents))
    first = round(unseen * len(documents))
    second = first + round(validation * len(documents))
    part = np.full(len(documents), "test", dtype=object)
    part[order[first:second]] = "validation"
    for row in order[:first]:
        part[row] = "dropped" if documents[row].member else "unseen"
    return list(part)
