"""Split of a benchmark into unseen, validation and test texts, without leaks between the parts.

Families of texts (see `fsd.data.near_duplicates.families`) are kept whole. In the private functions, `side` holds the
(N,) sides of the texts and `family` their (N,) family numbers.
"""

from dataclasses import replace
from itertools import chain
from typing import Literal

import numpy as np
from numpy.random import Generator, default_rng

from fsd.data.corpus import Corpus, Split, as_corpus
from fsd.data.documents import Document, Documents
from fsd.data.periods import CONTEMPORARY, LATER, MEMBER, Kinds, has_both
from fsd.errors import UsageError
from fsd.token_stats import BoolArray, FloatArray, IntArray

Scheme = Literal["grouped", "paper"]
VALIDATION = 0.2
"""Default share of the benchmark that the grouped split uses for validation."""
DEFAULT_VALIDATION: dict[Scheme, float] = {"grouped": VALIDATION, "paper": 0.0}
MEMBERS, CONTEMPORARIES, OTHERS = range(3)
"""Sides of a benchmark; without both contemporaries and later texts, all non-members are `OTHERS`."""
FAMILIES = "families (texts of one group, and near-duplicates)"


def split(
    documents: Documents,
    *,
    unseen: float = 0.3,
    validation: float | None = None,
    scheme: Scheme = "grouped",
    seed: int = 42,
    members_too: bool = False,
) -> Split:
    """Split a labelled benchmark into non-members for training, validation texts and test texts, each text in one part.

    "grouped" keeps families whole (texts of one group, and near-duplicates). `unseen` is the share of the non-members
    used for training, from families without a member, and of the later ones where there are contemporaries; validation
    and test have the same balance of all kinds. Sizes are met to about half a family.

    "paper" is the split of the FSD paper (arXiv 2410.10880, §4.1) and its code: rows at random, in each file or length
    apart, near-duplicates leak, and members (or contemporaries) of the `unseen` share are dropped. It serves comparison
    with the papers' tables alone.

    With `members_too` the unseen part holds a share of both classes, so that models trained on its members, its
    non-members or all of it can be compared on the same test texts. `validation` is 0.2 by default, 0 for "paper".
    """
    if scheme not in ("grouped", "paper"):
        raise UsageError(f"split must be grouped or paper; got {scheme!r}")
    if not 0 < unseen < 1:
        raise UsageError(f"unseen must be a share above 0 and below 1; got {unseen}")
    if validation is None:
        validation = DEFAULT_VALIDATION[scheme]
    corpus = as_corpus(documents)
    _check(corpus, validation)
    if unseen + validation >= 1 - 1e-9:  # shares need not add up exactly in floating point
        raise UsageError(
            f"unseen and validation must sum to less than 1, so that texts are left to test on; "
            f"got {unseen} + {validation}"
        )
    rng = default_rng(seed)
    side = _sides(corpus.kind)
    if scheme == "paper":
        taken, held = _paper(corpus, unseen, validation, seed)
    elif members_too:
        taken, held = _both_classes(side, corpus.family, unseen, validation, rng)
    else:
        taken, held = _grouped(side, corpus.family, unseen, validation, rng)
    # what the paper's split takes of the members (or contemporaries) is dropped, neither trained on nor tested
    trained = taken & (members_too | (side == OTHERS))
    parts = Split(corpus.take(trained), corpus.take(held), corpus.take(~taken & ~held))
    unit = FAMILIES
    if scheme == "paper":
        # it cuts families apart, so those of the whole corpus are not those of its parts
        parts = Split(list(parts.unseen), list(parts.validation), list(parts.test))
        unit = "texts"
    _check_parts(parts, corpus, validation, unit)
    return parts


def split_with(
    unseen: Documents, documents: Documents, *, validation: float | None = None, seed: int = 42
) -> tuple[Split, tuple[Document, ...]]:
    """Validation and test texts of a benchmark, with given unseen texts, and the texts of one family with these."""
    if validation is None:
        validation = VALIDATION
    if not unseen:
        raise UsageError("at least one unseen text must be given; got none")
    check_unseen(unseen, documents)
    corpus = as_corpus(documents)
    _check(corpus, validation)
    family = Corpus(chain(unseen, corpus)).family
    trained = family[: len(unseen)]
    family = family[len(unseen) :]
    related = np.isin(family, trained)
    # a corpus of its own: its families are no longer linked through the texts that leave
    remaining = Corpus(corpus.take(~related))
    held = _hold_out(_sides(remaining.kind), family[~related], validation, default_rng(seed))
    nonmembers = [replace(document, member=False) for document in unseen]
    parts = Split(nonmembers, remaining.take(held), remaining.take(~held))
    _check_parts(parts, remaining, validation, FAMILIES)
    return parts, corpus.take(related)


