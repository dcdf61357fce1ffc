"""The numbers of a run, one row each."""

import math
from typing import NamedTuple

import pandas as pd
import scipy

from fsd.statistics.bootstrap import Bootstrap, bootstrap_p
from fsd.statistics.delong import delong_test
from fsd.statistics.intervals import UPPER, Estimate, percentiles
from fsd.statistics.metrics import METRICS, checked_scores
from fsd.statistics.multiplicity import holm
from fsd.token_stats import FloatArray, Scores


class Row(NamedTuple):
    """One number of the table of results, with its 95 % interval and p-values; NaN for those that it has not.

    The state is base, tuned or fsd, and empty for a comparison of states. The metric is a name out of `METRICS`, or
    auc_gain, placebo_auc, placebo_lead or validation_auc; those of a contrast end in its name.
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
