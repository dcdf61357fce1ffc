"""The papers' ablations of a benchmark: pure functions on documents and splits.

Text length (DC-PDD, arXiv 2409.14781, Fig. 3); dates in the texts, choice and number of the fine-tuning and of the
tested texts, and texts of other domains (FSD, arXiv 2410.10880, Tables 4, 5, 8 and 15, Figures 2, 4 and 6).
"""

import re
from collections.abc import Callable
from dataclasses import replace
from itertools import chain, compress
from typing import Literal

import numpy as np
from numpy.random import default_rng

from fsd.api import (
    CONTRASTS,
    IS_UNSPACED,
    PIECE,
    Corpus,
    Document,
    Documents,
    Split,
    UsageError,
    date_patterns,
    ends,
    is_chinese,
    split,
    written_date,
)

Scheme = Literal["grouped", "paper"]
# Contemporaries of the members against later texts.
_, OF_PERIODS, _ = CONTRASTS
LATER = OF_PERIODS.negative
NOW = "2023"
"""Replacement of every year, as in the paper."""


def delete_dates(text: str) -> str:
    """The text without its dates: "born in 2014, he" becomes "born in, he"."""
    # of two spaces around a date one stays; none stays before a comma
    return written_date().sub(lambda match: match["before"] and match["after"], text)


def replace_years(text: str) -> str:
    """The text with every year replaced by 2023, decades by the 2020s; days and months do not change."""
    return written_date().sub(lambda match: match["before"] + _of_now(match) + match["after"], text)


def _of_now(match: re.Match[str]) -> str:
    stamp = match["stamp"]
    if match["span"]:
        return NOW
    if match["decade"]:
        # "1990s", and "90年代" with two digits
        return re.sub(r"\d\d", "20", re.sub(r"\d{4}", "2020", stamp))
    stamp = re.sub(date_patterns()["NUMERALS"], "二〇二三", stamp)
    year = date_patterns()["YEAR"]
    return re.sub(rf"(?<!\d){year}(?!\d)", NOW, stamp)


Kind = Literal["non", "mem", "all"]
Stamps = Literal["keep", "delete", "replace"]


def truncate(documents: Documents, size: int) -> tuple[Document, ...]:
    """The first `size` words of each text, separated by white space, which stays; shorter texts are omitted.

    Words of Chinese are those of jieba, as in DC-PDD.
    """
    cut = []
    for document in documents:
        end = _end(document.text, size)
        if end is not None:
            cut.append(replace(document, text=document.text[:end].lstrip()))
    return tuple(cut)


def _end(text: str, size: int) -> int | None:
    """Position after the first `size` words of a text; None if it is shorter."""
    if is_chinese(text):
        positions = ends(text)
        if len(positions) < size:
            return None
        return positions[size - 1]
    total = 0.0  # in words; a character of another script without spaces counts half
    for match in PIECE.finditer(text):
        begin = match.start()
        if IS_UNSPACED.match(match[0]):
            total += 0.5
        # marks between two scripts belong to the word before them
        elif begin == 0 or text[begin - 1].isspace() or re.search(r"\w", match[0]):
            total += 1
        if total >= size:
            return match.end()
    return None


def retime(documents: Documents, stamps: Stamps) -> tuple[Document, ...]:
    """Texts with their dates kept, deleted, or all years replaced by 2023; texts of dates alone are omitted."""
    changes: dict[str, Callable[[str], str]] = {"keep": str, "delete": delete_dates, "replace": replace_years}
    change = changes[stamps]
    changed = (replace(document, text=change(document.text)) for document in documents)
    return tuple(document for document in changed if document.text.strip())


def fine_tuning_set(
    documents: Documents,
    kind: Kind = "non",
    *,
    share: float = 0.3,
    validation: float | None = None,
    scheme: Scheme = "grouped",
    seed: int = 42,
) -> Split:
    """A split for training on the non-members, the members or all texts of a share of a benchmark (Table 4).

    Validation and test are the same for the three kinds. Under "paper", "non" is the paper's own split.
    """
    labels = {"non": {False}, "mem": {True}, "all": {False, True}}[kind]
    parts = split(documents, unseen=share, validation=validation, scheme=scheme, seed=seed, members_too=True)
    chosen = tuple(document for document in parts.unseen if document.member in labels)
    if not chosen:
        raise UsageError(f"share must leave texts to train on; {share} of {len(documents)} texts holds no {kind} text")
    return parts.replace(unseen=chosen)


