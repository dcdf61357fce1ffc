"""From a score to a verdict at a chosen error rate, by what held-out non-members score.

Conformal p-value of a score s: the share of non-members that score at least as high. It is right whatever the
distribution of scores is, as long as the new text, if it is no member, is one more text of the same kind as
the calibration texts; `outside` warns where it visibly is not.
"""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy import stats

from fsd.errors import UsageError
from fsd.evaluation.domain_check import Likeness
from fsd.evaluation.intervals import BoolArray, Estimate, group_index
from fsd.evaluation.metrics import accuracy, best_threshold
from fsd.token_stats import FloatArray

SLACK = 1e-9
"""A p-value may exceed the target by this much: 1/20 and .05 are one number."""

VERSION = 1
"""Of the JSON that `Calibration.to_json` writes."""


@dataclass(frozen=True)
class Calibration:
    """All that turns a detector's score into a verdict; travels with the registered model.

    Attributes:
        detector: its name.
        state: "fsd" for the deviation, "base" for the plain score.
        settings: the detector's settings.
        scores: of the n held-out non-members, ascending.
        weights: of those, 1 / (texts in the same group), so that every group counts once.
        threshold: maximises accuracy on validation (FSD §3.2); None where validation has no members.
        accuracy: on validation, at that threshold: an optimistic number, since the threshold was chosen
        there. likeness: what the calibration texts are like.
    """

    detector: str
    state: str
    settings: Mapping[str, Any]
    scores: tuple[float, ...]
    weights: tuple[float, ...]
    threshold: float | None
    accuracy: float | None
    likeness: Likeness

    @property
    def groups(self) -> int:
        """G, the number of independent non-members that the error rates rest on."""
        return round(sum(self.weights))

    @property
    def finest(self) -> float:
        """The smallest false-positive rate that G groups can show, 1 / (G + 1)."""
        return 1 / (self.groups + 1)

    def p_values(self, scores: ArrayLike) -> FloatArray:
        """(N,) scores → (N,) p = (1 + Σ_groups share of the group's scores ≥ s) / (G + 1).

        Ties count against membership. With one text a group this is the conformal p-value
        (1 + #{score ≥ s}) / (n + 1); with several, every group has one vote, because passages of one book
        are not independent (Lee, Barber and Willett 2023): P(p ≤ α) ≤ α for a text of a new group, for every
        α.
        """
        calibration = np.asarray(self.scores)
        above = np.append(np.cumsum(np.asarray(self.weights)[::-1])[::-1], 0.0)
        place = np.searchsorted(calibration, np.asarray(scores, dtype=np.float64), side="left")
        return np.asarray((1 + above[place]) / (self.groups + 1), dtype=np.float64)

    def threshold_at(self, fpr: float) -> float:
        """The smallest threshold at which `score ≥ threshold` means p ≤ `fpr`.

        Raises:
            UsageError: for a rate finer than the calibration set can support, or not below 1.
        """
        if not self.finest - SLACK <= fpr < 1:
            raise UsageError(
                f"fpr must be at least {self.finest:.4g} = 1/({self.groups}+1), with {self.groups} groups of "
                f"held-out non-members, and below 1; got {fpr:g}"
            )
        steps = np.append(np.unique(self.scores), np.inf)
        just_above = np.nextafter(steps[:-1], np.inf)
        allowed = self.p_values(just_above) <= fpr + SLACK
        if self.p_values(steps[:1])[0] <= fpr + SLACK:
            return -math.inf
        return float(just_above[np.argmax(allowed)])

    def rate(self, fpr: float, level: float = 0.95) -> Estimate:
        """The false-positive rate of the threshold for `fpr`, and the interval that it lies in.

        `fpr` is kept on the average over calibration sets; one threshold from G groups has a rate distributed as
        Beta(r, G + 1 − r) with r = ⌊fpr · (G + 1)⌋ (order statistics of uniform variables; one text a group and no
        ties, else the rate is lower).

        Raises:
            UsageError: as in `threshold_at`.
        """
        self.threshold_at(fpr)
        spread = stats.beta(*self._shape(fpr))
        return Estimate(float(spread.mean()), *map(float, spread.ppf([(1 - level) / 2, (1 + level) / 2])))

    def false_alarms(self, fpr: float, texts: int, level: float = 0.95) -> int:
        """The number of members that `texts` texts, none of which is one, exceed in 1 − `level` of all cases.

        The texts share one threshold, so the number is beta-binomial and spreads wider than a binomial one.
        """
        return int(stats.betabinom(texts, *self._shape(fpr)).ppf(level))

    def _shape(self, fpr: float) -> tuple[int, int]:
        rank = math.floor((fpr + SLACK) * (self.groups + 1))
        return rank, self.groups + 1 - rank

    def is_member(self, scores: ArrayLike, fpr: float) -> np.ndarray[Any, np.dtype[np.bool_]]:
        """(N,) verdicts that call at most `fpr` of non-members a member.

        Raises:
            UsageError: as in `threshold_at`.
        """
        return np.asarray(np.asarray(scores, dtype=np.float64) >= self.threshold_at(fpr))

    def outside(self, text: str) -> str | None:
        """Why these error rates do not hold for the text; None where nothing speaks against it."""
        return self.likeness.outside(text)

    def to_json(self) -> str:
        """The whole calibration as JSON text, numbers in full precision."""
        values = {**vars(self), "settings": dict(self.settings), "likeness": self.likeness.to_dict()}
        return json.dumps({"version": VERSION, **values}, ensure_ascii=False, allow_nan=False)

    @classmethod
    def from_json(cls, text: str) -> "Calibration":
        """The inverse of `to_json`.

        Raises:
            UsageError: for text that is no calibration of this version.
        """
        try:
            values = json.loads(text)
            version = values.pop("version")
            if version != VERSION:
                raise KeyError(f"version {version}")
            likeness = Likeness.from_dict(values.pop("likeness"))
            scores, weights = tuple(values.pop("scores")), tuple(values.pop("weights"))
            return cls(likeness=likeness, scores=scores, weights=weights, **values)
        except (KeyError, TypeError, AttributeError, ValueError) as error:
            raise UsageError(
                f"calibration must be JSON of version {VERSION} written by this program; got {error}"
            ) from error


