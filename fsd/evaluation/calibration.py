"""Conformal calibration: from a score to a p-value and a decision threshold at a chosen false-positive rate.

The conformal p-value of a score is the share of held-out non-members that score at least as high (Bates et al. 2023,
https://arxiv.org/abs/2104.08279). It is valid for any distribution of scores, provided that the new text, if it is not
a member, is exchangeable with the calibration texts; `DomainCheck` and `exchangeability` look for texts that are not.

The score is chosen on the texts that calibrate it. So the choice is repeated with each new text counted among the
non-members, and the p-value by the score then chosen is valid (Liang, Zhu and Barber 2024,
https://arxiv.org/abs/2408.07066).
"""

import json
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import compress
from typing import Annotated, Any

import numpy as np
from numpy.typing import ArrayLike
from pydantic import AfterValidator, Field, TypeAdapter
from scipy import stats

from fsd.errors import UsageError
from fsd.evaluation.domain_check import Reference, Sources
from fsd.scores import BASE, CALIBRATED, FSD, TUNED, Score, ScoreColumns
from fsd.statistics.groups import Groups, group_index, group_means
from fsd.statistics.intervals import CONFIDENCE, LOWER, UPPER, Estimate
from fsd.statistics.metrics import auc
from fsd.token_stats import FloatArray

TOLERANCE = 1e-9
"""Amount by which a p-value may exceed the target rate, so that 1/20 and .05 compare as equal."""
FEWEST_CALIBRATED = 10
"""Smallest number of groups of calibration non-members of a named source on whose texts verdicts are given."""
VERSION = 7
"""Version of the JSON that `Calibration.to_json` writes, and of what its scores mean."""
Values = tuple[Annotated[float, Field(allow_inf_nan=False)], ...]
Settings = Mapping[str, Any]


def _current(version: int) -> int:
    if version != VERSION:
        raise ValueError(f"got version {version}: register the adapter again with fsd run --adapter or adapter-audit")
    return version


@dataclass(frozen=True)
class Candidate:
    """A score that a new text can make the best one, with its values on the calibration texts.

    `scores` are those of the n non-members, `means` those of their G families, and `members` those of the m members.
    """

    detector: str
    state: Annotated[str, Field(pattern=f"^({BASE}|{FSD}|{TUNED}|{CALIBRATED})$")]
    settings: Settings
    scores: Values
    members: Values
    means: Values

    @property
    def score(self) -> Score:
        """The score by its name."""
        return Score(self.detector, self.state)

    def wins(self, scores: FloatArray) -> FloatArray:
        """(N,) AUC times m (G + 1), with each text among the non-members."""
        members = np.sort(self.members)

        def members_above(scores: ArrayLike) -> FloatArray:
            # ties count half
            below = np.searchsorted(members, scores, side="left")
            up_to = np.searchsorted(members, scores, side="right")
            return members.size - (below + up_to) / 2

        return np.asarray(members_above(self.means).sum() + members_above(scores))


