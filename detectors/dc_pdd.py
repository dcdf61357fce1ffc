"""DC-PDD: a likely token is weak evidence if it is frequent in any text."""

from typing import Annotated

import numpy as np

from fsd.search_space import Choice, Range, Setting
from fsd.token_stats import TokenStats, check_same_tokens

NEEDS = ("token",)
CAP = Setting(Range(1e-3, 10.0, log=True), "above 0", lambda cap: cap > 0)
BOTH = Setting(Choice((True, False)))


def dc_pdd(
    text: TokenStats,
    unigram: TokenStats,
    *,
    cap: Annotated[float, CAP] = 0.01,
    limit: Annotated[bool, BOTH] = True,
    first: Annotated[bool, BOTH] = True,
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
        ValueError: if the two inputs have different tokens.

    Source: "Pretraining data detection for large language models: a divergence-based calibration method", arXiv
    2409.14781, §3.2, and eq. 5 for f.
    """
    check_same_tokens(text, unigram)
    calibrated = -np.exp(text.logp) * unigram.logp
    if first:
        _, occurrences = np.unique(text.token, return_index=True)
        calibrated = calibrated[occurrences]
    if limit:
        calibrated = np.minimum(calibrated, cap)
    return float(calibrated.mean())
