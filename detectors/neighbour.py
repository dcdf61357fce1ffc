"""Neighbour: a training text is likelier than slightly changed copies of it."""

from collections.abc import Sequence

import numpy as np

from fsd.token_stats import TokenStats

UNCHANGED = "no word of the text can be replaced; its score is 0"


def fallback(text: TokenStats, neighbours: Sequence[TokenStats]) -> str | None:
    """Why every neighbour is the text itself; None if one is another."""
    if all(copy is text for copy in neighbours):
        return UNCHANGED
    return None


def neighbour(text: TokenStats, neighbours: Sequence[TokenStats]) -> float:
    """Mean log-probability of the text minus the average over its neighbours, in nats.

    S(x) = mean_t logp_t(x) − mean_i mean_t logp_t(x̃_i), where each neighbour x̃_i is a copy with a few words replaced;
    neighbours have equal weight, whatever their number of tokens. A neighbour is as difficult as the text in
    general, so the difference measures knowledge of the exact words. The inputs of the view `neighbours` determine
    their number and how they are made.

    Args:
        text: token statistics under the target model; logp is (T,).
        neighbours: token statistics of at least one neighbour.

    Raises:
        ValueError: without a neighbour.

    Source: "Membership inference attacks against language models via neighbourhood comparison", arXiv 2305.18462.
    """
    if not neighbours:
        raise ValueError(f"neighbour needs at least one neighbour of the text {text.text[:40]!r}, got none")
    # Rounding would rank the texts of which no word can be replaced.
    if all(copy is text for copy in neighbours):
        return 0.0
    sizes = np.array([copy.logp.size for copy in neighbours])
    # One segmented sum is six times as fast as 25 separate means.
    sums = np.add.reduceat(np.concatenate([copy.logp for copy in neighbours]), sizes.cumsum() - sizes)
    return float(text.logp.mean()) - float((sums / sizes).mean())
