"""ReCaLL: foreign text put before it disturbs a memorised text more than a new one."""

from fsd.token_stats import TokenStats, loss_ratio


def recall(text: TokenStats, primed: TokenStats) -> float:
    """Loss of the text after a prefix of non-members over its loss alone: mean logp(x | P) / mean logp(x).

    A member is well predicted by itself, so a prefix can only lead the model away from it; a non-member gains
    from any context of its kind. P is drawn from the unseen texts. How many texts (shots) it holds is a
    matter of the material, set where P is made, and no setting here.

    Raises:
        ValueError: if the loss of the text alone is zero.

    Source: Xie et al. 2024, "ReCaLL: membership inference via relative conditional log-likelihoods" (EMNLP
    2024).
    """
    return loss_ratio(primed, text)
