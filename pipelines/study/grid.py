"""Settings of the command line, and the cells that a study consists of with these settings."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from pathlib import Path
from typing import Annotated, Any, Literal

from tyro.conf import Positional, arg

from fsd.config import (
    AdapterConfig,
    CleaningConfig,
    Columns,
    DataConfig,
    Dtype,
    FSDConfig,
    ModelConfig,
    OptionalDay,
    OptionalInt,
    OptionalModel,
    OptionalName,
    OptionalPaths,
)
from fsd.errors import UsageError
from pipelines.study.catalogue import DATA, EMBEDDED_MODELS, FLAGS, FREQUENCIES, MODEL, Axis, Levels, Study, TextOptions

SETTING = "setting"
"""The single axis of a study that varies one axis at a time."""
DATA_SETTINGS = ("domain", "columns", "cutoff", "split", "cleaning")
MODEL_SETTINGS = ("revision", "device", "dtype", "bits", "max_batch_tokens", "neighbour_model")
"""Flags that are settings of every cell."""


@dataclass(frozen=True)
class StudyConfig:
    """Study, model and texts."""

    study: Annotated[str, Positional, arg(metavar="[NAME]", help_behavior_hint="")] = ""
    """Name of the study; see --list."""
    list: bool = False
    """List all studies, what each needs, and whether it can run here."""
    model: Annotated[tuple[str, ...], arg(metavar="MODEL [MODEL ...]", help_behavior_hint="")] = ()
    """`embedded`, folders or hub ids; several for a study that compares models. Default: `embedded`, or the paper's
    models with --scale full."""
    data: OptionalPaths = ()
    """Files or published benchmarks such as wikimia:64, merged into one benchmark; a study that compares benchmarks
    takes each as one of them."""
    other: OptionalPaths = ()
    """Labelled texts of another domain, for the study that fine-tunes on them."""
    split: Literal["grouped", "paper"] = "grouped"
    """`grouped` keeps articles and near-duplicates in one part; `paper` draws rows as the papers do, and may leak."""
    frequencies: OptionalPaths = ()
    """Token-frequency table for dc_pdd, made by `fsd frequencies`: one for all models, or one for each."""
    columns: Columns = ""
    cutoff: OptionalDay = None
    """Last day of the model's data: non-members dated up to it are contemporaries of the members, all others later."""
    cleaning: CleaningConfig = field(default_factory=CleaningConfig)
    domain: str = "arxiv"
    """Domain of the texts; the MLflow experiment is fsd-<domain>."""
    scale: Literal["small", "full"] = "small"
    """`small` runs in about a minute on the embedded model; `full` is the paper's grid."""
    reference_model: Annotated[tuple[str | None, ...], arg(metavar="[MODEL ...]", help_behavior_hint="")] = ()
    """Smaller model of the same family, for the detector `reference`: one for all, or one (or None) for each."""
    neighbour_model: OptionalModel = None
    """Masked language model for the detector `neighbour`."""
    revision: OptionalName = None
    """Branch, tag or commit of a hub id."""
    device: str = "auto"
    """auto, cpu, cuda, cuda:N, or `spread` for a model larger than one card: over all cards, then main memory."""
    dtype: Dtype = "auto"
    """Precision of training and scoring; auto is bfloat16 on cuda and float32 elsewhere."""
    bits: Annotated[Literal[4, 8] | None, arg(metavar="{4,8}", help_behavior_hint="")] = None
    """Quantize the weights to 4 or 8 bits, for a model larger than the memory; needs bitsandbytes."""
    max_batch_tokens: OptionalInt = None
    """Maximum number of tokens in a forward pass, padding included. Default: depends on the device."""
    training: AdapterConfig = field(default_factory=AdapterConfig)
    seed: int = 42
    """Random seed for the split, adapter initialisation and bootstrap."""

    @property
    def embedded(self) -> bool:
        """Whether only embedded models are used, so that texts default to the embedded corpus."""
        return set(self.model) <= set(EMBEDDED_MODELS) and (self.scale == "small" or bool(self.model))


@dataclass(frozen=True)
class Cell:
    """One run of the main pipeline within a study: its label on each axis, its settings and changes to its texts."""

    labels: Mapping[str, str]
    config: FSDConfig
    texts: TextOptions

    @property
    def name(self) -> str:
        """The labels, separated by commas."""
        return ", ".join(self.labels.values()) or "all"


