"""Neighbour: a text that was read is likelier than its near copies, which were not."""

from collections.abc import Sequence

import numpy as np

from fsd.token_stats import TokenStats


def neighbour(text: TokenStats, neighbours: Sequence[TokenStats]) -> float:
    """Mean log-probability of the text minus that of its average neighbour, nats.

    S = mean logp(x) − mean_i mean logp(x̃_i), each neighbour x̃_i a copy with a few words swapped; all
    neighbours weigh alike, whatever their number of tokens. A copy is as hard a text as the original, so the
    difference is what the exact words are worth. How many neighbours there are, and what makes them, is a
    matter of the material.

    Raises:
        ValueError: if there is no neighbour.

    Source: Mattern et al. 2023, "Membership inference attacks against language models via neighbourhood
    comparison".
    """
    if not neighbours:
        raise ValueError(f"neighbour needs at least one neighbour of the text {text.text[:40]!r}, got none")
    sizes = np.array([copy.logp.size for copy in neighbours])
    # One segmented sum for all copies: 25 separate means cost six times as much.
    sums = np.add.reduceat(np.concatenate([copy.logp for copy in neighbours]), sizes.cumsum() - sizes)
    return float(text.logp.mean()) - float((sums / sizes).mean())
