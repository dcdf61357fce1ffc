"""Perplexity: the loss on an exponential scale, where difficult texts weigh more."""

import math

from fsd.token_stats import TokenStats


def perplexity(text: TokenStats) -> float:
    """Negative perplexity of the text: −exp(−mean_t logp_t), without a unit.

    Its base scores rank texts as those of `loss`. Its FSD does not: a decrease of the loss counts in proportion to
    the perplexity.

    Args:
        text: token statistics under the target model; logp is (T,), in nats.

    Source: "Extracting training data from large language models", arXiv 2012.07805; the baseline "Perplexity" of
    FSD, arXiv 2410.10880, Table 1.
    """
    return -math.exp(-float(text.logp.mean()))
