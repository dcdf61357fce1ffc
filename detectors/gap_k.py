"""Gap-K%: in an unseen text, neighbouring tokens are much less likely than the tokens that the model expected."""

import numpy as np

from fsd.errors import UsageError
from fsd.search_space import Choice, Range
from fsd.token_stats import TokenStats, lowest_mean

SEARCH = {"k": Range(0.05, 1.0, step=0.05), "window": Choice((1, 3, 6))}
NEEDS = ("std", "top")
AUTO = False


def gap_k(text: TokenStats, *, k: float = 0.2, window: int = 3) -> float:
    """Mean of the n lowest windows of standardised gaps, without a unit; n = max(1, int(k·windows)).

    g_t = (logp_t − top_t) / std_t is 0 where the token is the most likely one. A window is the mean of g over `window`
    consecutive tokens; a text of fewer tokens has one window per token. Where the model expected another token,
    training would have changed it most. `top` comes from the same forward pass as the rest.

    Args:
        text: token statistics under the target model; logp, std and top are (T,), and std is above 0.
        k: share of the windows, in (0, 1].
        window: tokens of a window, at least 1; the paper's code takes 3, and 6 for LLaMA.

    Raises:
        UsageError: if a setting is out of range.

    Source: "Gap-K%: measuring top-1 prediction gap for detecting pretraining data", arXiv 2601.19936; windows and
    defaults are those of its code, https://github.com/meaoww/gap-k, whose deviations are at least 1e-4, ours 1e-6.
    """
    if window < 1:
        raise UsageError(f"gap_k.window must be at least 1; got {window!r}")
    gaps = (text.logp - text.top) / text.std
    size = int(window)
    if gaps.size >= size:
        gaps = np.convolve(gaps, np.full(size, 1 / size), mode="valid")
    return lowest_mean(gaps, k, "gap_k.k")
