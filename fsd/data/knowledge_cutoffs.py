"""Knowledge cutoffs: days after which no text can be in a model's pretraining data, each with its source.

In cutoffs.csv the day is the release of the model, or of its training data if that was published before; of a month,
its last day. The end is the last day of the data, where its authors name it. A model that is not listed has no entry,
even if its name begins like a listed one: later variants were trained on later texts.
"""

import csv
import functools
import re
from datetime import date as Date  # noqa: N812 - the same name as in fsd.data.documents
from itertools import chain
from pathlib import Path
from typing import NamedTuple

from fsd.data import embedded
from fsd.data.documents import Documents
from fsd.errors import UsageError
from fsd.net.hub import EMBEDDED, hub_id

FILE = Path(__file__).with_name("cutoffs.csv")
CHAT = "(-(chat|instruct|it|hf|base))*"
"""What CHAT in a pattern of the table stands for."""
SIZE = r"\d+(\.\d+)?[bm]"
"""What SIZE in a pattern of the table stands for."""


class Cutoff(NamedTuple):
    """Family, pattern of the whole hub id (any case), last day, end of the data if known, event with reference."""

    family: str
    pattern: str
    day: Date
    end: Date | None
    source: str

    def names(self, model: str) -> bool:
        """Whether it is the cutoff of the model, by its hub id or `embedded`."""
        return bool(re.fullmatch(self.pattern, model, re.IGNORECASE))


@functools.cache
def cutoffs() -> tuple[Cutoff, ...]:
    """The table, and the embedded models."""
    table = []
    with FILE.open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            pattern = row["pattern"].replace("CHAT", CHAT).replace("SIZE", SIZE)
            # the end of the data is the better day, where it is known
            end = None
            if row["end"]:
                end = Date.fromisoformat(row["end"])
            table.append(Cutoff(row["family"], pattern, Date.fromisoformat(row["day"]), end, row["source"]))
    for corpus in embedded.CORPORA.values():
        source = "last day of its corpus (fsd.data.embedded)"
        table.append(Cutoff(corpus.model, corpus.model, corpus.cutoff, None, source))
    return tuple(table)


def _entry(model: str) -> Cutoff | None:
    return next((entry for entry in cutoffs() if entry.names(model)), None)


def _days_of_later(documents: Documents) -> list[Date]:
    """The days of the dated non-members that may be later: those of a period that members have need not be."""
    periods = {document.period for document in documents if document.member} - {""}
    later = [document for document in documents if not document.member and document.period not in periods]
    return [document.date for document in later if document.date]


def _last_day(model: str) -> Date | None:
    entry = _entry(hub_id(model))
    return entry and (entry.end or entry.day)


def cutoff(model: str) -> Cutoff:
    """The cutoff of a model, by its hub id or `embedded`; UsageError for one that is not in the table."""
    entry = _entry(model)
    if entry is None:
        families = ", ".join(dict.fromkeys(entry.family for entry in cutoffs()))
        raise UsageError(f"the cutoff of {model} must be given by --after DATE; known are {families}, by their hub ids")
    return entry


class Labels(NamedTuple):
    """Whether labels hold for a model, as far as dates tell, and what is doubtful about them, "" if nothing is."""

    hold: bool = True
    doubt: str = ""

    @property
    def notes(self) -> list[str]:
        """The doubt as remarks: one or none."""
        return [self.doubt] if self.doubt else []


HOLDING = Labels()


def labels_for(model: str, documents: Documents, *, since: Date | None = None, last: Date | None = None) -> Labels:
    """Whether the non-members are later than the data of a model; those of embedded models are by construction.

    `since` is the first day of non-members without dates, `last` the last day of the model's data, if it was given.
    """
    days = _days_of_later(documents)
    begin = min(filter(None, chain(days, [since])), default=None)
    if model in EMBEDDED or begin is None:
        return HOLDING
    last = last or _last_day(model)
    if last is None:
        return Labels(doubt=f"the age of {model} is not known: labels hold only if its data end before {begin}")
    if last < begin:
        return HOLDING
    early = sum(day <= last for day in days)
    which = f"the non-members begin on {begin}"
    if early:
        which = f"{early} of {len(days)} dated non-members are not later"
    return Labels(False, f"the labels do not hold: {model} may have read texts up to {last}, and {which}")
