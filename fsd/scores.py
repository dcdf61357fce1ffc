"""Scores by name: a detector in a state of the model, and flat tables of such scores.

The states are `BASE`, before fine-tuning, `TUNED`, after it, and `FSD`, which compares both. Where a fine-tuned model
is audited, `CALIBRATED` is its score minus the base model's.
"""

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import numpy as np

from fsd.token_stats import FloatArray, Scores

if TYPE_CHECKING:
    import pandas as pd

Name = TypeVar("Name")
BASE = "base"
TUNED = "tuned"
FSD = "fsd"
CALIBRATED = "calibrated"
STATES = (BASE, TUNED, FSD)
ALL_STATES = (*STATES, CALIBRATED)


class StatePair(NamedTuple):
    """The states that are compared: of one model, and of the difference of two."""

    single: str
    difference: str


IN_RUN = StatePair(BASE, FSD)
IN_AUDIT = StatePair(TUNED, CALIBRATED)
_TITLES = {
    BASE: "{} base score",
    TUNED: "{} by the fine-tuned model",
    FSD: "{} FSD",
    CALIBRATED: "{}, fine-tuned minus base score",
}


class Score(NamedTuple):
    """A detector in a state; a paired detector, which reads both models itself, has the state `FSD` alone."""

    detector: str
    state: str = FSD

    @classmethod
    def parse(cls, column: str) -> "Score":
        """The score of a column like `loss.fsd`; without a state it is no score, and its detector is empty."""
        detector, _, state = column.rpartition(".")
        return cls(detector, state)

    def __str__(self) -> str:
        """Its column in scores.parquet: `loss.fsd`."""
        return f"{self.detector}.{self.state}"

    def title(self, *, paired: bool = False) -> str:
        """The score in words: `loss FSD`, `wbc base score`, or the detector alone where it reads both models."""
        return self.detector if paired else _TITLES[self.state].format(self.detector)


ScoreColumns = dict[Score, FloatArray]
"""Score → (N,) values of N texts; higher means more likely a member."""


def columns_of(table: "pd.DataFrame", states: Iterable[str] = (BASE, FSD)) -> ScoreColumns:
    """The scores in these states of a table whose columns are named like `loss.fsd`."""
    columns = {}
    for name in map(str, table):
        score = Score.parse(name)
        if score.detector and score.state in states:
            columns[score] = table[name].to_numpy(np.float64)
    return columns


def rows_of(scores: Mapping[Name, FloatArray], rows: Any) -> dict[Name, FloatArray]:
    """The scores of some of the texts, by their positions or by a mask."""
    return {name: column[rows] for name, column in scores.items()}


def of_state(scores: Mapping[Score, FloatArray], state: str) -> Scores:
    """Detector → its values in one state."""
    return {score.detector: column for score, column in scores.items() if score.state == state}
