"""Lowercase: a memorised text is remembered with its capitals."""

from fsd.token_stats import TokenStats, loss_ratio


def lowercase(text: TokenStats, lower: TokenStats) -> float:
    """Loss of the lower-cased text over the loss of the text as written: loss(lower(x)) / loss(x).

    Losing the capitals hurts the model most where it knew the text itself. A text without capitals scores 1.
    The inverse ratio, negated, ranks alike on one model but not after one model's score is taken from the
    other's.

    Raises:
        ValueError: if loss(x) is zero.

    Source: Carlini et al. 2021, "Extracting training data from large language models"; FSD paper, Table 1
    ("Lowercase").
    """
    return loss_ratio(lower, text)