def add_unseen(parts: Split, foreign: Documents, *, with_own: bool) -> Split:
    """The split with foreign unseen texts, none of the family of a tested one, beside its own or in their place."""
    size = len(parts.judged)
    family = Corpus(chain(parts.judged, foreign)).family
    free = ~np.isin(family[size:], family[:size])
    if not free.any():
        raise UsageError(
            f"foreign texts must share nothing with validation and test texts; none of {len(foreign)} is left"
        )
    added = [replace(document, member=False) for document in compress(foreign, free)]
    if with_own:
        added = list(parts.unseen) + added
    return parts.replace(unseen=added)


def take_unseen(parts: Split, count: int, *, seed: int = 42) -> Split:
    """A split with `count` of its unseen texts; for one seed, smaller selections are subsets of larger ones."""
    size = len(parts.unseen)
    if not 0 <= count <= size:
        raise UsageError(f"count of unseen texts must be from 0 to {size}; got {count}")
    drawn = default_rng(seed).permutation(size)[:count]
    return parts.replace(unseen=parts.unseen.take(np.sort(drawn)))


def counted(documents: Documents, *, unseen: int, tested: int, scheme: Scheme = "grouped", seed: int = 42) -> Split:
    """A split with a number of unseen texts, the others tested, as many members as non-members (Figures 2, 4, 6).

    "paper" draws single texts, as the FSD paper does, and refuses fewer than `tested` of a class. "grouped" keeps
    families whole, so that at most `tested` of each class are tested.
    """
    corpus = Corpus(documents)
    candidates = corpus.kind == LATER if OF_PERIODS.possible(corpus.kind) else ~corpus.members
    total = int(candidates.sum())
    if not 0 < unseen < total:
        raise UsageError(
            f"texts must have more than {unseen} non-members to fine-tune on, so that some are left to test on; "
            f"got {total}"
        )
    if scheme == "grouped":
        return balanced(_whole_families(corpus, unseen, total, seed), tested, seed=seed)
    taken = np.zeros(len(corpus), dtype=bool)
    taken[default_rng(seed).permutation(np.flatnonzero(candidates))[:unseen]] = True
    # as lists: what is drawn by row cuts families apart
    parts = Split(list(corpus.take(taken)), (), list(corpus.take(~taken)))
    members = int(parts.test.members.sum())
    nonmembers = len(parts.test) - members
    if min(members, nonmembers) < tested:
        raise UsageError(
            f"the paper's split must leave {tested} members and {tested} non-members to test on beside {unseen} unseen "
            f"texts; got {members} and {nonmembers}"
        )
    return balanced(parts, tested, seed=seed)


def _whole_families(corpus: Corpus, unseen: int, total: int, seed: int) -> Split:
    """A split in whole families, without validation, with a number of the `total` texts that may be unseen."""
    # A share is met to half a family, so that it grows until there are enough.
    for wanted in range(unseen, total):
        parts = split(corpus, unseen=wanted / total, validation=0.0, seed=seed)
        if len(parts.unseen) >= unseen:
            return take_unseen(parts, unseen, seed=seed)
    raise UsageError(f"texts must have {unseen} non-members in families without a member; got fewer of {total}")


def balanced(parts: Split, most: int, *, seed: int = 42) -> Split:
    """The split with as many members as non-members tested, drawn at random, and at most so many of each."""
    members = parts.test.members
    sides = (np.flatnonzero(members), np.flatnonzero(~members))
    count = min(most, *map(len, sides))
    rng = default_rng(seed)
    drawn = np.concatenate([rng.permutation(side)[:count] for side in sides])
    return parts.replace(test=parts.test.take(np.sort(drawn)))


def hold_out_each(parts: Split, count: int, *, seed: int = 42) -> Split:
    """The split with so many of the tested members, and of the non-members, held out for validation (FSD, Table 8)."""
    members = parts.test.members
    fewest = min(int(members.sum()), int((~members).sum()))
    if fewest <= count:
        raise UsageError(f"the test part must have more than {count} texts of each class to hold out; got {fewest}")
    held = balanced(parts, count, seed=seed).test
    kept = ~np.isin(parts.test.positions, held.positions)
    return parts.replace(validation=held, test=parts.test.take(kept))
