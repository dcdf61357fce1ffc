"""Test of exchangeability: are the texts to be judged, together, of the kind of the benchmark's non-members?

Two tests look for a difference from the calibration non-members, without the scores:

- a classifier two-sample test (Lopez-Paz and Oquab 2017, https://arxiv.org/abs/1610.06545): ridge regression on words,
  character n-grams, the way of writing and hidden states, scored on each group without that group, compared with
  permuted groups;
- the number of texts outside the domain (`DomainCheck`). It is nearly beta-binomial under exchangeability, since the
  conformal p-values share one set of texts (Gazin, Blanchard and Roquain 2023, https://arxiv.org/abs/2310.18108).

The first sees a slight difference of all texts, the second a strong difference of a few. What was not tested has not
passed.
"""

from collections import Counter
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from itertools import chain

import numpy as np
from scipy import stats

from fsd.data.near_duplicates import words
from fsd.errors import printable
from fsd.evaluation.domain_check import DomainCheck
from fsd.evaluation.domain_measures import CHARACTERS, LONGEST_WORD, TELLING, Ridge, Similarity
from fsd.evaluation.writing import MEASURES, spread_out, writing
from fsd.statistics.groups import group_index, group_means
from fsd.token_stats import BoolArray, FloatArray, IntArray

ALPHA = 0.05
"""Texts of the same kind are found different in at most this share of all cases; verdicts on them are then withheld."""
FEWEST = 5
"""Smallest number of groups on both sides for the classifier."""
MOST = 400
"""Largest number of texts on each side that the classifier compares; of more, a random sample."""
COMMONEST = 5000
"""Number of words, those in the most texts, among which the most telling ones are looked for."""


@dataclass(frozen=True)
class Exchangeability:
    """Number of independent groups, and the smaller of two p-values times two; no classifier for too few groups."""

    groups: int
    p: float
    classifier_p: float | None
    outside_p: float
    auc: float | None
    telling: tuple[str, ...] = ()  # what differs most, if the texts are refused

    @property
    def tested(self) -> bool:
        """Whether there were enough groups to compare the texts together."""
        return self.classifier_p is not None

    @property
    def rejected(self) -> bool:
        """Whether the texts differ from those of the benchmark, so that no error rate is known for them."""
        return self.p <= ALPHA


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
    if outside is None:
        outside = np.array([bool(reason) for reason in check.outside(texts, groups, states)])
    n_groups = int(group.max()) + 1
    outside_p = _outside_p(check, np.bincount(group, weights=outside) > 0)
    if min(n_groups, check.groups) < FEWEST:
        return Exchangeability(n_groups, outside_p, None, outside_p, None)
    auc, classifier_p = _classifier_test(check, texts, group, states, permutations, np.random.default_rng(seed))
    # the smaller of two p-values is itself no p-value: twice as often one of them is small by chance (Bonferroni)
    p = min(1.0, 2 * min(classifier_p, outside_p))
    different: tuple[str, ...] = ()
    if p <= ALPHA:
        by_few = outside_p < classifier_p
        rows = np.flatnonzero(outside) if by_few else np.arange(len(texts))
        different = telling([texts[row] for row in rows.tolist()], group[rows], check)
    return Exchangeability(n_groups, p, classifier_p, outside_p, auc, different)


def _outside_p(check: DomainCheck, outside: BoolArray) -> float:
    """Probability of as many of the (G,) groups outside as there are, if they are like those of the benchmark."""
    count = int(outside.sum())
    if count < 2:  # a single text outside says nothing about the others
        return 1.0
    expected = min(check.groups, round(check.share * (check.groups + 1)))
    null = stats.betabinom(outside.size, expected, check.groups + 1 - expected)
    return float(null.sf(count - 1))


def _classifier_test(
    check: DomainCheck,
    texts: Sequence[str],
    group: IntArray,
    states: FloatArray | None,
    permutations: int,
    rng: np.random.Generator,
) -> tuple[float, float]:
    """AUC of a classifier between the texts and those of the benchmark, and its p-value by permuted groups."""
    asked = _at_most(MOST, len(texts), rng)
    known = _at_most(MOST, len(check.texts), rng)
    compared = [*(texts[row] for row in asked), *(check.texts[row] for row in known)]
    products = _products(compared)
    if states is not None and check.states is not None:
        hidden = _standardised(np.concatenate([states[asked], check.states[known]]))
        # the mean over words, character n-grams, writing and states, each of average length one
        products = (3 * products + hidden @ hidden.T / hidden.shape[1]) / 4
    own_groups = -1 - check.group[known]  # numbers apart from those of the texts
    block = group_index([*group[asked].tolist(), *own_groups.tolist()], len(compared))
    is_asked = np.arange(int(block.max()) + 1) <= block[: asked.size].max()
    permuted = [rng.permutation(is_asked) for _ in range(permutations)]
    labels = np.stack([is_asked, *permuted], axis=1)[block]
    predicted = stats.rankdata(Ridge(products).left_out(labels, block), axis=0)
    positives = labels.sum(axis=0)
    rank_sums = np.where(labels, predicted, 0.0).sum(axis=0)
    aucs = (rank_sums - positives * (positives + 1) / 2) / (positives * (len(compared) - positives))
    # the order that was observed is one of those that are counted; equal AUCs may differ by rounding
    p = float((aucs >= aucs[0] - 1e-12).mean())
    return float(aucs[0]), p


def _at_most(limit: int, size: int, rng: np.random.Generator) -> IntArray:
    if size <= limit:
        return np.arange(size)
    return np.sort(rng.choice(size, limit, replace=False))


def _products(texts: Sequence[str]) -> FloatArray:
    """(N, N) mean of the scalar products by words, by character n-grams and by writing, each of average length one."""
    similarity = Similarity(texts).products()
    manner = _standardised(spread_out(writing(texts)))
    return np.asarray((2 * similarity + manner @ manner.T / manner.shape[1]) / 3)


def _standardised(vectors: FloatArray) -> FloatArray:
    spread = vectors.std(axis=0)
    return np.asarray((vectors - vectors.mean(axis=0)) / np.where(spread > 1e-12, spread, 1.0))


def telling(texts: Sequence[str], group: IntArray, check: DomainCheck) -> tuple[str, ...]:
    """The words and measures of writing in which N texts differ most from a benchmark, with the share on both sides.

    Each is ranked by the difference of the two shares over its standard error, groups counting once.
    """
    sides = (list(texts), check.texts)
    blocks = (group_index(group.tolist(), len(texts)), check.group)
    contents = [[set(words(text[:CHARACTERS])) for text in side] for side in sides]
    counts = Counter(chain.from_iterable(chain.from_iterable(contents)))
    vocabulary = [word for word, _ in counts.most_common(COMMONEST)]
    means, errors = [], []
    for side, content, block in zip(sides, contents, blocks, strict=True):
        present = np.array([[word in of_text for word in vocabulary] for of_text in content], dtype=np.float64)
        shares = group_means(np.hstack([present, writing(side)]), block)
        number = len(shares)
        means.append(shares.mean(axis=0))
        # a share of 0 or 1 in few texts has an error too: as if half a text more differed
        errors.append((shares.var(axis=0) + 0.25 / number) / number)
    score = np.abs(means[0] - means[1]) / np.sqrt(errors[0] + errors[1])
    names = [*(repr(printable(word)[:LONGEST_WORD]) for word in vocabulary), *MEASURES]
    order = np.argsort(-score, kind="stable")[:TELLING]
    return tuple(f"{names[n]} {means[0][n]:.0%} (benchmark {means[1][n]:.0%})" for n in order)
