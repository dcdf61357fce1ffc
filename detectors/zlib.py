"""Zlib: the loss relative to the difficulty of the text for a general-purpose compressor."""

import math
from zlib import compress

from fsd.token_stats import TokenStats


def zlib(text: TokenStats, *, log: bool = True) -> float:
    """Mean log-probability per byte of the compressed text, in nats: mean_t logp_t / len(compress(x)).

    Repetitive text is easy for any model. Dividing by the length of the text in UTF-8, compressed by zlib at its
    default level, corrects for that.

    Args:
        text: token statistics under the target model; logp is (T,).
        log: divide the log-perplexity, as the code published with these papers does; off, the perplexity, as the text
            of DC-PDD (arXiv 2409.14781, A.1) and FSD (§4.1) has it: −exp(−mean_t logp_t) / len(compress(x)).

    Source: "Extracting training data from large language models", arXiv 2012.07805; the baseline "Zlib" of FSD,
    arXiv 2410.10880, Table 1.
    """
    likelihood = float(text.logp.mean())
    if not log:
        likelihood = -math.exp(-likelihood)
    return likelihood / len(compress(text.text.encode("utf-8")))
