"""Dataset inference: was this data set, as a whole, in the training data?

A single text rarely decides; a data set does when its scores are higher than those of matched texts known to be
non-members (LLM Dataset Inference, Maini et al. 2024, https://arxiv.org/abs/2406.06443). As in the paper, the detectors
are weighted on one half of the texts and tested on the other; here both halves serve in turn, and the p-value comes
from permuting the labels of whole groups. It is valid if the two sets differ in membership alone, which a blind
classifier can refute.
"""

import math
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.stats import betabinom

from fsd.errors import UsageError
from fsd.evaluation.audit import Control
from fsd.evaluation.metrics import LEVEL, BoolArray, Estimate, group_index, group_means
from fsd.token_stats import FloatArray, IntArray, Scores

FEWEST = 5
"""Smallest number of groups in each set; with fewer, not even perfect separation gives a p-value below .01."""
SPLIT = 0.5
"""Quantile of the known scores below which the share that was used is estimated."""
REFUSE_ABOVE = 0.6
"""No p-value if the interval of the blind classifier's AUC is above this: the sets differ without any model."""


@dataclass(frozen=True)
class DatasetVerdict:
    """Result of the test that the suspect set scores higher than the known non-members."""

    p: float | None  # one-sided, by group; None if it is withheld, for a reason
    difference: float  # of the means on held-out groups, in standard deviations of the weighted score
    weights: Mapping[str, float]  # of detectors, which sum to 1
    suspect_groups: int
    known_groups: int
    blind: Estimate | None
    reason: str = ""
    share: Estimate | None = None  # of the suspect groups which were used, see `share_used`


def share_used(suspect: FloatArray, known: FloatArray) -> Estimate:
    """Share of a set that the model was trained on, with a 95 % interval, by Storey's estimate.

    Of the texts that were not used, the share `SPLIT` scores no higher than that quantile of the known non-members. So
    the number of suspect texts there tells how many were not used (Storey 2002,
    https://doi.org/10.1111/1467-9868.00346). Used texts that score as low are taken for unused ones: the estimate and
    the lower end of the interval are conservative, and the upper end holds only if there are few of these. The interval
    is exact for independent texts, since the number is then beta-binomial: the quantile itself is one of a sample.

    Args:
        suspect: (n,) scores of independent texts, higher for members.
        known: (m,) scores of independent non-members that differ from the suspect texts in membership alone.

    Raises:
        UsageError: if one of them is empty.
    """
    if not (suspect.size and known.size):
        raise UsageError(f"both sets must have texts; got {suspect.size} suspect and {known.size} known")
    rank = math.ceil(SPLIT * known.size)
    low = int((suspect <= np.sort(known)[rank - 1]).sum())
    unused = np.arange(suspect.size + 1)
    counts = betabinom(unused, rank, known.size + 1 - rank)
    at_most, at_least = counts.cdf(low), counts.sf(low - 1)
    tail = (1 - LEVEL) / 2
    most = int(unused[at_most >= tail].max())
    fewest = int(unused[at_least >= tail].min(initial=most))
    value = 1 - low / suspect.size * (known.size + 1) / rank
    ends = (1 - most / suspect.size, 1 - fewest / suspect.size)
    return Estimate(float(np.clip(value, *ends)), *ends)


