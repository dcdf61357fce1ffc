"""The numbers of a run, one row each, and how scores and labels make them."""

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import pandas as pd
import scipy
from numpy.typing import ArrayLike

from fsd.scores import ALL_STATES, IN_RUN, Score, ScoreColumns, StatePair, columns_of, of_state
from fsd.statistics.bootstrap import Bootstrap, bootstrap_p
from fsd.statistics.delong import delong_test
from fsd.statistics.groups import Groups
from fsd.statistics.intervals import UPPER, Estimate, percentiles
from fsd.statistics.metrics import METRICS, checked_scores, estimates
from fsd.statistics.multiplicity import holm
from fsd.token_stats import FloatArray, Scores

ByScore = Mapping[Score, float]
"""One number of each score."""


class Row(NamedTuple):
    """One number of the table of results, with its 95 % interval and p-values; NaN for those that it has not.

    The state is base, tuned or fsd, and empty for a comparison of states. The metric is a name out of `METRICS`, or
    auc_gain, placebo_auc, placebo_lead, validation_auc or fallback; those of a contrast end in its name.
    """

    detector: str
    state: str
    metric: str
    value: float
    low: float = math.nan
    high: float = math.nan
    p: float = math.nan
    p_holm: float = math.nan

    @property
    def estimate(self) -> Estimate:
        """The number with its interval."""
        return Estimate(self.value, self.low, self.high)


Rows = dict[tuple[str, str, str], Row]
"""(detector, state, metric) → row of the table of results."""


def by_key(table: pd.DataFrame) -> Rows:
    """The rows of the table of results by what they measure."""
    rows = map(Row._make, table.itertuples(index=False))
    return {(row.detector, row.state, row.metric): row for row in rows}


def compare(bootstrap: Bootstrap, reference: Scores, candidate: Scores, *, metric: str = "auc") -> dict[str, Row]:
    """Gain of the candidate over the reference, (N,) scores each, for every name in both, with both p-values.

    For the AUC, interval and p are DeLong's by group, so that the interval excludes 0 exactly if p < .05. For any other
    metric, and an AUC without variance, they are the paired bootstrap's.
    """
    rows = {}
    for name in candidate:
        if name in reference:
            estimate, p = _gain(bootstrap, reference[name], candidate[name], metric)
            rows[name] = Row(name, "", f"{metric}_gain", *estimate, p)
    corrected = holm({name: row.p for name, row in rows.items()})
    return {name: row._replace(p_holm=corrected[name]) for name, row in rows.items()}


def _gain(bootstrap: Bootstrap, reference: FloatArray, candidate: FloatArray, metric: str) -> tuple[Estimate, float]:
    """The gain in a metric with its interval, and the p-value."""
    _, reference = checked_scores(bootstrap.member, reference)
    _, candidate = checked_scores(bootstrap.member, candidate)
    if metric == "auc":
        test = delong_test(bootstrap, reference, candidate)
        # without any variance the test says nothing
        if not math.isnan(test.p):
            gain = test.difference
            t = float(scipy.stats.t.ppf(UPPER, test.degrees))
            half = t * test.error
            estimate = Estimate(gain, max(-1.0, gain - half), min(1.0, gain + half))
            return estimate, test.p
    compute = [METRICS[metric].compute]
    (gains,) = bootstrap.values(candidate, compute) - bootstrap.values(reference, compute)
    resampled = gains[1:]
    return percentiles(gains[0], resampled), bootstrap_p(resampled)


def evaluate(
    scores: pd.DataFrame,
    labels: ArrayLike,
    groups: Groups = None,
    *,
    thresholds: ByScore | None = None,
    control: Scores | None = None,
    resamples: int = 1000,
    seed: int = 0,
) -> pd.DataFrame:
    """Every metric of every score with its interval, FSD against base, and the lead over the control's (N,) FSD.

    See `fsd.library.evaluate`; `thresholds` are from other texts, for the accuracy.
    """
    bootstrap = Bootstrap.draw(labels, groups, resamples=resamples, seed=seed)
    return table_of(measure(bootstrap, columns_of(scores, ALL_STATES), IN_RUN, control or {}, thresholds or {}))


def measure(
    bootstrap: Bootstrap, columns: ScoreColumns, states: StatePair, control: Scores, thresholds: ByScore
) -> list[Row]:
    """The rows of `evaluate`; in an audit, the `states` compare the fine-tuned model with its difference from base."""
    rows = []
    for score, column in columns.items():
        measured = estimates(bootstrap, column, thresholds.get(score))
        rows += [Row(*score, metric, *estimate) for metric, estimate in measured.items()]
    differences = of_state(columns, states.difference)
    rows += compare(bootstrap, of_state(columns, states.single), differences).values()
    return rows + control_rows(bootstrap, control, differences, states.difference)


def control_rows(bootstrap: Bootstrap, control: Scores, candidates: Scores, state: str) -> list[Row]:
    """For each of the (N,) candidates of a state: the control model's AUC, and the lead over it."""
    rows = []
    for detector, lead in compare(bootstrap, control, candidates).items():
        control_auc = estimates(bootstrap, control[detector])["auc"]
        rows.append(Row(detector, state, "placebo_auc", *control_auc))
        rows.append(lead._replace(state=state, metric="placebo_lead"))
    return rows


def table_of(rows: Sequence[Row]) -> pd.DataFrame:
    """The rows as a data frame, detector by detector in the order of their first rows."""
    table = pd.DataFrame(rows, columns=list(Row._fields))
    return table.sort_values("detector", key=lambda names: pd.factorize(names)[0], kind="stable", ignore_index=True)


class Evaluation(pd.DataFrame):
    """The table of `evaluate`, which prints one row per detector; selections of it are plain data frames."""

    @property
    def _constructor(self) -> type[pd.DataFrame]:
        return pd.DataFrame

    def wide(self) -> pd.DataFrame:
        """One row per detector: AUC and TPR at 5 % FPR of base and FSD, and the gain in AUC, each with its interval."""
        rows = by_key(pd.DataFrame(self))
        columns = {
            "base AUC": ("base", "auc"),
            "FSD AUC": ("fsd", "auc"),
            "gain": ("", "auc_gain"),
            "base TPR at 5 % FPR": ("base", "tpr_at_5fpr"),
            "FSD TPR at 5 % FPR": ("fsd", "tpr_at_5fpr"),
        }
        detectors = self["detector"].unique()
        wide = pd.DataFrame(index=pd.Index(detectors, name="detector"))
        for title, (state, metric) in columns.items():
            wide[title] = [_cell(rows.get((detector, state, metric))) for detector in detectors]
        return wide

    def __repr__(self) -> str:
        return self.wide().to_string()

    def _repr_html_(self) -> str:
        return str(self.wide().to_html())


def _cell(row: Row | None) -> str:
    if row is None:
        return "–"
    if row.metric == "auc_gain":
        return row.estimate.signed
    return str(row.estimate)
