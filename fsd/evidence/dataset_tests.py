"""Tests of a whole data set: was it in the training data?

Exchangeability compares the published order with random ones (Oren et al. 2023, https://arxiv.org/abs/2310.17623).
CoDeC (https://arxiv.org/abs/2510.27055) and the kernel divergence score (https://arxiv.org/abs/2502.00678) give a data
set one number; its rank among equally large sets of known non-members is the test.
"""

from collections.abc import Sequence

import numpy as np
from scipy.spatial.distance import cdist

from fsd.errors import UsageError, at_least
from fsd.evidence.canaries import combined_p
from fsd.token_stats import FloatArray, IntArray, Prompt, Scorer

BREAK = "\n\n"
"""Between texts that are read one after the other."""
FEWEST = 5
"""Smallest number of texts in a set that is given one number."""


def exchangeability(
    texts: Sequence[str], scorer: Scorer, *, shard: int = 5, orders: int = 19, seed: int = 0
) -> tuple[float, float]:
    """Test whether a model prefers the published order of a data set to random orders.

    Each shard of consecutive texts is read in its published order and in random ones. If the model was not trained on
    the data set, all orders of exchangeable texts are equally likely to be the most probable one, so the rank test of
    `combined_p` over shards is exact. Gives the p-value, and the mean over shards of the published order's z-score.
    """
    if shard < 2 or orders < 1:
        raise UsageError(f"shard must be at least 2 texts and orders at least 1; got {shard} and {orders}")
    shards = [texts[at : at + shard] for at in range(0, len(texts) - shard + 1, shard)]
    if len(shards) < 2:
        raise UsageError(f"an ordered data set must fill 2 shards of {shard} texts; got {len(texts)} texts")
    rng = np.random.default_rng(seed)
    prompts = [
        Prompt(BREAK.join(part[at] for at in order))
        for part in shards
        for order in (range(shard), *(rng.permutation(shard).tolist() for _ in range(orders)))
    ]
    logp = np.array([float(stats.logp.sum()) for stats in scorer(prompts)]).reshape(len(shards), orders + 1)
    spread = logp.std(axis=1)
    z = np.divide(logp[:, 0] - logp.mean(axis=1), spread, out=np.zeros(len(shards)), where=spread > 0)
    return combined_p(list(logp), [0] * len(shards), seed=seed), float(z.mean())


def equal_sets(suspects: int, known: int, sets: int, *, seed: int = 0) -> tuple[IntArray, list[IntArray]]:
    """Draw equally large sets: one of the suspect texts, and R = `sets` disjoint ones of those known to be non-members.

    Gives the indices of each; all are of the size min(`suspects`, ⌊`known` / R⌋). The smallest p-value is 1 / (R + 1).
    """
    at_least(1, sets=sets)
    size = min(suspects, known // sets)
    if size < FEWEST:
        raise UsageError(
            f"a rank among {sets} sets must have at least {FEWEST} suspect texts and {FEWEST * sets} known "
            f"non-members of different families; got {suspects} and {known}"
        )
    rng = np.random.default_rng(seed)
    order = rng.permutation(known)
    return rng.permutation(suspects)[:size], [order[at * size : (at + 1) * size] for at in range(sets)]


def rank_among(value: float, others: Sequence[float]) -> float:
    """p-value of a set: its rank among equally large known sets, (1 + #{others ≥ value}) / (1 + R)."""
    return float((1 + np.count_nonzero(np.asarray(others) >= value)) / (1 + len(others)))


def codec(texts: Sequence[str], scorer: Scorer, *, shots: int = 2, seed: int = 0) -> float:
    """CoDeC: the share of texts that become less probable after `shots` other texts of the same set.

    Texts of a set that was not in the training data help to predict each other. For a set that was, they add nothing,
    and disturb what the model holds of it: higher = more likely read.
    """
    rng = np.random.default_rng(seed)
    contexts = []
    for at in range(len(texts)):
        others = rng.permutation([other for other in range(len(texts)) if other != at])[:shots]
        contexts.append("".join(f"{texts[other]}{BREAK}" for other in others))
    alone = np.array([stats.logp.mean() for stats in scorer([Prompt(text) for text in texts])])
    pairs = zip(texts, contexts, strict=True)
    after = np.array([stats.logp.mean() for stats in scorer([Prompt(text, context) for text, context in pairs])])
    return float(np.mean(after < alone))


def kernel_divergence(before: FloatArray, after: FloatArray) -> float:
    """Kernel divergence score: how little fine-tuning on a set moves its texts against each other.

    With Φ_ij = exp(−γ |z_i − z_j|²) of the embeddings before fine-tuning and Φ' of those after it, the score is
    −1/E Σ |Φ_ij log(Φ_ij / Φ'_ij)| (https://arxiv.org/abs/2502.00678). Here γ is one over the median squared distance
    before, and E the square root of Σ Φ_ij. Both embeddings are (N, D); higher, at most 0, = more likely read.
    """
    distance, moved = (cdist(z, z, "sqeuclidean") for z in (before, after))
    median = float(np.median(distance[~np.eye(len(distance), dtype=bool)]))
    if median == 0:
        raise ValueError("the texts of a set must have different embeddings, got one for all")
    kernel = np.exp(-distance / median)
    # log(Φ/Φ') without the division of two small numbers
    return float(-np.abs(kernel * (moved - distance) / median).sum() / np.sqrt(kernel.sum()))
