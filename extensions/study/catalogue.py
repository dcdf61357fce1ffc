"""The declarations in catalogue.yaml, whose head says what each field means, and the papers' numbers in papers.csv."""

import csv
import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from itertools import chain, product, starmap
from pathlib import Path
from typing import Any, Literal, NamedTuple

from pydantic import TypeAdapter

from fsd.api import UsageError

CATALOGUE = Path(__file__).with_name("catalogue.yaml")
PAPERS = Path(__file__).with_name("papers.csv")

MODEL = "model"
DATA = "data"
FREQUENCIES = "frequencies"
# The embedded target model, and its twin, pretrained in the same way but without the members.
EMBEDDED_MODELS = ("embedded", "embedded-twin")
# Beginning of the place of a study that is of no paper.
OWN = "Own study"
# Settings that hold several entries; a declaration may give one alone.
LISTS = ("data.data", "texts.other")
# Name → value, as YAML has them.
Fields = Mapping[str, Any]
# Label → settings of that level.
Levels = Mapping[str, Fields]
Names = tuple[str, ...]
# Axis → its setting, and its levels at the small scale; the flag of the same name replaces the levels.
FLAGS: Levels = {
    MODEL: {"setting": "model.model", "small": EMBEDDED_MODELS},
    DATA: {"setting": "data.data", "small": ("embedded:cs,eess,stat,math", "embedded:q-bio,econ")},
    FREQUENCIES: {"setting": "model.frequencies"},
}
# Label of the setting that is the best of a grid on the tested texts, in tables and in papers.csv.
BEST = "best of grid"


@dataclass(frozen=True)
class TextOptions:
    """Changes to the texts of a cell, applied in this order; see `extensions.study.ablations`."""

    timestamps: Literal["keep", "delete", "replace"] = "keep"
    longest: int | None = None
    words: int | None = None
    where: Literal["head", "middle", "tail"] | None = None
    trained_on: Literal["non", "mem", "all"] | None = None
    other: Names = ()
    unseen_from: Literal["own", "both", "other"] = "own"
    unseen_count: int | None = None
    reserved: int | None = None
    tested: int | None = None
    validated: int | None = None


class Axis(NamedTuple):
    """A factor that is varied, with its levels in the paper and at the small scale."""

    name: str
    levels: Levels
    small: Levels = {}  # noqa: RUF012 - never changed


@dataclass(frozen=True)
class DetectorSpec:
    """A detector with settings, or with a grid of them, of which a cell shows the best on its own test texts."""

    name: str
    settings: Mapping[str, float | bool] = field(default_factory=dict)
    label: str = ""
    grid: "tuple[DetectorSpec, ...]" = ()

    @property
    def key(self) -> str:
        """Name and settings; unique within a study and valid in the name of a metric."""
        if self.grid:
            return f"{self.name} {BEST}"
        key = self.name
        for name, value in self.settings.items():
            key += f" {name} {value}"
        return key

    @property
    def shown(self) -> str:
        """Label in the table."""
        return self.label or self.key


@dataclass(frozen=True)
class Study:
    """A table or figure as a grid of runs of the main pipeline; `paper` has the rows that it has in papers.csv."""

    place: str
    title: str
    detectors: tuple[DetectorSpec, ...]
    axes: tuple[Axis, ...] = ()
    rows: Names = ("detector",)
    columns: Names = ("state",)
    metrics: Names = ("auc",)
    states: tuple[Literal["base", "fsd"], ...] = ("base", "fsd")
    one_at_a_time: bool = False
    figure: Literal["dots", "curve", "roc", "scores", "before and after", "tokens", "rates", "heat map"] = "dots"
    x: str = ""
    y: str = ""
    against: str = ""
    model: str = ""
    settings: Fields = field(default_factory=dict)
    small_settings: Fields = field(default_factory=dict)
    references: Mapping[str, str] = field(default_factory=dict)
    benchmark: str = ""
    needs: str = ""
    aliases: Names = ()
    paper: Mapping[Names, float] = field(default_factory=dict)
    """(model, data, detector, setting, state, metric) → number."""
    note: str = ""
    agrees: str = ""
    differs: str = ""

    @property
    def trained(self) -> bool:
        """Whether cells are fine-tuned."""
        return "fsd" in self.states

    @property
    def has_foreign_texts(self) -> bool:
        """Whether an axis trains on texts of another domain."""
        for axis in self.axes:
            for settings in axis.levels.values():
                if "texts.unseen_from" in settings:
                    return True
        return False

    @property
    def source(self) -> "Paper | None":
        """The paper that it is of; None for a study of our own."""
        return papers().get(self.place.partition(",")[0])


@dataclass(frozen=True)
class Paper:
    """What holds of every number of a paper: see the head of catalogue.yaml."""

    title: str
    arxiv: str
    rate: str
    code: str = ""
    agrees: str = ""
    differs: str = ""


