"""Dataset inference: was this data set, as a whole, in the training data?

A single text rarely decides; a data set does when its scores are higher than those of matched texts known to be
non-members (LLM Dataset Inference, Maini et al. 2024, https://arxiv.org/abs/2406.06443). As in the paper, the detectors
are weighted on one half of the texts and tested on the other; here both halves serve in turn, and the p-value comes
from permuting the labels of whole groups, each of as many texts as the smallest has. It is valid if the two sets differ
in membership alone, which a blind classifier can refute.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.random import default_rng
from scipy.stats import betabinom

from fsd.data.corpus import as_corpus
from fsd.data.documents import Documents
from fsd.errors import UsageError
from fsd.scores import rows_of
from fsd.statistics.conformal import conformal_p
from fsd.statistics.groups import Groups, evenly, group_index, group_means
from fsd.statistics.intervals import CONFIDENCE, Estimate
from fsd.statistics.permutation import permutation_p, permuted
from fsd.text_audit.audit import controls
from fsd.text_audit.audited import Control
from fsd.token_stats import BoolArray, FloatArray, IntArray, Scores

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
    group_p: Sequence[float] = ()  # of each suspect group in order of appearance: its rank among the known ones


def share_used(suspect: FloatArray, nonmembers: FloatArray) -> Estimate:
    """Share of a set that the model was trained on, with a 95 % interval, by Storey's estimate.

    Of the texts that were not used, the share `SPLIT` scores no higher than that quantile of the known non-members. So
    the number of suspect texts there tells how many were not used (Storey 2002,
    https://doi.org/10.1111/1467-9868.00346). Used texts that score as low are taken for unused ones: the estimate and
    the lower end of the interval are conservative, and the upper end holds only if there are few of these. The interval
    is exact for independent texts, since the number is then beta-binomial: the quantile itself is one of a sample.

    Args:
        suspect: (n,) scores of independent texts, higher for members.
        nonmembers: (m,) scores of independent texts that differ from the suspect ones in membership alone.
    """
    rank = math.ceil(SPLIT * nonmembers.size)
    low = (suspect <= np.sort(nonmembers)[rank - 1]).sum()
    unused = np.arange(suspect.size + 1)
    counts = betabinom(unused, rank, nonmembers.size + 1 - rank)
    tail = (1 - CONFIDENCE) / 2
    most = int(unused[counts.cdf(low) >= tail].max())
    fewest = int(unused[counts.sf(low - 1) >= tail].min(initial=most))
    value = 1 - low / suspect.size * (nonmembers.size + 1) / rank
    lower = 1 - most / suspect.size
    upper = 1 - fewest / suspect.size
    return Estimate(float(np.clip(value, lower, upper)), lower, upper)


def compare_sets(
    suspect: Documents, nonmembers: Documents, scores: Scores, *, seed: int
) -> tuple[DatasetVerdict, dict[str, Control]]:
    """Test whether a data set scores higher than known non-members, beside what the texts show without the model.

    Args:
        suspect: N texts, none of them related to a known non-member, see `fsd.data.related.refuse_related`.
        nonmembers: M texts.
        scores: detector → (N + M,) scores of both, those of the data set before the others.
        seed: of the permutations and the controls.

    Returns:
        The verdict and `fsd.text_audit.audit.controls`, of which the blind classifier is regressed out.

    Raises:
        UsageError: as for `dataset_verdict`.
    """
    count = len(suspect)
    suspect_family = as_corpus(suspect).family.tolist()
    # Families of the two sides are numbered apart: none is in both.
    nonmember_family = (count + as_corpus(nonmembers).family).tolist()
    is_suspect = np.arange(count + len(nonmembers)) < count
    documents = list(suspect) + list(nonmembers)
    without_model = controls(documents, is_suspect, suspect_family + nonmember_family, seed=seed)
    verdict = dataset_verdict(
        rows_of(scores, is_suspect),
        rows_of(scores, ~is_suspect),
        suspect_groups=suspect_family,
        known_groups=nonmember_family,
        blind=without_model["blind"],
        seed=seed,
    )
    return verdict, without_model


def dataset_verdict(
    suspect: Scores,
    nonmembers: Scores,
    *,
    suspect_groups: Groups = None,
    known_groups: Groups = None,
    blind: Control | None = None,
    permutations: int = 1999,
    seed: int = 0,
) -> DatasetVerdict:
    """Test whether the suspect set scores higher than matched texts known to be non-members.

    Both have (n,) scores by the same detectors, and groups of at least `FEWEST` names, of which none may occur in both
    sets. The scores of `blind`, that is `fsd.text_audit.audit.blind` of the suspect texts (labelled True) followed by
    the known ones, are regressed out of every detector before the test.

    Groups of unequal size count with as many of their texts as the smallest has: means of fewer texts scatter more, so
    that a set of small groups would often score higher by chance.
    """
    columns = [np.concatenate([scores, nonmembers[name]]) for name, scores in suspect.items()]
    n_suspect = next(iter(suspect.values())).size
    group, is_suspect = _sides(n_suspect, columns[0].size - n_suspect, suspect_groups, known_groups)
    # by a generator of its own: equal groups leave none out, and the draws below are as ever
    kept = evenly(group, default_rng(seed))
    group = group[kept]
    rows = _standard(group_means(np.stack(columns, axis=1)[kept], group))
    blind_auc = None
    if blind is not None:
        blind_auc = blind.auc
        if blind.scores is not None:
            # what the words alone tell of a text must not count as membership
            rows = _unexplained(rows, group_means(blind.scores[kept, None], group))
    rng = default_rng(seed)
    half = rng.permutation(is_suspect.size) % 2 == 0
    differences, weights, score = _cross_fitted(rows, np.stack(permuted(is_suspect, permutations, rng)), half)
    p = None
    share = None
    group_p: Sequence[float] = ()
    reason = ""
    if blind_auc is not None and blind_auc.low > REFUSE_ABOVE:
        reason = (
            f"a classifier that never sees the model separates the two data sets with AUC {blind_auc}: they "
            "differ in more than membership; choose known non-members of the same source, time and kind"
        )
    else:
        p = permutation_p(differences)
        share = share_used(score[is_suspect], score[~is_suspect])
        group_p = conformal_p(score[is_suspect], score[~is_suspect]).tolist()
    weights /= weights.sum()
    n_suspect_groups = int(is_suspect.sum())
    return DatasetVerdict(
        p=p,
        difference=float(differences[0]),
        weights=dict(zip(suspect, weights.tolist(), strict=True)),
        suspect_groups=n_suspect_groups,
        known_groups=is_suspect.size - n_suspect_groups,
        blind=blind_auc,
        reason=reason,
        share=share,
        group_p=group_p,
    )


def check_sizes(suspect: int, nonmembers: int) -> None:
    """Refuse sides of too few groups to be compared."""
    if min(suspect, nonmembers) < FEWEST:
        raise UsageError(
            f"each data set must have at least {FEWEST} groups of texts; got {suspect} suspect and {nonmembers} known"
        )


def _sides(n: int, m: int, suspect_groups: Groups, known_groups: Groups) -> tuple[IntArray, BoolArray]:
    """(n + m,) group of each text, and (G,) True for groups of the suspect set."""
    both = set(suspect_groups or ()) & set(known_groups or ()) - {""}
    if both:
        raise UsageError(f"a group must not be in both data sets; got {min(both, key=str)!r} in both")
    suspect = group_index(suspect_groups, n)
    nonmembers = group_index(known_groups, m)
    n_suspect = suspect.max(initial=-1) + 1
    n_known = nonmembers.max(initial=-1) + 1
    check_sizes(n_suspect, n_known)
    group = np.concatenate([suspect, nonmembers + n_suspect])
    return group, np.arange(n_suspect + n_known) < n_suspect


def _unexplained(rows: FloatArray, by: FloatArray) -> FloatArray:
    """(G, D) standardised residuals of the least-squares fit of rows by a constant and a (G, 1) column."""
    constant = np.ones(len(rows))
    design = np.column_stack([constant, _standard(by)])
    coefficients, *_ = np.linalg.lstsq(design, rows, rcond=None)
    return _standard(rows - design @ coefficients)


def _standard(rows: FloatArray) -> FloatArray:
    """Columns of mean 0 and standard deviation 1; a constant one is 0."""
    spread = rows.std(axis=0)
    scale = np.where(spread > 0, spread, 1.0)
    standard: FloatArray = (rows - rows.mean(axis=0)) / scale
    return standard


def _gaps(rows: FloatArray, labels: BoolArray) -> FloatArray:
    """(G, D) rows and (P, G) labellings → (P, D) mean of the suspect set minus mean of the known set."""
    suspect = labels.astype(np.float64)
    n_suspect = suspect.sum(axis=1, keepdims=True)
    n_known = labels.shape[1] - n_suspect
    # a half may have no group of a side
    of_suspect = suspect @ rows / np.maximum(n_suspect, 1)
    of_known = (1 - suspect) @ rows / np.maximum(n_known, 1)
    gaps: FloatArray = of_suspect - of_known
    return gaps


def _cross_fitted(rows: FloatArray, labels: BoolArray, half: BoolArray) -> tuple[FloatArray, FloatArray, FloatArray]:
    """(P,) standardised difference on held-out halves for each labelling; of the first, (D,) weights and (G,) scores.

    The scores are those of a held-out half, standardised by its known groups.
    """
    covariance = np.atleast_2d(np.cov(rows.T, bias=True))
    differences = np.zeros(labels.shape[0])
    observed_weights = np.zeros(rows.shape[1])
    score = np.zeros(len(rows))
    # weights that are tested on the groups that they were fitted to would favour the suspect set
    for fit in (half, ~half):
        held_out = ~fit
        # a data set that scores lower is no evidence of membership; equal weights if no gap is positive
        positive = np.maximum(_gaps(rows[fit], labels[:, fit]), 0.0)
        weights = np.where(positive.sum(axis=1, keepdims=True) > 0, positive, 1.0)
        # the standard deviation of the weighted score, √(wᵀ Σ w)
        spread = np.sqrt(np.einsum("pd,de,pe->p", weights, covariance, weights))
        gap = (weights * _gaps(rows[held_out], labels[:, held_out])).sum(axis=1)
        standardised = np.divide(gap, spread, out=np.zeros_like(gap), where=spread > 0)
        differences += standardised / 2
        observed = weights[0]
        observed_weights += observed / observed.sum()
        weighted = rows @ observed
        of_known = weighted[held_out & ~labels[0]]
        # a held-out half may have no known group
        if not of_known.size:
            of_known = weighted
        score[held_out] = (weighted[held_out] - of_known.mean()) / (of_known.std() or 1.0)
    return differences, observed_weights, score
