"""Lowercase: a memorised text is remembered with its capital letters."""

from fsd.token_stats import TokenStats, loss_ratio


def lowercase(text: TokenStats, lower: TokenStats, *, log: bool = True) -> float:
    """Loss of the lower-cased text relative to the loss of the text: loss(lower(x)) / loss(x), without a unit.

    Lower-casing raises the loss most where the model knows the text itself. A text without capital letters scores 1.
    Minus the inverse ratio has the same ranking for base scores, but not for FSD.

    Args:
        text: token statistics under the target model; logp is (T,), in nats.
        lower: the same for the lower-cased text, whose number of tokens may differ.
        log: the ratio of the log-perplexities, as in the code published with these papers; off, that of the
            perplexities, as in the text of DC-PDD (arXiv 2409.14781, A.1) and FSD (§4.1).

    Raises:
        ValueError: if loss(x) is zero and `log` is on.

    Source: "Extracting training data from large language models", arXiv 2012.07805; the baseline "Lowercase" of
    FSD, arXiv 2410.10880, Table 1.
    """
    return loss_ratio(lower, text, log=log)
