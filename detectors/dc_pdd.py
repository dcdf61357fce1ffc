"""DC-PDD: a likely token is weak evidence if it is frequent in any text."""

import numpy as np

from fsd.errors import UsageError
from fsd.search_space import Choice, Range
from fsd.token_stats import TokenStats, check_same_tokens

SEARCH = {"cap": Range(1e-3, 10.0, log=True), "limit": Choice((True, False)), "first": Choice((True, False))}
NEEDS = ("token",)


def dc_pdd(
    text: TokenStats, unigram: TokenStats, *, cap: float = 0.01, limit: bool = True, first: bool = True
) -> float:
    """Mean calibrated probability of the tokens, in nats: mean_t min(cap, −p_t · log f(x_t)).

    p_t = exp(logp_t), and f is the token's relative frequency in a reference corpus with Laplace smoothing: a rare
    token that the model predicts counts for more than a common one. The cap limits the influence of single tokens
    and bounds both score and FSD. Ablations of the paper: CLD (`limit` and `first` off), +LUP (`limit` only), +SFO
    (both).

    Args:
        text: token statistics under the target model; token and logp are (T,).
        unigram: the same tokens scored by the frequency table; its logp is log f(x_t), in nats.
        cap: upper limit a, above 0; the paper uses 0.01, and 10 for books with GPT-3.
        limit: apply the cap (LUP).
        first: use only the first occurrence of each token (SFO).

    Raises:
        UsageError: if cap is not above 0.
        ValueError: if the two inputs have different tokens.

    Source: "Pretraining data detection for large language models: a divergence-based calibration method", arXiv
    2409.14781, §3.2, and eq. 5 for f.
    """
    if not cap > 0:
        raise UsageError(f"dc_pdd.cap must be above 0; got {cap!r}")
    check_same_tokens(text, unigram)
    calibrated = -np.exp(text.logp) * unigram.logp
    if first:
        _, occurrences = np.unique(text.token, return_index=True)
        calibrated = calibrated[occurrences]
    if limit:
        calibrated = np.minimum(calibrated, cap)
    return float(calibrated.mean())
