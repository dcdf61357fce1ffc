"""Conformal calibration: from a score to a p-value and a decision threshold at a chosen false-positive rate.

The conformal p-value of a score is the share of held-out non-members that score at least as high (Bates et al. 2023,
https://arxiv.org/abs/2104.08279). It is valid for any distribution of scores, provided that the new text, if it is not
a member, is exchangeable with the calibration texts; `DomainCheck` and `exchangeability` look for texts that are not.

The detector is chosen on the texts that calibrate it. So the choice is repeated with each new text counted among the
non-members, and the p-value by the detector then chosen is valid (Liang, Zhu and Barber 2024,
https://arxiv.org/abs/2408.07066).
"""

import json
import math
from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Annotated, Any

import numpy as np
from numpy.typing import ArrayLike
from pydantic import AfterValidator, Field
from scipy import stats

from fsd.errors import UsageError
from fsd.evaluation.domain_check import Reference
from fsd.evaluation.metrics import LEVEL, BoolArray, Estimate, auc, group_index, group_means
from fsd.token_stats import FloatArray, Scores

TOLERANCE = 1e-9
"""Amount by which a p-value may exceed the target rate, so that 1/20 and .05 compare as equal."""
VERSION = 4
"""Version of the JSON that `Calibration.to_json` writes, and of what its scores mean."""
Finite = Annotated[float, Field(allow_inf_nan=False)]


def _current(version: int) -> int:
    if version != VERSION:
        raise ValueError(f"got version {version}: register the adapter again with fsd run --adapter or adapter-audit")
    return version


@dataclass(frozen=True)
class Candidate:
    """A detector that a new text can make the best one: (n,) and (m,) scores, and (G,) means of families of the n."""

    detector: str
    settings: Mapping[str, Any]
    scores: tuple[Finite, ...]
    members: tuple[Finite, ...]
    means: tuple[Finite, ...]

    def wins(self, scores: FloatArray) -> FloatArray:
        """(N,) AUC times m (G + 1), with each text among the non-members."""
        members = np.sort(self.members)

        def below(others: ArrayLike) -> FloatArray:
            sides = [np.searchsorted(members, others, side=side) for side in ("left", "right")]
            return np.asarray(members.size - (sides[0] + sides[1]) / 2)

        return np.asarray(below(self.means).sum() + below(scores), dtype=np.float64)