@dataclass(frozen=True)
class Calibration:
    """Values of n held-out non-members that turn a score into a p-value; saved with the registered model."""

    version: Annotated[int, AfterValidator(_current)] = field(default=VERSION, kw_only=True)
    detector: str
    state: str
    candidates: tuple[Candidate, ...]  # the score that was chosen, and those that one more non-member can prefer
    families: tuple[int, ...]  # (n,)
    sources: Sources  # (n,)
    reference: Reference  # all non-members of the benchmark, for the domain check

    def __post_init__(self) -> None:
        if self.score not in [candidate.score for candidate in self.candidates]:
            raise UsageError(f"candidates must hold the score {str(self.score)!r}; they do not")
        sizes = {len(self.families), len(self.sources)}
        for candidate in self.candidates:
            sizes.add(len(candidate.scores))
        reference = self.reference
        reference_sizes = {len(reference.texts), len(reference.families), len(reference.sources)}
        if len(sizes) > 1 or len(reference_sizes) > 1:
            raise UsageError("families and collections must be as many as scores, and as the texts of the reference")

    @property
    def score(self) -> Score:
        """The score that was chosen on validation."""
        return Score(self.detector, self.state)

    def of(self, source: str) -> "Calibration":
        """The calibration by the non-members of one source; the choice of the score rests on those of all."""
        is_own = [name == source for name in self.sources]
        candidates = [
            replace(candidate, scores=tuple(compress(candidate.scores, is_own))) for candidate in self.candidates
        ]
        return replace(
            self,
            candidates=tuple(candidates),
            families=tuple(compress(self.families, is_own)),
            sources=(source,) * sum(is_own),
        )

    def judging(self, sources: Sequence[str]) -> list[str]:
        """(N,) source by whose non-members each text is judged: its own, or "" where the calibration names none."""
        # a calibration without named sources serves texts of any: the domain check judges these
        return list(sources) if any(self.sources) else [""] * len(sources)

    def unknown(self, source: str) -> str:
        """Why no text of a source can be judged; "" if it can."""
        counts = self.source_families
        if source not in counts:
            calibrated_on = ", ".join(sorted(name or "texts without a source" for name in counts))
            subject = f"source {source!r}" if source else "a text without a source"
            return f"{subject} is unknown to the adapter, which was calibrated on {calibrated_on}"
        if source and counts[source] < FEWEST_CALIBRATED:
            return (
                f"source {source!r} must have at least {FEWEST_CALIBRATED} groups of calibration non-members; "
                f"it has {counts[source]}"
            )
        return ""

    @property
    def judged(self) -> list[str]:
        """The sources on whose texts verdicts can be given."""
        return [source for source in self.source_families if not self.unknown(source)]

    @property
    def chosen(self) -> Candidate:
        """The candidate that was chosen on validation."""
        return next(candidate for candidate in self.candidates if candidate.score == self.score)

    @property
    def settings(self) -> Settings:
        """Settings of the detector that was chosen."""
        return self.chosen.settings

    @property
    def n_families(self) -> int:
        """G, the number of independent groups of non-members in the calibration set."""
        return len(set(self.families))

    @property
    def source_families(self) -> dict[str, int]:
        """Source → number of independent groups of its non-members."""
        groups = set(zip(self.sources, self.families, strict=True))
        return dict(Counter(source for source, _ in groups))

    @property
    def finest(self) -> float:
        """The smallest false-positive rate that G groups support, 1 / (G + 1)."""
        return 1 / (self.n_families + 1)

    def p_values(self, scores: ArrayLike | ScoreColumns, sources: Sequence[str] | None = None) -> FloatArray:
        """(N,) conformal p-values: (1 + Σ_groups share of the group's scores ≥ s) / (G + 1).

        One vote a group keeps P(p ≤ α) ≤ α for any text of a new group (Lee, Barber and Willett 2023,
        https://arxiv.org/abs/2306.06342). `scores` are (N,) of every candidate, of which that serves which is best with
        the text among the non-members; or of the chosen score alone, as if it was fixed in advance. Scores of every
        candidate may come with the (N,) `sources`: then each text is judged by the non-members of its own source, and
        has the p-value NaN if there are none.
        """
        if not isinstance(scores, Mapping):
            return self._p_values(self.chosen, scores)
        if sources is None:
            return self._p_values_by_best(scores)
        names = np.array(sources, dtype=object)
        # a source without non-members has no p-values
        p_values = np.full(names.size, np.nan)
        for name in self.source_families:
            is_own = names == name
            of_source = {score: column[is_own] for score, column in scores.items()}
            p_values[is_own] = self.of(name).p_values(of_source)
        return p_values

    def _p_values_by_best(self, scores: ScoreColumns) -> FloatArray:
        """(N,) p-values, each by the score that would have been chosen, had the text been one more non-member."""
        wins = []
        p_values = []
        for candidate in self.candidates:
            column = scores[candidate.score]
            wins.append(candidate.wins(column))
            p_values.append(self._p_values(candidate, column))
        return np.asarray(np.choose(np.argmax(wins, axis=0), p_values))

    def _p_values(self, candidate: Candidate, scores: ArrayLike) -> FloatArray:
        """(N,) p-values by one score."""
        calibrated = np.asarray(candidate.scores)
        order = np.argsort(calibrated, kind="stable")
        _, family = np.unique(self.families, return_inverse=True)
        # the texts of a family share one vote
        weights = (1 / np.bincount(family))[family][order]
        votes = np.cumsum(weights[::-1])[::-1]
        at_least = np.append(votes, 0.0)
        rank = np.searchsorted(calibrated[order], scores, side="left")
        p_values = (1 + at_least[rank]) / (self.n_families + 1)
        return np.minimum(p_values, 1.0)  # shares of a group add up to 1 but for rounding

    def threshold_at(self, fpr: float) -> float:
        """The smallest threshold for which `score ≥ threshold` is equivalent to p ≤ `fpr` by the chosen score."""
        if not self.finest - TOLERANCE <= fpr < 1:
            nonmembers = f"{self.n_families} groups of held-out non-members"
            sources = sorted(repr(name) for name in set(self.sources) if name)
            if sources:
                nonmembers += f" of {' and '.join(sources)}"
            raise UsageError(
                f"fpr must be at least {self.finest:.4g} = 1/({self.n_families}+1), with {nonmembers}, and below 1; "
                f"got {fpr:g}"
            )
        # the p-value falls just above each score; at the lowest score, and below it, it is the same
        scores = np.unique(self.chosen.scores)
        just_above = np.nextafter(scores, np.inf)
        allowed = self.p_values(np.append(scores[0], just_above)) <= fpr + TOLERANCE
        thresholds = np.append(-math.inf, just_above)
        return float(thresholds[np.argmax(allowed)])

    def rate(self, fpr: float) -> Estimate:
        """Mean and prediction interval of the false-positive rate of the threshold for `fpr`.

        It is Beta(r, G + 1 − r) with r = ⌊fpr · (G + 1)⌋, or lower with ties (Vovk 2012,
        https://arxiv.org/abs/1209.2673).
        """
        self.threshold_at(fpr)  # refuses a rate that the calibration does not support
        distribution = stats.beta(*self._beta_parameters(fpr))
        low, high = distribution.ppf([LOWER, UPPER])
        return Estimate(float(distribution.mean()), float(low), float(high))

    def false_alarms(self, fpr: float, texts: int) -> int:
        """95 % quantile of the number of false positives among `texts` non-members, which share one threshold."""
        distribution = stats.betabinom(texts, *self._beta_parameters(fpr))
        return int(distribution.ppf(CONFIDENCE))

    def _beta_parameters(self, fpr: float) -> tuple[int, int]:
        rank = math.floor((fpr + TOLERANCE) * (self.n_families + 1))
        return rank, self.n_families + 1 - rank

    def to_json(self) -> str:
        """The calibration as JSON text, with numbers in full precision."""
        return json.dumps(
            TypeAdapter(Calibration).dump_python(self, by_alias=True), ensure_ascii=False, allow_nan=False
        )


