"""Zlib: the loss of a text against what a compressor that has read nothing needs for it."""

from zlib import compress

from fsd.token_stats import TokenStats


def zlib(text: TokenStats) -> float:
    """Mean log-probability (nats) per byte of the zlib-compressed text: mean_t logp_t / len(compress(text)).

    Repetitive text is easy for any model; dividing by its compressed length (UTF-8, default level) takes out
    what is easy for a compressor too.

    Source: Carlini et al. 2021, "Extracting training data from large language models"; FSD paper, Table 1
    ("Zlib").
    """
    return float(text.logp.mean()) / len(compress(text.text.encode("utf-8")))
