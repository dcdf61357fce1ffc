"""SURP: in a training text, the model is less surprised where it is confident and wrong."""

import math
from typing import Annotated

import numpy as np

from fsd.search_space import Range, Setting
from fsd.token_stats import BoolArray, TokenStats

NEEDS = ("mean",)
ENTROPY = Setting(Range(0.5, 10.0, step=0.5), "above 0", lambda entropy: entropy > 0)
K = Setting(Range(10.0, 100.0, step=10.0), "in (0, 100]", lambda k: 0 < k <= 100)
FALLBACK = "no token met both conditions; the weaker one was used, or the lowest token"


def surp(text: TokenStats, *, entropy: Annotated[float, ENTROPY] = 4.0, k: Annotated[float, K] = 40.0) -> float:
    """Mean log-probability of the surprising tokens S_e ∩ S_p, in nats.

    S_e = {t: −mean_t < entropy} are the tokens at which the model is confident; S_p = {t: logp_t < k-th percentile of
    logp} are those unlikely for this text, by numpy's percentile (§4.2). If S_e ∩ S_p is empty, the score is the mean
    over S_p; if that is empty as well (as for a single token), the lowest logp. A constant for empty sets would
    dominate the FSD.

    The paper reports the best of its grid, e.g. 2.5/40 and 2.0/30, of models with billions of parameters. Small models
    are rarely so sure: at 2.0/40 the set is empty for four in five texts of the embedded corpus, and SURP is not SURP.
    The default, ours, is the smallest ε_e of the paper's grid at which at most 1 in 50 texts falls back on any model
    that comes with the package. `fsd tune` chooses for others.

    Args:
        text: token statistics under the target model; logp and mean are (T,).
        entropy: threshold ε_e of the entropy, in nats, above 0.
        k: percentile in (0, 100], linearly interpolated.

    Source: "Adaptive pre-training data detection for large language models via surprising tokens", arXiv 2407.21248.
    """
    chosen = text.logp[surprising(text, entropy=entropy, k=k)]
    if not chosen.size:
        chosen = text.logp[surprising(text, entropy=np.inf, k=k)]
    return float(chosen.mean() if chosen.size else text.logp.min())


def fallback(text: TokenStats, *, entropy: float, k: float) -> str | None:
    """Why a text has an empty S_e ∩ S_p, and what replaces it; None if it has not."""
    return None if surprising(text, entropy=entropy, k=k).any() else FALLBACK


def surprising(text: TokenStats, *, entropy: float, k: float) -> BoolArray:
    """(T,) which tokens are in S_e ∩ S_p, see `surp`; none of them may be."""
    # numpy's percentile lies between two tokens of this order, so that what is below it is below the upper one.
    upper = math.ceil((text.logp.size - 1) * (k / 100))
    chosen: BoolArray = (text.logp < np.sort(text.logp)[upper]) & (text.mean > -entropy)
    return chosen