def calibrate(
    labels: Sequence[bool],
    scores: ArrayLike,
    texts: Sequence[str],
    groups: Sequence[str] | None = None,
    *,
    detector: str,
    state: str = "fsd",
    settings: Mapping[str, Any] | None = None,
) -> Calibration:
    """Calibrate one detector on the validation texts, which nothing was trained on.

    The likeness is learned from all validation texts, members and non-members.

    Args:
        labels: (N,) True for members; members serve only the accuracy threshold and may be absent.
        scores: (N,), higher = more likely a member.
        texts: (N,).
        groups: (N,) or None.
        detector: name to be kept.
        state: "fsd" or "base", to be kept.
        settings: of the detector, to be kept; JSON values.

    Raises:
        UsageError: without any non-member.
    """
    member = np.asarray(labels, dtype=bool)
    values = np.asarray(scores, dtype=np.float64)
    if member.all():
        raise UsageError(f"calibration must have held-out non-members; got {member.size} texts, all members")
    _, index, sizes = np.unique(group_index(groups, member.size)[~member], return_inverse=True, return_counts=True)
    order = np.argsort(values[~member], kind="stable")
    threshold = best_threshold(member, values) if member.any() else None
    return Calibration(
        detector=detector,
        state=state,
        settings=dict(settings or {}),
        scores=tuple(values[~member][order].tolist()),
        weights=tuple((1 / sizes[index])[order].tolist()),
        threshold=threshold,
        accuracy=None if threshold is None else accuracy(member, values, threshold),
        likeness=Likeness.learn(texts, groups),
    )


def observed(called: BoolArray, groups: Sequence[str] | None = None, level: float = 0.95) -> Estimate:
    """The share of texts for which `called` holds, with an exact interval that knows of groups.

    Clopper and Pearson's interval for the number of texts that would tell as much if they were independent (Korn and
    Graubard 1998): n divided by the factor by which groups raise the variance. Where all texts agree there is no
    variance to go by, and a group counts as one text.

    Args:
        called: (N,), N ≥ 1.
        groups: (N,) or None.
        level: of the interval.
    """
    group = group_index(groups, called.size)
    share, size = float(called.mean()), float(group.max() + 1)
    if 0 < share < 1 and 1 < size < called.size:
        sums = np.bincount(group, weights=called - share)
        spread = size / (size - 1) * float(sums @ sums) / called.size**2
        size = min(called.size, max(1.0, share * (1 - share) / max(spread, 1e-12) + 1))
    hits, misses = share * size, (1 - share) * size
    low = float(stats.beta.ppf((1 - level) / 2, hits, misses + 1)) if hits > 0 else 0.0
    high = float(stats.beta.ppf((1 + level) / 2, hits + 1, misses)) if misses > 0 else 1.0
    return Estimate(share, low, high)
