"""HT: training on a text shows most at the tokens that are hard for a model that was not trained on it."""

from typing import Annotated

import numpy as np

from fsd.search_space import Choice, Setting, Share
from fsd.token_stats import TokenStats, check_same_tokens

NEEDS = ("token",)


def ht(
    text: TokenStats,
    reference: TokenStats,
    *,
    k: Share = 0.4,
    sign: Annotated[bool, Setting(Choice((False, True)))] = False,
) -> float:
    """Mean log-ratio log p_t − log q_t, in nats, of the n tokens that the reference finds least likely.

    n = max(1, int(k·T)). With k = 1 it is the difference form of `reference`.

    Args:
        text: token statistics under the target model p; token and logp are (T,).
        reference: the same tokens under the reference model q, which must have the same tokenizer.
        k: share of the tokens, in (0, 1].
        sign: average the signs of the log-ratios, −1, 0 or 1, so that no token weighs more than another.

    Raises:
        ValueError: if the two inputs have different tokens.

    Source: HT-MIA, "What hard tokens reveal: exploiting low-confidence tokens for membership inference attacks against
    large language models", arXiv 2601.20885. Here it is the reference that says which tokens are hard.
    """
    check_same_tokens(text, reference)
    n = max(1, int(k * reference.logp.size))
    hardest = np.argsort(reference.logp, kind="stable")[:n]
    ratio = text.logp[hardest] - reference.logp[hardest]
    if sign:
        ratio = np.sign(ratio)
    return float(ratio.mean())