@dataclass(frozen=True)
class Calibration:
    """Scores of n held-out non-members that turn a detector's score into a p-value; saved with the registered model."""

    version: Annotated[int, AfterValidator(_current)] = field(default=VERSION, kw_only=True)
    detector: str
    state: Annotated[str, Field(pattern="^(fsd|calibrated)$")]  # calibrated: fine-tuned minus base scores
    candidates: tuple[Candidate, ...]  # the detector that was chosen, and those that one more non-member can prefer
    families: tuple[int, ...]  # (n,)
    collections: tuple[str, ...]  # (n,) sources
    reference: Reference  # all non-members of the benchmark, for the domain check

    def __post_init__(self) -> None:
        if self.detector not in {candidate.detector for candidate in self.candidates}:
            raise UsageError(f"candidates must hold the detector {self.detector!r}; they do not")
        sizes = {len(self.families), len(self.collections), *(len(one.scores) for one in self.candidates)}
        of = self.reference
        if max(len(sizes), len({len(of.texts), len(of.families), len(of.collections)})) > 1:
            raise UsageError("families and collections must be as many as scores, and as the texts of the reference")

    def of(self, collection: str) -> "Calibration":
        """The calibration by the non-members of one source; the choice of the detector rests on those of all."""
        at = [at for at, name in enumerate(self.collections) if name == collection]
        return replace(
            self,
            candidates=tuple(replace(one, scores=tuple(one.scores[n] for n in at)) for one in self.candidates),
            families=tuple(self.families[n] for n in at),
            collections=(collection,) * len(at),
        )

    @property
    def chosen(self) -> Candidate:
        """The candidate that was chosen on validation."""
        return next(candidate for candidate in self.candidates if candidate.detector == self.detector)

    @property
    def settings(self) -> Mapping[str, Any]:
        """Settings of the detector that was chosen."""
        return self.chosen.settings

    @property
    def groups(self) -> int:
        """G, the number of independent groups of non-members in the calibration set."""
        return len(set(self.families))

    @property
    def source_groups(self) -> dict[str, int]:
        """Source → number of independent groups of its non-members."""
        return dict(Counter(name for name, _ in {*zip(self.collections, self.families, strict=True)}))

    @property
    def finest(self) -> float:
        """The smallest false-positive rate that G groups support, 1 / (G + 1)."""
        return 1 / (self.groups + 1)

    def p_values(self, scores: ArrayLike | Scores, sources: Sequence[str] | None = None) -> FloatArray:
        """(N,) conformal p-values: (1 + Σ_groups share of the group's scores ≥ s) / (G + 1).

        One vote a group keeps P(p ≤ α) ≤ α for any text of a new group (Lee, Barber and Willett 2023,
        https://arxiv.org/abs/2306.06342). `scores` are (N,) by every candidate, of which that serves which is best with
        the text among the non-members; or by the chosen detector alone, as if it was fixed in advance. A text is judged
        by the non-members of its own of the (N,) `sources`, NaN without any; by all for None.
        """
        if sources is not None:
            assert isinstance(scores, Mapping)
            found = np.full(len(sources), np.nan)
            for name in self.source_groups:
                own = np.array([source == name for source in sources], dtype=bool)
                found[own] = self.of(name).p_values({detector: column[own] for detector, column in scores.items()})
            return found
        if not isinstance(scores, Mapping):
            return self._p_values(self.chosen, np.asarray(scores, dtype=np.float64))
        pairs = [(one, np.asarray(scores[one.detector], dtype=np.float64)) for one in self.candidates]
        best = np.argmax([one.wins(column) for one, column in pairs], axis=0)
        return np.asarray(np.choose(best, [self._p_values(one, column) for one, column in pairs]))

    def _p_values(self, candidate: Candidate, scores: FloatArray) -> FloatArray:
        order = np.argsort(candidate.scores, kind="stable")
        family = np.unique(self.families, return_inverse=True)[1]
        weights = (1 / np.bincount(family))[family][order]
        above = np.append(np.cumsum(weights[::-1])[::-1], 0.0)
        place = np.searchsorted(np.asarray(candidate.scores)[order], scores, side="left")
        p_values = (1 + above[place]) / (self.groups + 1)
        return np.asarray(np.minimum(p_values, 1.0), dtype=np.float64)  # shares of a group add up to 1 but for rounding

    def threshold_at(self, fpr: float) -> float:
        """The smallest threshold for which `score ≥ threshold` is equivalent to p ≤ `fpr` by the chosen detector."""
        if not self.finest - TOLERANCE <= fpr < 1:
            sources = " and ".join(sorted(map(repr, {*self.collections} - {""})))
            raise UsageError(
                f"fpr must be at least {self.finest:.4g} = 1/({self.groups}+1), with {self.groups} groups of "
                f"held-out non-members{sources and f' of {sources}'}, and below 1; got {fpr:g}"
            )
        steps = np.unique(self.chosen.scores)
        just_above = np.append(-math.inf, np.nextafter(steps, np.inf))
        allowed = self.p_values(np.append(steps[0], just_above[1:])) <= fpr + TOLERANCE
        return float(just_above[np.argmax(allowed)])

    def rate(self, fpr: float) -> Estimate:
        """Mean and prediction interval of the false-positive rate of the threshold for `fpr`.

        It is Beta(r, G + 1 − r) with r = ⌊fpr · (G + 1)⌋, or lower with ties (Vovk 2012,
        https://arxiv.org/abs/1209.2673).
        """
        self.threshold_at(fpr)
        spread = stats.beta(*self._beta_parameters(fpr))
        return Estimate(float(spread.mean()), *map(float, spread.ppf([(1 - LEVEL) / 2, (1 + LEVEL) / 2])))

    def false_alarms(self, fpr: float, texts: int) -> int:
        """95 % quantile of the number of false positives among `texts` non-members, which share one threshold."""
        return int(stats.betabinom(texts, *self._beta_parameters(fpr)).ppf(LEVEL))

    def _beta_parameters(self, fpr: float) -> tuple[int, int]:
        rank = math.floor((fpr + TOLERANCE) * (self.groups + 1))
        return rank, self.groups + 1 - rank

    def to_json(self) -> str:
        """The calibration as JSON text, with numbers in full precision."""
        return json.dumps(asdict(self), ensure_ascii=False, allow_nan=False)


