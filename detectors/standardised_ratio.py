"""Standardised log-ratio: a token's log-ratio to a reference model, in units of what it is expected to be there."""

from typing import Annotated

from fsd.search_space import Setting, are_sizes
from fsd.token_stats import PairStats, window_votes


def standardised_ratio(
    difference: PairStats,
    *,
    sizes: Annotated[tuple[int, ...], Setting(None, "whole numbers of at least 1", are_sizes)] = (),
) -> float:
    """Mean of z_t = (Δ_{x_t} − E_v[Δ_v]) / sd_v[Δ_v] over the tokens, Δ_v = log p(v) − log q(v) and v ~ p.

    A log-ratio of one nat says much where target and reference agree in all other tokens, and little where they differ
    in many. The centre is that of `info_rmia`; the scale does for two models what `min_k_pp` does for one.

    Args:
        difference: statistics under the target model p and the reference model q, (T,), which must have the same
            vocabulary.
        sizes: sizes of windows, in tokens, that vote as in `wbc`, by the sign of their sum of z; by default none, and
            the score is the mean.

    Source: this project, from Min-K%++ (arXiv 2404.02936) and token-level InfoRMIA (arXiv 2510.05582).
    """
    z = (difference.ratio - difference.mean) / difference.std
    if sizes:
        return window_votes(z, sizes)
    return float(z.mean())
