"""Scores in units of what they are for texts that were not read, added up without weights."""

from typing import Annotated

from fsd.token_stats import Exemplars, PairStats
from fsd.unread import ALPHA, added_z

NEEDS = ("token",)


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
    return added_z(difference, unread, alpha)