def calibrate(
    labels: Sequence[bool],
    scores: ScoreColumns,
    groups: Groups = None,
    *,
    reference: Reference,
    sources: Sequence[str] | None = None,
    settings: Mapping[Score, Settings] | None = None,
) -> Calibration:
    """Calibrate the score with the highest AUC of all on the non-members among N validation texts."""
    member = np.asarray(labels, dtype=bool)
    if member.all():
        raise UsageError(f"calibration must have held-out non-members; got {member.size} texts, all members")
    settings = settings or {}
    sources = sources or [""] * member.size
    index = group_index(groups, member.size)
    aucs = family_aucs(member, scores, index.tolist())
    best = max(aucs, key=aucs.__getitem__)
    nonmembers = ~member
    families, family = np.unique(index[nonmembers], return_inverse=True)
    # one more family of non-members adds at most one win for each member: no other score can become the best
    lowest = aucs[best] - (1 / families.size + TOLERANCE)
    candidates = []
    for score, column in scores.items():
        if aucs[score] < lowest:
            continue
        of_nonmembers = column[nonmembers]
        means = group_means(of_nonmembers, family).tolist()
        candidate = Candidate(
            *score,
            settings=dict(settings.get(score, {})),
            scores=tuple(of_nonmembers.tolist()),
            members=tuple(column[member].tolist()),
            means=tuple(means),
        )
        candidates.append(candidate)
    return Calibration(
        detector=best.detector,
        state=best.state,
        candidates=tuple(candidates),
        families=tuple(index[nonmembers].tolist()),
        sources=tuple(compress(sources, nonmembers)),
        reference=reference,
    )


def family_aucs(labels: ArrayLike, scores: ScoreColumns, groups: Groups = None) -> dict[Score, float]:
    """Score → AUC between (N,) members and families of non-members, each by its mean score; .5 without members."""
    member = np.asarray(labels, dtype=bool)
    if not member.any():
        return dict.fromkeys(scores, 0.5)
    index = group_index(groups, member.size)
    families, family = np.unique(index[~member], return_inverse=True)
    # families of non-members count once, as in the p-values; members, which calibrate nothing, one by one
    is_member = np.repeat([False, True], [families.size, member.sum()])
    aucs = {}
    for score, column in scores.items():
        values = [group_means(column[~member], family), column[member]]
        aucs[score] = auc(is_member, np.concatenate(values))
    return aucs
