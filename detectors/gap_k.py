"""Gap-K%: in an unseen text, neighbouring tokens are much less likely than the tokens that the model expected."""

from typing import Annotated

import numpy as np

from fsd.search_space import Choice, Setting, Share
from fsd.token_stats import TokenStats, lowest_mean

NEEDS = ("std", "top")
AUTO = False
WINDOW = Setting(Choice((1, 3, 6)), "at least 1 and finite", lambda window: 1 <= window < float("inf"))


def gap_k(text: TokenStats, *, k: Share = 0.2, window: Annotated[int, WINDOW] = 3) -> float:
    """Mean of the n lowest windows of standardised gaps, without a unit; n = max(1, int(k·windows)).

    g_t = (logp_t − top_t) / std_t is 0 where the token is the most likely one. A window is the mean of g over `window`
    consecutive tokens; a text of fewer tokens has one window per token. Where the model expected another token,
    training would have changed it most. `top` comes from the same forward pass as the rest.

    Args:
        text: token statistics under the target model; logp, std and top are (T,), and std is above 0.
        k: share of the windows, in (0, 1].
        window: tokens of a window, at least 1; the paper's code takes 3, and 6 for LLaMA.

    Source: "Gap-K%: measuring top-1 prediction gap for detecting pretraining data", arXiv 2601.19936; windows and
    defaults are those of its code, https://github.com/meaoww/gap-k, whose deviations are at least 1e-4, ours 1e-6.
    """
    gaps = (text.logp - text.top) / text.std
    size = int(window)
    if gaps.size >= size:
        gaps = np.convolve(gaps, np.full(size, 1 / size), mode="valid")
    return lowest_mean(gaps, k)
