"""Declarative types for the tables and figures in `pipelines.study.papers`.

A declaration states what is varied, which scores and metrics are shown, and their layout in the paper. The file
`papers/fsd_t6.py` is run by `python -m pipelines.study fsd-t6`.
"""

import importlib
import pkgutil
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Any, Literal

from fsd.errors import UsageError
from pipelines.study import papers

FigureKind = Literal["dots", "curve", "roc", "scores", "heat map"]
Metric = Literal["auc", "tpr_at_5fpr", "accuracy"]
State = Literal["base", "fsd"]

MODEL, DATA, FREQUENCIES = "model", "data", "frequencies"
"""Axes whose levels are replaced by the command-line flags of the same name."""
EMBEDDED_MODELS = ("embedded", "embedded-twin")
"""The embedded target model, and its twin, pretrained in the same way but without the members."""
SMALL_FIELDS = (
    "embedded:cs,eess",
    "embedded:math,stat",
    "embedded:q-bio,econ",
    "embedded:physics,cond-mat,astro-ph",
)
"""Fields of the embedded corpus that replace the subsets of a benchmark at the small scale."""


@dataclass(frozen=True)
class TextOptions:
    """Changes to the texts of a cell, applied in this order; see `fsd.data.ablations`.

    Attributes:
        timestamps: keep, delete or replace timestamps.
        words: truncate texts to this number of words; shorter texts are dropped.
        where: part of the text to take these words from: head, middle or tail; None takes the beginning.
        trained_on: class of the reserved texts that the adapter is trained on: non, mem or all; None reserves
            non-members only, as the main pipeline does.
        other: labelled data of another domain, in the format of `data.data`.
        unseen_from: domain whose unseen texts are trained on: the texts' own, that of `other`, or both.
        unseen_count: number of unseen texts to train on; 0 skips the training.
    """

    timestamps: Literal["keep", "delete", "replace"] = "keep"
    words: int | None = None
    where: Literal["head", "middle", "tail"] | None = None
    trained_on: Literal["non", "mem", "all"] | None = None
    other: tuple[str, ...] = ()
    unseen_from: Literal["own", "both", "other"] = "own"
    unseen_count: int | None = None


Levels = Mapping[str, Mapping[str, Any]]
"""Label → settings of that level: `training.rank`, `model.model`, `data.unseen` as in `fsd.config`, or `texts.words`.

`data.data` holds files, published benchmarks (`wikimia:64`), or the embedded corpus: `embedded` for all of it,
`embedded:math,stat` for some fields, and `embedded:dated` to put dates before the texts, later ones before non-members.
"""


Values = Mapping[str, Any] | Iterable[Any]


@dataclass(frozen=True)
class Axis:
    """A factor that is varied.

    Attributes:
        name: heading in the table.
        levels: the paper's levels.
        small: levels at the small scale; None uses the paper's.
    """

    name: str
    levels: Levels
    small: Levels | None = None


BEST = "best of grid"
"""Label of the setting that is the best of a grid on the tested texts, in tables and in `PaperNumbers`."""


@dataclass(frozen=True)
class DetectorSpec:
    """A detector, its settings, and its label in the table.

    Attributes:
        name: of the detector.
        settings: those that differ from its defaults.
        label: in the table; empty for name and settings.
        grid: settings of which every cell shows the one with the highest AUC on its own test texts, as papers do
            that tune on them; empty for `settings`. Only for base scores.
    """

    name: str
    settings: Mapping[str, float | bool] = field(default_factory=dict)
    label: str = ""
    grid: tuple[Mapping[str, float | bool], ...] = ()

    @property
    def key(self) -> str:
        """Name and settings; unique within a study and valid in the name of a metric."""
        settings = [f"{name} {value}" for name, value in self.settings.items()]
        return " ".join([self.name, *([BEST] if self.grid else settings)])

    @property
    def candidates(self) -> "tuple[DetectorSpec, ...]":
        """The detector with each setting of its grid."""
        return tuple(DetectorSpec(self.name, settings) for settings in self.grid)

    @property
    def shown(self) -> str:
        """Label in the table."""
        return self.label or self.key


PaperNumbers = Mapping[tuple[str, str, str, str, str, str], float]
"""Numbers printed in the paper: (model, data, detector, setting, state, metric) → number.

Model and data are a hub id and a benchmark, as a cell has them; the detector is a name in `detectors`; setting is the
label of the other axes or, of a detector with settings, its own. It is empty where neither is varied, or makes no
difference, as the training does to base scores."""


def numbers(text: str) -> PaperNumbers:
    """Lines `model | data | detector | setting | state metric number, …` with `-` for no setting."""
    table: dict[tuple[str, str, str, str, str, str], float] = {}
    for line in text.strip().splitlines():
        model, data, detector, setting, values = line.split(" | ")
        for value in values.split(", "):
            state, metric, number = value.split(" ")
            table[model, data, detector, setting.removeprefix("-"), state, metric] = float(number)
    return table


