"""Tests of a whole data set: was it in the training data?

Two kinds. Exchangeability compares the order in which the data set was published with random orders of it (Oren et al.
2023, https://arxiv.org/abs/2310.17623); it needs nothing else. The others give a data set one number, and need a null:
its rank among equally large sets of texts known to be non-members. These are CoDeC (https://arxiv.org/abs/2510.27055)
and the kernel divergence score (https://arxiv.org/abs/2502.00678), which come without a test of their own.
"""

from collections.abc import Sequence

import numpy as np

from fsd.errors import UsageError
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

    The data set is divided into shards of consecutive texts. Each shard is read in its published order and in random
    ones; if the model was not trained on the data set, all orders of exchangeable texts are equally likely to be the
    most probable one, so the rank test of `combined_p` over shards is exact.

    Args:
        texts: in the order of publication.
        scorer: of the model.
        shard: texts per shard; the last ones that fill none are left out.
        orders: random orders per shard.
        seed: of the orders.

    Returns:
        The p-value, and the mean over shards of the published order's z-score among all orders.

    Raises:
        UsageError: for fewer than two texts a shard, no orders, or fewer than two shards.
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

    The smallest p-value is 1 / (R + 1). A UsageError if the sets would have fewer than `FEWEST` texts.

    Returns:
        Indices of the suspect set, and of each known set; all of the size min(`suspects`, ⌊`known` / R⌋).
    """
    if sets < 1:
        raise UsageError(f"sets must be at least 1; got {sets}")
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
    """CoDeC: the share of texts that become less probable after other texts of the same set.

    Texts of a set that was not in the training data help to predict each other. For a set that was, they add nothing,
    and disturb what the model holds of it.

    Args:
        texts: N > `shots` texts.
        scorer: of the model.
        shots: texts before each text.
        seed: of their choice.

    Returns:
        Between 0 and 1; higher = more likely read.
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
    before, and E the square root of Σ Φ_ij.

    Args:
        before: (N, D) embeddings by the base model.
        after: (N, D) embeddings by the model fine-tuned on the same texts.

    Returns:
        At most 0; higher = more likely read.

    Raises:
        ValueError: if all texts have one embedding.
    """

    def squared(z: FloatArray) -> FloatArray:
        return np.asarray(np.square(z[:, None] - z[None]).sum(-1))

    distance, moved = squared(before), squared(after)
    median = float(np.median(distance[~np.eye(len(distance), dtype=bool)]))
    if median == 0:
        raise ValueError("the texts of a set must have different embeddings, got one for all")
    kernel = np.exp(-distance / median)
    # log(Φ/Φ') without the division of two small numbers
    return float(-np.abs(kernel * (moved - distance) / median).sum() / np.sqrt(kernel.sum()))
