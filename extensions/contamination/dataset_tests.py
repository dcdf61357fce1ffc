"""Tests of a whole data set: was it in the training data?

Exchangeability compares the published order with random ones (Oren et al. 2023, https://arxiv.org/abs/2310.17623).
CoDeC (https://arxiv.org/abs/2510.27055) and the kernel divergence score (https://arxiv.org/abs/2502.00678) give a data
set one number; its rank among equally large sets of known non-members is the test.
"""

from collections.abc import Sequence

import numpy as np
from numpy.random import default_rng
from scipy.spatial.distance import cdist

from fsd.errors import UsageError, at_least
from fsd.statistics.ranks import combined_p, z_scores
from fsd.token_stats import FloatArray, IntArray, Prompt, Prompts, Scorer

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
    return order_p(order_sums(texts, scorer, shard=shard, orders=orders, seed=seed), seed=seed)


def order_sums(texts: Sequence[str], scorer: Scorer, *, shard: int, orders: int, seed: int) -> list[FloatArray]:
    """Log-probability of each shard in its published order, which comes first, and in random ones."""
    prompts = order_prompts(texts, shard=shard, orders=orders, seed=seed)
    # Sums, not means: the orders of a shard share their texts, so a sum is the probability of reading them so.
    sums = np.array([stats.logp.sum() for stats in scorer(prompts)])
    return list(sums.reshape(-1, orders + 1))


def order_prompts(texts: Sequence[str], *, shard: int, orders: int, seed: int) -> list[Prompt]:
    """What `order_sums` reads: the shards one after the other, each in all its orders."""
    if shard < 2 or orders < 1:
        raise UsageError(f"shard must be at least 2 texts and orders at least 1; got {shard} and {orders}")
    # The texts after the last full shard are not read: a shorter shard would have fewer orders.
    count = len(texts) // shard
    if count < 2:
        raise UsageError(f"an ordered data set must fill 2 shards of {shard} texts; got {len(texts)} texts")
    rng = default_rng(seed)
    prompts = []
    for start in range(0, count * shard, shard):
        published = texts[start : start + shard]
        prompts.append(Prompt(BREAK.join(published)))
        for _ in range(orders):
            order = rng.permutation(shard)
            prompts.append(Prompt(BREAK.join(published[place] for place in order)))
    return prompts


def order_p(logp: Sequence[FloatArray], *, seed: int) -> tuple[float, float]:
    """The test of `exchangeability` on the log-probabilities that `order_sums` gives."""
    count = len(logp)
    # The published order comes before the random ones of its shard.
    z = np.mean([z_scores(of_shard)[0] for of_shard in logp])
    return combined_p(logp, [0] * count, seed=seed), float(z)


def equal_sets(suspects: int, nonmembers: int, sets: int, *, seed: int = 0) -> tuple[IntArray, list[IntArray]]:
    """Draw equally large sets: one of the suspect texts, and R = `sets` disjoint ones of those known to be non-members.

    Gives the indices of each; all are of the size min(`suspects`, ⌊`nonmembers` / R⌋). The smallest p-value is
    1 / (R + 1).
    """
    at_least(1, sets=sets)
    size = min(suspects, nonmembers // sets)
    if size < FEWEST:
        refusal = (
            f"a rank among {sets} sets must have at least {FEWEST} suspect texts and {FEWEST * sets} known "
            f"non-members of different families; got {suspects} and {nonmembers}"
        )
        possible = nonmembers // FEWEST
        if possible and suspects >= FEWEST:
            refusal += f": --sets {possible} works, but then no rank can give a p-value below 1/{possible + 1}"
        raise UsageError(refusal)
    rng = default_rng(seed)
    # The known texts are drawn first; in the other order the same seed would give other sets than it did.
    order = rng.permutation(nonmembers)
    drawn = rng.permutation(suspects)[:size]
    return drawn, np.split(order[: size * sets], sets)


def codec(texts: Sequence[str], scorer: Scorer, *, shots: int = 2, seed: int = 0) -> float:
    """CoDeC: the share of texts that become less probable after `shots` other texts of the same set.

    Texts of a set that was not in the training data help to predict each other. For a set that was, they add nothing,
    and disturb what the model holds of it: higher = more likely read.
    """
    prompts = codec_prompts(texts, shots=shots, seed=seed)
    alone = _mean_logp(list(map(Prompt, texts)), scorer)
    return float(np.mean(_mean_logp(prompts, scorer) < alone))


def codec_prompts(texts: Sequence[str], *, shots: int, seed: int) -> list[Prompt]:
    """What `codec` reads besides the texts alone: each text after others of its set."""
    rng = default_rng(seed)
    prompts = []
    for place, text in enumerate(texts):
        # A text after itself would be repeated, and probable for that reason alone.
        eligible = np.delete(np.arange(len(texts)), place)
        chosen = rng.permutation(eligible)[:shots]
        context = "".join(f"{texts[index]}{BREAK}" for index in chosen)
        prompts.append(Prompt(text, context))
    return prompts


def _mean_logp(prompts: Prompts, scorer: Scorer) -> FloatArray:
    """(N,) mean log-probability of the tokens of each prompt."""
    return np.array([stats.logp.mean() for stats in scorer(prompts)])


def kernel_divergence(base: FloatArray, tuned: FloatArray) -> float:
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
