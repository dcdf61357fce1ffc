"""Conformal calibration: from a score to a p-value and a decision threshold at a chosen false-positive rate.

The conformal p-value of a score is the share of held-out non-members that score at least as high (Bates et al. 2023,
https://arxiv.org/abs/2104.08279). It is valid for any distribution of scores, provided that the new text, if it is not
a member, is exchangeable with the calibration texts; `DomainCheck` flags texts that visibly are not.
"""

import json
import math
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy import stats

from fsd.errors import UsageError
from fsd.evaluation.domain_check import DomainCheck
from fsd.evaluation.intervals import LEVEL, BoolArray, Estimate, group_index
from fsd.token_stats import FloatArray

TOLERANCE = 1e-9
"""Amount by which a p-value may exceed the target rate, so that 1/20 and .05 compare as equal."""

VERSION = 1
"""Version of the JSON format that `Calibration.to_json` writes."""


@dataclass(frozen=True)
class Calibration:
    """Scores of held-out non-members that turn a detector's score into a p-value; saved with the registered model.

    Attributes:
        detector: name of the detector.
        state: "fsd" if the scores are deviations, "base" if they are plain scores.
        settings: settings of the detector.
        scores: scores of the n held-out non-members, ascending.
        weights: 1 / (number of texts in the same group) for each score, so that every group counts once.
        domain_check: test of whether a new text resembles the calibration texts.
    """

    detector: str
    state: str
    settings: Mapping[str, Any]
    scores: tuple[float, ...]
    weights: tuple[float, ...]
    domain_check: DomainCheck

    @property
    def groups(self) -> int:
        """G, the number of independent groups of non-members in the calibration set."""
        return round(sum(self.weights))

    @property
    def finest(self) -> float:
        """The smallest false-positive rate that G groups support, 1 / (G + 1)."""
        return 1 / (self.groups + 1)

    def p_values(self, scores: ArrayLike) -> FloatArray:
        """Compute conformal p-values.

        p = (1 + Σ_groups share of the group's scores ≥ s) / (G + 1), so that ties count against membership. With one
        text per group this is (1 + #{score ≥ s}) / (n + 1). Passages of one book are not independent; giving each
        group one vote keeps P(p ≤ α) ≤ α for every α and any text of a new group (Lee, Barber and Willett 2023,
        https://arxiv.org/abs/2306.06342).

        Args:
            scores: (N,) scores of new texts.

        Returns:
            (N,) p-values.
        """
        calibration = np.asarray(self.scores)
        above = np.append(np.cumsum(np.asarray(self.weights)[::-1])[::-1], 0.0)
        place = np.searchsorted(calibration, np.asarray(scores, dtype=np.float64), side="left")
        return np.asarray((1 + above[place]) / (self.groups + 1), dtype=np.float64)

    def threshold_at(self, fpr: float) -> float:
        """The smallest threshold for which `score ≥ threshold` is equivalent to p ≤ `fpr`.

        Raises:
            UsageError: if the rate is below `finest`, or not below 1.
        """
        if not self.finest - TOLERANCE <= fpr < 1:
            raise UsageError(
                f"fpr must be at least {self.finest:.4g} = 1/({self.groups}+1), with {self.groups} groups of "
                f"held-out non-members, and below 1; got {fpr:g}"
            )
        steps = np.append(np.unique(self.scores), np.inf)
        just_above = np.nextafter(steps[:-1], np.inf)
        allowed = self.p_values(just_above) <= fpr + TOLERANCE
        if self.p_values(steps[:1])[0] <= fpr + TOLERANCE:
            return -math.inf
        return float(just_above[np.argmax(allowed)])

    def rate(self, fpr: float, level: float = LEVEL) -> Estimate:
        """Mean and prediction interval of the false-positive rate of the threshold for `fpr`.

        The rate `fpr` holds on average over calibration sets. The rate of the one threshold that G groups give is
        distributed as Beta(r, G + 1 − r) with r = ⌊fpr · (G + 1)⌋, if there is one text per group and there are no
        ties; otherwise it is lower (Vovk 2012, https://arxiv.org/abs/1209.2673).

        Raises:
            UsageError: as for `threshold_at`.
        """
        self.threshold_at(fpr)
        spread = stats.beta(*self._beta_parameters(fpr))
        return Estimate(float(spread.mean()), *map(float, spread.ppf([(1 - level) / 2, (1 + level) / 2])))

    def false_alarms(self, fpr: float, texts: int) -> int:
        """95 % quantile of the number of false positives among `texts` non-members.

        All texts share one threshold, so the number is beta-binomial, with a larger variance than a binomial one.
        """
        return int(stats.betabinom(texts, *self._beta_parameters(fpr)).ppf(LEVEL))

    def _beta_parameters(self, fpr: float) -> tuple[int, int]:
        rank = math.floor((fpr + TOLERANCE) * (self.groups + 1))
        return rank, self.groups + 1 - rank

    def to_json(self) -> str:
        """The calibration as JSON text, with numbers in full precision."""
        values = {"version": VERSION, **vars(self), "settings": dict(self.settings)}
        values["likeness"] = values.pop("domain_check").to_dict()
        return json.dumps(values, ensure_ascii=False, allow_nan=False)

    @classmethod
    def from_json(cls, text: str) -> "Calibration":
        """The inverse of `to_json`; keys that only earlier releases wrote are ignored.

        Raises:
            UsageError: if the text is not a calibration of this version.
        """
        try:
            values = json.loads(text)
            if values["version"] != VERSION:
                raise KeyError(f"version {values['version']}")
            return cls(
                detector=values["detector"],
                state=values["state"],
                settings=values["settings"],
                scores=tuple(values["scores"]),
                weights=tuple(values["weights"]),
                domain_check=DomainCheck.from_dict(values["likeness"]),
            )
        except (KeyError, TypeError, AttributeError, ValueError) as error:
            raise UsageError(
                f"calibration must be JSON of version {VERSION} written by this program; got {error}"
            ) from error


