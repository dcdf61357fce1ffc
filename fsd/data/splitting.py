"""Split of a benchmark into unseen, validation and test texts, without leaks between the parts.

Families of texts (see `fsd.data.near_duplicates.families`) are kept whole. In the private functions, `side` holds the
(N,) sides of the texts and `family` their (N,) family numbers.
"""

from collections.abc import Sequence
from dataclasses import replace
from datetime import date as Date  # noqa: N812 - documents have a field date
from itertools import compress
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fsd.data.documents import Document
from fsd.data.near_duplicates import families
from fsd.errors import UsageError
from fsd.token_stats import FloatArray, IntArray

UP_TO, AFTER = "up to the cutoff", "after the cutoff"
"""Periods of texts that are parted by their dates alone."""
MEMBER, CONTEMPORARY, LATER, NONMEMBER = "member", "contemporary", "later", "non-member"

BoolArray = NDArray[np.bool_]


def kinds(members: ArrayLike, periods: Sequence[str]) -> NDArray[np.str_]:
    """(N,) member, contemporary or later; non-member instead of the last two if the period of a text is ""."""
    member = np.asarray(members, dtype=bool)
    if not all(periods):
        return np.where(member, MEMBER, NONMEMBER)
    named = np.asarray(periods, dtype=str)
    return np.where(member, MEMBER, np.where(np.isin(named, named[member]), CONTEMPORARY, LATER))


def kinds_of(documents: Sequence[Document]) -> NDArray[np.str_]:
    """(N,) kinds of labelled texts, see `kinds`."""
    return kinds([bool(document.member) for document in documents], [document.period for document in documents])


def has_both(kind: NDArray[np.str_]) -> bool:
    """Whether there are contemporaries and later texts."""
    return bool((kind == CONTEMPORARY).any() and (kind == LATER).any())


def compared(kind: NDArray[np.str_]) -> BoolArray:
    """(N,) texts on which membership is judged: members and non-members, without later texts if there are others."""
    return np.asarray(kind != LATER if has_both(kind) else np.ones(kind.size, dtype=bool))


def parse_cutoff(text: str | None) -> Date | None:
    """The day of `--cutoff`, None without one; UsageError if it is no day."""
    try:
        return Date.fromisoformat(text) if text is not None else None
    except ValueError as error:
        raise UsageError(f"cutoff must be a day like 2023-02-24; got {text!r}") from error


def with_periods(documents: Sequence[Document], cutoff: Date | None) -> list[Document]:
    """Labelled texts, all with a period or none: by a cutoff, dates give one to texts without; both must agree."""
    if cutoff is None:
        without = [document for document in documents if not document.period]
        if 0 < len(without) < len(documents):
            raise UsageError(
                f"every text must have a period if any has one; {len(without)} of {len(documents)} have none, "
                f"the first {without[0].origin}: fill in the column, or give --cutoff DATE, by which the dates decide"
            )
        return list(documents)
    undated = [d for d in documents if not d.member and not d.period and d.date is None]
    if undated:
        raise UsageError(
            "every non-member must have a date or a period where a cutoff parts them; "
            f"{len(undated)} of {len(documents)} texts have neither, the first {undated[0].origin}"
        )
    complete = [
        d if d.period else replace(d, period=UP_TO if d.member or (d.date and d.date <= cutoff) else AFTER)
        for d in documents
    ]
    kind = kinds_of(complete)
    for name, whose in (
        (MEMBER, "members"),
        (CONTEMPORARY, "contemporaries (non-members of a period that members have)"),
        (LATER, "non-members of a period that no member has"),
    ):
        dated = [d for d, one in zip(complete, kind, strict=True) if one == name and d.date]
        wrong = [d for d in dated if d.date and (d.date > cutoff) != (name == LATER)]
        if wrong:
            raise UsageError(
                f"{whose} must be dated {'after' if name == LATER else 'on or before'} the cutoff, {cutoff}; "
                f"{len(wrong)} of {len(dated)} are not, the first is of {wrong[0].date}: {wrong[0].origin}"
            )
    return complete


Scheme = Literal["grouped", "paper"]
VALIDATION = 0.2
"""Default share of the benchmark that the grouped split uses for validation."""
MEMBERS, CONTEMPORARIES, OTHERS = range(3)
"""Sides of a benchmark; without both contemporaries and later texts, all non-members are `OTHERS`."""
FAMILIES = "families (texts of one group, and near-duplicates)"


class Split(NamedTuple):
    """Three parts of a benchmark, disjoint by group; only `unseen` is used for training."""

    unseen: tuple[Document, ...]
    validation: tuple[Document, ...]
    test: tuple[Document, ...]


