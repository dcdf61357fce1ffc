"""EZ: where the model does not foresee the token of a text, training on it leaves more rises than falls."""

import numpy as np

from fsd.token_stats import TokenStats, check_same_tokens

NEEDS = ("token", "top")


def ez(text: TokenStats, reference: TokenStats) -> float:
    """Sum of the rises over that of the falls of log p_t − log q_t, at tokens that are not the target's first choice.

    Where the target's first choice is right, both models are often certain, and say little of the training. The score
    is 0 if there is no such token, or no fall at any of them.

    Args:
        text: token statistics under the target model p; token, logp and top are (T,).
        reference: the same tokens under the reference model q, which must have the same tokenizer.

    Raises:
        ValueError: if the two inputs have different tokens.

    Source: EZ-MIA, "Powerful training-free membership inference against autoregressive language models", arXiv
    2601.12104. Its appendix ranks a text without a fall first; its released code, github.com/JetBrains-Research/ez-mia,
    gives it 0, as here, and 0 below two such tokens too.
    """
    check_same_tokens(text, reference)
    ratio = (text.logp - reference.logp)[~text.predicted]
    falls = -ratio[ratio < 0].sum()
    if not falls:
        return 0.0
    return float(np.divide(ratio[ratio > 0].sum(), falls))
