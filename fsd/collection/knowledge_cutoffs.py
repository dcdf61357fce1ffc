"""Knowledge cutoffs: days after which no text can be in a model's pretraining data, each with its source.

In cutoffs.csv the day is the release of the model, or of its training data if that was published as a fixed set before.
Training ended before the release, so the day is safe; where only the month of a release is certain, it is the last day
of that month. A model that is not listed has no entry, even if its name begins like a listed one: later variants were
trained on later texts.
"""

import csv
import functools
import re
from datetime import date as Date  # noqa: N812 - the same name as in fsd.data.documents
from pathlib import Path
from typing import NamedTuple

from fsd.data import embedded
from fsd.errors import UsageError

FILE = Path(__file__).with_name("cutoffs.csv")
CHAT, SIZE = "(-(chat|instruct|it|hf|base))*", r"\d+(\.\d+)?[bm]"
"""What CHAT and SIZE in a pattern of the table stand for."""


class Cutoff(NamedTuple):
    """Family of models, pattern of the whole hub id (any case), last day, and event with reference.

    No text first published after the day can be in the pretraining data.
    """

    family: str
    pattern: str
    day: Date
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
            Cutoff(family, pattern.replace("CHAT", CHAT).replace("SIZE", SIZE), Date.fromisoformat(day), source)
            for family, pattern, day, source in rows
        ),
        *(Cutoff(c.model, c.model, c.cutoff, source) for c in embedded.CORPORA.values()),
    )


def cutoff(model: str) -> Cutoff:
    """The cutoff of a model, by its hub id or `embedded`; UsageError for one that is not in the table."""
    found = next((entry for entry in cutoffs() if entry.names(model)), None)
    if found is None:
        families = ", ".join(dict.fromkeys(entry.family for entry in cutoffs()))
        raise UsageError(f"the cutoff of {model} must be given by --after DATE; known are {families}, by their hub ids")
    return found
