"""Settings of the command line, and the cells that a study consists of with these settings."""

from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from itertools import product
from pathlib import Path
from typing import Annotated, Any, Literal

from tyro.conf import Positional, arg

from extensions.study.catalogue import (
    DATA,
    EMBEDDED_MODELS,
    FLAGS,
    FREQUENCIES,
    MODEL,
    Axis,
    Levels,
    Study,
    TextOptions,
)
from fsd.api import (
    AdapterConfig,
    CleaningConfig,
    Columns,
    DataConfig,
    FSDConfig,
    ModelConfig,
    OptionalDay,
    OptionalInt,
    OptionalModel,
    OptionalName,
    OptionalPaths,
    UsageError,
)

# The single axis of a study that varies one axis at a time.
SETTING = "setting"
# Where the settings of a cell have the reference models of its study, until its model is known.
REFERENCES = "references"
# Settings that no study varies: the flags of these names hold for every cell.
FIXED = (
    "data.domain",
    "data.columns",
    "data.cutoff",
    "data.split",
    "data.cleaning",
    "model.revision",
    "model.device",
    "model.dtype",
    "model.bits",
    "model.first_token",
    "model.max_batch_tokens",
    "model.neighbour_model",
)


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
    """`grouped` keeps articles and near-duplicates in one part; `paper` draws rows as the FSD paper does, and leaks."""
    fpr_bound: Literal["inclusive", "exclusive"] = "inclusive"
    """A true-positive rate at 5 % is that at a false-positive rate of at most 5 %, or of less, as the papers' code."""
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
    """Smaller model of the same family, for the detector `reference`: one for all, or one (or None) for each. Default:
    the paper's for each of its models."""
    neighbour_model: OptionalModel = None
    """Masked language model for the detector `neighbour`."""
    first_token: Literal["scored", "given"] = "scored"
    """`scored` after a start token (BOS, else EOS), or `given`: no start token, as in the code of the papers."""
    revision: OptionalName = None
    """Branch, tag or commit of a hub id."""
    device: str = "auto"
    """auto, cpu, cuda, cuda:N, or `spread` for a model larger than one card: over all cards, then main memory."""
    dtype: Literal["auto", "float32", "bfloat16", "float16"] = "auto"
    """Precision of training and scoring; auto is bfloat16 on a GPU that has it, else float32."""
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
        if not self.model:
            return self.scale == "small"
        return set(self.model) <= set(EMBEDDED_MODELS)


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
    compared = axes.get(MODEL, {})
    models = [level["model.model"] for level in compared.values()]
    _check(name, study, config, set(axes), max(1, len(models)))
    shared = _shared(study, config)
    cells = []
    for labels, varied in _combinations(study, axes):
        settings = {**shared, **varied}
        if config.data and not any(map(_compares_texts, study.axes)):
            settings["data.data"] = config.data
        cells.append(_cell(labels, settings, config, models))
    return cells


def _shared(study: Study, config: StudyConfig) -> dict[str, Any]:
    """The settings of every cell."""
    shared = {}
    for key in FIXED:
        shared[key] = getattr(config, key.partition(".")[2])
    shared["model.model"] = "embedded"
    if config.scale == "full" and study.model:
        shared["model.model"] = study.model
    shared |= study.settings
    if config.scale == "small":
        shared |= study.small_settings
    shared[REFERENCES] = study.references
    return shared


def _combinations(study: Study, axes: Mapping[str, Levels]) -> Iterator[tuple[dict[str, str], dict[str, Any]]]:
    """The labels and the settings of each cell: all combinations of levels, or one axis varied at a time."""
    if study.one_at_a_time:
        for axis, levels in axes.items():
            for level, settings in levels.items():
                # The levels of all axes share one heading, so that each is labelled with its axis.
                yield {SETTING: f"{axis} {level}"}, dict(settings)
        return
    for combination in product(*axes.values()):
        labels = dict(zip(axes, combination, strict=True))
        varied: dict[str, Any] = {}
        for axis, level in labels.items():
            varied |= axes[axis][level]
        yield labels, varied


