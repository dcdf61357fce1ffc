"""Cells of a study: their texts, the tag by which a finished cell is found, and the run that holds its numbers."""

import functools
import hashlib
import json
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

import detectors
from detectors import Detector
from fsd import tracking
from fsd.config import ModelConfig
from fsd.data.documents import content_hash
from fsd.data.splitting import Split
from fsd.errors import UsageError
from fsd.models.finetuning import check_training
from fsd.net.hub import fingerprint, locate
from fsd.scoring.model import build_scorers, cache_folder, frequency_file, reference_name
from pipelines.common import experiment
from pipelines.common.run_log import log_texts
from pipelines.study.catalogue import DetectorSpec, Study
from pipelines.study.grid import Cell
from pipelines.study.texts import split_texts

if TYPE_CHECKING:
    import pandas as pd

    from fsd.models.language_model import LanguageModel

SCORES = "scores.parquet"
DOCSTRINGS = "docstrings:"
"""Prefix of a reference corpus that consists of the docstrings of an installed package."""
PARAGRAPHS = 300
CHEAP_VIEWS = {"text", "tuned", "unigram"}
"""Views that need no forward pass besides one of the base and one of the tuned model."""


@dataclass(frozen=True)
class PreparedCell:
    """A cell with its texts, detectors named by `DetectorSpec.key`, and a hash of all that its numbers depend on."""

    cell: Cell
    detectors: tuple[Detector, ...]
    parts: Split
    tag: str
    grids: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Grid of settings → detectors, of which the best on the test texts is kept."""


@dataclass(frozen=True)
class CellResult:
    """A finished cell, and the run that holds its numbers and scores, which may be of an earlier study."""

    cell: Cell
    run_id: str
    metrics: Mapping[str, float]
    left_out: Mapping[str, str]
    """Detector → reason why it cannot be computed."""
    reused: bool
    chosen: Mapping[str, str] = field(default_factory=dict)
    """Grid of settings → the detector that is the best of it."""


def at_small_scale(study: Study, given: Collection[str] = ()) -> Study:
    """The study without detectors that need more than one forward pass per text and model state, unless `given`."""
    cheap = tuple(
        spec for spec in study.detectors if spec.name in given or set(detectors.load(spec.name).views) <= CHEAP_VIEWS
    )
    names = dict.fromkeys(spec.shown for spec in study.detectors if spec not in cheap)
    if not names:
        return study
    note = f"The small scale omits {', '.join(names)}, which need further forward passes over the texts."
    return replace(study, detectors=cheap, note=f"{note} {study.note}".strip())


def load_detectors(specs: Sequence[DetectorSpec]) -> tuple[Detector, ...]:
    """Load detectors, each named by its key; of a grid, one for each of its settings."""
    single = [candidate for spec in specs for candidate in spec.candidates or (spec,)]
    return tuple(replace(detectors.load(spec.name, **spec.settings), name=spec.key) for spec in single)


def parts_of(cell: Cell, study: Study) -> Split:
    """The texts of a cell, split."""
    try:
        return split_texts(cell, trained=study.trained)
    except UsageError as error:
        raise UsageError(f"cell {cell.name}: {error}") from error


def prepare_cell(cell: Cell, study: Study) -> PreparedCell:
    """Texts, detectors and tag of a cell, whose model is located but not loaded."""
    cell = replace(cell, config=replace(cell.config, model=_with_counted_table(cell.config.model)))
    parts = parts_of(cell, study)
    if parts.unseen:
        check_training(cell.config.training)
    loaded = load_detectors(study.detectors)
    grids = {spec.key: tuple(c.key for c in spec.candidates) for spec in study.detectors if spec.grid}
    return PreparedCell(cell, loaded, parts, _tag(cell, loaded, parts, grids), grids)


def _tag(cell: Cell, loaded: Sequence[Detector], parts: Split, grids: Mapping[str, tuple[str, ...]]) -> str:
    """The tag of a cell, which depends on the weights of its models, not on their names."""
    from fsd.models.language_model import quantization_options, resolve_precision

    model = cell.config.model
    device, dtype = resolve_precision(model)
    quantization_options(model.bits, dtype)  # refuses what cannot be loaded
    reference, neighbours = reference_name(model), model.neighbour_model
    views = {view for detector in loaded for view in detector.views}
    content = {
        "model": _weights(model.model, model.revision),
        "precision": [device.type, str(dtype), model.bits],
        "reference": _weights(reference) if reference and "reference" in views else None,
        "frequencies": _table(model.model, model.revision, frequency_file(model)) if "unigram" in views else None,
        "neighbours": _weights(neighbours) if neighbours not in (None, "words") else neighbours,
        "training": asdict(cell.config.training) if parts.unseen else None,
        "detectors": {d.name: dict(d.settings) for d in loaded},
        "grids": grids,
        "shots": cell.config.detection.shots,
        "seed": cell.config.seed,
        "texts": [[(content_hash(d.text), d.member, d.group, str(d.date)) for d in part] for part in parts],
    }
    return experiment.tag(content)


@functools.cache
def _weights(model: str, revision: str | None = None) -> str:
    return fingerprint(locate(model, revision)[0])


@functools.cache
def _table(model: str, revision: str | None, file: Path | None) -> str | None:
    """Hash of a token-frequency table; refuses one that was made with another tokenizer than the model's."""
    from fsd.models.language_model import load_tokenizer
    from fsd.scoring.token_frequencies import FrequencyTable

    if file is None:
        return None
    FrequencyTable.load(file).matching(*load_tokenizer(model, revision=revision), model)
    return hashlib.sha256(file.read_bytes()).hexdigest()


