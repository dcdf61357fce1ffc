"""Cells of a study: texts and content hash, and the run of MLflow that holds their numbers."""

import hashlib
import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace

import detectors
from detectors import Detector
from fsd import tracking
from fsd.data.documents import content_hash
from fsd.data.splitting import Split
from fsd.errors import UsageError
from fsd.models.finetuning import check_training
from fsd.scoring.scorers import reference_name
from pipelines.common import experiment
from pipelines.common.run_log import log_texts
from pipelines.study.code_version import code_version
from pipelines.study.grid import Cell
from pipelines.study.model_pool import ModelPool
from pipelines.study.spec import DetectorSpec, Study
from pipelines.study.texts import split_texts

SCORES = "scores.parquet"
CHEAP_VIEWS = {"text", "tuned", "unigram"}
"""Views that need no forward pass besides one of the base and one of the tuned model."""


@dataclass(frozen=True)
class PreparedCell:
    """A cell with everything that its numbers depend on.

    Attributes:
        cell: the cell.
        detectors: named by `DetectorSpec.key`.
        parts: the split of its texts; an adapter is trained on the unseen ones, if there are any.
        key: content hash.
    """

    cell: Cell
    detectors: tuple[Detector, ...]
    parts: Split
    key: str


@dataclass(frozen=True)
class CellResult:
    """A finished cell.

    Attributes:
        cell: the cell.
        run_id: MLflow run that holds its numbers and scores.
        metrics: metric → value.
        left_out: detector → reason why it cannot be computed.
        reused: whether the run is from an earlier study or another cell.
    """

    cell: Cell
    run_id: str
    metrics: Mapping[str, float]
    left_out: Mapping[str, str]
    reused: bool


def at_small_scale(study: Study) -> Study:
    """The study without detectors that need more than one forward pass per text and model state."""
    loaded = zip(study.detectors, load_detectors(study.detectors), strict=True)
    cheap = tuple(spec for spec, detector in loaded if set(detector.views) <= CHEAP_VIEWS)
    names = dict.fromkeys(spec.shown for spec in study.detectors if spec not in cheap)
    if not names:
        return study
    note = f"The small scale omits {', '.join(names)}, which need further forward passes over the texts."
    return replace(study, detectors=cheap, note=f"{note} {study.note}".strip())


def load_detectors(specs: Sequence[DetectorSpec]) -> tuple[Detector, ...]:
    """Load detectors, each named by its key."""
    return tuple(replace(detectors.load(spec.name, **spec.settings), name=spec.key) for spec in specs)


def prepare_cell(cell: Cell, study: Study, pool: ModelPool) -> PreparedCell:
    """Texts, detectors and content hash of a cell; no model is loaded.

    Raises:
        UsageError: for texts or a model that cannot be found, or too few texts.
    """
    cell = replace(cell, config=replace(cell.config, model=pool.with_frequency_file(cell.config.model)))
    try:
        parts = split_texts(cell, trained=study.trained)
    except UsageError as error:
        raise UsageError(f"cell {cell.name}: {error}") from error
    if parts.unseen:
        check_training(cell.config.training)
    loaded = load_detectors(study.detectors)
    return PreparedCell(cell, loaded, parts, _key(cell, loaded, parts, pool))


def _key(cell: Cell, loaded: Sequence[Detector], parts: Split, pool: ModelPool) -> str:
    """SHA-256 of everything that the numbers of a cell depend on."""
    from fsd.models import quantization
    from fsd.models.language_model import resolve_precision

    model = cell.config.model
    device, dtype = resolve_precision(model)
    quantization.options(model.bits, dtype)  # refuses what cannot be loaded
    reference = reference_name(model)
    views = {view for detector in loaded for view in detector.views}
    content = {
        "model": pool.fingerprint(model.model, model.revision),
        "precision": [device.type, str(dtype), model.bits],
        "reference": pool.fingerprint(reference) if reference and "reference" in views else None,
        "frequencies": pool.frequencies(model) if "unigram" in views else None,
        "neighbours": model.neighbour_model,
        "training": asdict(cell.config.training) if parts.unseen else None,
        "detectors": {d.name: dict(d.settings) for d in loaded},
        "shots": cell.config.detection.shots,
        "seed": cell.config.seed,
        "texts": [[(content_hash(d.text), d.member, d.group, str(d.date)) for d in part] for part in parts],
        "code": code_version((__name__, *sorted({f"detectors.{d.function.__name__}" for d in loaded}))),
    }
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def run(name: str, prepared: PreparedCell, pool: ModelPool, parent: tracking.Run, experiment_name: str) -> CellResult:
    """Run a cell of the study `name` in an MLflow run nested below `parent`.

    Raises:
        UsageError: as the main pipeline does, prefixed with the name of the cell.
    """
    cell, config = prepared.cell, prepared.cell.config
    tags = {"study": name, "kind": "cell", "cell": prepared.key, "base_model": config.model.model}
    params = {"cell": cell.labels, **asdict(config.training), "model": config.model.model, "data": config.data.data}
    with tracking.run(experiment_name, f"{name}: {cell.name}", params=params, tags=tags, parent=parent) as opened:
        try:
            metrics, left_out = compute(prepared, pool, opened)
        except UsageError as error:
            raise UsageError(f"cell {cell.name}: {error}") from error
    opened.check()  # table and figure are made of what is stored
    return CellResult(cell, opened.id, metrics, left_out, reused=False)


def compute(prepared: PreparedCell, pool: ModelPool, run: tracking.Run) -> tuple[dict[str, float], dict[str, str]]:
    """Fine-tune, score and evaluate as the main pipeline does; log metrics and scores to the run.

    Returns:
        Metric → value, and detector → reason why it is left out.
    """
    from fsd.data.near_duplicates import families
    from fsd.evaluation import results

    parts, config, trained = prepared.parts, prepared.cell.config, bool(prepared.parts.unseen)
    model = pool.model(config.model)
    if trained:
        experiment.train_adapter(model, parts.unseen, config, run)
    scorers = pool.scorers(config.model, trained=trained)
    job = experiment.prepare(model, parts, prepared.detectors, config, scorers)
    deviation = job.score()
    if trained:
        judged = results.judge(parts, deviation, None, prepared.detectors, seed=config.seed)
        metrics, scores = judged.metrics(), judged.scores
    else:  # base scores only: no threshold is chosen, so there is no accuracy
        family = families([*parts.validation, *parts.test])
        scores = results.score_table(parts, deviation, family).drop(columns="text")
        test = scores["split"] == "test"
        tested = family[len(parts.validation) :]
        metrics = results.tracked(results.evaluate(scores[test], scores["label"][test], tested, seed=config.seed))
    fallbacks: defaultdict[str, float] = defaultdict(float)
    for (name, state, _), count in deviation.fallbacks.items():
        if state == "base":
            fallbacks[f"fallback/{name}.base"] += count / len(scores)
    metrics = {**_sizes(parts), **fallbacks, **metrics}
    log_texts(run, parts, config.data, config.data.data or ("embedded corpus",))
    run.log_metrics(metrics)
    run.log_table(SCORES, scores)
    run.set_tags({"left_out": json.dumps(job.left_out)})
    return metrics, job.left_out


def _sizes(parts: Split) -> dict[str, float]:
    """Number of texts in each part, and of members among the test texts."""
    sizes = {f"texts/{name}": float(len(part)) for name, part in parts._asdict().items()}
    return {**sizes, "texts/test_members": float(sum(bool(d.member) for d in parts.test))}
