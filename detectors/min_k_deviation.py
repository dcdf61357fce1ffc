"""Min-K% deviation: fine-tuning on unseen texts raises some tokens of other unseen texts a lot."""

from fsd.search_space import Range
from fsd.token_stats import TokenStats, check_same_tokens, lowest_mean

SEARCH = {"k": Range(0.05, 1.0, step=0.05)}
NEEDS = ("token",)


def min_k_deviation(text: TokenStats, tuned: TokenStats, *, k: float = 0.1) -> float:
    """Mean of the n lowest token deviations d_t = logp_t(f_θ) − logp_t(f_θ'), nats; n = max(1, int(k·T)).

    The lowest d are the tokens that fine-tuning raised most. What is left to learn in an unseen text sits in
    few tokens, and the mean over all of them buries it. At k = 1 this is the deviation of `loss`. It reads
    the pair, so its value is its FSD and it has no base score.

    Args:
        text: the reading under the base model f_θ.
        tuned: the reading of the same tokens under the fine-tuned model f_θ'.
        k: share of the tokens, in (0, 1].

    Raises:
        UsageError: if k is not in (0, 1].
        ValueError: if the two readings have different tokens.

    Source: this project; FSD (FSD paper, §3.2) taken token by token, with the choice of tokens of Min-K%.
    """
    check_same_tokens(text, tuned)
    return lowest_mean(text.logp - tuned.logp, k, "min_k_deviation.k")
