"""Knowledge cutoffs: days after which no text can be in a model's pretraining data, each with its source.

In cutoffs.csv the day is the release of the model, or of its training data if that was published before; of a month,
its last day. The end is the last day of the data, where its authors name it. A model that is not listed has no entry,
even if its name begins like a listed one: later variants were trained on later texts.
"""

import csv
import functools
import re
from collections.abc import Sequence
from datetime import date as Date  # noqa: N812 - the same name as in fsd.data.documents
from pathlib import Path
from typing import NamedTuple

from fsd.data import embedded
from fsd.data.documents import Document
from fsd.errors import UsageError
from fsd.net.hub import EMBEDDED, hub_id

FILE = Path(__file__).with_name("cutoffs.csv")
CHAT, SIZE = "(-(chat|instruct|it|hf|base))*", r"\d+(\.\d+)?[bm]"
"""What CHAT and SIZE in a pattern of the table stand for."""


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
    with FILE.open(encoding="utf-8", newline="") as file:
        rows = list(csv.reader(file))[1:]
    source = "last day of its corpus (fsd.data.embedded)"
    return (
        *(
            Cutoff(
                family,
                pattern.replace("CHAT", CHAT).replace("SIZE", SIZE),
                Date.fromisoformat(day),
                Date.fromisoformat(end) if end else None,
                source,
            )
            for family, pattern, day, end, source in rows
        ),
        *(Cutoff(c.model, c.model, c.cutoff, None, source) for c in embedded.CORPORA.values()),
    )


def _known(model: str) -> Cutoff | None:
    return next((entry for entry in cutoffs() if entry.names(model)), None)


def cutoff(model: str) -> Cutoff:
    """The cutoff of a model, by its hub id or `embedded`; UsageError for one that is not in the table."""
    found = _known(model)
    if found is None:
        families = ", ".join(dict.fromkeys(entry.family for entry in cutoffs()))
        raise UsageError(f"the cutoff of {model} must be given by --after DATE; known are {families}, by their hub ids")
    return found


class Labels(NamedTuple):
    """Whether labels hold for a model, as far as dates tell, and what is doubtful about them, "" if nothing is."""

    hold: bool = True
    doubt: str = ""

    @property
    def said(self) -> list[str]:
        """The doubt as remarks: one or none."""
        return [self.doubt] if self.doubt else []


HOLDING = Labels()


def labels_for(
    model: str, documents: Sequence[Document], *, since: Date | None = None, last: Date | None = None
) -> Labels:
    """Whether the non-members are later than the data of a model; those of embedded models are by construction.

    `since` is the first day of non-members without dates, `last` the last day of the model's data, if it was given.
    """
    of_members = {document.period for document in documents if document.member} - {""}
    days = [d.date for d in documents if not d.member and d.period not in of_members and d.date]
    first = min([*days, *([since] if since else [])], default=None)
    if model in EMBEDDED or first is None:
        return HOLDING
    known = _known(hub_id(model))
    last = last or (known and (known.end or known.day))
    if last is None:
        return Labels(doubt=f"the age of {model} is not known: labels hold only if its data end before {first}")
    if last < first:
        return HOLDING
    early = sum(day <= last for day in days)
    which = f"{early} of {len(days)} dated non-members are not later" if early else f"the non-members begin on {first}"
    return Labels(False, f"the labels do not hold: {model} may have read texts up to {last}, and {which}")