def dataset_verdict(
    suspect: Scores,
    known: Scores,
    *,
    suspect_groups: Sequence[Hashable] | None = None,
    known_groups: Sequence[Hashable] | None = None,
    blind: Control | None = None,
    permutations: int = 1999,
    seed: int = 0,
) -> DatasetVerdict:
    """Test whether the suspect set scores higher than matched texts known to be non-members.

    Both have (n,) scores by the same detectors, and groups of at least `FEWEST` names, of which none may occur in both
    sets. The scores of `blind`, that is `fsd.evaluation.audit.blind` of the suspect texts (labelled True) followed by
    the known ones, are regressed out of every detector before the test.
    """
    if not suspect or set(suspect) != set(known):
        raise UsageError(
            "both data sets must be scored by the same detectors; "
            f"got {', '.join(suspect) or 'none'} and {', '.join(known) or 'none'}"
        )
    names = list(suspect)
    group, first = _sides(suspect[names[0]].size, known[names[0]].size, suspect_groups, known_groups)
    table = np.stack([np.concatenate([suspect[name], known[name]]) for name in names], axis=1)
    rows = _standard(group_means(table, group))
    if blind is not None and blind.scores is not None:
        design = np.column_stack([np.ones(len(rows)), _standard(group_means(blind.scores[:, None], group))])
        rows = _standard(rows - design @ np.linalg.lstsq(design, rows, rcond=None)[0])
    rng = np.random.default_rng(seed)
    half = rng.permutation(first.size) % 2 == 0
    shuffled = np.stack([first, *(rng.permutation(first) for _ in range(permutations))])
    statistics, weights, score = _cross_fitted(rows, shuffled, half)
    separated = blind.auc if blind is not None else None
    reason = ""
    if separated is not None and separated.low > REFUSE_ABOVE:
        reason = (
            f"a classifier that never sees the model separates the two data sets with AUC {separated}: they differ "
            "in more than membership; choose known non-members of the same source, time and kind"
        )
    return DatasetVerdict(
        p=None if reason else float((statistics >= statistics[0] - 1e-12).mean()),
        difference=float(statistics[0]),
        weights=dict(zip(names, (weights / weights.sum()).tolist(), strict=True)),
        suspect_groups=int(first.sum()),
        known_groups=int((~first).sum()),
        blind=separated,
        reason=reason,
        share=None if reason else share_used(score[first], score[~first]),
    )


def _sides(
    n: int, m: int, suspect_groups: Sequence[Hashable] | None, known_groups: Sequence[Hashable] | None
) -> tuple[IntArray, BoolArray]:
    """(n + m,) group of each text, and (G,) True for groups of the suspect set."""
    both = set(suspect_groups or ()) & set(known_groups or ()) - {""}
    if both:
        raise UsageError(f"a group must not be in both data sets; got {min(both, key=str)!r} in both")
    left, right = group_index(suspect_groups, n), group_index(known_groups, m)
    sizes = [int(side.max(initial=-1)) + 1 for side in (left, right)]
    if min(sizes) < FEWEST:
        raise UsageError(
            f"each data set must have at least {FEWEST} groups of texts; got {sizes[0]} suspect and {sizes[1]} known"
        )
    return np.concatenate([left, right + sizes[0]]), np.arange(sum(sizes)) < sizes[0]


def _standard(rows: FloatArray) -> FloatArray:
    spread = rows.std(axis=0)
    return np.asarray((rows - rows.mean(axis=0)) / np.where(spread > 0, spread, 1.0), dtype=np.float64)


def _gaps(rows: FloatArray, labels: BoolArray) -> FloatArray:
    """(G, D) rows and (P, G) labellings → (P, D) mean of the suspect set minus mean of the known set."""
    sides = labels.astype(np.float64)
    count = sides.sum(axis=1, keepdims=True)
    inside, outside = sides @ rows, (1 - sides) @ rows
    return np.asarray(inside / np.maximum(count, 1) - outside / np.maximum(labels.shape[1] - count, 1))


def _cross_fitted(rows: FloatArray, labels: BoolArray, half: BoolArray) -> tuple[FloatArray, FloatArray, FloatArray]:
    """(P,) standardised difference on held-out halves for each labelling; of the first, (D,) weights and (G,) scores.

    The scores are those of a held-out half, standardised by its known groups.
    """
    covariance = np.atleast_2d(np.cov(rows.T, bias=True))
    total = np.zeros(labels.shape[0])
    used, score = np.zeros(rows.shape[1]), np.zeros(len(rows))
    for fit in (half, ~half):
        # a data set that scores lower is no evidence of membership; equal weights if no gap is positive
        positive = np.maximum(_gaps(rows[fit], labels[:, fit]), 0.0)
        weights = np.where(positive.sum(axis=1, keepdims=True) > 0, positive, 1.0)
        spread = np.sqrt(np.einsum("pd,de,pe->p", weights, covariance, weights))
        gap = (weights * _gaps(rows[~fit], labels[:, ~fit])).sum(axis=1)
        total += np.divide(gap, spread, out=np.zeros_like(gap), where=spread > 0) / 2
        used += weights[0] / weights[0].sum()
        own = rows @ weights[0]
        others = own[~fit & ~labels[0]] if (~fit & ~labels[0]).any() else own
        score[~fit] = (own[~fit] - others.mean()) / (others.std() or 1.0)
    return total, used, score
