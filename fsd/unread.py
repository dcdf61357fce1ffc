"""What scores are for texts that were not read: predicted from the text, with the spread around the prediction.

After quantile regression attacks (Bertran et al. 2023, https://arxiv.org/abs/2307.03694), with the mean in place of
quantiles, since few texts are known not to have been read.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Self

import numpy as np

from fsd.search_space import Choice, Setting
from fsd.token_stats import WINDOW_SIZES, Exemplars, FloatArray, PairStats, lowest_mean, window_votes

ALPHA = Setting(Choice((1.0, 10.0, 100.0)), "above 0 and finite", lambda alpha: 0 < alpha < float("inf"))
"""Penalty of the ridge."""
# A spread below this is rounding noise.
SMALLEST = 1e-12
# No text decides its own prediction wholly.
MOST_LEVERAGE = 0.999


@dataclass(frozen=True)
class UnreadScores:
    """A ridge regression of S scores on F features of a text, fitted to texts that were not read.

    Attributes:
        centre: (F,) mean of the features.
        scale: (F,) standard deviation of the features.
        mean: (S,) mean of the scores.
        weights: (F, S) weights of the scaled features.
        spread: (S,) root mean square of the residuals of each text by the fit to all others.
    """

    centre: FloatArray
    scale: FloatArray
    mean: FloatArray
    weights: FloatArray
    spread: FloatArray

    @classmethod
    def fit(cls, unread: Exemplars, *, scores_of: Callable[[PairStats], FloatArray], alpha: float) -> Self:
        """Fit the scores of the unread texts, with a penalty `alpha` on the squared weights: w = (XᵀX + αI)⁻¹ Xᵀy."""
        features = unread.of(features_of)
        scores = unread.of(scores_of)
        centre = features.mean(axis=0)
        scale = _unit(features.std(axis=0))
        inputs = (features - centre) / scale
        mean = scores.mean(axis=0)
        inverse = np.linalg.inv(inputs.T @ inputs + alpha * np.eye(inputs.shape[1]))
        weights = inverse @ inputs.T @ (scores - mean)
        # The residual of a text by the fit to all others; among few texts, residuals of the fit itself are too small.
        leverage = 1 / len(inputs) + np.einsum("ij,jk,ik->i", inputs, inverse, inputs)
        residuals = scores - mean - inputs @ weights
        without_it = residuals / (1 - np.minimum(leverage, MOST_LEVERAGE))[:, None]
        spread = _unit(np.sqrt((without_it**2).mean(axis=0)))
        return cls(centre, scale, mean, weights, spread)

    def z(self, pair: PairStats, scores: FloatArray) -> FloatArray:
        """(S,) distances of the scores of a text from what they were if it was not read, in units of the spread."""
        predicted = self.mean + (features_of(pair) - self.centre) / self.scale @ self.weights
        distance: FloatArray = scores - predicted
        # What rounding leaves of equal numbers is no distance.
        distance[np.abs(distance) < SMALLEST] = 0
        return distance / self.spread


def _unit(spread: FloatArray) -> FloatArray:
    """The spread; 1 for what is the same in all texts, which has no unit."""
    return np.where(spread < SMALLEST, 1.0, spread)


def features_of(pair: PairStats) -> FloatArray:
    """(6,) what the models say of a text as a whole, which hardly depends on whether it was read."""
    logp = pair.reference.logp
    entropy = -pair.reference.mean.mean()
    divergence = pair.mean.mean()
    return np.array([logp.size, logp.mean(), logp.std(), entropy, divergence, pair.std.mean()])


def added_z(pair: PairStats, unread: Exemplars, alpha: float) -> float:
    """Sum of the distances of `compared_scores` of a text from what they were if it was not read."""
    fitted = unread.once(UnreadScores.fit, scores_of=compared_scores, alpha=alpha)
    return float(fitted.z(pair, compared_scores(pair)).sum())


def compared_scores(pair: PairStats) -> FloatArray:
    """(4,) scores that are added: `wbc`, `standardised_ratio`, its lowest tokens, and `min_k_pp`."""
    target = pair.target
    standardised = (pair.ratio - pair.mean) / pair.std
    votes = window_votes(pair.ratio, WINDOW_SIZES)
    lowest = lowest_mean(standardised, 0.2)
    least_likely = lowest_mean((target.logp - target.mean) / target.std, 0.2)
    return np.array([votes, standardised.mean(), lowest, least_likely])
