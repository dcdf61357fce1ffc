"""Settings of a detector, and what they are worth on labelled texts: the part of tuning that knows no optimiser."""

import hashlib
import itertools
import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from fsd.data.documents import Document
from fsd.evaluation.intervals import BoolArray
from fsd.evaluation.metrics import auc, tpr_at_fpr
from fsd.scoring.deviation import ViewStatistics
from fsd.search_space import Choice, Range, Search
from fsd.token_stats import FloatArray, IntArray
from fsd.tuning.folds import chosen_elsewhere

OBJECTIVES: dict[str, Callable[[BoolArray, FloatArray], float]] = {
    "auc": auc,
    "tpr_at_1fpr": lambda labels, scores: tpr_at_fpr(labels, scores, 0.01),
    "tpr_at_5fpr": lambda labels, scores: tpr_at_fpr(labels, scores, 0.05),
    "tpr_at_10fpr": lambda labels, scores: tpr_at_fpr(labels, scores, 0.10),
}
"""What tuning may raise; the names are those of `fsd.evaluation.metrics.Evaluation`."""
PER_DECADE = 3
"""Grid points per factor of ten of a logarithmic range: 1, 2.15, 4.64."""
STEPS = 20
"""Grid points of a linear range without a step."""

Settings = dict[str, Any]


class Task(Protocol):
    """Something to be tuned."""

    @property
    def label(self) -> str:
        """Names it: `surp.fsd`."""

    @property
    def space(self) -> Mapping[str, Search]:
        """Setting → where it is searched."""

    @property
    def default(self) -> Settings:
        """What it is without tuning."""

    def judge(self, settings: Settings, report: Callable[[float, int], None]) -> FloatArray:
        """(folds,) values of the settings; `report(value, step)` may be told of earlier stages, and may raise."""


@dataclass(frozen=True)
class Bench:
    """Labelled texts to choose on. Nothing of the test texts is in here.

    Attributes:
        readings: what the models say about N texts.
        member: (N,) labels.
        folds: row numbers of each fold, see `fsd.tuning.folds.grouped_folds`.
        objective: a key of `OBJECTIVES`.
    """

    readings: ViewStatistics
    member: BoolArray
    folds: Sequence[IntArray]
    objective: str = "auc"

    def values(self, scores: FloatArray) -> FloatArray:
        """(N,) scores → the objective on each fold."""
        measure = OBJECTIVES[self.objective]
        return np.array([measure(self.member[rows], scores[rows]) for rows in self.folds])


@dataclass
class DetectorTask:
    """The settings of one detector in one state, judged from readings in memory.

    Attributes:
        detector: a `detectors.Detector`, with the settings that are not tuned.
        state: "base" or "fsd".
        bench: the validation texts.
    """

    detector: Any
    state: str
    bench: Bench
    known: dict[str, FloatArray] = field(default_factory=dict, repr=False)

    @property
    def label(self) -> str:
        """Detector and state."""
        return f"{self.detector.name}.{self.state}"

    @property
    def space(self) -> Mapping[str, Search]:
        """As it stands in the detector's own file."""
        space: Mapping[str, Search] = self.detector.search
        return space

    @property
    def default(self) -> Settings:
        """The paper's values, or those that the user fixed."""
        return {name: self.detector.settings[name] for name in self.space}

    def judge(self, settings: Settings, report: Callable[[float, int], None] = lambda value, step: None) -> FloatArray:
        """(folds,) values of the settings; settings that come again are looked up."""
        key = key_of(settings)
        if key not in self.known:
            scores = self.bench.readings.scores(self.detector.having(**settings), self.state)
            self.known[key] = self.bench.values(scores)
        return self.known[key]


@dataclass(frozen=True)
class Winner:
    """The best settings of a task on validation, and what they promise.

    Attributes:
        label: of the task.
        default: settings without tuning.
        settings: of the winner: the default unless another one is better.
        default_value: mean over folds of the default.
        value: mean over folds of the winner, which is best of many on these very texts.
        elsewhere: of settings chosen on other folds than they are measured on: without that bonus.
        tried: number of different settings tried.
    """

    label: str
    default: Settings
    settings: Settings
    default_value: float
    value: float
    elsewhere: float
    tried: int


def key_of(settings: Settings) -> str:
    """The settings as text, equal for equal ones."""
    return json.dumps(settings, sort_keys=True)


def winner(task: Task, default: FloatArray, tried: Sequence[tuple[Settings, FloatArray]], *, folds: int) -> Winner:
    """The settings with the highest mean over folds; of equals the default, then the one tried first.

    Args:
        task: what was tuned.
        default: (repeats · folds,) values of the default.
        tried: settings and their values, in the order of the trials.
        folds: of one division.
    """
    distinct = {key_of(task.default): (task.default, default)}
    for settings, values in tried:
        distinct.setdefault(key_of(settings), (settings, values))
    values = np.stack([v for _, v in distinct.values()])
    means = np.round(values.mean(axis=1), 12)
    best = int(np.argmax(means))
    return Winner(
        task.label,
        task.default,
        list(distinct.values())[best][0],
        float(means[0]),
        float(means[best]),
        chosen_elsewhere(values, folds=folds),
        len(distinct),
    )


def grid(search: Search) -> list[Any]:
    """The values of a grid over one setting: its steps or choices; else a few points, evenly spread on its scale."""
    if isinstance(search, Choice):
        return list(search.values)
    whole = isinstance(search.low, int) and isinstance(search.high, int)
    if search.log:
        points = round(math.log10(search.high / search.low) * PER_DECADE) + 1
        values = np.geomspace(search.low, search.high, points)
        return list(dict.fromkeys(round(v) if whole else float(f"{v:.2g}") for v in values))
    step = search.step or (1 if whole else (search.high - search.low) / STEPS)
    count = int((search.high - search.low) / step + 1e-9) + 1
    return [tidy(search, search.low + i * step) for i in range(count)]


def tidy(search: Search, value: Any) -> Any:
    """A drawn value without the dust of binary steps: 0.30000000000000004 is 0.3."""
    if isinstance(search, Range) and not (isinstance(search.low, int) and isinstance(search.high, int)):
        return round(float(value), 12) if search.step else float(value)
    return value


def whole_grid(space: Mapping[str, Search]) -> list[Settings]:
    """Every combination of the grid values of all settings."""
    return [dict(zip(space, row, strict=True)) for row in itertools.product(*(grid(s) for s in space.values()))]


def finite(space: Mapping[str, Search]) -> bool:
    """Whether a grid over the space holds every settings that could be drawn."""
    return all(
        isinstance(s, Choice)
        or s.step is not None
        or (isinstance(s.low, int) and isinstance(s.high, int) and not s.log)
        for s in space.values()
    )


def digest(documents: Sequence[Document]) -> str:
    """16 hexadecimal digits of texts, labels and groups, in their order."""
    found = hashlib.sha256()
    for document in documents:
        found.update(json.dumps([document.text, document.member, document.group]).encode())
    return found.hexdigest()[:16]
