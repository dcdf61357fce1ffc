"""Extraction strength: the end of a memorised text follows from its beginning by greedy decoding."""

import numpy as np

from fsd.token_stats import TokenStats

NEEDS = ("top",)
AUTO = False


def extraction_strength(text: TokenStats) -> float:
    """Share of the text that greedy decoding completes: 1 − k/T, in [0, 1], for the shortest beginning of k tokens.

    From token k on, every token is the most likely one after those before it. Most unseen texts score 0, so that many
    scores are equal.

    Args:
        text: token statistics under the target model; logp and top are (T,).

    Source: the metric of OpenUnlearning, arXiv 2506.12618, after arXiv 2012.07805; there, a text of which nothing is
    completed has 1/T.
    """
    missed = np.flatnonzero(~text.predicted)
    if not missed.size:
        return 1.0
    return 1 - (int(missed[-1]) + 1) / text.logp.size
