"""The mean of a number over the seeds of a cell."""

import numpy as np
from scipy import stats

from fsd.evaluation.intervals import LEVEL
from fsd.token_stats import FloatArray


def interval(values: FloatArray) -> tuple[float, float]:
    """Student's 95 % interval of the mean of S values; NaN for a single one."""
    if values.size < 2:
        return float("nan"), float("nan")
    half = stats.t.ppf((1 + LEVEL) / 2, values.size - 1) * values.std(ddof=1) / np.sqrt(values.size)
    return float(values.mean() - half), float(values.mean() + half)
