"""The objective of tuning: the value of settings on labelled texts by cross-validation."""

import json
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import ArrayLike
from optuna import TrialPruned
from optuna.trial import FrozenTrial, TrialState
from sklearn.model_selection import StratifiedGroupKFold

from fsd.errors import UsageError, one_of
from fsd.scoring.deviation import ViewStatistics
from fsd.search_space import Space
from fsd.statistics.groups import group_index
from fsd.statistics.metrics import METRICS
from fsd.token_stats import BoolArray, FloatArray, IntArray

MOST_REPEATS = 1000
"""Divisions into folds beyond which each takes time and adds nothing, since all divide the same texts."""

# Share of texts with a fallback beyond which settings are no candidates: most scores are not by the formula.
MOST_FALLBACKS = 0.5

Settings = dict[str, Any]
Report = Callable[[float, int], None]
"""Called with a value and the step that it was reached at, after each stage; it may raise to stop a trial."""


class Task(Protocol):
    """What is tuned: its name such as `surp.fsd`, setting → search range, and its settings without tuning."""

    label: str
    space: Space

    @property
    def default(self) -> Settings: ...  # noqa: D102 - see the class

    def evaluate(self, settings: Settings, report: Report) -> FloatArray:
        """(folds,) values of the settings."""


@dataclass(frozen=True)
class ValidationSet:
    """N labelled texts that settings are chosen on, with the row numbers of each fold; nothing of the test texts."""

    statistics: ViewStatistics
    member: BoolArray
    folds: Sequence[IntArray]
    objective: str = "auc"

    def values(self, scores: FloatArray) -> FloatArray:
        """(N,) scores → (folds,) the objective on each fold."""
        measure = METRICS[self.objective]
        return np.array([measure.of(self.member[rows], scores[rows]) for rows in self.folds])


@dataclass
class DetectorTask:
    """The settings of one detector in one state, "base" or "fsd", evaluated from token statistics in memory."""

    detector: Any
    state: str
    validation: ValidationSet
    evaluated: dict[str, FloatArray] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        self.label = f"{self.detector.name}.{self.state}"
        self.space = self.detector.search

    @property
    def default(self) -> Settings:
        """The paper's values, or those that the user fixed."""
        detector = self.detector.for_base if self.state == "base" else self.detector
        return {name: detector.settings[name] for name in self.space}

    def evaluate(self, settings: Settings, report: Report | None = None) -> FloatArray:
        """(folds,) values of the settings, computed once."""
        key = key_of(settings)
        # A trial has a report.
        if report and self.fallback_share(settings) > MOST_FALLBACKS:
            raise TrialPruned
        if key not in self.evaluated:
            self.evaluated[key] = self.validation.values(self.scores(self.validation.statistics, settings))
        return self.evaluated[key]

    def fallback_share(self, settings: Settings) -> float:
        """Share of the texts whose score of the base model by the settings is a fallback."""
        detector = self.detector.with_settings(**settings)
        return self.validation.statistics.fallbacks(detector, self.state).total() / self.validation.member.size

    def scores(self, statistics: ViewStatistics, settings: Settings) -> FloatArray:
        """(N,) scores of texts by the settings."""
        return statistics.scores(self.detector.with_settings(**settings), self.state)


def check_objective(name: str) -> None:
    """Refuse what is no metric, or one that needs a threshold from other texts."""
    allowed = [name for name, metric in METRICS.items() if not metric.needs_threshold]
    if name not in allowed:
        raise UsageError(one_of("objective", allowed, name))


def grouped_folds(
    labels: ArrayLike, groups: Sequence[Hashable] | None, *, folds: int = 5, repeats: int = 4, seed: int = 0
) -> list[IntArray]:
    """Row numbers of each fold of a repeated, stratified division by whole groups, `folds` of them each time."""
    if folds < 2 or not 1 <= repeats <= MOST_REPEATS:
        raise UsageError(f"folds must be at least 2 and repeats from 1 to {MOST_REPEATS:,}; got {folds} and {repeats}")
    member = np.asarray(labels, dtype=bool)
    family = group_index(groups, member.size)
    of_members = np.unique(family[member]).size
    of_nonmembers = np.unique(family[~member]).size
    rows: list[IntArray] = []
    if min(of_members, of_nonmembers) >= folds:
        for repeat in range(repeats):
            division = StratifiedGroupKFold(folds, shuffle=True, random_state=seed + repeat)
            rows.extend(part for _, part in division.split(member, member, family))
    # Whole families of unequal size can leave a fold without members, or with nothing else: it would have no AUC.
    if not rows or any(member[part].all() or not member[part].any() for part in rows):
        raise UsageError(
            f"validation must have at least {folds} families with members and {folds} with non-members, one of each "
            f"a fold; got {of_members} and {of_nonmembers}: give more texts, a larger validation share or fewer folds"
        )
    return rows


def cross_validated_choice(values: FloatArray, *, folds: int) -> float:
    """Mean over folds of the best setting by the other folds, of (S, repeats · folds) values.

    This removes most of the bonus of the choice (Varma and Simon 2006, https://doi.org/10.1186/1471-2105-7-91).
    """
    measured = []
    for division in np.split(values, values.shape[1] // folds, axis=1):
        elsewhere = (division.sum(axis=1, keepdims=True) - division) / (folds - 1)
        # Rounded, since sums in another order would break ties between equal settings by chance.
        best = np.argmax(elsewhere.round(12), axis=0)
        measured.append(division[best, np.arange(folds)].mean())
    return float(np.mean(measured))


class Winner(NamedTuple):
    """The best settings of a task, the default unless others are better, with means over folds, see `winner`."""

    task: str
    default: Settings
    tuned: Settings
    settings_tried: int
    validation_default: float
    validation_tuned: float
    validation_chosen_elsewhere: float
    # Share of the validation texts whose score by the best settings is a fallback.
    fallback: float = 0.0


def key_of(settings: Settings) -> str:
    """The settings as text, equal for equal ones."""
    return json.dumps(settings, sort_keys=True)


def settings_of(trial: FrozenTrial) -> Settings:
    """What a trial evaluated: the values that Optuna drew, without floating-point error."""
    settings: Settings = trial.user_attrs.get("settings", trial.params)
    return settings


def winner(
    task: Task, default: FloatArray, trials: Sequence[FrozenTrial], *, folds: int, default_may_win: bool = True
) -> Winner:
    """The settings with the highest mean over all folds; of equals the default, then the ones tried first.

    The complete ones of the `trials` have the values of the folds as their attribute `folds`. A default that may not
    win is the best if no trial is complete.
    """
    # A setting that was drawn twice counts once; the default is the first, so that it wins every tie.
    values_of = {key_of(task.default): default}
    for trial in trials:
        if trial.state == TrialState.COMPLETE:
            values_of.setdefault(key_of(settings_of(trial)), np.array(trial.user_attrs["folds"]))
    if not default_may_win and len(values_of) > 1:
        del values_of[key_of(task.default)]
    values = np.stack(list(values_of.values()))
    means = values.mean(axis=1).round(12)
    best = int(np.argmax(means))
    settings = json.loads(list(values_of)[best])
    elsewhere = cross_validated_choice(values, folds=folds)
    of_default = float(default.mean().round(12))
    return Winner(task.label, task.default, settings, len(values), of_default, means.item(best), elsewhere)
