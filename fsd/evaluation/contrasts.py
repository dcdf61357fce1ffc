"""Three contrasts, which tell membership from familiarity with a period.

A benchmark split by time compares members with later texts, and so two differences at once: the model read the members,
and it read much else of their period. Contemporaries, non-members of the members' own period (see `fsd.data.periods`),
differ from later texts in the second respect alone, and from members in the first. A placebo that read nothing of the
period shows neither.
"""

from collections.abc import Hashable, Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from fsd.data.periods import CONTEMPORARY, LATER, MEMBER, compared, kinds
from fsd.evaluation.intervals import BoolArray, Bootstrap
from fsd.evaluation.metrics import Row, compare, estimates
from fsd.token_stats import Scores


class Contrast(NamedTuple):
    """Two kinds of text that are compared.

    Attributes:
        name: end of the names of its metrics.
        first: kind that should score higher.
        second: the other kind.
        title: for tables and figures.
        meaning: what it measures, in a few words.
    """

    name: str
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
    "familiarity with the period: the model read neither",
)
MEMBERSHIP = Contrast(
    "members_vs_contemporaries", MEMBER, CONTEMPORARY, "members against contemporaries", "membership, within one period"
)
CONTRASTS = (WITH_LATER, FAMILIARITY, MEMBERSHIP)
MEASURES = ("auc", "auc_gain", "placebo_auc", "placebo_lead")
"""Metrics that a contrast has; their names end in its name, as in auc_gain_members_vs_later."""


def measure(
    contrast: Contrast,
    scores: pd.DataFrame,
    kind: NDArray[np.str_],
    groups: Sequence[Hashable] | None = None,
    *,
    placebo: Scores | None = None,
    resamples: int = 1000,
    seed: int = 0,
) -> list[Row]:
    """AUC of every detector's base score and FSD, the gain, and what the placebo reaches, with 95 % intervals.

    Intervals and tests are those of `fsd.evaluation.results.evaluate`; p-values are corrected for the number of
    detectors (Holm).

    Args:
        contrast: texts of its first kind are taken as the members.
        scores: N rows; columns `<detector>.base` and `<detector>.fsd` as in scores.parquet.
        kind: (N,) see `fsd.data.periods.kinds`.
        groups: (N,) texts of one group are related; None if all are independent.
        placebo: detector → (N,) FSD of a control model.
        resamples: number of bootstrap resamples.
        seed: of the bootstrap.

    Raises:
        UsageError: unless there are two groups of either kind.
    """
    chosen = contrast.among(kind)
    of_chosen = None if groups is None else [group for group, one in zip(groups, chosen, strict=True) if one]
    bootstrap = Bootstrap.draw(kind[chosen] == contrast.first, of_chosen, resamples=resamples, seed=seed)
    base, fsd = (
        {
            str(name).removesuffix(state): scores[name].to_numpy(np.float64)[chosen]
            for name in scores
            if str(name).endswith(state)
        }
        for state in (".base", ".fsd")
    )
    rows = [
        Row(detector, state, "auc", *estimates(bootstrap, column)["auc"])
        for state, columns in (("base", base), ("fsd", fsd))
        for detector, column in columns.items()
    ]
    for name, (gain, p, p_holm) in compare(bootstrap, base, fsd).items():
        rows.append(Row(name, "", "auc_gain", *gain, p, p_holm))
    control = {name: column[chosen] for name, column in (placebo or {}).items() if name in fsd}
    for name, (lead, p, p_holm) in compare(bootstrap, control, fsd).items():
        rows.append(Row(name, "fsd", "placebo_auc", *estimates(bootstrap, control[name])["auc"]))
        rows.append(Row(name, "fsd", "placebo_lead", *lead, p, p_holm))
    return _named(contrast, rows)


def measure_all(
    scores: pd.DataFrame,
    kind: NDArray[np.str_],
    groups: Sequence[Hashable] | None,
    judged: Sequence[Row],
    *,
    placebo: Scores | None = None,
    seed: int = 0,
) -> list[Row]:
    """Every contrast whose two kinds are there; arguments are those of `measure`.

    Args:
        scores: N rows.
        kind: (N,).
        groups: (N,) or None.
        judged: rows of `fsd.evaluation.results.evaluate` on the texts that membership is judged on (see
            `fsd.data.periods.compared`), which are those of one contrast and need not be measured again.
        placebo: detector → (N,).
        seed: of the bootstrap.
    """
    rows = []
    for contrast in (one for one in CONTRASTS if one.possible(kind)):
        if np.array_equal(contrast.among(kind), compared(kind)):
            rows += _named(contrast, judged)
        else:
            rows += measure(contrast, scores, kind, groups, placebo=placebo, seed=seed)
    return rows


def _named(contrast: Contrast, rows: Sequence[Row]) -> list[Row]:
    """The rows that belong to a contrast, under its names."""
    return [row._replace(metric=f"{row.metric}_{contrast.name}") for row in rows if row.metric in MEASURES]


def kinds_in(scores: pd.DataFrame) -> NDArray[np.str_]:
    """(N,) kind of each text of a table like scores.parquet, see `fsd.data.periods.kinds`."""
    named = scores["period"] if "period" in scores else [""] * len(scores)
    return kinds(scores["label"].to_numpy(bool), list(map(str, named)))