def calibrate(
    labels: Sequence[bool],
    scores: ArrayLike,
    texts: Sequence[str],
    groups: Sequence[Hashable] | None = None,
    *,
    detector: str,
    state: str = "fsd",
    settings: Mapping[str, Any] | None = None,
) -> Calibration:
    """Calibrate one detector on the non-members among the validation texts.

    The domain check is fitted to the non-members alone, since the error rate rests on them.

    Args:
        labels: (N,) True for members.
        scores: (N,) scores; higher = more likely a member.
        texts: (N,) texts, on none of which anything was trained.
        groups: (N,) group of each text; None if all are independent.
        detector: name of the detector.
        state: "fsd" or "base".
        settings: settings of the detector; JSON values.

    Raises:
        UsageError: if there is no non-member.
    """
    member = np.asarray(labels, dtype=bool)
    values = np.asarray(scores, dtype=np.float64)
    if member.all():
        raise UsageError(f"calibration must have held-out non-members; got {member.size} texts, all members")
    group = group_index(groups, member.size)[~member]
    _, index, sizes = np.unique(group, return_inverse=True, return_counts=True)
    order = np.argsort(values[~member], kind="stable")
    return Calibration(
        detector=detector,
        state=state,
        settings=dict(settings or {}),
        scores=tuple(values[~member][order].tolist()),
        weights=tuple((1 / sizes[index])[order].tolist()),
        domain_check=DomainCheck.fit(
            [text for text, side in zip(texts, member, strict=True) if not side], group.tolist()
        ),
    )


def observed_rate(called: BoolArray, groups: Sequence[Hashable] | None = None) -> Estimate:
    """Share of texts for which `called` is true, with an exact interval that accounts for groups.

    The interval is Clopper and Pearson's at the effective sample size of Korn and Graubard (1998, Survey Methodology
    24(2), 193-201): n divided by the factor by which grouping inflates the variance. If all texts agree, the variance
    cannot be estimated and each group counts as one text.

    Args:
        called: (N,) booleans, N ≥ 1.
        groups: (N,) group of each text; None if all are independent.
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
