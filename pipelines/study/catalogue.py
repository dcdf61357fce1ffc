"""The declarations in catalogue.yaml, whose head says what each field means, and the papers' numbers in papers.csv."""

import csv
import functools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from itertools import product
from pathlib import Path
from typing import Any, Literal, NamedTuple

from fsd.errors import UsageError

CATALOGUE = Path(__file__).with_name("catalogue.yaml")
PAPERS = Path(__file__).with_name("papers.csv")

MODEL, DATA, FREQUENCIES = "model", "data", "frequencies"
EMBEDDED_MODELS = ("embedded", "embedded-twin")
"""The embedded target model, and its twin, pretrained in the same way but without the members."""
OWN = "Own study"
"""Beginning of the place of a study that is of no paper."""
LISTS = ("data.data", "texts.other")
"""Settings that hold several entries; a declaration may give one alone."""
FLAGS: Mapping[str, Mapping[str, Any]] = {
    MODEL: {"setting": "model.model", "small": EMBEDDED_MODELS},
    DATA: {"setting": "data.data", "small": ("embedded:cs,eess,stat,math", "embedded:q-bio,econ")},
    FREQUENCIES: {"setting": "model.frequencies"},
}
"""Axis → its setting, and its levels at the small scale; the flag of the same name replaces the levels."""
BEST = "best of grid"
"""Label of the setting that is the best of a grid on the tested texts, in tables and in papers.csv."""

Levels = Mapping[str, Mapping[str, Any]]
"""Label → settings of that level."""


@dataclass(frozen=True)
class TextOptions:
    """Changes to the texts of a cell, applied in this order; see `fsd.data.ablations`."""

    timestamps: Literal["keep", "delete", "replace"] = "keep"
    words: int | None = None
    where: Literal["head", "middle", "tail"] | None = None
    trained_on: Literal["non", "mem", "all"] | None = None
    other: tuple[str, ...] = ()
    unseen_from: Literal["own", "both", "other"] = "own"
    unseen_count: int | None = None


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
        settings = [f"{name} {value}" for name, value in self.settings.items()]
        return " ".join([self.name, *([BEST] if self.grid else settings)])

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
    rows: tuple[str, ...] = ("detector",)
    columns: tuple[str, ...] = ("state",)
    metrics: tuple[Literal["auc", "tpr_at_5fpr", "accuracy"], ...] = ("auc",)
    states: tuple[Literal["base", "fsd"], ...] = ("base", "fsd")
    one_at_a_time: bool = False
    figure: Literal["dots", "curve", "roc", "scores", "heat map"] = "dots"
    x: str = ""
    y: str = ""
    against: str = ""
    model: str = ""
    settings: Mapping[str, Any] = field(default_factory=dict)
    small_settings: Mapping[str, Any] = field(default_factory=dict)
    needs: str = ""
    aliases: tuple[str, ...] = ()
    paper: Mapping[tuple[str, ...], float] = field(default_factory=dict)
    """(model, data, detector, setting, state, metric) → number."""
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
    places = (name, *fields.get("aliases", ()))
    return Study(**fields, paper={tuple(key): value for place, *key, value in _printed() if place in places})


def _detectors(entry: str | Mapping[str, Any]) -> Iterator[DetectorSpec]:
    """One detector for each combination of the listed settings; with `best`, one for all of them."""
    if isinstance(entry, str):
        yield DetectorSpec(entry)
        return
    values = [value if isinstance(value, list) else [value] for value in entry["settings"].values()]
    combinations = [dict(zip(entry["settings"], chosen, strict=True)) for chosen in product(*values)]
    label = entry.get("label", "")
    every = tuple(DetectorSpec(entry["name"], settings, label.format(**settings)) for settings in combinations)
    yield from [DetectorSpec(entry["name"], grid=every)] if entry.get("best") else every


def _axis(name: str, entry: Mapping[str, Any] | list[Any]) -> Axis:
    """An axis of one setting, whose levels may be their own labels, or of levels with several settings each."""
    declared = {**FLAGS.get(name, {}), **(entry if isinstance(entry, Mapping) else {"levels": entry})}

    def levels(values: Any) -> Levels:
        labelled = values if isinstance(values, Mapping) else dict(zip(values, values, strict=True))
        return {
            str(label): _settings(value if isinstance(value, Mapping) else {declared["setting"]: value})
            for label, value in labelled.items()
        }

    return Axis(name, levels(declared["levels"]), levels(declared.get("small", declared["levels"])))


def _settings(declared: Mapping[str, Any]) -> dict[str, Any]:
    several = {key: tuple(value) if isinstance(value, list) else (value,) for key, value in declared.items()}
    return {key: several[key] if key in LISTS else value for key, value in declared.items()}


@functools.cache
def _printed() -> list[tuple[Any, ...]]:
    """The rows of papers.csv: place, model, data, detector, setting, state, metric, value."""
    with PAPERS.open(encoding="utf-8", newline="") as file:
        return [(*labels, float(value)) for *labels, value in list(csv.reader(file))[1:]]


@functools.cache
def studies() -> Mapping[str, Study]:
    """All studies of the catalogue by name, in alphabetical order."""
    import yaml

    blocks = yaml.safe_load(CATALOGUE.read_text(encoding="utf-8"))
    return {name: parse(name, block) for name, block in sorted(blocks.items()) if not name.startswith("_")}


def load(name: str) -> tuple[str, Study]:
    """Return name and declaration of a study, which may be given by an alias."""
    known = {alias: known for known, study in studies().items() for alias in (known, *study.aliases)}
    if name.lower() in known:
        found = known[name.lower()]
        return found, studies()[found]
    nearest = "".join(f" (nearest: {match})" for match in get_close_matches(name.lower(), known, n=1))
    got = f"got {name!r}" if name else "none is given"
    raise UsageError(f"study must be a name shown by --list{nearest}; {got}")
