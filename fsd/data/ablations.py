"""The papers' ablations of a benchmark: pure functions on documents and splits.

Text length (DC-PDD, arXiv 2409.14781, Fig. 3); dates in the texts, choice and number of the fine-tuning texts, and
texts of other domains (FSD, arXiv 2410.10880, Tables 4, 5 and 15, Figures 4 and 6).
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Literal

import numpy as np

from fsd.data.documents import Document
from fsd.data.near_duplicates import IS_UNSPACED, UNSPACED, families
from fsd.data.splitting import Scheme, Split, split
from fsd.errors import UsageError, at_least

NOW = "2023"
"""Replacement of every year, as in the paper."""

_DIGIT = "0-9０-９"
_YEAR = r"(?:[1１][5-9５-９]|[2２][0０])\d\d"
_YEAR_0 = r"(?:[1１][5-9５-９]|[2２][0０])\d[0０]"
_NUMERALS = "[一二][〇零○一二三四五六七八九]{3}"
_MONTH = (
    r"(?:Jan(?:uary|\.)?|Feb(?:ruary|\.)?|Mar(?:ch|\.)?|Apr(?:il|\.)?|May|June|Jun\.?|July|Jul\.?|Aug(?:ust|\.)?"
    r"|Sept?(?:ember|\.)?|Oct(?:ober|\.)?|Nov(?:ember|\.)?|Dec(?:ember|\.)?)"
)
_DAY = r"(?:3[01]|[12]\d|0?[1-9])(?:st|nd|rd|th)?"
_TO = r"(?:\s?[-–—/]\s?|\s(?:to|until|through|and)\s)"
_DAYS = rf"{_DAY}(?:{_TO}{_DAY})?"
_TIME = r"(?:[T ]\d\d:\d\d(?::\d\d(?:\.\d+)?)?(?:Z|[+-]\d\d:?\d\d)?)?"
_CHINESE_DAY = r"\d{1,2}\s?月\s?\d{1,2}\s?[日号]"

_START = rf"(?<![A-Za-z_{_DIGIT}$€£#])(?<![{_DIGIT}][.,/-])"
_END = rf"(?![A-Za-z_{_DIGIT}%])(?![.,][{_DIGIT}])"

_FORMS = (
    rf"{_START}{_YEAR}(?P<first>[-/.])\d{{1,2}}(?P=first)\d{{1,2}}{_TIME}{_END}",
    rf"{_START}\d{{1,2}}(?P<last>[-/.])\d{{1,2}}(?P=last){_YEAR}{_END}",
    rf"{_START}{_DAY}(?: of)? {_MONTH}{_TO}{_DAY}(?: of)? {_MONTH}(?:,? {_YEAR}{_END}|(?![A-Za-z]))",
    rf"\b{_MONTH} {_DAY}{_TO}{_MONTH} {_DAY}(?:,? {_YEAR})?{_END}",
    rf"{_START}{_DAYS}(?: of)? {_MONTH},? {_YEAR}{_END}",
    rf"\b{_MONTH} {_DAYS},? {_YEAR}{_END}",
    rf"\b(?:{_MONTH}{_TO})?{_MONTH},? {_YEAR}{_END}",
    rf"(?P<decade>{_START}{_YEAR_0}(?:['’]?s(?![A-Za-z])|\s?年代)|(?<![{_DIGIT}])[1-9]0年代)",
    rf"{_START}{_YEAR}['’]s(?![A-Za-z])",
    rf"{_START}{_YEAR}\s?年(?:\s?\d{{1,2}}\s?月(?:\s?\d{{1,2}}\s?[日号])?)?",
    rf"{_NUMERALS}年",
    rf"(?P<span>{_START}{_YEAR} ?[-–—/] ?(?:{_YEAR}|\d\d){_END})",
    rf"{_START}{_YEAR}{_END}",
    rf"(?<![{_DIGIT}]){_CHINESE_DAY}",
    rf"{_START}{_DAYS}(?: of)? {_MONTH}(?![A-Za-z])",
    rf"\b{_MONTH} {_DAY}(?:\s?[-–—]\s?{_DAY})?{_END}",
)
"""Dates come before the years that they contain, so that they match as a whole."""

_STAMP = re.compile(rf"(?P<before>[ \t]?)(?P<stamp>{'|'.join(_FORMS)})(?P<after>[ \t]?)")


def stamps(text: str) -> list[str]:
    """The dates and years in the text, in order."""
    return [match["stamp"] for match in _STAMP.finditer(text)]


def delete_dates(text: str) -> str:
    """The text without its dates: "born in 2014, he" becomes "born in, he"."""
    return _STAMP.sub(lambda match: match["before"] and match["after"], text)


def replace_years(text: str) -> str:
    """The text with every year replaced by 2023, decades by the 2020s; days and months do not change."""
    return _STAMP.sub(lambda match: match["before"] + _now(match) + match["after"], text)


def _now(match: re.Match[str]) -> str:
    stamp = match["stamp"]
    if match["span"]:
        return NOW
    if match["decade"]:
        return re.sub(r"\d+", lambda digits: "2020" if len(digits[0]) == 4 else "20", stamp)
    stamp = re.sub(_NUMERALS, "二〇二三", stamp)
    return re.sub(rf"(?<!\d){_YEAR}(?!\d)", NOW, stamp)


Kind = Literal["non", "mem", "all"]
Stamps = Literal["keep", "delete", "replace"]
_PIECE = re.compile(rf"[{UNSPACED}]|[^\s{UNSPACED}]+")


def truncate(documents: Sequence[Document], size: int) -> tuple[Document, ...]:
    """The first `size` words of each text, separated by white space, which stays; shorter texts are omitted."""
    at_least(1, " word", size=size)
    ends = ((d, _end(d.text, size)) for d in documents)
    return tuple(replace(d, text=d.text[:end].lstrip()) for d, end in ends if end is not None)


def _end(text: str, size: int) -> int | None:
    """Position after the first `size` words of a text; None if it is shorter."""
    total = 0.0
    for match in _PIECE.finditer(text):
        begin = match.start()
        if IS_UNSPACED.match(match[0]):
            total += 0.5
        elif begin == 0 or text[begin - 1].isspace() or re.search(r"\w", match[0]):
            total += 1
        if total >= size:
            return match.end()
    return None


def retime(documents: Sequence[Document], stamps: Stamps) -> tuple[Document, ...]:
    """Texts with their dates kept, deleted, or all years replaced by 2023; texts of dates alone are omitted."""
    changes: dict[str, Callable[[str], str]] = {"keep": str, "delete": delete_dates, "replace": replace_years}
    changed = (replace(d, text=changes[stamps](d.text)) for d in documents)
    return tuple(d for d in changed if d.text.strip())


def fine_tuning_set(
    documents: Sequence[Document],
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
    wanted = {"non": (False,), "mem": (True,), "all": (False, True)}
    parts = split(documents, unseen=share, validation=validation, scheme=scheme, seed=seed, members_too=True)
    chosen = tuple(d for d in parts.unseen if d.member in wanted[kind])
    if not chosen:
        raise UsageError(f"share must leave texts to train on; {share} of {len(documents)} texts holds no {kind} text")
    return parts._replace(unseen=chosen)


def add_unseen(parts: Split, foreign: Sequence[Document], *, own: bool) -> Split:
    """The split with foreign unseen texts, none of the family of a tested one, beside its `own` or in their place."""
    members = sum(d.member is True for d in foreign)
    if members:
        raise UsageError(f"foreign texts must be non-members; {members} of {len(foreign)} are members")
    held = (*parts.validation, *parts.test)
    family = families([*held, *foreign])
    taken = set(family[: len(held)])
    pairs = zip(foreign, family[len(held) :], strict=True)
    free = [replace(d, member=False) for d, number in pairs if number not in taken]
    if not free:
        raise UsageError(
            f"foreign texts must share nothing with validation and test texts; none of {len(foreign)} is left"
        )
    return parts._replace(unseen=(*(parts.unseen if own else ()), *free))


def take_unseen(parts: Split, count: int, *, seed: int = 42) -> Split:
    """A split with `count` of its unseen texts; for one seed, smaller selections are subsets of larger ones."""
    if not 0 <= count <= len(parts.unseen):
        raise UsageError(f"count of unseen texts must be from 0 to {len(parts.unseen)}; got {count}")
    drawn = np.random.default_rng(seed).permutation(len(parts.unseen))[:count]
    return parts._replace(unseen=tuple(parts.unseen[i] for i in sorted(drawn)))
