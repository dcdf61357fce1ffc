"""Min-K% of log-ratios: a few tokens of an unseen text are much less likely than a reference model finds them."""

from fsd.search_space import Share
from fsd.token_stats import TokenStats, check_same_tokens, lowest_mean

NEEDS = ("token",)


def min_k_reference(text: TokenStats, reference: TokenStats, *, k: Share = 0.2) -> float:
    """Mean of the n lowest log-ratios r_t = logp_t − logp_t(reference), in nats; n = max(1, int(k·T)).

    The reference model, a smaller one of the same family or one that was trained on none of the texts, measures how
    difficult each token is in general. Where the target was trained on the text, hardly a token stays below the
    reference; the mean over all tokens, which k = 1 gives, is dominated by tokens that the larger model finds easier in
    any text.

    Args:
        text: token statistics under the target model; token and logp are (T,).
        reference: the same tokens under the reference model, which must have the same tokenizer.
        k: share of the tokens, in (0, 1].

    Raises:
        ValueError: if the two inputs have different tokens.

    Source: this project, from the reference model of arXiv 2012.07805 and the token selection of Min-K%, arXiv
    2310.16789; measured in docs/lab.md.
    """
    check_same_tokens(text, reference)
    return lowest_mean(text.logp - reference.logp, k)
