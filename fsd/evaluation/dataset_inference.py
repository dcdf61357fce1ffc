"""Was this corpus in the training data? One answer for many texts of one source.

A single text rarely decides; a whole corpus does when its scores lie higher than those of matched texts known not to be
members (LLM Dataset Inference, Maini et al. 2024). Several detectors are weighed by what they show on one half of the
groups and tested on the other half, so that choosing them costs no error rate. The p-value counts how often shuffled
labels of whole groups do as well: right for every distribution of scores, if the two corpora are alike but for
membership. That "if" cannot be proved; a blind classifier can refute it, and then no verdict is given.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from scipy import stats

from fsd.errors import UsageError
from fsd.evaluation.audit import Control
from fsd.evaluation.intervals import BoolArray, Estimate, group_index
from fsd.token_stats import FloatArray, IntArray, Scores

FEWEST = 5
"""Groups on each side: with fewer, not even the clearest difference gives a p-value under .01."""

REFUSE_ABOVE = 0.6
"""No verdict where the blind classifier's AUC is surely above this: the two corpora differ without any model."""


@dataclass(frozen=True)
class CorpusVerdict:
    """Whether the suspect corpus scores higher than the known non-members.

    Attributes:
        p: one-sided p-value of the permutation test by group; None where a verdict is refused.
        p_split: one-sided p-value of Welch's t-test on the held-out half, as in LLM Dataset Inference; None likewise.
        difference: suspect minus known, in standard deviations of the weighed score on held-out groups.
        weights: detector → weight, ≥ 0, summing to 1.
        suspect_groups: number of independent texts of the suspect corpus.
        known_groups: likewise of the known non-members.
        blind: AUC of a classifier of words between the two corpora, None where none was given.
        reason: why no verdict is given, or empty.
    """

    p: float | None
    p_split: float | None
    difference: float
    weights: Mapping[str, float]
    suspect_groups: int
    known_groups: int
    blind: Estimate | None
    reason: str = ""


def corpus_verdict(
    suspect: Scores,
    known: Scores,
    *,
    suspect_groups: Sequence[str] | None = None,
    known_groups: Sequence[str] | None = None,
    blind: Control | None = None,
    permutations: int = 1999,
    seed: int = 0,
) -> CorpusVerdict:
    """Test whether the suspect corpus scores higher than matched texts known not to be members.

    Args:
        suspect: detector → (n,) scores of the suspect texts.
        known: detector → (m,) scores of the known non-members; the same detectors.
        suspect_groups: (n,) article, paper or book of each text; no group may be on both sides.
        known_groups: (m,) likewise.
        blind: `fsd.evaluation.audit.blind` of suspect and known texts in this order, suspect as True; its out-of-fold
            scores are regressed out of every detector before the test.
        permutations: shuffled labellings; the smallest p-value is 1 / (permutations + 1).
        seed: of the halves and the permutations.

    Raises:
        UsageError: for different detectors on the two sides, fewer than `FEWEST` groups on one, or a shared group.
    """
    names = _shared_detectors(suspect, known)
    group, first = _sides(suspect[names[0]].size, known[names[0]].size, suspect_groups, known_groups)
    table = np.stack([np.concatenate([suspect[name], known[name]]) for name in names], axis=1)
    rows = _standard(_group_means(table, group))
    if blind is not None and blind.scores is not None:
        rows = _standard(_residual(rows, _group_means(blind.scores[:, None], group)))
    rng = np.random.default_rng(seed)
    half = rng.permutation(first.size) % 2 == 0
    shuffled = np.stack([first, *(rng.permutation(first) for _ in range(permutations))])
    statistics, weights = _cross_fitted(rows, shuffled, half)
    reason = _refusal(blind)
    share = weights / weights.sum()
    return CorpusVerdict(
        p=None if reason else float((statistics >= statistics[0] - 1e-12).mean()),
        p_split=None if reason else _split_p(rows, first, half),
        difference=float(statistics[0]),
        weights={name: float(weight) for name, weight in zip(names, share, strict=True)},
        suspect_groups=int(first.sum()),
        known_groups=int((~first).sum()),
        blind=blind.auc if blind is not None else None,
        reason=reason,
    )


