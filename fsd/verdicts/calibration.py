"""Conformal calibration: from a score to a p-value and a decision threshold at a chosen false-positive rate.

The conformal p-value of a score is the share of held-out non-members that score at least as high (Bates et al. 2023,
https://arxiv.org/abs/2104.08279). It is valid for any distribution of scores, provided that the new text, if it is not
a member, is exchangeable with the calibration texts; `DomainCheck` and `exchangeability` look for texts that are not.

The score is chosen on the validation texts, and the test non-members calibrate it, which had no part in the choice.
Non-members that chose a score would score low by it: another unread text would be called too often.
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
from fsd.scores import BASE, CALIBRATED, FSD, TUNED, Score, ScoreColumns, rows_of
from fsd.statistics.groups import Groups, group_index, group_means
from fsd.statistics.intervals import CONFIDENCE, LOWER, UPPER, Estimate, observed_rate
from fsd.statistics.metrics import auc
from fsd.token_stats import BoolArray, FloatArray
from fsd.verdicts.domain_check import Reference, Sources

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
class NonMembers:
    """Scores of n held-out non-members, with the family and the source of each."""

    scores: Values
    families: tuple[int, ...]
    sources: Sources

    def __post_init__(self) -> None:
        if len({len(self.scores), len(self.families), len(self.sources)}) > 1:
            raise UsageError("families and collections must be as many as scores")

    def __add__(self, more: "NonMembers") -> "NonMembers":
        return NonMembers(self.scores + more.scores, self.families + more.families, self.sources + more.sources)

    @property
    def n_families(self) -> int:
        """G, the number of independent groups."""
        return len(set(self.families))

    def of(self, source: str) -> "NonMembers":
        """Those of one source."""
        is_own = [name == source for name in self.sources]
        return NonMembers(
            tuple(compress(self.scores, is_own)), tuple(compress(self.families, is_own)), (source,) * sum(is_own)
        )

    def p_values(self, scores: ArrayLike) -> FloatArray:
        """(N,) conformal p-values: (1 + Σ_groups share of the group's scores ≥ s) / (G + 1).

        One vote a group keeps P(p ≤ α) ≤ α for any text of a new group (Lee, Barber and Willett 2023,
        https://arxiv.org/abs/2306.06342).
        """
        calibrated = np.asarray(self.scores)
        order = np.argsort(calibrated, kind="stable")
        _, family = np.unique(self.families, return_inverse=True)
        # the texts of a family share one vote
        weights = (1 / np.bincount(family))[family][order]
        votes = np.cumsum(weights[::-1])[::-1]
        at_least = np.append(votes, 0.0)
        rank = np.searchsorted(calibrated[order], scores, side="left")
        p_values = (1 + at_least[rank]) / (self.n_families + 1)
        return np.minimum(p_values, 1.0)  # shares of a group add up to 1 but for rounding


@dataclass(frozen=True)
class Calibration:
    """Scores of held-out non-members that turn a score into a p-value; saved with the registered model."""

    version: Annotated[int, AfterValidator(_current)] = field(default=VERSION, kw_only=True)
    detector: str
    state: Annotated[str, Field(pattern=f"^({BASE}|{FSD}|{TUNED}|{CALIBRATED})$")]
    settings: Settings
    test: NonMembers  # they calibrate
    validation: NonMembers  # they chose the score, and try the rate
    reference: Reference  # all non-members of the benchmark, for the domain check

    def __post_init__(self) -> None:
        reference = self.reference
        if len({len(reference.texts), len(reference.families), len(reference.sources)}) > 1:
            raise UsageError("families and collections must be as many as the texts of the reference")

    @property
    def score(self) -> Score:
        """The score that was chosen on validation."""
        return Score(self.detector, self.state)

    def of(self, source: str) -> "Calibration":
        """The calibration by the non-members of one source; the choice of the score rests on those of all."""
        return replace(self, test=self.test.of(source), validation=self.validation.of(source))

    def judging(self, sources: Sequence[str]) -> list[str]:
        """(N,) source by whose non-members each text is judged: its own, or "" where the calibration names none."""
        # a calibration without named sources serves texts of any: the domain check judges these
        if any(self.test.sources):
            return list(sources)
        return [""] * len(sources)

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
        """The sources on whose texts verdicts can be given at some rate."""
        return [source for source in self.source_families if not self.unknown(source)]

    def judged_at(self, fpr: float) -> list[str]:
        """The sources on whose texts verdicts are given at a rate: it is supported, and not contradicted."""
        calibrated = {source: self.of(source) for source in self.judged}
        sources = []
        for source, calibration in calibrated.items():
            if calibration.finest <= fpr + TOLERANCE and not calibration.contradiction(fpr):
                sources.append(source)
        return sources

    def tried(self, fpr: float) -> Estimate | None:
        """The share of the validation non-members that the test ones, by themselves, call at a rate; None without any.

        The test non-members cannot try their own threshold. The others chose the score, which lowers theirs: a share
        above the rate says so all the more.
        """
        if not self.validation.scores:
            return None
        called = self.test.p_values(self.validation.scores) <= fpr + TOLERANCE
        return observed_rate(called, self.validation.families)

    def contradiction(self, fpr: float) -> str:
        """Why no verdict is given at a rate, whatever the texts: own non-members are called too often; "" if not."""
        tried = self.tried(fpr)
        if tried is None or tried.low <= fpr:
            return ""
        return (
            f"the adapter's own non-members contradict the rate of {fpr:.1%}: {tried.value:.1%} "
            f"[{tried.low:.1%}, {tried.high:.1%}] of {len(self.validation.scores)} in validation would be called; "
            "bring more non-members"
        )

    @property
    def n_families(self) -> int:
        """G, the number of independent groups of non-members that calibrate."""
        return self.test.n_families

    @property
    def source_families(self) -> dict[str, int]:
        """Source → number of independent groups of its non-members."""
        groups = set(zip(self.test.sources, self.test.families, strict=True))
        return dict(Counter(source for source, _ in groups))

    @property
    def finest(self) -> float:
        """The smallest false-positive rate that G groups support, 1 / (G + 1)."""
        return 1 / (self.n_families + 1)

    def p_values(self, scores: ArrayLike, sources: Sequence[str] | None = None) -> FloatArray:
        """(N,) p-values of (N,) scores: that by the test non-members, or by all held-out ones where it is larger.

        The larger of the two is valid as the first is, and its threshold scatters less from one division of the texts
        to another. With (N,) `sources`, each text is judged by the non-members of its own source; NaN if there are
        none.
        """
        if sources is None:
            return np.maximum(self.test.p_values(scores), (self.test + self.validation).p_values(scores))
        names = np.array(sources, dtype=object)
        values = np.asarray(scores, dtype=np.float64)
        # a source without non-members has no p-values
        p_values = np.full(names.size, np.nan)
        for name in self.source_families:
            is_own = names == name
            p_values[is_own] = self.of(name).p_values(values[is_own])
        return p_values

    def threshold_at(self, fpr: float) -> float:
        """The smallest threshold for which `score ≥ threshold` is equivalent to p ≤ `fpr`."""
        if not self.finest - TOLERANCE <= fpr < 1:
            nonmembers = f"{self.n_families} groups of held-out non-members"
            sources = sorted(repr(name) for name in set(self.test.sources) if name)
            if sources:
                nonmembers += f" of {' and '.join(sources)}"
            raise UsageError(
                f"fpr must be at least {self.finest:.4g} = 1/({self.n_families}+1), with {nonmembers}, and below 1; "
                f"got {fpr:g}"
            )
        # the p-value falls just above each score; at the lowest score, and below it, it is the same
        scores = np.unique(self.test.scores + self.validation.scores)
        just_above = np.nextafter(scores, np.inf)
        allowed = self.p_values(np.append(scores[0], just_above)) <= fpr + TOLERANCE
        thresholds = np.append(-math.inf, just_above)
        return float(thresholds[np.argmax(allowed)])

    def rate(self, fpr: float) -> Estimate:
        """Mean and prediction interval of the false-positive rate of the threshold for `fpr`.

        It is Beta(r, G + 1 − r) with r = ⌊fpr · (G + 1)⌋ (Vovk 2012, https://arxiv.org/abs/1209.2673), or lower with
        ties, families of several texts, and where all held-out non-members ask for more than those of the test.
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
    labels: Sequence[bool] | BoolArray,
    scores: ScoreColumns,
    groups: Groups = None,
    *,
    reference: Reference,
    sources: Sequence[str] | None = None,
    settings: Mapping[Score, Settings] | None = None,
    is_test: BoolArray | None = None,
) -> Calibration:
    """Choose the score with the highest AUC on validation, and calibrate it on the non-members of the test.

    `scores` are (N,) of each score; `is_test` is (N,) whether a text is of the test. Without it there is nothing to
    choose: one score, which all non-members calibrate.
    """
    member = np.asarray(labels, dtype=bool)
    if is_test is None:
        if len(scores) != 1:
            raise UsageError(f"calibration must have texts that choose among its scores; got none for {len(scores)}")
        is_test = np.ones(member.size, dtype=bool)
    if not (is_test & ~member).any():
        raise UsageError(f"calibration must have held-out non-members; got {is_test.sum()} texts, all members")
    index = group_index(groups, member.size)
    validation = ~is_test
    aucs = family_aucs(member[validation], rows_of(scores, validation), index[validation].tolist())
    best = max(aucs, key=aucs.__getitem__)
    names = np.array(sources or [""] * member.size, dtype=object)

    def nonmembers(part: BoolArray) -> NonMembers:
        rows = part & ~member
        return NonMembers(*(tuple(values[rows].tolist()) for values in (scores[best], index, names)))

    return Calibration(
        detector=best.detector,
        state=best.state,
        settings=dict((settings or {}).get(best, {})),
        test=nonmembers(is_test),
        validation=nonmembers(validation),
        reference=reference,
    )


def family_aucs(labels: ArrayLike, scores: ScoreColumns, groups: Groups = None) -> dict[Score, float]:
    """Score → AUC between (N,) members and families of non-members, each by its mean score; .5 without either."""
    member = np.asarray(labels, dtype=bool)
    if member.all() or not member.any():
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