def calibrate(
    labels: Sequence[bool],
    scores: Scores,
    groups: Sequence[Hashable] | None = None,
    *,
    reference: Reference,
    collections: Sequence[str] | None = None,
    settings: Mapping[str, Mapping[str, Any]] | None = None,
) -> Calibration:
    """Calibrate the detector with the highest AUC of all in `scores` on the non-members among N validation texts."""
    member = np.asarray(labels, dtype=bool)
    if member.all():
        raise UsageError(f"calibration must have held-out non-members; got {member.size} texts, all members")
    index = group_index(groups, member.size)
    aucs = family_aucs(member, scores, index.tolist())
    best = max(aucs, key=lambda name: aucs[name])
    # one more family of non-members adds at most one win for each member
    families, family = np.unique(index[~member], return_inverse=True)
    slack = 1 / families.size + TOLERANCE
    candidates = [
        Candidate(
            name,
            dict((settings or {}).get(name, {})),
            scores=tuple(column[~member].tolist()),
            members=tuple(column[member].tolist()),
            means=tuple(group_means(column[~member], family).tolist()),
        )
        for name, column in scores.items()
        if aucs[name] >= aucs[best] - slack
    ]
    sources = np.array(collections or [""] * member.size)[~member]
    return Calibration(
        best, "fsd", tuple(candidates), tuple(index[~member].tolist()), tuple(sources.tolist()), reference
    )


def family_aucs(labels: ArrayLike, scores: Scores, groups: Sequence[Hashable] | None = None) -> dict[str, float]:
    """Detector → AUC between (N,) members and families of non-members, each by its mean score; .5 without members."""
    member = np.asarray(labels, dtype=bool)
    if not member.any():
        return dict.fromkeys(scores, 0.5)
    families, family = np.unique(group_index(groups, member.size)[~member], return_inverse=True)
    sides = np.arange(int(member.sum()) + families.size) >= families.size
    return {
        name: auc(sides, np.concatenate([group_means(column[~member], family), column[member]]))
        for name, column in scores.items()
    }


def observed_rate(called: BoolArray, groups: Sequence[Hashable] | None = None) -> Estimate:
    """Share of N ≥ 1 texts for which `called` is true, with an exact interval that accounts for groups.

    It is Clopper and Pearson's at the effective sample size of Korn and Graubard (1998, Survey Methodology 24(2),
    193-201): n over the factor by which grouping inflates the variance; the number of groups if all texts agree.
    """
    group = group_index(groups, called.size)
    share, size = float(called.mean()), float(group.max() + 1)
    if 0 < share < 1 and 1 < size < called.size:
        sums = np.bincount(group, weights=called - share)
        variance = size / (size - 1) * float(sums @ sums) / called.size**2
        size = min(called.size, max(1.0, share * (1 - share) / max(variance, 1e-12) + 1))
    hits, misses = share * size, (1 - share) * size
    low = float(stats.beta.ppf((1 - LEVEL) / 2, hits, misses + 1)) if hits > 0 else 0.0
    high = float(stats.beta.ppf((1 + LEVEL) / 2, hits + 1, misses)) if misses > 0 else 1.0
    return Estimate(share, low, high)
