"""Test of exchangeability: are the texts to be judged, together, of the kind of the benchmark's non-members?

Two tests look for a difference from the calibration non-members, without the scores:

- a classifier two-sample test (Lopez-Paz and Oquab 2017, https://arxiv.org/abs/1610.06545): ridge regression on words,
  character n-grams, the way of writing and hidden states, scored on each group without that group, compared with
  permuted groups, each of as many texts as the smallest has;
- the number of groups outside the domain (`DomainCheck`), each by the share of its texts. It is nearly beta-binomial
  under exchangeability, since the conformal p-values share one set of texts (Gazin, Blanchard and Roquain 2023,
  https://arxiv.org/abs/2310.18108).

The first sees a slight difference of all texts, the second a strong difference of a few. What was not tested has not
passed.
"""

from dataclasses import dataclass

import numpy as np
from numpy.random import Generator, default_rng
from scipy import stats
from sklearn.feature_extraction.text import CountVectorizer

from fsd.data.documents import Texts
from fsd.data.near_duplicates import words
from fsd.statistics.groups import Groups, evenly, group_index, group_means
from fsd.statistics.metrics import aucs
from fsd.statistics.permutation import permutation_p, permuted
from fsd.text_audit.writing import MEASURES, spread_out, writing
from fsd.token_stats import BoolArray, FloatArray, IntArray
from fsd.verdicts.domain_check import DomainCheck
from fsd.verdicts.domain_measures import CHARACTERS, TELLING, Ridge, Similarity, quoted, scale_of

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
    texts: Texts,
    groups: Groups = None,
    *,
    outside: BoolArray | None = None,
    permutations: int = 499,
    seed: int = 0,
) -> Exchangeability:
    """Test whether N ≥ 1 texts are exchangeable with those of a domain check, all texts of every group.

    `outside` is (N,) what the check says, if it is known already.
    """
    group = group_index(groups, len(texts))
    if outside is None:
        outside = np.array(check.outside(texts, groups)) != ""
    shares_outside = group_means(outside.astype(np.float64), group)
    n_groups = shares_outside.size
    outside_p = _outside_p(check, shares_outside)
    if min(n_groups, check.groups) < FEWEST:
        return Exchangeability(n_groups, outside_p, None, outside_p, None)
    auc, classifier_p = _classifier_test(check, texts, group, permutations, default_rng(seed))
    # the smaller of two p-values is itself no p-value: twice as often one of them is small by chance (Bonferroni)
    p = min(1.0, 2 * min(classifier_p, outside_p))
    different: tuple[str, ...] = ()
    if p <= ALPHA:
        rows = np.arange(len(texts))
        # what few texts outside have in common would not show among all
        if outside_p < classifier_p:
            rows = np.flatnonzero(outside)
        different = telling([texts[row] for row in rows.tolist()], group[rows], check)
    return Exchangeability(n_groups, p, classifier_p, outside_p, auc, different)


def _outside_p(check: DomainCheck, shares: FloatArray) -> float:
    """Probability of as many of the G groups outside as there are, by the (G,) shares of their texts outside."""
    # The texts of a group share its vote: that any of five is outside is up to five times as likely as of one.
    # Nine digits, as sums in another order of the texts differ by rounding.
    count = round(round(float(shares.sum()), 9))
    if count < 2:  # a single text outside says nothing about the others
        return 1.0
    expected = min(check.groups, round(check.share * (check.groups + 1)))
    null = stats.betabinom(shares.size, expected, check.groups + 1 - expected)
    return float(null.sf(count - 1))


def _classifier_test(
    check: DomainCheck, texts: Texts, group: IntArray, permutations: int, rng: Generator
) -> tuple[float, float]:
    """AUC of a classifier between the texts and those of the benchmark, and its p-value by permuted groups."""
    asked = _at_most(MOST, len(texts), rng)
    compared_with = _at_most(MOST, len(check.texts), rng)
    # numbers apart from those of the texts
    benchmark_groups = -1 - check.group[compared_with]
    block = group_index(group[asked].tolist() + benchmark_groups.tolist(), asked.size + compared_with.size)
    # permuted groups must be of one size
    kept = evenly(block, rng)
    block = block[kept]
    compared_with = compared_with[kept[kept >= asked.size] - asked.size]
    asked = asked[kept[kept < asked.size]]
    compared = [texts[row] for row in asked]
    compared += [check.texts[row] for row in compared_with]
    products = _products(compared)
    if check.states is not None:
        hidden = _standard_products(check.states(compared))
        # the mean over words, character n-grams, writing and states, each of average length one
        products = (3 * products + hidden) / 4
    # the groups of the texts came first, and so have the lowest numbers
    is_asked = np.arange(block.max() + 1) <= block[: asked.size].max()
    labels = np.stack(permuted(is_asked, permutations, rng), axis=1)[block]
    areas = aucs(Ridge(products).left_out(labels, block), labels)
    return float(areas[0]), permutation_p(areas)


def _at_most(limit: int, size: int, rng: Generator) -> IntArray:
    if size <= limit:
        return np.arange(size)
    return np.sort(rng.choice(size, limit, replace=False))


def _products(texts: Texts) -> FloatArray:
    """(N, N) mean of the scalar products by words, by character n-grams and by writing, each of average length one."""
    similarity = Similarity(texts).products()
    manner = _standard_products(spread_out(writing(texts)))
    return (2 * similarity + manner) / 3


def _standard_products(vectors: FloatArray) -> FloatArray:
    """(N, N) scalar products of the rows of (N, D) vectors with standardised columns, over D."""
    standard = (vectors - vectors.mean(axis=0)) / scale_of(vectors)
    products: FloatArray = standard @ standard.T / standard.shape[1]
    return products


def telling(texts: Texts, group: IntArray, check: DomainCheck) -> tuple[str, ...]:
    """The words and measures of writing in which N texts differ most from a benchmark, with the share on both sides.

    Each is ranked by the difference of the two shares over its standard error, groups counting once.
    """
    counter = CountVectorizer(analyzer=_beginning, binary=True, max_features=COMMONEST)
    both = list(texts) + check.texts
    present = np.hstack([counter.fit_transform(both).toarray(), writing(both)])
    count = len(texts)
    mean, error = _share(present[:count], group_index(group.tolist(), count))
    benchmark_mean, benchmark_error = _share(present[count:], check.group)
    score = np.abs(mean - benchmark_mean) / np.sqrt(error + benchmark_error)
    names = list(map(quoted, counter.get_feature_names_out()))
    names += MEASURES
    most_different = np.argsort(-score, kind="stable")[:TELLING]
    phrases = []
    for measure in most_different:
        of_benchmark = benchmark_mean[measure]
        phrases.append(f"{names[measure]} {mean[measure]:.0%} (benchmark {of_benchmark:.0%})")
    return tuple(phrases)


def _beginning(text: str) -> list[str]:
    return words(text[:CHARACTERS])


def _share(present: FloatArray, group: IntArray) -> tuple[FloatArray, FloatArray]:
    """Mean share of each column over the groups of a side, and its squared standard error."""
    shares = group_means(present, group)
    # a share of 0 or 1 in few texts has an error too: as if half a text more differed
    variance = shares.var(axis=0) + 0.25 / len(shares)
    return shares.mean(axis=0), variance / len(shares)