def _with_counted_table(config: ModelConfig) -> ModelConfig:
    """The settings with a file in place of `docstrings:PACKAGE`; the tokens of its manual are counted once."""
    from fsd.data.docstrings import docstring_paragraphs
    from fsd.data.readers import Passage
    from fsd.models.language_model import load_tokenizer
    from fsd.scoring.token_frequencies import count

    package = (config.frequencies or "").partition(DOCSTRINGS)[2]
    folder = cache_folder(config)
    if not package or folder is None:
        return config
    file = folder / "frequencies" / f"{_weights(config.model, config.revision)}-{package}-{version(package)}.npz"
    if not file.exists():
        tokenizer, vocabulary = load_tokenizer(config.model, revision=config.revision)
        texts = docstring_paragraphs((package,), limit=PARAGRAPHS, seed=0)
        name = f"{PARAGRAPHS} paragraphs of the manual of {package}"
        file.parent.mkdir(parents=True, exist_ok=True)
        count(map(Passage, texts), tokenizer, vocabulary, model=config.model, corpus=name).save(file)
    return replace(config, frequencies=str(file))


def run(
    name: str, prepared: PreparedCell, model: "LanguageModel", parent: tracking.Run, experiment_name: str
) -> CellResult:
    """Run a cell of the study `name` in an MLflow run nested below `parent`."""
    cell, config = prepared.cell, prepared.cell.config
    tags = {"study": name, "kind": "cell", "cell": prepared.tag, "base_model": config.model.model}
    params = {"cell": cell.labels, **asdict(config.training), "model": config.model.model, "data": config.data.data}
    with tracking.run(experiment_name, f"{name}: {cell.name}", params=params, tags=tags, parent=parent) as opened:
        try:
            metrics, left_out, chosen = compute(prepared, model, opened)
        except UsageError as error:
            raise UsageError(f"cell {cell.name}: {error}") from error
        opened.log_metrics(metrics)
        opened.set_tags({"left_out": json.dumps(left_out), "chosen": json.dumps(chosen)})
    opened.check()  # table and figure are made of what is stored
    return CellResult(cell, opened.id, metrics, left_out, reused=False, chosen=chosen)


def read_scores(result: CellResult, part: str = "test") -> "pd.DataFrame":
    """Scores of the test or validation texts of a cell: label, group, and one column per detector and state."""
    import pandas as pd

    frame = pd.read_parquet(tracking.fetch_artifact(result.run_id, SCORES))
    return frame[frame["split"] == part].reset_index(drop=True)


