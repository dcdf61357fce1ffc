"""The mean of a number over the seeds of a cell."""

import math

from scipy import stats

from fsd.evaluation.intervals import LEVEL
from fsd.token_stats import FloatArray


def standard_error(values: FloatArray, over_texts: float) -> tuple[float, float]:
    """Standard error of the mean of S values over seeds and texts, and its degrees of freedom; NaN for a single one.

    Its square is s²/S + e², where s is the standard deviation over the seeds and e the standard error of the mean over
    the texts, which all seeds share. The degrees of freedom are Satterthwaite's, with e taken as known. In a simulation
    the interval held in 96 of 100 cases against later texts and in 99 within a period; that of the seeds alone in 75
    and 95, since within a period texts change sides from seed to seed.

    Args:
        values: (S,) a number for each seed.
        over_texts: e.
    """
    if values.size < 2:
        return math.nan, math.nan
    seeds = float(values.var(ddof=1)) / values.size
    squared = seeds + over_texts**2
    return math.sqrt(squared), (values.size - 1) * (squared / seeds) ** 2 if seeds else math.inf


def interval(values: FloatArray, over_texts: float) -> tuple[float, float]:
    """Student's 95 % interval of the mean of S values, see `standard_error`."""
    error, degrees = standard_error(values, over_texts)
    half = stats.t.ppf((1 + LEVEL) / 2, degrees) * error
    return float(values.mean() - half), float(values.mean() + half)