def split(
    documents: Sequence[Document],
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

    "paper" is the split of the FSD paper (arXiv 2410.10880, §4.1) and its code: rows at random, near-duplicates leak,
    and members (or contemporaries) of the `unseen` share are dropped. It serves comparison with the papers' tables
    alone.

    With `members_too` the unseen part holds a share of both classes, so that models trained on its members, its
    non-members or all of it can be compared on the same test texts. `validation` is 0.2 by default, 0 for "paper".
    """
    if scheme not in ("grouped", "paper"):
        raise UsageError(f"split must be grouped or paper; got {scheme!r}")
    if not 0 < unseen < 1:
        raise UsageError(f"unseen must be a share above 0 and below 1; got {unseen}")
    if validation is None:
        validation = VALIDATION if scheme == "grouped" else 0.0
    _check(documents, validation)
    if unseen + validation >= 1 - 1e-9:
        raise UsageError(
            f"unseen and validation must sum to less than 1, so that texts are left to test on; "
            f"got {unseen} + {validation}"
        )
    rng = np.random.default_rng(seed)
    side = _sides(documents)
    if scheme == "paper":
        place = np.argsort(rng.permutation(len(side)))
        first, second = round(unseen * len(side)), round(unseen * len(side)) + round(validation * len(side))
        taken, held = place < first, (first <= place) & (place < second)
    elif members_too:  # a share of every side, in whole families of any kind
        family = np.array(families(documents))
        taken = _hold_out(side, family, unseen, rng)
        held = np.zeros_like(taken)
        held[~taken] = _hold_out(side[~taken], family[~taken], validation / (1 - unseen), rng)
    else:
        taken, held = _grouped(side, np.array(families(documents)), unseen, validation, rng)
    trained = taken if members_too else taken & (side == OTHERS)
    parts = Split(*(_where(documents, mask) for mask in (trained, held, ~taken & ~held)))
    return _checked(parts, documents, validation, FAMILIES if scheme == "grouped" else "texts")


def split_with(
    unseen: Sequence[Document], documents: Sequence[Document], *, validation: float | None = None, seed: int = 42
) -> tuple[Split, tuple[Document, ...]]:
    """Validation and test texts of a benchmark, with given unseen texts, and the texts of one family with these."""
    validation = VALIDATION if validation is None else validation
    if not unseen:
        raise UsageError("at least one unseen text must be given; got none")
    members = [d.origin for d in unseen if d.member]
    if members:
        raise UsageError(f"unseen texts must be non-members; {len(members)} are members, the first {members[0]}")
    _check(documents, validation)
    family = np.array(families([*unseen, *documents]))
    trained, family = family[: len(unseen)], family[len(unseen) :]
    related = np.isin(family, trained)
    remaining = _where(documents, ~related)
    held = _hold_out(_sides(remaining), family[~related], validation, np.random.default_rng(seed))
    parts = Split(tuple(replace(d, member=False) for d in unseen), _where(remaining, held), _where(remaining, ~held))
    return _checked(parts, remaining, validation, FAMILIES), _where(documents, related)


def split_labelled(documents: Sequence[Document], *, validation: float, seed: int = 42) -> Split:
    """Split labelled texts into validation and test texts, by family; nothing is trained on."""
    _check(documents, validation)
    held = _hold_out(_sides(documents), np.array(families(documents)), validation, np.random.default_rng(seed))
    parts = Split((), _where(documents, held), _where(documents, ~held))
    _check_classes(parts, documents, validation, FAMILIES)
    return parts


def hold_out(documents: Sequence[Document], share: float, *, seed: int) -> tuple[list[Document], list[Document]]:
    """Texts to train on, and a share that is held out, in whole families; each in the given order."""
    if not share:
        return list(documents), []
    family = np.array(families(documents))
    held = _hold_out(np.zeros(len(documents), dtype=np.int64), family, share, np.random.default_rng(seed))
    if held.all() or not held.any():
        raise UsageError(
            f"members must be of enough {FAMILIES} to hold out {share:g} of them; got {len(set(family.tolist()))} "
            "families"
        )
    return list(_where(documents, ~held)), list(_where(documents, held))


def without_later(parts: Split) -> Split:
    """The split with those validation and test texts on which membership is judged, see `compared`."""
    held = len(parts.validation)
    chosen = compared(kinds_of([*parts.validation, *parts.test]))
    return parts._replace(validation=_where(parts.validation, chosen[:held]), test=_where(parts.test, chosen[held:]))


def _sides(documents: Sequence[Document]) -> IntArray:
    kind = kinds_of(documents)
    apart = has_both(kind) & (kind == CONTEMPORARY)
    return np.where(kind == MEMBER, MEMBERS, np.where(apart, CONTEMPORARIES, OTHERS))


def _where(documents: Sequence[Document], mask: BoolArray) -> tuple[Document, ...]:
    return tuple(compress(documents, mask))


def _sizes(side: IntArray, family: IntArray) -> FloatArray:
    """(F, 3) number of texts of each side in each family."""
    count = int(family.max(initial=-1)) + 1
    sides = [np.bincount(family[side == one], minlength=count) for one in (MEMBERS, CONTEMPORARIES, OTHERS)]
    return np.stack(sides, axis=1).astype(np.float64)


def _fill(sizes: FloatArray, target: FloatArray) -> BoolArray:
    """(F,) take each family, in order, whose (3,) sizes bring the total closer to the (3,) target."""
    missing = target
    taken = np.zeros(len(sizes), dtype=bool)
    for i, size in enumerate(sizes):
        taken[i] = ((missing - size) ** 2).sum() < (missing**2).sum()
        missing = missing - size * taken[i]
    return taken


def _hold_out(side: IntArray, family: IntArray, share: float, rng: np.random.Generator) -> BoolArray:
    """(N,) texts held out: whole families with about that share of each side."""
    sizes = _sizes(side, family)
    order = rng.permutation(np.flatnonzero(sizes.sum(axis=1)))
    return np.isin(family, order[_fill(sizes[order], share * sizes.sum(axis=0))])


def _grouped(
    side: IntArray, family: IntArray, unseen: float, validation: float, rng: np.random.Generator
) -> tuple[BoolArray, BoolArray]:
    """(N,) unseen and validation texts; the former come from families without a member or a contemporary."""
    sizes = _sizes(side, family)
    order = rng.permutation(len(sizes))
    free = order[sizes[order, :OTHERS].sum(axis=1) == 0]
    taken = free[_fill(sizes[free], np.array([0, 0, unseen * sizes[:, OTHERS].sum()]))]
    rest = order[~np.isin(order, taken)]
    held = rest[_fill(sizes[rest], validation / (1 - unseen) * sizes[rest].sum(axis=0))]
    return np.isin(family, taken), np.isin(family, held)


def _check(documents: Sequence[Document], validation: float) -> None:
    if not 0 <= validation < 1:
        raise UsageError(f"validation must be a share from 0 to below 1; got {validation}")
    unlabelled = sum(d.member is None for d in documents)
    if unlabelled:
        raise UsageError(
            f"every text to be split must be labelled 1 (member) or 0 (non-member); "
            f"{unlabelled} of {len(documents)} are not"
        )
    if not 0 < sum(d.member is True for d in documents) < len(documents):
        raise UsageError(f"texts to be split must be of both classes; got {_sizes_of(documents)}")


def _checked(parts: Split, documents: Sequence[Document], validation: float, unit: str) -> Split:
    if not parts.unseen:
        raise UsageError(
            f"some non-members must be left to train on, in {unit} without a member; "
            f"got {_sizes_of(documents)} and none to take"
        )
    _check_classes(parts, documents, validation, unit)
    if not has_both(kinds_of(documents)):
        return parts
    kind, held = kinds_of([*parts.validation, *parts.test]), len(parts.validation)
    # without two families of each kind in the test part, an AUC has no interval
    for name, least, of_part in (("test", 2, kind[held:]), ("validation", 1, kind[:held]))[: 2 if validation else 1]:
        family = np.array(families(getattr(parts, name)), dtype=np.int64)
        early, late = (np.unique(family[of_part == one]).size for one in (CONTEMPORARY, LATER))
        if min(early, late) < least:
            wanted = f"{least} {'families' if least > 1 else 'family'} in the {name} part"
            raise UsageError(
                f"contemporaries and later texts must each have at least {wanted} (texts of one group, and "
                f"near-duplicates, are one family); got {early} and {late}: give more texts or other shares, or leave "
                "out one of the two"
            )
    return parts


def _check_classes(parts: Split, documents: Sequence[Document], validation: float, unit: str) -> None:
    for name in ("test", "validation") if validation else ("test",):
        part = getattr(parts, name)
        if not 0 < sum(d.member is True for d in part) < len(part):
            raise UsageError(
                f"too few {unit} for the {name} part, which must have members and non-members: from "
                f"{len(documents)} texts it got {_sizes_of(part)}; give more texts or other shares"
            )


def _sizes_of(documents: Sequence[Document]) -> str:
    members = sum(d.member is True for d in documents)
    return f"{members} members and {len(documents) - members} non-members"