def _check(name: str, study: Study, config: StudyConfig, axes: Set[str], models: int) -> None:
    """Refuse flags that the study has no use for, and name those that it needs."""
    if MODEL not in axes:
        _check_single(name, "--model", config.model)
        if config.scale == "full" and not (config.model or study.model):
            raise UsageError(f"study {name} in full must have a model: give --model ID, or leave out --scale full")
    if FREQUENCIES not in axes:
        _check_single(name, "--frequencies", config.frequencies, models)
    elif not (config.frequencies or config.embedded):
        raise UsageError(f"study {name} must have token-frequency tables to compare: give --frequencies FILE FILE")
    _check_single(name, "--reference-model", config.reference_model, models)
    if not study.has_foreign_texts:
        if config.other:
            raise UsageError(f"other must be given only to a study with foreign texts; {name} has none")
    elif config.data and not config.other:
        raise UsageError(f"study {name} must have texts of another domain beside --data: give --other FILE")


def _check_single(study: str, flag: str, values: Sequence[object], models: int = 1) -> None:
    """Refuse a flag with several values that are not one for each model."""
    if len(values) in (0, 1, models):
        return
    allowed = f", or one for each of its {models} models" if models > 1 else ""
    received = ", ".join(map(str, values))
    raise UsageError(f"study {study} must have one {flag}{allowed}; got {received}")


def _levels(axis: Axis, config: StudyConfig) -> Levels:
    """The levels of an axis: the values of its flag, else those of the declaration."""
    flag = DATA if config.data and _compares_texts(axis) else axis.name
    if flag not in FLAGS:
        return axis.small if config.scale == "small" else axis.levels
    values: Sequence[str] = getattr(config, flag)
    if not values:
        # With embedded models a flag's axis is small at full scale too: they have no other texts and tables.
        return axis.small if config.embedded else axis.levels
    labels: Sequence[str] = list(map(label, values))
    # Folders of the same name would become one level, so that they keep their paths.
    if len(set(labels)) < len(set(values)):
        labels = values
    setting = FLAGS[flag]["setting"]
    levels = {}
    for name, value in zip(labels, values, strict=True):
        level: Any = value
        if flag == DATA:
            level = (value,)
        levels[name] = {setting: level}
    return levels


def _compares_texts(axis: Axis) -> bool:
    """Whether each level has texts of its own, so that files take the levels' places; a length cuts the same texts."""
    varied = set().union(*axis.small.values(), *axis.levels.values())
    return axis.name == DATA or ("data.data" in varied and "texts.words" not in varied)


def label(value: str) -> str:
    """The name of a file or folder without its path and .npz; hub ids and benchmarks unchanged."""
    path = Path(value)
    if not path.exists():
        return value
    return path.name.removesuffix(".npz")


def _cell(labels: dict[str, str], settings: dict[str, Any], config: StudyConfig, models: Sequence[str]) -> Cell:
    """The cell of some settings, in which flags go before the declaration unless an axis varies the same."""
    # The model of the declaration decides which table is whose, so this comes before --model replaces it.
    place = 0
    if settings["model.model"] in models:
        place = models.index(settings["model.model"])
    if config.frequencies and FREQUENCIES not in labels:
        # One for each model, or the only one for all of them.
        settings["model.frequencies"] = config.frequencies[place % len(config.frequencies)]
    if config.model and MODEL not in labels:
        settings["model.model"] = config.model[0]
    model = settings["model.model"]
    references = settings.pop(REFERENCES)
    if config.reference_model:
        settings["model.reference_model"] = config.reference_model[place % len(config.reference_model)]
    elif model in references:
        settings["model.reference_model"] = references[model]
    if config.embedded and not config.data and not settings.get("data.data", ("",))[0].startswith("embedded"):
        # Nothing is downloaded for an embedded model, which was not trained on the paper's texts anyway.
        settings["data.data"] = ("embedded",)
    if config.other and "texts.unseen_from" in settings:
        settings["texts.other"] = config.other
    of_run = FSDConfig(
        data=DataConfig(**_section(settings, "data.")),
        model=ModelConfig(**_section(settings, "model.")),
        training=replace(config.training, **_section(settings, "training.")),
        # The papers have no control model, which would double the cost of every cell.
        placebo="none",
        seed=config.seed,
    )
    return Cell(labels, of_run, TextOptions(**_section(settings, "texts.")))


def _section(settings: Mapping[str, Any], prefix: str) -> dict[str, Any]:
    """The settings that begin with the prefix, without it."""
    section = {}
    for key, value in settings.items():
        if key.startswith(prefix):
            section[key.removeprefix(prefix)] = value
    return section
