"""Members, contemporaries and later texts: the kinds of text that the three contrasts compare.

Contemporaries are non-members of a period that members have, all other non-members are later. A model may be familiar
with a period whose texts it was trained on without each of them, so members and later texts differ in two respects,
and only contemporaries distinguish them (see `fsd.evaluation.contrasts`).
"""

from collections.abc import Sequence
from dataclasses import replace
from datetime import date as Date  # noqa: N812 - the same name as in fsd.data.documents

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fsd.data.documents import Document
from fsd.errors import UsageError

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
    """Labelled texts, each of which has a period, or none of which has one.

    With a cutoff, texts without a period get one by their dates: members, and non-members dated up to the cutoff have
    one period, later non-members another. It is an error if only some texts have a period, or if a date contradicts
    the cutoff.
    """
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
    early = [bool(d.member or (d.date and d.date <= cutoff)) for d in documents]
    complete = [
        d if d.period else replace(d, period=UP_TO if up_to else AFTER)
        for d, up_to in zip(documents, early, strict=True)
    ]
    kind = kinds_of(complete)
    for name, whose in _WHOSE.items():
        dates = [(d.date, d) for d, one in zip(complete, kind, strict=True) if one == name and d.date]
        wrong = [(day, d) for day, d in dates if (day > cutoff) != (name == LATER)]
        if wrong:
            day, first = wrong[0]
            raise UsageError(
                f"{whose} must be dated {'after' if name == LATER else 'on or before'} the cutoff, {cutoff}; "
                f"{len(wrong)} of {len(dates)} are not, the first is of {day}: {first.origin}"
            )
    return complete


_WHOSE = {
    MEMBER: "members",
    CONTEMPORARY: "contemporaries (non-members of a period that members have)",
    LATER: "non-members of a period that no member has",
}