@dataclass(frozen=True)
class Study:
    """A table or figure as a grid of runs of the main pipeline.

    Attributes:
        place: paper and number of the table or figure.
        title: research question.
        detectors: computed in every cell.
        axes: factors varied between cells.
        rows: headings of the table's rows: axes, settings of a detector, `detector`, `state` or `metric`.
        columns: headings of the table's columns, likewise.
        metrics: metrics shown.
        states: scores shown; with `base` alone nothing is fine-tuned and the whole benchmark is tested.
        one_at_a_time: vary one axis at a time around the defaults, as a single axis `setting`, instead of all
            combinations.
        figure: kind of figure.
        x: x-axis of a curve or heat map: an axis, or a setting of a detector.
        y: y-axis of a heat map: a setting of a detector.
        against: detector that all others are tested against, paired by text.
        model: the paper's model, if models are not an axis; "" if --model is needed at full scale.
        settings: settings of every cell.
        small_settings: additional settings of every cell at the small scale.
        needs: flags needed at full scale besides --model and --data; shown by --list.
        aliases: other names of the study.
        paper: numbers printed in the paper.
        note: caveats shown below the table.
    """

    place: str
    title: str
    detectors: tuple[DetectorSpec, ...]
    axes: tuple[Axis, ...] = ()
    rows: tuple[str, ...] = ("detector",)
    columns: tuple[str, ...] = ("state",)
    metrics: tuple[Metric, ...] = ("auc",)
    states: tuple[State, ...] = ("base", "fsd")
    one_at_a_time: bool = False
    figure: FigureKind = "dots"
    x: str = ""
    y: str = ""
    against: str = ""
    model: str = ""
    settings: Mapping[str, Any] = field(default_factory=dict)
    small_settings: Mapping[str, Any] = field(default_factory=dict)
    needs: str = ""
    aliases: tuple[str, ...] = ()
    paper: PaperNumbers = field(default_factory=dict)
    note: str = ""

    @property
    def trained(self) -> bool:
        """Whether cells are fine-tuned."""
        return "fsd" in self.states

    @property
    def has_foreign_texts(self) -> bool:
        """Whether an axis trains on texts of another domain."""
        return any("texts.unseen_from" in settings for axis in self.axes for settings in axis.levels.values())


def with_defaults(*names: str) -> tuple[DetectorSpec, ...]:
    """Detectors with their default settings."""
    return tuple(DetectorSpec(name) for name in names)


def surp_table() -> tuple[DetectorSpec, ...]:
    """Detectors of the SURP paper's tables, with min_k and surp at their defaults and at the best of a grid.

    The paper chooses both settings by grid search, and names no other texts than the tested ones for it. The grid of
    surp is that of its Figure 4; that of min_k, 10 to 100 %, is ours.
    """
    return (
        *with_defaults("loss", "reference", "lowercase", "zlib", "neighbour", "min_k"),
        DetectorSpec("min_k", grid=tuple({"k": k / 10} for k in range(1, 11))),
        *with_defaults("surp"),
        DetectorSpec("surp", grid=SURP_GRID),
    )


SURP_GRID = tuple({"entropy": step / 2, "k": float(k)} for step in range(1, 21) for k in range(10, 101, 10))
"""Entropy thresholds and percentiles of the SURP paper (arXiv 2407.21248), Figure 4."""


def vary(name: str, setting: str, values: Values, small: Values | None = None) -> Axis:
    """An axis of one setting. Values are given with their labels, or are their own labels."""

    def levels(values: Values) -> Levels:
        labelled = values if isinstance(values, Mapping) else {str(value): value for value in values}
        return {label: {setting: value} for label, value in labelled.items()}

    return Axis(name, levels(values), None if small is None else levels(small))


def model_axis(*ids: str) -> Axis:
    """Models as an axis; at the small scale the embedded target and its twin."""
    return vary(MODEL, "model.model", ids, EMBEDDED_MODELS)


def data_axis(*names: str, small: tuple[str, ...] = ("embedded:cs,eess,stat,math", "embedded:q-bio,econ")) -> Axis:
    """Benchmarks as an axis; at the small scale fields of the embedded corpus."""
    return vary(DATA, "data.data", {name: (name,) for name in names}, {name: (name,) for name in small})


def names() -> tuple[str, ...]:
    """Names of all studies, in alphabetical order."""
    return tuple(sorted(module.name.replace("_", "-") for module in pkgutil.iter_modules(papers.__path__)))


def read(name: str) -> Study:
    """Return the declaration of the study with this name (not an alias)."""
    study: Study = importlib.import_module(f"{papers.__name__}.{name.replace('-', '_')}").STUDY
    return study


def load(name: str) -> tuple[str, Study]:
    """Return name and declaration of a study, which may be given by an alias.

    Raises:
        UsageError: for an unknown name.
    """
    everything: list[str] = []
    for known in names():
        study = read(known)
        if name.lower() in (known, *study.aliases):
            return known, study
        everything += (known, *study.aliases)
    nearest = "".join(f" (nearest: {match})" for match in get_close_matches(name.lower(), everything, n=1))
    got = f"got {name!r}" if name else "none is given"
    raise UsageError(f"study must be a name shown by --list{nearest}; {got}")