def check_unseen(unseen: Documents, documents: Documents) -> None:
    """Refuse unseen texts that are members, by a label of their own or by that of a text to score."""
    labelled = {document.text for document in documents if document.member}
    members = [document.origin for document in unseen if document.member or document.text in labelled]
    if members:
        raise UsageError(f"unseen texts must be non-members; {len(members)} are members, the first {members[0]}")


def split_labelled(documents: Documents, *, validation: float, seed: int = 42) -> Split:
    """Split labelled texts into validation and test texts, by family; nothing is trained on."""
    corpus = as_corpus(documents)
    _check(corpus, validation)
    held = _hold_out(_sides(corpus.kind), corpus.family, validation, default_rng(seed))
    parts = Split((), corpus.take(held), corpus.take(~held))
    _check_classes(parts, corpus, validation, FAMILIES)
    return parts


def hold_out(documents: Documents, share: float, *, seed: int) -> tuple[Corpus, Corpus]:
    """Texts to train on, and a share that is held out, in whole families; each in the given order."""
    if not share:
        return Corpus(documents), Corpus()
    corpus = as_corpus(documents)
    # all texts are of one side, whatever their labels
    held = _hold_out(np.zeros_like(corpus.family), corpus.family, share, default_rng(seed))
    if held.all() or not held.any():
        count = len(set(corpus.family))
        raise UsageError(f"members must be of enough {FAMILIES} to hold out {share:g} of them; got {count} families")
    # A corpus of its own for each side: a part would keep the numbers of the families of the whole.
    return Corpus(corpus.take(~held)), Corpus(corpus.take(held))


def _sides(kind: Kinds) -> IntArray:
    apart = has_both(kind) & (kind == CONTEMPORARY)
    return np.select([kind == MEMBER, apart], [MEMBERS, CONTEMPORARIES], OTHERS)


def _sizes(side: IntArray, family: IntArray) -> FloatArray:
    """(F, 3) number of texts of each side in each family."""
    sizes = np.zeros((family.max(initial=-1) + 1, 3))
    np.add.at(sizes, (family, side), 1)
    return sizes


def _fill(sizes: FloatArray, target: FloatArray) -> BoolArray:
    """(F,) take each family, in order, whose (3,) sizes bring the total closer to the (3,) target."""
    # greedy: a large family is passed over if the total comes closer to the target without it
    missing = target
    taken = np.zeros(len(sizes), dtype=bool)
    for i, size in enumerate(sizes):
        taken[i] = ((missing - size) ** 2).sum() < (missing**2).sum()
        if taken[i]:
            missing = missing - size
    return taken


def _hold_out(side: IntArray, family: IntArray, share: float, rng: Generator) -> BoolArray:
    """(N,) texts held out: whole families with about that share of each side."""
    sizes = _sizes(side, family)
    # numbers without a text are those of families that the caller has left out
    order = rng.permutation(np.flatnonzero(sizes.sum(axis=1)))
    held = order[_fill(sizes[order], share * sizes.sum(axis=0))]
    return np.isin(family, held)


Parts = tuple[BoolArray, BoolArray]


def _paper(corpus: Corpus, unseen: float, validation: float, seed: int) -> Parts:
    """(N,) unseen and validation texts at random within each table, such as a length of WikiMIA, by row alone."""
    taken = np.zeros(len(corpus), dtype=bool)
    held = np.zeros(len(corpus), dtype=bool)
    tables = np.array([_table(document) for document in corpus])
    for table in np.unique(tables):
        rows = np.flatnonzero(tables == table)
        # Drawn as the released code does, `train_test_split` of `datasets`: the tested rows first, and the share of
        # the others rounded down. For seed 42 these are the paper's own 231 + 1,157 texts of WikiMIA (Table 7).
        n_taken = int(unseen * len(rows))
        shuffled = rows[default_rng(seed).permutation(len(rows))]
        n_tested = len(rows) - n_taken
        taken[shuffled[n_tested:]] = True
        held[shuffled[: round(validation * len(rows))]] = True
    return taken, held