def plan(name: str, study: Study, config: StudyConfig) -> list[Cell]:
    """Expand a study into its cells, in the order of its axes; refuses missing and surplus flags."""
    axes = {axis.name: _levels(axis, config) for axis in study.axes}
    models = [level["model.model"] for level in axes.get(MODEL, {}).values()]
    _check(name, study, config, max(1, len(models)))
    preset = study.model if config.scale == "full" else ""
    fixed = {"model.model": preset or "embedded", **study.settings}
    fixed |= study.small_settings if config.scale == "small" else {}
    if study.one_at_a_time:
        each = [(axis, *level) for axis in axes for level in axes[axis].items()]
        chosen = [({SETTING: f"{axis} {label}"}, settings) for axis, label, settings in each]
    else:
        combined = [dict(zip(axes, labels, strict=True)) for labels in product(*axes.values())]
        chosen = [
            (labels, {key: value for axis, at in labels.items() for key, value in axes[axis][at].items()})
            for labels in combined
        ]
    return [_cell(labels, {**fixed, **settings}, config, models) for labels, settings in chosen]


def _check(name: str, study: Study, config: StudyConfig, models: int) -> None:
    axes = {axis.name for axis in study.axes}
    each = f", or one for each of its {models} models" if models > 1 else ""
    for flag, values, several, allowed in (
        ("--model", config.model, MODEL in axes, ""),
        ("--frequencies", config.frequencies, FREQUENCIES in axes or len(config.frequencies) == models, each),
        ("--reference-model", config.reference_model, len(config.reference_model) == models, each),
    ):
        if len(values) > 1 and not several:
            raise UsageError(f"study {name} must have one {flag}{allowed}; got {', '.join(map(str, values))}")
    if config.scale == "full" and not (config.model or study.model) and MODEL not in axes:
        raise UsageError(f"study {name} in full must have a model: give --model ID, or leave out --scale full")
    if FREQUENCIES in axes and not config.frequencies and not config.embedded:
        raise UsageError(f"study {name} must have token-frequency tables to compare: give --frequencies FILE FILE")
    if study.has_foreign_texts and config.data and not config.other:
        raise UsageError(f"study {name} must have texts of another domain beside --data: give --other FILE")
    if config.other and not study.has_foreign_texts:
        raise UsageError(f"other must be given only to a study with foreign texts; {name} has none")


def _levels(axis: Axis, config: StudyConfig) -> Levels:
    """The levels of an axis: the values of its flag, else those of the declaration."""
    setting = FLAGS.get(axis.name, {}).get("setting", "")
    values: Sequence[str] = getattr(config, axis.name) if setting else ()
    if not values:
        small = config.embedded if setting else config.scale == "small"
        return axis.small if small else axis.levels
    labels = [label(value) for value in values]
    if len({*labels}) < len({*values}):  # folders of the same name
        labels = list(values)
    return {
        label: {setting: (value,) if axis.name == DATA else value} for label, value in zip(labels, values, strict=True)
    }


def label(value: str) -> str:
    """The name of a file or folder without its path and .npz; hub ids and benchmarks unchanged."""
    return Path(value).name.removesuffix(".npz") if Path(value).exists() else value


def _cell(labels: dict[str, str], settings: dict[str, Any], config: StudyConfig, models: Sequence[str]) -> Cell:
    at = models.index(settings["model.model"]) if settings["model.model"] in models else 0
    if config.frequencies and FREQUENCIES not in labels:
        settings["model.frequencies"] = config.frequencies[at % len(config.frequencies)]
    if config.reference_model:
        settings["model.reference_model"] = config.reference_model[at % len(config.reference_model)]
    if config.model and MODEL not in labels:
        settings["model.model"] = config.model[0]
    if config.data and DATA not in labels:
        settings["data.data"] = config.data
    elif config.embedded and not settings.get("data.data", ("",))[0].startswith("embedded"):
        settings["data.data"] = ("embedded",)
    if config.other and "texts.unseen_from" in settings:
        settings["texts.other"] = config.other
    of: dict[str, dict[str, Any]] = {"data": {}, "model": {}, "training": {}, "texts": {}}
    for key, value in settings.items():
        group, _, name = key.partition(".")
        of[group][name] = value
    of_data, of_model = ({name: getattr(config, name) for name in names} for names in (DATA_SETTINGS, MODEL_SETTINGS))
    job = FSDConfig(
        data=DataConfig(**of_data, **of["data"]),
        model=ModelConfig(**of_model, **of["model"]),
        training=replace(config.training, **of["training"]),
        placebo="none",
        seed=config.seed,
    )
    return Cell(labels, job, TextOptions(**of["texts"]))