def reuse(record: tracking.RunRecord, cell: Cell, parent: tracking.Run, experiment_name: str) -> CellResult:
    """The numbers of a finished cell of an earlier call, shown among those of this one; its scores stay there."""
    tags = {"study": record.tags["study"], "cell": record.tags["cell"], "kind": "reused cell", "from": record.id}
    note = f"Reused from run {record.id}, which holds the scores."
    with tracking.run(
        experiment_name, record.name, params=record.params, tags=tags, description=note, parent=parent
    ) as shown:
        shown.log_metrics(record.metrics)
    left_out, chosen = (json.loads(record.tags.get(tag, "{}")) for tag in ("left_out", "chosen"))
    return CellResult(cell, record.id, record.metrics, left_out, reused=True, chosen=chosen)


def compute(
    prepared: PreparedCell, model: "LanguageModel", run: tracking.Run
) -> tuple[dict[str, float], dict[str, str], dict[str, str]]:
    """Fine-tune, score and evaluate as the main pipeline does; metrics, and what was left out and chosen."""
    from fsd.data.near_duplicates import families
    from fsd.evaluation import results

    parts, config = prepared.parts, prepared.cell.config
    chosen: dict[str, str] = {}
    scorers = build_scorers(model, config.model)
    if not parts.unseen:
        del scorers["tuned"]  # the model may have the adapter of another cell
    job, deviation = experiment.measure(model, parts, prepared.detectors, config, run, scorers=scorers)
    if parts.unseen:
        judged = results.judge(parts, deviation, None, prepared.detectors, seed=config.seed)
        scores, table, audit = judged.scores, judged.table, judged.audit.metrics()
    else:  # base scores only: no threshold is chosen, so there is no accuracy
        family = families([*parts.validation, *parts.test])
        scores, chosen = _best_of_grids(results.score_table(parts, deviation, family), prepared.grids)
        scores = scores.drop(columns="text")
        test = scores["split"] == "test"
        table = results.evaluate(scores[test], scores["label"][test], list(scores["group"][test]), seed=config.seed)
        audit = {}
    fallbacks: defaultdict[str, float] = defaultdict(float)
    shown = {best: name for name, best in chosen.items()}
    hidden = {name for candidates in prepared.grids.values() for name in candidates} - {*shown}
    for (name, state, _), count in deviation.fallbacks.items():
        if state == "base" and name not in hidden:
            fallbacks[f"fallback/{shown.get(name, name)}.base"] += count / len(scores)
    log_texts(run, parts, config.data, config.data.data or ("embedded corpus",))
    run.log(SCORES, scores)
    return {**sizes(parts), **fallbacks, **audit, **results.tracked(table), **_intervals(table)}, job.left_out, chosen


def _intervals(table: "pd.DataFrame") -> dict[str, float]:
    """Ends of the intervals of the metrics that studies show, which are logged for the AUC anyway."""
    rows = table[table["metric"].isin(("tpr_at_5fpr", "accuracy"))]
    return {
        f"{row.metric}_{end}/{row.detector}.{row.state}": float(getattr(row, end))
        for row in rows.itertuples()
        for end in ("low", "high")
    }


def _best_of_grids(
    scores: "pd.DataFrame", grids: Mapping[str, tuple[str, ...]]
) -> "tuple[pd.DataFrame, dict[str, str]]":
    """The scores with one column per grid, of its detector with the highest AUC on the test texts, and that choice."""
    from fsd.evaluation.metrics import auc

    test = scores[scores["split"] == "test"]
    chosen = {}
    for name, candidates in grids.items():
        aucs = {c: auc(test["label"] == 1, test[f"{c}.base"]) for c in candidates if f"{c}.base" in scores}
        if aucs:
            chosen[name] = max(aucs, key=lambda candidate: aucs[candidate])
    columns = {f"{name}.base": scores[f"{best}.base"] for name, best in chosen.items()}
    hidden = [f"{c}.base" for candidates in grids.values() for c in candidates if f"{c}.base" in scores]
    return scores.drop(columns=hidden).assign(**columns), chosen


def sizes(parts: Split) -> dict[str, float]:
    """Number of texts in each part, and of members among the test texts."""
    counts = {f"texts/{name}": float(len(part)) for name, part in parts._asdict().items()}
    return {**counts, "texts/test_members": float(sum(bool(d.member) for d in parts.test))}