def _table(document: Document) -> str:
    """The file or the table that a document was read from, which its origin names before the row."""
    table, _, row = document.origin_url.rpartition(":")
    if not row.isdecimal():
        return ""
    return table


def _both_classes(side: IntArray, family: IntArray, unseen: float, validation: float, rng: Generator) -> Parts:
    """(N,) unseen and validation texts: a share of every side, in whole families of any kind."""
    is_unseen = _hold_out(side, family, unseen, rng)
    is_validation = np.zeros_like(is_unseen)
    rest = ~is_unseen
    # a share of all texts is a larger one of those that are left
    is_validation[rest] = _hold_out(side[rest], family[rest], validation / (1 - unseen), rng)
    return is_unseen, is_validation


def _grouped(side: IntArray, family: IntArray, unseen: float, validation: float, rng: Generator) -> Parts:
    """(N,) unseen and validation texts; the former come from families without a member or a contemporary."""
    sizes = _sizes(side, family)
    order = rng.permutation(len(sizes))
    has_others_alone = sizes[:, [MEMBERS, CONTEMPORARIES]].sum(axis=1) == 0
    free = order[has_others_alone[order]]
    wanted = unseen * sizes[:, OTHERS].sum()
    unseen_families = free[_fill(sizes[free], np.array([0, 0, wanted]))]
    rest = order[~np.isin(order, unseen_families)]
    target = validation / (1 - unseen) * sizes[rest].sum(axis=0)
    validation_families = rest[_fill(sizes[rest], target)]
    return np.isin(family, unseen_families), np.isin(family, validation_families)


def _check(corpus: Corpus, validation: float) -> None:
    if not 0 <= validation < 1:
        raise UsageError(f"validation must be a share from 0 to below 1; got {validation}")
    unlabelled = sum(document.member is None for document in corpus)
    if unlabelled:
        raise UsageError(
            f"every text to be split must be labelled 1 (member) or 0 (non-member); "
            f"{unlabelled} of {len(corpus)} are not"
        )
    if not _has_both_classes(corpus):
        raise UsageError(f"texts to be split must be of both classes; got {_sizes_of(corpus)}")


def _check_parts(parts: Split, corpus: Corpus, validation: float, unit: str) -> None:
    if not parts.unseen:
        raise UsageError(
            f"some non-members must be left to train on, in {unit} without a member; "
            f"got {_sizes_of(corpus)} and none to take"
        )
    _check_classes(parts, corpus, validation, unit)
    if not has_both(corpus.kind):
        return
    # with one family of a kind in the test part, an AUC has no interval
    size = len(parts.validation)
    _check_kinds(parts.test, parts.judged.kind[size:], "2 families in the test part", 2)
    if validation:
        _check_kinds(parts.validation, parts.judged.kind[:size], "1 family in the validation part", 1)


def _check_kinds(part: Corpus, kind: Kinds, wanted: str, least: int) -> None:
    early = len(set(part.family[kind == CONTEMPORARY]))
    late = len(set(part.family[kind == LATER]))
    if min(early, late) < least:
        raise UsageError(
            f"contemporaries and later texts must each have at least {wanted} (texts of one group, and "
            f"near-duplicates, are one family); got {early} and {late}: give more texts or other shares, or leave "
            "out one of the two"
        )


def _check_classes(parts: Split, corpus: Corpus, validation: float, unit: str) -> None:
    judged = {"test": parts.test}
    if validation:
        judged["validation"] = parts.validation
    for name, part in judged.items():
        if not _has_both_classes(part):
            raise UsageError(
                f"too few {unit} for the {name} part, which must have members and non-members: from "
                f"{len(corpus)} texts it got {_sizes_of(part)}; give more texts or other shares"
            )


def _has_both_classes(corpus: Corpus) -> bool:
    return bool(corpus.members.any() and not corpus.members.all())


def _sizes_of(corpus: Corpus) -> str:
    members = int(corpus.members.sum())
    return f"{members} members and {len(corpus) - members} non-members"
