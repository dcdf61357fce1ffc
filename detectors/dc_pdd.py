"""DC-PDD: a likely token says little when it is frequent everywhere."""

import numpy as np

from fsd.errors import UsageError
from fsd.search_space import Choice, Range
from fsd.token_stats import IntArray, TokenStats, check_same_tokens

SEARCH = {"cap": Range(1e-3, 10.0, log=True), "limit": Choice((True, False)), "first": Choice((True, False))}
NEEDS = ("token",)


def dc_pdd(
    text: TokenStats, unigram: TokenStats, *, cap: float = 0.01, limit: bool = True, first: bool = True
) -> float:
    """Mean cross-entropy of probability against frequency, nats: mean_t min(cap, −p_t · log f(x_t)).

    p_t = exp(logp_t); f is the token's share of a reference corpus, Laplace-smoothed, so that a rare token
    that the model expects counts for more than a common one. The cap keeps a few such tokens from ruling the
    mean, and bounds score and deviation by `cap`. Variants: CLD (limit and first off), +LUP (limit only),
    +SFO (both).

    Args:
        text: the target's reading.
        unigram: the same tokens read by the frequency table: its logp is log f(x_t).
        cap: a, above 0; the paper takes 0.01, and 10 for books with GPT-3.
        limit: whether the cap holds (LUP).
        first: whether only the first occurrence of each token counts (SFO).

    Raises:
        UsageError: if cap is not above 0.
        ValueError: if the two readings have different tokens.

    Source: "Pretraining data detection for large language models: a divergence-based calibration method"
    (EMNLP 2024), §3.2 and eq. 5 for f.
    """
    if not cap > 0:
        raise UsageError(f"dc_pdd.cap must be above 0; got {cap!r}")
    check_same_tokens(text, unigram)
    calibrated = -np.exp(text.logp) * unigram.logp
    if first:
        calibrated = calibrated[_first_occurrences(text.token)]
    if limit:
        calibrated = np.minimum(calibrated, cap)
    return float(calibrated.mean())


def _first_occurrences(token: IntArray) -> IntArray:
    # np.unique(token, return_index=True)[1] for half its time
    order = token.argsort(kind="stable")
    ordered = token[order]
    new = np.ones(token.size, dtype=bool)
    np.not_equal(ordered[1:], ordered[:-1], out=new[1:])
    return order[new]
