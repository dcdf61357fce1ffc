"""What the text audit says, see `fsd.text_audit.audit`: without scikit-learn, which takes long to import."""

from dataclasses import dataclass, field
from typing import Annotated, NamedTuple

import numpy as np
from pydantic import PlainSerializer, PlainValidator

from fsd.statistics.intervals import Estimate
from fsd.token_stats import FloatArray

Listed = Annotated[FloatArray, PlainValidator(np.array), PlainSerializer(FloatArray.tolist)]
"""Numbers that are a list in JSON."""


class Leak(NamedTuple):
    """Two related texts in different parts of the split, by group or a rule of near-duplicates; a row of leaks.json."""

    part: str
    other_part: str
    reason: str
    text: str
    other_text: str


class Leaks(NamedTuple):
    """Related texts that a split separates, and pairs that show it."""

    pairs: tuple[Leak, ...]
    groups: int  # families in more than one part
    tested: int  # test texts with a relative among the unseen texts
    calibrated: int  # test texts with a relative in validation
    test: int


@dataclass(frozen=True)
class Control:
    """An AUC reached without a language model, or the reason why there is none; (N,) scores."""

    auc: Estimate | None
    reason: str = ""
    scores: Listed | None = field(default=None, compare=False, repr=False)


class Telling(NamedTuple):
    """The word, pair of words or sign that tells two sets of texts apart best, and the shares of families with it."""

    phrase: str
    members: float
    nonmembers: float
    p: float  # of Fisher's exact test by family, two-sided, times the number of words, pairs and signs
    looked_at: int


@dataclass(frozen=True)
class Audit:
    """The audit of one benchmark and its split: leaks, controls and the most telling word, if known."""

    leaks: Leaks
    blind: Control
    date: Control
    length: Control
    telling: Telling | None = None

    def metrics(self) -> dict[str, float]:
        """The numbers by their names in MLflow, without those that are unknown."""
        values = {"audit/leaked_groups": float(self.leaks.groups), "audit/leaked_tests": float(self.leaks.tested)}
        for name in ("blind", "date", "length"):
            control: Control = getattr(self, name)
            if control.auc is not None:
                values[f"audit/{name}_auc"] = control.auc.value
        return values


def below_chance(auc: Estimate | None) -> bool:
    """Whether the interval of an AUC is wholly below .5, as where labels are reversed."""
    return auc is not None and auc.high < 0.5


def explains(blind: Estimate | None, auc: Estimate) -> bool:
    """Whether a blind classifier explains a detector's result: it is above .5, and not clearly below the detector."""
    return blind is not None and blind.low > 0.5 and blind.high >= auc.low