def parse(name: str, declared: Fields) -> Study:
    """A study from its block in the catalogue, with the numbers that papers.csv has under its name and its aliases."""
    fields = dict(declared)
    fields["detectors"] = tuple(chain.from_iterable(map(_detectors, declared["detectors"])))
    fields["axes"] = tuple(starmap(_axis, declared.get("axes", {}).items()))
    for key in ("settings", "small_settings"):
        fields[key] = _settings(declared.get(key, {}))
    places = (name, *fields.get("aliases", ()))
    paper = {labels: number for place, labels, number in _printed() if place in places}
    # Of lists it makes tuples, since a declaration is never changed.
    return TypeAdapter(Study).validate_python(fields | {"paper": paper})


def _detectors(entry: str | Fields) -> Sequence[DetectorSpec]:
    """One detector for each combination of the listed settings; with `best`, one for all of them."""
    if isinstance(entry, str):
        return [DetectorSpec(entry)]
    name = entry["name"]
    label = entry.get("label", "")
    single = []
    names = list(entry["settings"])
    for values in product(*map(_entries, entry["settings"].values())):
        settings = dict(zip(names, values, strict=True))
        single.append(DetectorSpec(name, settings, label.format(**settings)))
    if entry.get("best"):
        return [DetectorSpec(name, grid=tuple(single))]
    return single


def _axis(name: str, entry: Fields | list[Any]) -> Axis:
    """An axis of one setting, whose levels may be their own labels, or of levels with several settings each."""
    declared = dict(FLAGS.get(name, {}))
    declared |= entry if isinstance(entry, Mapping) else {"levels": entry}
    levels = declared["levels"]
    setting = declared.get("setting", "")
    return Axis(name, _levels(levels, setting), _levels(declared.get("small", levels), setting))


def _levels(values: Any, setting: str) -> Levels:
    """Levels with a label each, or values of the setting that are their own labels."""
    if not isinstance(values, Mapping):
        values = dict(zip(values, values, strict=True))
    levels = {}
    for label, value in values.items():
        if not isinstance(value, Mapping):
            value = {setting: value}
        # YAML reads a label such as 8 as a number.
        levels[str(label)] = _settings(value)
    return levels


def _settings(declared: Fields) -> dict[str, Any]:
    settings = dict(declared)
    for key in LISTS:
        if key in settings:
            settings[key] = _entries(settings[key])
    return settings


def _entries(value: Any) -> tuple[Any, ...]:
    """The entries of a list, or a single one that is given without a list."""
    return tuple(value) if isinstance(value, list) else (value,)


@functools.cache
def _printed() -> list[tuple[str, Names, float]]:
    """The rows of papers.csv: place; model, data, detector, setting, state and metric; number."""
    with PAPERS.open(encoding="utf-8", newline="") as file:
        _, *lines = csv.reader(file)
    return [(place, tuple(labels), float(number)) for place, *labels, number in lines]


@functools.cache
def _blocks() -> Fields:
    """The blocks of the catalogue by name, in the order of the file."""
    import yaml

    declared = CATALOGUE.read_text(encoding="utf-8")
    blocks: Fields = yaml.safe_load(declared)
    return blocks


@functools.cache
def papers() -> Mapping[str, Paper]:
    """The papers by the beginning of the places of their studies."""
    declared = _blocks()["_papers"]
    return {name: Paper(**fields) for name, fields in declared.items()}


def without_study() -> list[tuple[str, str]]:
    """Place of each table and figure that is no study, and why."""
    declared = _blocks()["_without_study"]
    return [(entry["place"], entry["why"]) for entry in declared]


@functools.cache
def studies() -> Mapping[str, Study]:
    """All studies of the catalogue by name, in alphabetical order."""
    blocks = _blocks()
    return {name: parse(name, blocks[name]) for name in sorted(in_order())}


def in_order() -> list[str]:
    """The names of the studies in the order of the file, which is that of the papers."""
    # Blocks that begin with _ hold what several studies share, and are none themselves.
    return [name for name in _blocks() if not name.startswith("_")]


def load(name: str) -> tuple[str, Study]:
    """Return name and declaration of a study, which may be given by an alias."""
    catalogue = studies()
    names: dict[str, str] = {}
    for official, study in catalogue.items():
        names |= dict.fromkeys((official, *study.aliases), official)
    wanted = name.lower()
    if wanted in names:
        return names[wanted], catalogue[names[wanted]]
    nearest = get_close_matches(wanted, names, n=1)
    hint = f" (nearest: {nearest[0]})" if nearest else ""
    got = f"got {name!r}" if name else "none is given"
    raise UsageError(f"study must be a name shown by --list{hint}; {got}")
