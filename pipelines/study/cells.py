"""One cell: its content hash, its numbers, and the run that keeps them."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import detectors
from detectors import Detector
from fsd.data.documents import Split, content_hash
from fsd.errors import UsageError
from fsd.scoring.scorers import frequency_file
from pipelines.study.grid import Cell
from pipelines.study.spec import Detection, Study

if TYPE_CHECKING:
    import pandas as pd

    from fsd.scoring.deviation import Deviation
    from fsd.tracking import Run
    from pipelines.study.model_pool import Workbench

CODE = (
    "fsd.scoring.model_scorer",
    "fsd.scoring.logit_statistics",
    "fsd.scoring.triton_kernel",
    "fsd.models.finetuning",
    "fsd.models.language_model",
    "fsd.models.adapters",
    "fsd.scoring.deviation",
    "fsd.evaluation.metrics",
    "fsd.evaluation.intervals",
)
"""Modules that every number goes through: when one changes, finished cells count no more."""
SCORES = "scores.parquet"


@dataclass(frozen=True)
class Work:
    """A cell with all that its numbers depend on.

    Attributes:
        cell: the cell.
        detectors: named by `Detection.key`.
        parts: its texts.
        trained: whether an adapter is trained.
        key: the content hash.
    """

    cell: Cell
    detectors: tuple[Detector, ...]
    parts: Split
    trained: bool
    key: str


@dataclass(frozen=True)
class Done:
    """A finished cell: its place in the table, the run that holds it, its numbers, and why detectors are missing."""

    cell: Cell
    run_id: str
    metrics: Mapping[str, float]
    left_out: Mapping[str, str]
    reused: bool


def small_form(study: Study) -> Study:
    """The study with the detectors that need no forward pass but one of the base and one of the tuned model."""
    cheap = {"text", "tuned", "unigram"}
    kept = [
        d for d, loaded in zip(study.detectors, load_detectors(study.detectors), strict=True) if _reads(loaded, cheap)
    ]
    names = dict.fromkeys(d.shown for d in study.detectors if d not in kept)
    if not names:
        return study
    left = f"The small form leaves out {', '.join(names)}, for want of time: another pass over the texts each."
    return replace(study, detectors=tuple(kept), note=f"{left} {study.note}".strip())


def _reads(detector: Detector, views: set[str]) -> bool:
    return set(detector.views) <= views


def load_detectors(wanted: Sequence[Detection]) -> tuple[Detector, ...]:
    """The detectors of a study, each named by its key."""
    return tuple(replace(detectors.load(d.name, **d.settings), name=d.key) for d in wanted)


def work(cell: Cell, study: Study, bench: "Workbench") -> Work:
    """Texts, detectors and content hash of a cell; no model is loaded for it.

    Raises:
        UsageError: for texts or a model that cannot be had, or too few texts.
    """
    from pipelines.study.texts import prepare

    cell = replace(cell, config=replace(cell.config, model=bench.resolved(cell.config.model)))
    try:
        parts = prepare(cell, trained=study.trained)
    except UsageError as error:
        raise UsageError(f"cell {cell.name}: {error}") from error
    trained = study.trained and bool(parts.unseen)
    chosen = load_detectors(study.detectors)
    return Work(cell, chosen, parts, trained, _key(cell, chosen, parts, trained, bench))


def _key(cell: Cell, chosen: Sequence[Detector], parts: Split, trained: bool, bench: "Workbench") -> str:
    """SHA-256 over everything that the numbers of a cell depend on."""
    model = cell.config.model
    reference = model.reference_model or ("embedded-twin" if model.model == "embedded" else None)
    views = {view for detector in chosen for view in detector.views}
    table = frequency_file(model) if "unigram" in views else None
    content = {
        "model": bench.fingerprint(model.model, model.revision),
        "precision": [model.device, model.dtype, model.bits],
        "reference": bench.fingerprint(reference) if reference and "reference" in views else None,
        "frequencies": _digest(table) if table else None,
        "neighbours": model.neighbour_model,
        "training": asdict(cell.config.training) if trained else None,
        "detectors": {d.name: dict(d.settings) for d in chosen},
        "shots": cell.config.detection.shots,
        "seed": cell.config.seed,
        "texts": [[(content_hash(d.text), d.member, d.group) for d in part] for part in parts],
        "code": code([detectors.__name__ + "." + d.function.__name__ for d in chosen]),
    }
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def code(modules: Sequence[str]) -> dict[str, str]:
    """The hash of the source of each module, and of those that every number goes through."""
    found = {}
    for name in sorted({*CODE, *modules}):
        spec = find_spec(name)
        if spec is None or spec.origin is None:
            raise ModuleNotFoundError(name)
        found[name] = _digest(Path(spec.origin))
    return found


def _digest(file: Path) -> str:
    try:
        return hashlib.sha256(file.read_bytes()).hexdigest()
    except OSError as error:
        raise UsageError(f"frequency table must be a file; there is no file {file}") from error


def run_cell(item: Work, bench: "Workbench", run: "Run") -> tuple[dict[str, float], dict[str, str]]:
    """Train, score and judge as the main job does, and keep the numbers and scores in the run.

    Raises:
        UsageError: as the main job does, with the cell's name before it.
    """
    from pipelines.common import experiment

    config = item.cell.config
    try:
        model = bench.model(config.model)
        if item.trained:
            experiment.tune(model, item.parts.unseen, config, run)
        scorers = bench.scorers(config.model, trained=item.trained)
        work = experiment.prepare(model, item.parts, item.detectors, config, scorers)
        deviation, left_out = work.score(), work.left_out
        numbers, frame = judge(item, deviation, left_out)
    except UsageError as error:
        raise UsageError(f"cell {item.cell.name}: {error}") from error
    run.log_metrics(numbers)
    run.log_table(SCORES, frame)
    run.set_tags({"left_out": json.dumps(left_out)})
    return numbers, left_out


def judge(item: Work, deviation: "Deviation", left_out: Mapping[str, str]) -> "tuple[dict[str, float], pd.DataFrame]":
    """The numbers of a cell under the names that all runs share, and its scores, a row a text."""
    from fsd.evaluation import results as _outcome
    from pipelines.common import run_log as _record

    seed = item.cell.config.seed
    if item.trained:
        remarks = [f"{name} left out: {reason}" for name, reason in left_out.items()]
        outcome = _outcome.judge(item.parts, deviation, None, item.detectors, seed=seed, remarks=remarks)
        numbers, frame = _record.metrics(outcome), _record.scores_frame(outcome)
    else:
        numbers, frame = _base_metrics(item, deviation), _base_frame(item, deviation)
    return {**_sizes(item.parts), **_fallbacks(item, deviation), **numbers}, frame


def _fallbacks(item: Work, deviation: "Deviation") -> dict[str, float]:
    """Share of the texts on which a detector's base score is a fallback."""
    found: dict[str, float] = {}
    texts = len(item.parts.validation) + len(item.parts.test)
    for (name, state, _), count in deviation.fallbacks.items():
        if state == "base":
            found[f"fallback/{name}.base"] = found.get(f"fallback/{name}.base", 0.0) + count / texts
    return found


