"""From a study and a command line to cells: a place in the table, a configuration of the main job and its texts."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from pathlib import Path
from typing import Any, Literal

from fsd.config import AdapterConfig, DataConfig, FSDConfig, ModelConfig
from fsd.errors import UsageError
from pipelines.study.spec import DATA, FREQUENCIES, MODEL, TWINS, Axis, Levels, Study, Texts

SETTING = "setting"
"""The one axis of a study that varies its axes apart."""


@dataclass(frozen=True)
class Request:
    """What a command line asks of a study: `pipelines.study.StudyConfig` without its name."""

    model: tuple[str, ...] = ()
    data: tuple[str, ...] = ()
    other: tuple[str, ...] = ()
    frequencies: tuple[str, ...] = ()
    columns: str = ""
    domain: str = "arxiv"
    scale: Literal["small", "full"] = "small"
    options: ModelConfig = field(default_factory=ModelConfig)
    training: AdapterConfig = field(default_factory=AdapterConfig)
    seed: int = 42

    @property
    def embedded(self) -> bool:
        """Whether only embedded models are asked, so that the embedded texts are the default."""
        return set(self.model) <= set(TWINS) and (self.scale == "small" or bool(self.model))


@dataclass(frozen=True)
class Cell:
    """One run of a study.

    Attributes:
        place: axis → label.
        config: of the main job.
        texts: what is done to its texts.
    """

    place: Mapping[str, str]
    config: FSDConfig
    texts: Texts

    @property
    def name(self) -> str:
        """The labels in a row."""
        return ", ".join(self.place.values()) or "all"


def plan(name: str, study: Study, request: Request) -> list[Cell]:
    """The cells of a study, in the order of its axes.

    Raises:
        UsageError: if a flag is missing that the study needs, or given more often than it can be used.
    """
    _check(name, study, request)
    axes = [Axis(axis.name, _levels(axis, request)) for axis in study.axes]
    fixed = {**study.settings, **(study.small_settings if request.scale == "small" else {})}
    return [_cell(place, {**fixed, **settings}, request) for place, settings in _grid(axes, apart=study.apart)]


def _check(name: str, study: Study, request: Request) -> None:
    axes = {axis.name for axis in study.axes}
    for flag, axis, given in (
        ("--model", MODEL, request.model),
        ("--frequencies", FREQUENCIES, request.frequencies),
    ):
        if len(given) > 1 and axis not in axes:
            raise UsageError(f"study {name} must have one {flag}; got {', '.join(given)}")
    if request.scale == "full" and not request.model and MODEL not in axes:
        raise UsageError(f"study {name} in full must have a model: give --model ID, or leave out --scale full")
    if FREQUENCIES in axes and not request.frequencies and not request.embedded:
        raise UsageError(f"study {name} must have token-frequency tables to compare: give --frequencies FILE FILE")
    foreign = any("texts.foreign" in change for axis in study.axes for change in axis.levels.values())
    if foreign and request.data and not request.other:
        raise UsageError(f"study {name} must have texts of another domain beside --data: give --other FILE")
    if request.other and not foreign:
        raise UsageError(f"other must be given only to a study with foreign texts; {name} has none")


def _levels(axis: Axis, request: Request) -> Levels:
    given: dict[str, tuple[str, Sequence[str]]] = {
        MODEL: ("model.model", request.model),
        DATA: ("data.data", request.data),
        FREQUENCIES: ("model.frequencies", request.frequencies),
    }
    setting, values = given.get(axis.name, ("", ()))
    if values:
        return {_label(v): {setting: (v,) if axis.name == DATA else v} for v in values}
    small = request.embedded if axis.name in given else request.scale == "small"
    return axis.small if small and axis.small is not None else axis.levels


def _label(value: str) -> str:
    """A file by its name, an id or benchmark as it is."""
    return Path(value).name if Path(value).exists() else value


def _grid(axes: Sequence[Axis], *, apart: bool) -> Iterator[tuple[dict[str, str], dict[str, Any]]]:
    if apart:
        for axis in axes:
            for label, change in axis.levels.items():
                yield {SETTING: f"{axis.name} {label}"}, dict(change)
        return
    for levels in product(*(axis.levels.items() for axis in axes)):
        place = {axis.name: label for axis, (label, _) in zip(axes, levels, strict=True)}
        yield place, {key: value for _, change in levels for key, value in change.items()}


def _cell(place: dict[str, str], settings: dict[str, Any], request: Request) -> Cell:
    settings = {"model.model": request.model[0] if request.model else "embedded", **settings}
    if request.data and DATA not in place:
        settings["data.data"] = request.data
    elif request.embedded and not settings.get("data.data", ("",))[0].startswith("embedded"):
        settings["data.data"] = ("embedded",)
    if request.other and "texts.foreign" in settings:
        settings["texts.other"] = request.other
    if request.frequencies and FREQUENCIES not in place:
        settings["model.frequencies"] = request.frequencies[0]
    config = FSDConfig(
        data=DataConfig(domain=request.domain, columns=request.columns),
        model=request.options,
        training=request.training,
        placebo="none",
        seed=request.seed,
    )
    return Cell(place, *apply(config, Texts(), settings))


def apply(config: FSDConfig, texts: Texts, settings: Mapping[str, Any]) -> tuple[FSDConfig, Texts]:
    """Configuration and texts with some settings changed, each by its dotted name.

    Raises:
        TypeError: for a setting that does not exist.
        AttributeError: for a group of settings that does not exist.
    """
    for key, value in settings.items():
        group, _, setting = key.partition(".")
        if group == "texts":
            texts = replace(texts, **{setting: value})
        else:
            config = replace(config, **{group: replace(getattr(config, group), **{setting: value})})
    return config, texts
