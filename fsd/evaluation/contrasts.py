"""Three contrasts, which tell membership from familiarity with a period.

A benchmark split by time compares members with later texts, and so two differences at once: the model was trained on
the members, and on much else of their period. Contemporaries, non-members of the members' own period (see
`fsd.data.splitting`), differ from later texts in the second respect alone, and from members in the first. A placebo
that was trained on nothing of the period shows neither.
"""

from typing import NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from fsd.data.splitting import CONTEMPORARY, LATER, MEMBER, kinds
from fsd.evaluation.metrics import BoolArray


class Contrast(NamedTuple):
    """Two kinds of text that are compared; the first should score higher."""

    name: str
    """End of the names of its metrics."""
    first: str
    second: str
    title: str
    meaning: str

    def among(self, kind: NDArray[np.str_]) -> BoolArray:
        """(N,) texts that it compares."""
        return np.isin(kind, (self.first, self.second))

    def possible(self, kind: NDArray[np.str_]) -> bool:
        """Whether there are texts of both kinds."""
        return {self.first, self.second} <= set(kind.tolist())


WITH_LATER = Contrast("members_vs_later", MEMBER, LATER, "members against later texts", "what a split by time measures")
FAMILIARITY = Contrast(
    "contemporaries_vs_later",
    CONTEMPORARY,
    LATER,
    "contemporaries against later texts",
    "familiarity with the period: the model was trained on neither",
)
MEMBERSHIP = Contrast(
    "members_vs_contemporaries", MEMBER, CONTEMPORARY, "members against contemporaries", "membership, within one period"
)
CONTRASTS = (WITH_LATER, FAMILIARITY, MEMBERSHIP)
MEASURES = ("auc", "auc_gain", "placebo_auc", "placebo_lead")
"""Metrics that a contrast has; their names end in its name, as in auc_gain_members_vs_later."""


def kinds_in(scores: pd.DataFrame) -> NDArray[np.str_]:
    """(N,) kind of each text of a table like scores.parquet, see `fsd.data.splitting.kinds`."""
    named = scores["period"] if "period" in scores else [""] * len(scores)
    return kinds(scores["label"].to_numpy(bool), list(map(str, named)))
