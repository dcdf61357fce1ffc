"""Min-K%: an unseen text contains a few tokens that are very unlikely under the model."""

from fsd.search_space import Share
from fsd.token_stats import TokenStats, lowest_mean


def min_k(text: TokenStats, *, k: Share = 0.2) -> float:
    """Mean of the n lowest log-probabilities, in nats; n = max(1, int(k·T)).

    Most tokens are easy in any text; the least likely ones distinguish members from non-members. With k = 1 the
    score is that of `loss`.

    Args:
        text: token statistics under the target model; logp is (T,).
        k: share of the tokens, in (0, 1].

    Source: "Detecting pretraining data from large language models" (Min-K% Prob), arXiv 2310.16789.
    """
    return lowest_mean(text.logp, k)
