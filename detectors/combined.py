"""Combined score: Min-K% of log-ratios to what a reference model and the fine-tuned model make of each token."""

from fsd.errors import UsageError
from fsd.search_space import Range
from fsd.token_stats import TokenStats, check_same_tokens, lowest_mean

SEARCH = {"k": Range(0.05, 1.0, step=0.05), "w": Range(0.0, 1.0, step=0.25)}
NEEDS = ("token",)


def combined(text: TokenStats, tuned: TokenStats, reference: TokenStats, *, k: float = 0.2, w: float = 0.75) -> float:
    """Mean of the n lowest c_t = logp_t − w·logp_t(tuned) − (1 − w)·logp_t(reference), in nats; n = max(1, int(k·T)).

    The two models say what the target would find likely without having read the text: the reference model in general,
    the model fine-tuned on unseen texts of the domain in this domain. With w = 0 the score is `min_k_reference`, with
    w = 1 `min_k_deviation`, which is FSD token by token. It needs no label and no other text. Like FSD, it is one score
    of the pair of models; there is no base score.

    Args:
        text: token statistics under the base model; token and logp are (T,).
        tuned: the same tokens under the fine-tuned model.
        reference: the same tokens under the reference model, which must have the same tokenizer.
        k: share of the tokens, in (0, 1].
        w: weight of the fine-tuned model, in [0, 1].

    Raises:
        UsageError: if k or w is out of range.
        ValueError: if the inputs have different tokens.

    Source: this project, from FSD (arXiv 2410.10880), reference models (arXiv 2012.07805) and Min-K% (arXiv
    2310.16789); k and w were chosen on corpora other than those of docs/lab.md, which measures it.
    """
    if not 0 <= w <= 1:
        raise UsageError(f"combined.w must be in [0, 1]; got {w!r}")
    check_same_tokens(text, tuned)
    check_same_tokens(text, reference)
    return lowest_mean(text.logp - w * tuned.logp - (1 - w) * reference.logp, k, "combined.k")
