"""Periods: which non-members are of the members' own time, and which are later.

A score that tells members from later texts may tell the age of a text alone; contemporaries are the fair comparison.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import date as Date  # noqa: N812 - documents have a field date
from functools import cache
from itertools import compress
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fsd.data.documents import Document, Documents
from fsd.errors import UsageError
from fsd.token_stats import BoolArray

UP_TO = "up to the cutoff"
AFTER = "after the cutoff"
"""Periods of texts that are parted by their dates alone."""
# Neighbours of a bound are computed, which the first and the last day of the calendar have not.
EARLIEST = Date(1000, 1, 1)
LATEST = Date(9998, 12, 31)
MEMBER = "member"
CONTEMPORARY = "contemporary"
LATER = "later"
NONMEMBER = "non-member"
_DATED_KINDS = {
    MEMBER: "members",
    CONTEMPORARY: "contemporaries (non-members of a period that members have)",
    LATER: "non-members of a period that no member has",
}

DATES = Path(__file__).with_name("dates.yaml")
"""How dates and years are written."""

Kinds = NDArray[np.str_]


def kinds(members: ArrayLike, periods: Sequence[str]) -> Kinds:
    """(N,) member, contemporary or later; non-member instead of the last two if the period of a text is ""."""
    member = np.asarray(members, dtype=bool)
    if not all(periods):  # nothing tells contemporaries from later texts
        return np.where(member, MEMBER, NONMEMBER)
    period = np.asarray(periods, dtype=str)
    nonmember_kinds = np.where(np.isin(period, period[member]), CONTEMPORARY, LATER)
    return np.where(member, MEMBER, nonmember_kinds)


def kinds_of(documents: Documents) -> Kinds:
    """(N,) kinds of labelled texts, see `kinds`."""
    return kinds([bool(document.member) for document in documents], [document.period for document in documents])


def has_both(kind: Kinds) -> bool:
    """Whether there are contemporaries and later texts."""
    return CONTEMPORARY in kind and LATER in kind


def compared(kind: Kinds) -> BoolArray:
    """(N,) texts on which membership is judged: members and non-members, without later texts if there are others."""
    # against later texts a score may tell the age of a text instead of its membership
    if has_both(kind):
        return np.asarray(kind != LATER)
    return np.ones(kind.size, dtype=bool)


def parse_cutoff(text: str | None) -> Date | None:
    """The day of `--cutoff`, None without one; UsageError if it is no day."""
    if text is None:
        return None
    return parse_day("cutoff", text)


def parse_day(name: str, text: str) -> Date:
    """The day of an option of that name; UsageError if it is no day between `EARLIEST` and `LATEST`."""
    try:
        day = Date.fromisoformat(text)
    except ValueError as error:
        raise UsageError(f"{name} must be a day like 2023-02-24; got {text!r}") from error
    if not EARLIEST <= day <= LATEST:
        raise UsageError(f"{name} must be a day from {EARLIEST} to {LATEST}; got {text!r}")
    return day


def with_periods(documents: Documents, cutoff: Date | None) -> list[Document]:
    """Labelled texts, all with a period or none: by a cutoff, dates give one to texts without; both must agree."""
    if cutoff is None:
        _check_all_or_no_periods(documents)
        return list(documents)
    undated = [d for d in documents if not (d.member or d.period or d.date)]
    if undated:
        raise UsageError(
            "every non-member must have a date or a period where a cutoff parts them; "
            f"{len(undated)} of {len(documents)} texts have neither, the first {undated[0].origin}"
        )
    complete = [_with_period(document, cutoff) for document in documents]
    _check_dates(complete, cutoff)
    return complete


def _check_all_or_no_periods(documents: Documents) -> None:
    without = [document for document in documents if not document.period]
    if 0 < len(without) < len(documents):
        raise UsageError(
            f"every text must have a period if any has one; {len(without)} of {len(documents)} have none, "
            f"the first {without[0].origin}: fill in the column, or give --cutoff DATE, by which the dates decide"
        )


def _with_period(document: Document, cutoff: Date) -> Document:
    if document.period:
        return document
    # a member without a date belongs to the earlier period: the model has read it
    if document.member or (document.date and document.date <= cutoff):
        return replace(document, period=UP_TO)
    return replace(document, period=AFTER)


def _check_dates(documents: Documents, cutoff: Date) -> None:
    """Refuse dates that contradict the periods: those of a column may be other ones than the cutoff parts."""
    kind = kinds_of(documents)
    for name, texts in _DATED_KINDS.items():
        dated = [(d.date, d) for d in compress(documents, kind == name) if d.date]
        wrong = [(day, document) for day, document in dated if (day > cutoff) != (name == LATER)]
        if wrong:
            day, document = wrong[0]
            side = "after" if name == LATER else "on or before"
            raise UsageError(
                f"{texts} must be dated {side} the cutoff, {cutoff}; "
                f"{len(wrong)} of {len(dated)} are not, the first is of {day}: {document.origin}"
            )


@cache
def date_patterns() -> Mapping[str, str]:
    """The regular expressions of `DATES` by name, without names in them."""
    import yaml

    patterns: dict[str, str] = {}
    for name, pattern in yaml.safe_load(DATES.read_text(encoding="utf-8")).items():
        if isinstance(pattern, list):
            pattern = "|".join(pattern)
        patterns[name] = re.sub("<([A-Z_]+)>", lambda named: patterns[named[1]], pattern)
    return patterns


@cache
def written_date() -> re.Pattern[str]:
    """A date or year, with the blanks around it."""
    return re.compile(date_patterns()["STAMP"])


def stamps(text: str) -> list[str]:
    """The dates and years in the text, in order."""
    return [match["stamp"] for match in written_date().finditer(text)]
