"""Declarative types for the tables and figures in catalogue.yaml, and their reading.

A declaration states what is varied, which scores and metrics are shown, and their layout in the paper. The block
`fsd-t6` is run by `python -m pipelines.study fsd-t6`. `papers.csv` holds the numbers that the papers print.
"""

import csv
import functools
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from itertools import product
from pathlib import Path
from typing import Any, Literal

from fsd.errors import UsageError

CATALOGUE = Path(__file__).with_name("catalogue.yaml")
PAPERS = Path(__file__).with_name("papers.csv")

FigureKind = Literal["dots", "curve", "roc", "scores", "heat map"]
Metric = Literal["auc", "tpr_at_5fpr", "accuracy"]
State = Literal["base", "fsd"]

MODEL, DATA, FREQUENCIES = "model", "data", "frequencies"
EMBEDDED_MODELS = ("embedded", "embedded-twin")
"""The embedded target model, and its twin, pretrained in the same way but without the members."""
SMALL_DATA = ("embedded:cs,eess,stat,math", "embedded:q-bio,econ")
"""Fields of the embedded corpus that replace the benchmarks at the small scale, unless a study names others."""
LISTS = ("data.data", "texts.other")
"""Settings that hold several entries; a declaration may give one alone."""
FLAGS: Mapping[str, Mapping[str, Any]] = {
    MODEL: {"setting": "model.model", "small": EMBEDDED_MODELS},
    DATA: {"setting": "data.data", "small": SMALL_DATA},
    FREQUENCIES: {"setting": "model.frequencies"},
}
"""Axis → its setting, and its levels at the small scale; the flag of the same name replaces the levels."""


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


PaperNumbers = dict[tuple[str, str, str, str, str, str], float]
"""Numbers printed in the paper: (model, data, detector, setting, state, metric) → number.

Model and data are a hub id and a benchmark, as a cell has them; the detector is a name in `detectors`; setting is the
label of the other axes or, of a detector with settings, its own. It is empty where neither is varied, or makes no
difference, as the training does to base scores."""


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


def parse(name: str, declared: Mapping[str, Any]) -> Study:
    """A study from its block in the catalogue, with the numbers that papers.csv has under its name and its aliases."""
    fields: dict[str, Any] = {
        key: tuple(value) if isinstance(value, list) else value for key, value in declared.items()
    }
    fields |= {
        "detectors": tuple(spec for entry in declared["detectors"] for spec in _detectors(entry)),
        "axes": tuple(_axis(axis, entry) for axis, entry in declared.get("axes", {}).items()),
        "settings": _settings(declared.get("settings", {})),
        "small_settings": _settings(declared.get("small_settings", {})),
    }
    study = Study(**fields)
    paper = {key: number for place in (name, *study.aliases) for key, number in _printed().get(place, {}).items()}
    return replace(study, paper=paper)


def _detectors(entry: str | Mapping[str, Any]) -> Iterator[DetectorSpec]:
    """One detector for each combination of the listed settings; with `best`, one for all of them."""
    if isinstance(entry, str):
        yield DetectorSpec(entry)
        return
    values = {name: value if isinstance(value, list) else [value] for name, value in entry["settings"].items()}
    combinations = tuple(dict(zip(values, chosen, strict=True)) for chosen in product(*values.values()))
    if entry.get("best"):
        yield DetectorSpec(entry["name"], grid=combinations)
    else:
        for settings in combinations:
            yield DetectorSpec(entry["name"], settings, entry.get("label", "").format(**settings))


def _axis(name: str, entry: Mapping[str, Any] | list[Any]) -> Axis:
    """An axis of one setting, whose levels may be their own labels, or of levels with several settings each."""
    declared = {**FLAGS.get(name, {}), **(entry if isinstance(entry, Mapping) else {"levels": entry})}

    def levels(values: Mapping[Any, Any] | Iterable[Any]) -> Levels:
        labelled = values if isinstance(values, Mapping) else {value: value for value in values}
        return {
            str(label): _settings(value if isinstance(value, Mapping) else {declared.get("setting", ""): value})
            for label, value in labelled.items()
        }

    small = declared.get("small")
    return Axis(name, levels(declared["levels"]), None if small is None else levels(small))


def _settings(declared: Mapping[str, Any]) -> dict[str, Any]:
    return {key: (value,) if key in LISTS else value for key, value in declared.items()}


@functools.cache
def _printed() -> Mapping[str, PaperNumbers]:
    """The numbers of papers.csv by table or figure; see `PaperNumbers`."""
    numbers: defaultdict[str, PaperNumbers] = defaultdict(dict)
    with PAPERS.open(encoding="utf-8", newline="") as file:
        for place, model, data, detector, setting, state, metric, value in list(csv.reader(file))[1:]:
            numbers[place][model, data, detector, setting, state, metric] = float(value)
    return numbers


@functools.cache
def studies() -> Mapping[str, Study]:
    """All studies of the catalogue by name, in alphabetical order."""
    import yaml

    blocks = yaml.safe_load(CATALOGUE.read_text(encoding="utf-8"))
    return {name: parse(name, block) for name, block in sorted(blocks.items()) if not name.startswith("_")}


def load(name: str) -> tuple[str, Study]:
    """Return name and declaration of a study, which may be given by an alias.

    Raises:
        UsageError: for an unknown name.
    """
    everything = {alias: known for known, study in studies().items() for alias in (known, *study.aliases)}
    known = everything.get(name.lower())
    if known:
        return known, studies()[known]
    nearest = "".join(f" (nearest: {match})" for match in get_close_matches(name.lower(), everything, n=1))
    got = f"got {name!r}" if name else "none is given"
    raise UsageError(f"study must be a name shown by --list{nearest}; {got}")