def _shared_detectors(suspect: Scores, known: Scores) -> list[str]:
    if not suspect or set(suspect) != set(known):
        raise UsageError(
            "both corpora must be scored by the same detectors; "
            f"got {', '.join(suspect) or 'none'} and {', '.join(known) or 'none'}"
        )
    return list(suspect)


def _sides(
    n: int, m: int, suspect_groups: Sequence[str] | None, known_groups: Sequence[str] | None
) -> tuple[IntArray, BoolArray]:
    """(n + m,) group of each text, and (G,) whether a group is of the suspect corpus."""
    both = set(suspect_groups or ()) & set(known_groups or ()) - {""}
    if both:
        raise UsageError(f"no group may be in both corpora; got {sorted(both)[0]!r} in both")
    left, right = group_index(suspect_groups, n), group_index(known_groups, m)
    sizes = [int(side.max(initial=-1)) + 1 for side in (left, right)]
    if min(sizes) < FEWEST:
        raise UsageError(
            f"a corpus must have at least {FEWEST} groups of texts on each side; "
            f"got {sizes[0]} suspect and {sizes[1]} known"
        )
    return np.concatenate([left, right + sizes[0]]), np.arange(sum(sizes)) < sizes[0]


def _group_means(values: FloatArray, group: IntArray) -> FloatArray:
    """(N, D) values of texts → (G, D) means of groups."""
    sizes = np.bincount(group)
    return np.stack([np.bincount(group, weights=column) / sizes for column in values.T], axis=1)


def _standard(rows: FloatArray) -> FloatArray:
    spread = rows.std(axis=0)
    return np.asarray((rows - rows.mean(axis=0)) / np.where(spread > 0, spread, 1.0), dtype=np.float64)


def _residual(rows: FloatArray, covariate: FloatArray) -> FloatArray:
    design = np.column_stack([np.ones(covariate.shape[0]), _standard(covariate)])
    return np.asarray(rows - design @ np.linalg.lstsq(design, rows, rcond=None)[0], dtype=np.float64)


def _gaps(rows: FloatArray, labels: BoolArray) -> FloatArray:
    """(G, D) rows and (P, G) labellings → (P, D) mean of the suspect side minus mean of the known side."""
    sides = labels.astype(np.float64)
    count = sides.sum(axis=1, keepdims=True)
    inside, outside = sides @ rows, (1 - sides) @ rows
    return np.asarray(inside / np.maximum(count, 1) - outside / np.maximum(labels.shape[1] - count, 1))


def _weights(gaps: FloatArray) -> FloatArray:
    """A detector weighs as much as it shows in the right direction; all alike where none shows any.

    Without that direction a corpus that scores *lower* would be called a member as well.
    """
    positive = np.maximum(gaps, 0.0)
    return np.where(positive.sum(axis=1, keepdims=True) > 0, positive, 1.0)


def _cross_fitted(rows: FloatArray, labels: BoolArray, half: BoolArray) -> tuple[FloatArray, FloatArray]:
    """(P,) standardised difference on held-out halves for each labelling, and (D,) weights of the first labelling."""
    covariance = np.atleast_2d(np.cov(rows.T, bias=True))
    total = np.zeros(labels.shape[0])
    used = np.zeros(rows.shape[1])
    for learn in (half, ~half):
        weights = _weights(_gaps(rows[learn], labels[:, learn]))
        spread = np.sqrt(np.einsum("pd,de,pe->p", weights, covariance, weights))
        found = (weights * _gaps(rows[~learn], labels[:, ~learn])).sum(axis=1)
        total += np.divide(found, spread, out=np.zeros_like(found), where=spread > 0) / 2
        used += weights[0] / weights[0].sum()
    return total, used


def _split_p(rows: FloatArray, first: BoolArray, half: BoolArray) -> float | None:
    weights = _weights(_gaps(rows[half], first[None, half]))[0]
    score = rows[~half] @ weights
    sides = score[first[~half]], score[~first[~half]]
    if any(side.size < 2 or side.std() == 0 for side in sides):
        return None
    return float(stats.ttest_ind(*sides, equal_var=False, alternative="greater").pvalue)


def _refusal(blind: Control | None) -> str:
    if blind is None or blind.auc is None or blind.auc.low <= REFUSE_ABOVE:
        return ""
    return (
        f"a blind classifier of words tells the two corpora apart with AUC {blind.auc}: they differ in more than "
        "membership; choose known non-members of the same source, time and kind"
    )
