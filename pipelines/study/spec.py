"""The papers' tables and figures, one file each, found by file name; a name that begins with _ is no study.

A file says in `STUDY` what is varied, which scores and numbers are shown and where they stand in the paper's layout.
`fsd_t6.py` is run by `python -m pipelines.study fsd-t6`. Nothing here computes.
"""

import importlib
import pkgutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from fsd.errors import UsageError
from pipelines.study import papers

Figure = Literal["dots", "curve", "roc", "scores", "heat map"]
Metric = Literal["auc", "tpr_at_5fpr", "accuracy"]
State = Literal["base", "fsd"]

MODEL, DATA, FREQUENCIES = "model", "data", "frequencies"
"""Axes whose levels the flags of the same name replace."""
TWINS = ("embedded", "embedded-twin")
"""The embedded target, and the same model without its members."""


@dataclass(frozen=True)
class Texts:
    """What is done to a cell's texts, in this order; changes are those of `fsd.data.ablations`.

    Attributes:
        timestamps: keep, delete or replace the timestamps in the texts.
        words: cut texts to so many words; shorter texts are left out.
        where: from which part of a text to cut them: head, middle or tail; None is the beginning.
        trained_on: which texts of the reserved share the adapter is trained on: non, mem or all; None reserves
            non-members alone, as the main job does.
        other: data of another domain, given as in `data.data`.
        foreign: share of the unseen texts whose place non-members of `other` take.
        unseen_count: train on so many of the unseen texts; 0 trains nothing.
    """

    timestamps: Literal["keep", "delete", "replace"] = "keep"
    words: int | None = None
    where: Literal["head", "middle", "tail"] | None = None
    trained_on: Literal["non", "mem", "all"] | None = None
    other: tuple[str, ...] = ()
    foreign: float = 0.0
    unseen_count: int | None = None


Levels = Mapping[str, Mapping[str, Any]]
"""Label → settings that it changes: `training.rank`, `model.model`, `data.unseen` as in `fsd.config`, `texts.words`.

`data.data` holds files, published benchmarks (`wikimia:64`), or the embedded corpus: `embedded`, some of its fields
as in `embedded:math,stat`, or `embedded:dated` with the day of publication before each text.
"""


@dataclass(frozen=True)
class Axis:
    """Something that is varied.

    Attributes:
        name: as shown in the table.
        levels: as in the paper.
        small: the levels of the small form; None takes those of the paper.
    """

    name: str
    levels: Levels
    small: Levels | None = None


@dataclass(frozen=True)
class Detection:
    """A detector with settings, and what the table calls it."""

    name: str
    settings: Mapping[str, float | bool] = field(default_factory=dict)
    label: str = ""

    @property
    def key(self) -> str:
        """Tells apart the same detector with other settings; fit for a metric's name."""
        return " ".join([self.name, *(f"{name} {value}" for name, value in self.settings.items())])

    @property
    def shown(self) -> str:
        """What the table calls it."""
        return self.label or self.key


Numbers = Mapping[tuple[str, ...], float]
"""The paper's own numbers by place: (model, data, detector, state, metric), each as labelled in the table."""


@dataclass(frozen=True)
class Study:
    """A table or figure as a grid over the main job.

    Attributes:
        place: paper and number of the table or figure.
        title: what it asks.
        axes: what is varied from cell to cell.
        detectors: all are computed in every cell.
        rows: axes, or detector, state, metric: what the table's rows tell apart.
        columns: likewise for its columns.
        metrics: numbers to show.
        states: base alone needs no fine-tuning and is measured on the whole benchmark.
        apart: vary one axis at a time about the defaults instead of all combinations; one axis `setting` results.
        figure: how the figure is drawn.
        x: along the figure: an axis, or a detector's setting.
        y: up a heat map: a detector's setting.
        against: detector that every other one is tested against, paired on the same texts.
        settings: changed in every cell.
        small_settings: changed in the small form on top.
        needs: what the full form takes besides the flags --model and --data, for the list.
        also: other names of the study.
        paper: the paper's own numbers; empty where they are not on record.
        note: what a reader of the table must know.
    """

    place: str
    title: str
    detectors: tuple[Detection, ...]
    axes: tuple[Axis, ...] = ()
    rows: tuple[str, ...] = ("detector",)
    columns: tuple[str, ...] = ("state",)
    metrics: tuple[Metric, ...] = ("auc",)
    states: tuple[State, ...] = ("base", "fsd")
    apart: bool = False
    figure: Figure = "dots"
    x: str = ""
    y: str = ""
    against: str = ""
    settings: Mapping[str, Any] = field(default_factory=dict)
    small_settings: Mapping[str, Any] = field(default_factory=dict)
    needs: str = ""
    also: tuple[str, ...] = ()
    paper: Numbers = field(default_factory=dict)
    note: str = ""

    @property
    def trained(self) -> bool:
        """Whether cells are fine-tuned."""
        return "fsd" in self.states


def plain(*names: str) -> tuple[Detection, ...]:
    """Detectors with the papers' settings."""
    return tuple(Detection(name) for name in names)


def of_models(*ids: str) -> Axis:
    """The axis of models; on the embedded texts, the target and its twin that never saw them."""
    return Axis(MODEL, {i: {"model.model": i} for i in ids}, {i: {"model.model": i} for i in TWINS})


def of_data(*names: str, small: tuple[str, ...] = ("embedded:cs,eess,stat,math", "embedded:q-bio,econ")) -> Axis:
    """The axis of benchmarks; small, some fields of the embedded corpus each."""
    return Axis(DATA, {n: {"data.data": (n,)} for n in names}, {n: {"data.data": (n,)} for n in small})


def names() -> tuple[str, ...]:
    """All studies, by the names of their files."""
    files = (m.name for m in pkgutil.iter_modules(papers.__path__) if not m.name.startswith("_"))
    return tuple(sorted(name.replace("_", "-") for name in files))


def read(name: str) -> Study:
    """What the file of that name declares."""
    study: Study = importlib.import_module(f"{papers.__name__}.{name.replace('-', '_')}").STUDY
    return study


def load(name: str) -> tuple[str, Study]:
    """The study of that name or other name, and its own name.

    Raises:
        UsageError: for a name that does not exist.
    """
    if name in names():
        return name, read(name)
    for own in names():
        if name in read(own).also:
            return own, read(own)
    raise UsageError(f"study must be one of {', '.join(names())}; got {name!r}")
