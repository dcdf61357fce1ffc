"""Conformal p-values of scores, and how their shares scatter."""

import numpy as np
from numpy.random import default_rng

from fsd.statistics.intervals import CONFIDENCE
from fsd.token_stats import FloatArray


def conformal_p(values: FloatArray, reference: FloatArray) -> FloatArray:
    """(N,) p-value of each value by its rank among R reference values: (1 + #{reference ≥ value}) / (1 + R)."""
    above = reference.size - np.searchsorted(np.sort(reference), values, side="left")
    return (1 + above) / (1 + reference.size)


def conformal_band(calibration: int, texts: int, rates: FloatArray) -> tuple[FloatArray, FloatArray]:
    """(K,) ends of the band that contains, in 95 of 100 cases, the share of valid p-values up to each of K rates.

    All p-values share one calibration set, so the numbers of texts below the rates are a Dirichlet-multinomial (Bates
    et al. 2023, https://arxiv.org/abs/2104.08279). The band is the global rank envelope of simulated curves (Myllymäki
    et al. 2017, https://doi.org/10.1111/rssb.12172): between the k-th lowest and the k-th highest value at each rate,
    with the largest k that keeps 95 % of the curves inside throughout.
    """
    curves = 4000
    rng = default_rng(0)
    # p-values are multiples of 1 / (calibration + 1): so many of them lie below each rate, the last one being 1
    ranks = np.diff(np.floor(np.append(rates, 1.0) * (calibration + 1) + 1e-9), prepend=0.0)
    # normalised gamma variables are a Dirichlet distribution, which numpy has for positive parameters alone
    weights = rng.standard_gamma(ranks, (curves, ranks.size))
    weights /= weights.sum(axis=1, keepdims=True)
    shares = np.cumsum(rng.multinomial(texts, weights), axis=1)[:, :-1] / texts
    ordered = np.sort(shares, axis=0)
    widest = 0
    for k in range(1, curves // 2):
        is_inside = ((shares >= ordered[k]) & (shares <= ordered[-1 - k])).all(axis=1)
        if is_inside.mean() < CONFIDENCE:
            break
        widest = k
    return ordered[widest], ordered[-1 - widest]
