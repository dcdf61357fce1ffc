"""Min-K%++: the tokens of a training text are modes of the predicted distribution."""

from fsd.search_space import Share
from fsd.token_stats import TokenStats, lowest_mean

NEEDS = ("mean", "std")


def min_k_pp(text: TokenStats, *, k: Share = 0.2) -> float:
    """Mean of the n lowest standardised log-probabilities, without a unit; n = max(1, int(k·T)).

    z_t = (logp_t − mean_t) / std_t, with the mean and standard deviation of log p(v | x_<t) for v drawn from the
    model's own distribution. A token counts as unlikely only where the model was confident of another one.

    Args:
        text: token statistics under the target model; logp, mean and std are (T,), and std is above 0.
        k: share of the tokens, in (0, 1].

    Source: "Min-K%++: improved baseline for detecting pre-training data from large language models", arXiv
    2404.02936.
    """
    return lowest_mean((text.logp - text.mean) / text.std, k)
