"""ReCaLL: a prefix of non-members disturbs the prediction of a member more than that of a non-member."""

from fsd.token_stats import TokenStats, loss_ratio


def recall(text: TokenStats, primed: TokenStats) -> float:
    """Loss of the text after a prefix relative to its loss alone: loss(x | P) / loss(x), without a unit.

    The model predicts a member well without context, so that a prefix P of non-members can only distract it; a
    non-member gains from any text of its kind. P is drawn from the unseen texts; the inputs of the view `primed`
    determine the number of texts in P (shots).

    Args:
        text: token statistics under the target model; logp is (T,), in nats.
        primed: the same tokens conditioned on P.

    Raises:
        ValueError: if loss(x) is zero.

    Source: "ReCaLL: membership inference via relative conditional log-likelihoods", arXiv 2406.15968.
    """
    return loss_ratio(primed, text)
