"""Test of exchangeability: are the texts to be judged, together, of the kind of the benchmark's non-members?

Two tests look for a difference from the calibration non-members, without the scores:

- a classifier two-sample test (Lopez-Paz and Oquab 2017, https://arxiv.org/abs/1610.06545): ridge regression on words,
  character n-grams and hidden states, scored on each group without that group, compared with permuted groups;
- the number of texts outside the domain (`DomainCheck`). It is nearly beta-binomial under exchangeability, since the
  conformal p-values share one set of texts (Gazin, Blanchard and Roquain 2023, https://arxiv.org/abs/2310.18108).

The first sees a slight difference of all texts, the second a strong difference of a few. What was not tested has not
passed.
"""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import numpy as np
from scipy import stats

from fsd.evaluation.domain_check import DomainCheck, Ridge, Similarity
from fsd.evaluation.metrics import BoolArray, group_index
from fsd.token_stats import FloatArray

LEVEL = 0.05
"""Texts of the same kind are found different in at most this share of all cases; verdicts on them are then withheld."""
FEWEST = 5
"""Smallest number of groups on both sides for the classifier."""
MOST = 400
"""Largest number of texts on each side that the classifier compares; of more, a random sample."""


@dataclass(frozen=True)
class Exchangeability:
    """Number of independent groups, and the smaller of two p-values times two; no classifier for too few groups."""

    groups: int
    p: float
    classifier_p: float | None
    outside_p: float
    auc: float | None

    @property
    def tested(self) -> bool:
        """Whether there were enough groups to compare the texts together."""
        return self.classifier_p is not None

    @property
    def rejected(self) -> bool:
        """Whether the texts differ from those of the benchmark, so that no error rate is known for them."""
        return self.p <= LEVEL


def exchangeability(
    check: DomainCheck,
    texts: Sequence[str],
    groups: Sequence[Hashable] | None = None,
    *,
    states: FloatArray | None = None,
    outside: BoolArray | None = None,
    permutations: int = 499,
    seed: int = 0,
) -> Exchangeability:
    """Test whether N ≥ 1 texts are exchangeable with those of a domain check, all texts of every group.

    With (N, D) hidden states if the benchmark has them; `outside` is (N,) what the check says, if it is known already.
    """
    group = group_index(groups, len(texts))
    unlike = np.array([bool(why) for why in check.outside(texts, groups, states)]) if outside is None else outside
    asked, known = int(group.max()) + 1, check.groups
    found = int((np.bincount(group, weights=unlike) > 0).sum())
    expected = min(known, round(check.share * (known + 1)))
    # a single text outside says nothing about the others
    outside_p = float(stats.betabinom(asked, expected, known + 1 - expected).sf(found - 1)) if found > 1 else 1.0
    if min(asked, known) < FEWEST:
        return Exchangeability(asked, outside_p, None, outside_p, None)
    rng = np.random.default_rng(seed)
    first, second = (
        np.arange(size) if size <= MOST else np.sort(rng.choice(size, MOST, replace=False))
        for size in (len(texts), len(check.texts))
    )
    compared = [*(texts[at] for at in first), *(check.texts[at] for at in second)]
    products = Similarity(compared)(compared)
    if states is not None and check.states is not None:
        hidden = np.concatenate([states[first], check.states[second]])
        spread = hidden.std(axis=0)
        scaled = (hidden - hidden.mean(axis=0)) / np.where(spread > 1e-12, spread, 1.0)
        products = (2 * products + scaled @ scaled.T / hidden.shape[1]) / 3  # the mean of words, characters and states
    block = group_index([*group[first].tolist(), *(-1 - check.group[second]).tolist()], len(compared))
    of_group = np.arange(int(block.max()) + 1) <= block[: first.size].max()
    labels = np.stack([of_group, *(rng.permutation(of_group) for _ in range(permutations))], axis=1)[block]
    ranks = np.where(labels, stats.rankdata(Ridge(products).left_out(labels, block), axis=0), 0.0).sum(axis=0)
    count = labels.sum(axis=0)
    aucs = (ranks - count * (count + 1) / 2) / (count * (len(compared) - count))
    p = float((aucs >= aucs[0] - 1e-12).mean())
    return Exchangeability(asked, min(1.0, 2 * min(p, outside_p)), p, outside_p, float(aucs[0]))
