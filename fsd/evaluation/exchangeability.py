"""Test of exchangeability: are the texts to be judged of the same kind as the calibration non-members?

The false-positive rate of verdicts holds for non-members that are exchangeable with the calibration non-members. Two
tests look for a difference between the two sets of texts, without the language model:

- a classifier two-sample test (Lopez-Paz and Oquab 2017, https://arxiv.org/abs/1610.06545): ridge regression on words
  and character n-grams, scored on each text without that text, compared with permuted sides;
- the number of texts outside the domain (`DomainCheck`). It is nearly beta-binomial under exchangeability, since the
  conformal p-values share one calibration set (Gazin, Blanchard and Roquain 2023, https://arxiv.org/abs/2310.18108).

The first sees a slight difference of all texts, the second a strong difference of a few. Members among the texts do not
count as a difference if they are of the same kind as the non-members.
"""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import numpy as np
from scipy import sparse, stats
from sklearn.feature_extraction.text import TfidfTransformer

from fsd.evaluation.domain_check import DomainCheck, text_features
from fsd.evaluation.intervals import BoolArray, group_index
from fsd.token_stats import FloatArray, IntArray

LEVEL = 0.05
"""Texts of the same kind are found different in at most this share of all cases; verdicts on them are then withheld."""

FEWEST = 5
"""Smallest number of groups on both sides for the classifier."""

MOST = 400
"""Largest number of groups on each side that the classifier compares; of more, a random sample."""


@dataclass(frozen=True)
class Exchangeability:
    """Result of the test.

    Attributes:
        p: p-value; the smaller one of the two tests, times two.
        classifier_p: of the classifier; None with fewer than `FEWEST` groups on one side.
        outside_p: of the number of texts outside the domain.
        auc: AUC of the classifier between the texts and the calibration texts, .5 if they are alike.
    """

    p: float
    classifier_p: float | None
    outside_p: float
    auc: float | None

    @property
    def rejected(self) -> bool:
        """Whether the texts differ from the calibration texts, so that no error rate is known for them."""
        return self.p <= LEVEL


def exchangeability(
    check: DomainCheck,
    texts: Sequence[str],
    groups: Sequence[Hashable] | None = None,
    *,
    novelty: FloatArray | None = None,
    permutations: int = 499,
    seed: int = 0,
) -> Exchangeability:
    """Test whether texts are exchangeable with the calibration texts of a domain check.

    The first text of each group stands for the group, so that groups are exchangeable under the hypothesis.

    Args:
        check: the calibration texts.
        texts: (N,) texts, N ≥ 1.
        groups: (N,) group of each text; None if all are independent.
        novelty: (N,) `check.p_values(texts)`, if they are known already.
        permutations: number of permuted sides; the smallest p-value of the classifier is 1 / (permutations + 1).
        seed: random seed for permutations and samples.
    """
    p_values = check.p_values(texts) if novelty is None else novelty
    first = _first(group_index(groups, len(texts)))
    outside = int((p_values[first] <= check.limit).sum())
    spread = stats.betabinom(first.size, check.rank, check.groups + 1 - check.rank)
    # a single text outside says nothing about the others
    outside_p = float(spread.sf(outside - 1)) if outside > 1 and check.groups > 1 else 1.0
    rng = np.random.default_rng(seed)
    sides = [_sample(first, rng), _sample(_first(check.group), rng)]
    if min(side.size for side in sides) < FEWEST:
        return Exchangeability(outside_p, None, outside_p, None)
    asked = text_features([texts[at] for at in sides[0]])
    rows = [sparse.vstack([new, known[sides[1]]]) for new, known in zip(asked, check.features, strict=True)]
    label = np.arange(sides[0].size + sides[1].size) < sides[0].size
    labels = np.stack([label, *(rng.permutation(label) for _ in range(permutations))], axis=1)
    aucs = _aucs(_left_out_predictions(_gram(rows), labels), labels)
    p = float((aucs >= aucs[0] - 1e-12).mean())
    return Exchangeability(min(1.0, 2 * min(p, outside_p)), p, outside_p, float(aucs[0]))


def _first(group: IntArray) -> IntArray:
    """Place of the first text of each group."""
    return np.unique(group, return_index=True)[1]


def _sample(places: IntArray, rng: np.random.Generator) -> IntArray:
    return places if places.size <= MOST else np.sort(rng.choice(places, MOST, replace=False))


def _gram(counts: Sequence[sparse.csr_matrix]) -> FloatArray:
    """(N, N) centred scalar products of the texts, the mean of those by words and by characters."""
    parts = [TfidfTransformer(sublinear_tf=True).fit_transform(part) for part in counts]
    products = sum((part @ part.T).toarray() for part in parts) / len(parts)
    centred = products - products.mean(axis=0)
    return np.asarray(centred - centred.mean(axis=1, keepdims=True), dtype=np.float64)


def _left_out_predictions(gram: FloatArray, labels: BoolArray) -> FloatArray:
    """(N, P) labellings → (N, P) prediction for each text by ridge regression with intercept on all other texts.

    The smoother S does not depend on the labels, so that all labellings cost one product; leaving a text out is
    (Sy − s y) / (1 − s) with s the text's own diagonal element of S.
    """
    values, vectors = np.linalg.eigh(gram)
    values = np.maximum(values, 0.0)
    shrunk = values / (values + max(float(values.mean()), 1e-12))
    smoother = (vectors * shrunk) @ vectors.T + 1 / gram.shape[0]
    own = np.minimum(np.diag(smoother), 1 - 1e-9)[:, None]
    return np.asarray((smoother @ labels - own * labels) / (1 - own), dtype=np.float64)


def _aucs(scores: FloatArray, labels: BoolArray) -> FloatArray:
    """(N, P) scores and labels → (P,) AUC of each column."""
    count = labels.sum(axis=0)
    ranks = np.where(labels, stats.rankdata(scores, axis=0), 0.0).sum(axis=0)
    return np.asarray((ranks - count * (count + 1) / 2) / (count * (labels.shape[0] - count)), dtype=np.float64)
