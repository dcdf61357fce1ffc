"""Min-K%: an unseen text holds a few tokens that the model finds very unlikely."""

from fsd.search_space import Range
from fsd.token_stats import TokenStats, lowest_mean

SEARCH = {"k": Range(0.05, 1.0, step=0.05)}


def min_k(text: TokenStats, *, k: float = 0.2) -> float:
    """Mean of the n lowest log-probabilities, nats; n = max(1, int(k·T)).

    Easy tokens are easy whether the text was read or not; the outliers at the bottom tell the difference. At
    k = 1 this is `loss`.

    Args:
        text: the target's reading.
        k: share of the tokens, in (0, 1].

    Raises:
        UsageError: if k is not in (0, 1].

    Source: Shi et al. 2024, "Detecting pretraining data from large language models" (Min-K% Prob); FSD paper,
    Table 1 ("Min-k%").
    """
    return lowest_mean(text.logp, k, "min_k.k")
