"""Tests of a whole data set: was it in the training data?

Exchangeability compares the published order with random ones (Oren et al. 2023, https://arxiv.org/abs/2310.17623).
CoDeC (https://arxiv.org/abs/2510.27055) and the kernel divergence score (https://arxiv.org/abs/2502.00678) give a data
set one number; its rank among equally large sets of known non-members is the test.
"""

from collections.abc import Sequence

import numpy as np
from numpy.random import default_rng
from numpy.typing import NDArray
from scipy.spatial.distance import cdist

from fsd.api import Prompt, Scorer, UsageError, at_least, combined_p, z_scores

BREAK = "\n\n"
"""Between texts that are read one after the other."""
FEWEST = 5
"""Smallest number of texts in a set that is given one number."""
Floats = NDArray[np.float64]


def exchangeability(
    texts: Sequence[str], scorer: Scorer, *, shard: int = 5, orders: int = 19, seed: int = 0
) -> tuple[float, float, list[Floats]]:
    """Test whether a model prefers the published order of a data set to random orders.

    Each shard of consecutive texts is read in its published order and in random ones. If the model was not trained on
    the data set, all orders of exchangeable texts are equally likely to be the most probable one, so the rank test of
    `combined_p` over shards is exact. Gives the p-value, the mean over shards of the published order's z-score, and for
    each shard the log-probability of its published order and of the random ones.
    """
    prompts = order_prompts(texts, shard=shard, orders=orders, seed=seed)
    # Sums, not means: the orders of a shard share their texts, so a sum is the probability of reading them so.
    sums = np.array([stats.logp.sum() for stats in scorer(prompts)])
    shards = list(sums.reshape(-1, orders + 1))
    # The published order comes before the random ones of its shard.
    p = combined_p(shards, [0] * len(shards), seed=seed)
    return p, float(np.mean([z_scores(of_shard)[0] for of_shard in shards])), shards


def order_prompts(texts: Sequence[str], *, shard: int, orders: int, seed: int) -> list[Prompt]:
    """What `exchangeability` reads: the shards one after the other, each in all its orders."""
    rng = default_rng(seed)
    prompts = []
    # The texts after the last full shard are not read: a shorter shard would have fewer orders.
    for start in range(0, len(texts) - shard + 1, shard):
        published = texts[start : start + shard]
        prompts.append(Prompt(BREAK.join(published)))
        for _ in range(orders):
            order = rng.permutation(shard)
            prompts.append(Prompt(BREAK.join(published[place] for place in order)))
    return prompts


def check_order(texts: int, *, shard: int, orders: int) -> None:
    """Refuse a data set of fewer than two shards, and shards and orders of which there must be more."""
    at_least(1, orders=orders)
    at_least(2, shard=shard)
    if texts < 2 * shard:
        raise UsageError(f"data must fill 2 shards of {shard} texts; got {texts} texts")


def equal_sets(suspect: Sequence[str], nonmembers: Sequence[str], sets: int, *, seed: int = 0) -> list[list[str]]:
    """Draw equally large sets: one of the suspect texts, then R = `sets` disjoint ones of known non-members.

    All are of the size min(N, ⌊M / R⌋) of N suspect texts and M non-members. The smallest p-value is 1 / (R + 1).
    """
    at_least(1, sets=sets)
    size = min(len(suspect), len(nonmembers) // sets)
    if size < FEWEST:
        refusal = (
            f"a rank among {sets} sets must have at least {FEWEST} suspect texts and {FEWEST * sets} known "
            f"non-members of different families; got {len(suspect)} and {len(nonmembers)}"
        )
        possible = len(nonmembers) // FEWEST
        if possible and len(suspect) >= FEWEST:
            refusal += f": --sets {possible} works, but then no rank can give a p-value below 1/{possible + 1}"
        raise UsageError(refusal)
    rng = default_rng(seed)
    # The known texts are drawn first; in the other order the same seed would give other sets than it did.
    order = rng.permutation(len(nonmembers))
    drawn = [suspect[index] for index in rng.permutation(len(suspect))[:size]]
    unread = [nonmembers[index] for index in order[: size * sets]]
    return [drawn, *(unread[start : start + size] for start in range(0, size * sets, size))]


def codec(texts: Sequence[str], scorer: Scorer, *, shots: int = 2, seed: int = 0) -> float:
    """CoDeC: the share of texts that become less probable after `shots` other texts of the same set.

    Texts of a set that was not in the training data help to predict each other. For a set that was, they add nothing,
    and disturb what the model holds of it: higher = more likely read.
    """
    prompts = codec_prompts(texts, shots=shots, seed=seed)
    logp = np.array([stats.logp.mean() for stats in scorer(prompts)])
    return float(np.mean(logp[len(texts) :] < logp[: len(texts)]))


def codec_prompts(texts: Sequence[str], *, shots: int, seed: int) -> list[Prompt]:
    """What `codec` reads: the texts alone, and then each after others of its set."""
    rng = default_rng(seed)
    prompts = list(map(Prompt, texts))
    for place, text in enumerate(texts):
        # A text after itself would be repeated, and probable for that reason alone.
        eligible = np.delete(np.arange(len(texts)), place)
        chosen = rng.permutation(eligible)[:shots]
        context = "".join(f"{texts[index]}{BREAK}" for index in chosen)
        prompts.append(Prompt(text, context))
    return prompts


def kernel_divergence(base: Floats, tuned: Floats) -> float:
    """Kernel divergence score: how little fine-tuning on a set moves its texts against each other.

    With Φ_ij = exp(−γ |z_i − z_j|²) of the embeddings before fine-tuning and Φ' of those after it, the score is
    −1/E Σ |Φ_ij log(Φ_ij / Φ'_ij)| (https://arxiv.org/abs/2502.00678). Here γ is one over the median squared distance
    before, and E the square root of Σ Φ_ij. Both embeddings are (N, D); higher, at most 0, = more likely read.
    """
    distance = cdist(base, base, "sqeuclidean")
    moved = cdist(tuned, tuned, "sqeuclidean")
    # Each text is at distance 0 from itself, which would pull the median down in small sets.
    median = np.median(distance[~np.eye(len(distance), dtype=bool)])
    if median == 0:
        raise ValueError("the texts of a set must have different embeddings, got one for all")
    kernel = np.exp(-distance / median)
    # Written without Φ': log(Φ / Φ') would divide two numbers that are both near 0 for distant texts.
    change = kernel * (moved - distance) / median
    return float(-np.abs(change).sum() / np.sqrt(kernel.sum()))
