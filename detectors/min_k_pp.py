"""Min-K%++: a token of a read text is likely beside what the model could have said instead."""

from fsd.search_space import Range
from fsd.token_stats import TokenStats, lowest_mean

SEARCH = {"k": Range(0.05, 1.0, step=0.05)}
NEEDS = ("mean", "std")


def min_k_pp(text: TokenStats, *, k: float = 0.2) -> float:
    """Mean of the n lowest standardised log-probabilities; n = max(1, int(k·T)), no unit.

    z_t = (logp_t − mean_t) / std_t, with mean and standard deviation of log p(v | x_<t) over the model's own
    p. It asks whether x_t stands at a mode of the distribution, so that a token counts as unlikely only where
    the model was sure of another one.

    Args:
        text: the target's reading; its std is floored, so that no token divides by zero.
        k: share of the tokens, in (0, 1].

    Raises:
        UsageError: if k is not in (0, 1].

    Source: Zhang et al. 2025, "Min-K%++: improved baseline for detecting pre-training data from large
    language models".
    """
    return lowest_mean((text.logp - text.mean) / text.std, k, "min_k_pp.k")
