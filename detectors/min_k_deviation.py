"""Min-K% deviation: fine-tuning on unseen texts raises some tokens of other unseen texts strongly."""

from fsd.search_space import Share
from fsd.token_stats import TokenStats, check_same_tokens, lowest_mean

NEEDS = ("token",)


def min_k_deviation(text: TokenStats, tuned: TokenStats, *, k: Share = 0.1) -> float:
    """Mean of the n lowest deviations d_t = logp_t(f_θ) − logp_t(f_θ'), in nats; n = max(1, int(k·T)).

    The lowest d_t are the tokens whose likelihood fine-tuning raised most. What remains to be learned in an unseen
    text is concentrated in a few tokens, which the mean over all tokens hides. With k = 1 the score is the FSD of
    `loss`. The score is an FSD by itself; there is no base score.

    Args:
        text: token statistics under the base model f_θ; token and logp are (T,).
        tuned: the same tokens under the fine-tuned model f_θ'.
        k: share of the tokens, in (0, 1].

    Raises:
        ValueError: if the two inputs have different tokens.

    Source: this project, from FSD (arXiv 2410.10880, §3.2) and the token selection of Min-K% (arXiv 2310.16789).
    """
    check_same_tokens(text, tuned)
    return lowest_mean(text.logp - tuned.logp, k)
