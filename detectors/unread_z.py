"""Scores in units of what they are for texts that were not read, added up without weights."""

from typing import Annotated

import numpy as np

from fsd.search_space import Choice, Setting
from fsd.token_stats import WINDOW_SIZES, Exemplars, FloatArray, PairStats, lowest_mean, window_votes
from fsd.unread import UnreadScores

NEEDS = ("token",)
ALPHA = Setting(Choice((1.0, 10.0, 100.0)), "above 0 and finite", lambda alpha: 0 < alpha < float("inf"))


def unread_z(difference: PairStats, unread: Exemplars, *, alpha: Annotated[float, ALPHA] = 100.0) -> float:
    """z(wbc) + z(standardised_ratio) + z(its lowest 20 %) + z(min_k_pp): how unlike an unread text each score is.

    What a score would be if the text had not been read is predicted by a ridge regression, fitted to the unread texts
    alone, from what the two models say of a text as a whole. The residual of each score is divided by its spread among
    the unread texts. So the scores have no unit, and no label and no weight is needed.

    Args:
        difference: statistics under the target model p and the reference model q, (T,), which must have the same
            vocabulary.
        unread: the same of texts that the target was not trained on, of the same source; at least 20.
        alpha: penalty of the ridge, above 0.

    Source: this project; the regression on texts that were not read is after Bertran et al. (2023, arXiv 2307.03694),
    the standardised log-ratio after Min-K%++ (arXiv 2404.02936). docs/lab.md measures it.
    """
    fitted = unread.once(UnreadScores.fit, scores_of=_scores, alpha=alpha)
    return float(fitted.z(difference, _scores(difference)).sum())


def _scores(pair: PairStats) -> FloatArray:
    """(4,) scores that are added: `wbc`, `standardised_ratio`, its lowest tokens, and `min_k_pp`."""
    target = pair.target
    standardised = (pair.ratio - pair.mean) / pair.std
    votes = window_votes(pair.ratio, WINDOW_SIZES)
    lowest = lowest_mean(standardised, 0.2)
    least_likely = lowest_mean((target.logp - target.mean) / target.std, 0.2)
    return np.array([votes, standardised.mean(), lowest, least_likely])
