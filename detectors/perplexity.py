"""Perplexity: the loss on an exponential scale, where hard texts weigh more."""

import math

from fsd.token_stats import TokenStats


def perplexity(text: TokenStats) -> float:
    """Minus the perplexity of the text: −exp(−mean_t logp_t).

    It ranks texts as `loss` does on one model. Its deviation ranks them differently: a fall of the loss
    counts in proportion to the perplexity it falls from.

    Source: Carlini et al. 2021, "Extracting training data from large language models"; FSD paper, Table 1
    ("Perplexity").
    """
    return -math.exp(-float(text.logp.mean()))
