"""The mean of a number over the seeds of a cell."""

import math

import numpy as np
from scipy import stats

from fsd.evaluation.intervals import LEVEL
from fsd.token_stats import FloatArray


def standard_error(values: FloatArray, errors: FloatArray) -> tuple[float, float]:
    """Standard error of the mean of S values over seeds and texts, and its degrees of freedom; NaN for a single one.

    The squared error is s²/S + mean e², where s is the standard deviation over seeds and e the error of each value over
    its texts: seeds share their texts, so that more of them make the first part smaller and not the second. The halves
    that a seed draws count in both parts, so it is rather too large than too small. The degrees of freedom are
    Satterthwaite's, with the second part taken as known.

    Args:
        values: (S,) a number for each seed.
        errors: (S,) their standard errors over the texts.
    """
    if values.size < 2:
        return math.nan, math.nan
    seeds = values.var(ddof=1) / values.size
    squared = float(seeds + np.mean(errors**2))
    return math.sqrt(squared), (values.size - 1) * (squared / seeds) ** 2 if seeds else math.inf


def interval(values: FloatArray, errors: FloatArray) -> tuple[float, float]:
    """Student's 95 % interval of the mean of S values, see `standard_error`."""
    error, degrees = standard_error(values, errors)
    half = stats.t.ppf((1 + LEVEL) / 2, degrees) * error
    return float(values.mean() - half), float(values.mean() + half)