def _sizes(parts: Split) -> dict[str, float]:
    sizes = {f"texts/{name}": float(len(part)) for name, part in parts._asdict().items()}
    return {**sizes, "texts/test_members": float(sum(bool(d.member) for d in parts.test))}


def _base_metrics(item: Work, deviation: "Deviation") -> dict[str, float]:
    """Base scores on the test texts; no threshold, so no accuracy."""
    from fsd.data.near_duplicates import families
    from fsd.evaluation.metrics import evaluate

    test = item.parts.test
    held = len(item.parts.validation)
    groups = [str(number) for number in families([d.group for d in test], [d.text for d in test])]
    scores = {name: column[held:] for name, column in deviation.base.items()}
    found = {}
    for name, numbers in evaluate([bool(d.member) for d in test], scores, groups, seed=item.cell.config.seed).items():
        for metric in ("auc", "tpr_at_1fpr", "tpr_at_5fpr", "tpr_at_10fpr"):
            found[f"{metric}/{name}.base"] = getattr(numbers, metric).value
        found[f"auc_low/{name}.base"], found[f"auc_high/{name}.base"] = numbers.auc.low, numbers.auc.high
    return found


def _base_frame(item: Work, deviation: "Deviation") -> "pd.DataFrame":
    import pandas as pd

    from fsd.data.near_duplicates import families

    texts = [*item.parts.validation, *item.parts.test]
    columns: dict[str, Any] = {
        "id": [content_hash(d.text)[:16] for d in texts],
        "label": [int(bool(d.member)) for d in texts],
        "group": [str(number) for number in families([d.group for d in texts], [d.text for d in texts])],
        "split": ["validation"] * len(item.parts.validation) + ["test"] * len(item.parts.test),
    }
    return pd.DataFrame({**columns, **{f"{name}.base": column for name, column in deviation.base.items()}})
