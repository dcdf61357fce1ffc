"""Cells of a study: their texts, the tag by which a finished cell is found, and the runs that hold their numbers.

`catalogue` reads the declarations, `grid` expands one into cells, `tables` lays out the results as the paper does.
"""

import functools
import json
import time
from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, replace
from datetime import timedelta
from importlib.metadata import version
from operator import attrgetter
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd

import detectors
from detectors import Detector
from fsd import tracking
from fsd.config import DataConfig, ModelConfig, check_training
from fsd.data import benchmarks, embedded
from fsd.data.ablations import add_unseen, fine_tuning_set, retime, take_unseen, truncate
from fsd.data.docstrings import docstring_paragraphs
from fsd.data.documents import Document, content_hash, segments
from fsd.data.readers import Passage
from fsd.data.splitting import Split, parse_cutoff, split, with_periods, without_later
from fsd.errors import UsageError
from fsd.evaluation import results
from fsd.evaluation.metrics import auc
from fsd.files import digest
from fsd.models.finetuning import plan as training_plan
from fsd.models.language_model import LanguageModel, load_tokenizer, quantization_options, resolve_precision
from fsd.net.hub import fingerprint, locate
from fsd.progress import note, progress
from fsd.scoring.model import cache_folder, frequency_file, reference_name
from fsd.scoring.token_frequencies import FrequencyTable, count
from fsd.tracking import Run, RunRecord
from pipelines.common import experiment
from pipelines.common.experiment import Inputs, LabelledTexts, load_texts
from pipelines.common.run_log import log_texts, training_params
from pipelines.study.catalogue import DetectorSpec, Study
from pipelines.study.grid import Cell

METRICS = {"auc": "AUC", "tpr_at_5fpr": "TPR@5%FPR", "accuracy": "accuracy"}
SCORES = "scores.parquet"
DOCSTRINGS = "docstrings:"
"""Prefix of a reference corpus that consists of the docstrings of an installed package."""
PARAGRAPHS = 300
CHEAP_VIEWS = {"text", "tuned", "unigram"}
"""Views that need no forward pass besides one of the base and one of the tuned model."""


LATER = timedelta(days=912)
"""Length of the embedded corpus's period: by so much the non-members of `embedded:dated` are later than their dates."""


class PreparedCell(NamedTuple):
    """A cell with what its experiment reads, and a hash of all that its numbers depend on."""

    cell: Cell
    inputs: Inputs
    tag: str


@functools.cache
def load(data: DataConfig, _folder: Path, model: ModelConfig | None = None) -> LabelledTexts:
    """Labelled texts of files in the working folder, published benchmarks and the embedded corpus, read once."""
    if not data.data:
        raise UsageError("a study must have texts: give --data FILE or the name of a benchmark")
    own = [entry for entry in data.data if entry.partition(":")[0] == "embedded"]
    others = replace(data, data=tuple(entry for entry in data.data if entry not in own))
    loaded = load_texts(others, model or ModelConfig()) if others.data else LabelledTexts([], {})
    corpora = (_embedded(entry.partition(":")[2]) for entry in own)
    documents = [*loaded.documents, *(document for corpus in corpora for document in corpus)]
    return loaded._replace(documents=with_periods(documents, parse_cutoff(data.cutoff)))


def _embedded(part: str) -> list[Document]:
    """The embedded corpus, or that of another domain; with dates put before the texts (`dated`), or of some fields.

    The dates that are put before members and non-members are of two periods, as in a benchmark that is split by time.
    """
    corpus = list(embedded.corpus(part if part in embedded.CORPORA else "arxiv"))
    if not part or part in embedded.CORPORA:
        return corpus
    if part == "dated":
        shown = [(d.date or embedded.CUTOFF) + (timedelta() if d.member else LATER) for d in corpus]
        return [replace(d, text=f"{day:%d %B %Y}. {d.text}") for d, day in zip(corpus, shown, strict=True)]
    rows = map(json.loads, embedded.CORPUS.read_text(encoding="utf-8").splitlines())
    field = {row["id"]: row["field"].partition(".")[0] for row in rows}
    if set(part.split(",")) - set(field.values()):
        raise UsageError(f"fields must be out of {', '.join(sorted(set(field.values())))}; got {part!r}")
    return [d for d in corpus if field[d.group] in part.split(",")]


def _of(entries: tuple[str, ...], cell: Cell) -> LabelledTexts:
    data, model = cell.config.data, cell.config.model
    read = DataConfig(data=entries, columns=data.columns, cutoff=data.cutoff, cleaning=data.cleaning)
    if all(benchmarks.start_of(entry) is None for entry in entries):
        return load(read, Path.cwd())
    return load(read, Path.cwd(), ModelConfig(model.model, model.revision))  # its tokenizer reads the ids


def split_texts(cell: Cell, *, trained: bool) -> tuple[Split, tuple[str, ...]]:
    """Unseen, validation and test texts of a cell, and remarks on them; without training all are test texts."""
    data, options, seed = cell.config.data, cell.texts, cell.config.seed
    loaded = _of(data.data, cell)
    remarks = (*loaded.labels(cell.config).said, *loaded.remarks)
    documents = retime(loaded.documents, options.timestamps)
    if options.words and options.where:
        pieces = [(document, segments(document.text, options.words, (options.where,))) for document in documents]
        documents = tuple(replace(document, text=text) for document, texts in pieces for text in texts)
    elif options.words:
        documents = truncate(documents, options.words)
    if not documents:
        raise UsageError(f"texts must have at least {options.words} words; none of {', '.join(data.data)} has")
    if not trained:
        return without_later(Split((), (), documents)), remarks
    share = float(data.unseen)
    how: dict[str, Any] = {"validation": data.validation, "scheme": data.split, "seed": seed}
    if options.trained_on:
        return fine_tuning_set(documents, options.trained_on, share=share, **how), remarks
    parts = split(documents, unseen=share, **how)
    if options.unseen_from != "own":
        foreign = split(_of(options.other, cell).documents, unseen=share, **how).unseen
        parts = add_unseen(parts, foreign, own=options.unseen_from == "both")
    if options.unseen_count is not None:
        parts = take_unseen(parts, options.unseen_count, seed=seed)
    return parts, remarks


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


def load_detectors(specs: Sequence[DetectorSpec]) -> list[Detector]:
    """Load detectors, each named by its key; of a grid, one for each of its settings."""
    single = [candidate for spec in specs for candidate in spec.grid or (spec,)]
    return [replace(detectors.load(spec.name, **spec.settings), name=spec.key) for spec in single]


@contextmanager
def _naming(cell: Cell) -> Iterator[None]:
    try:
        yield
    except UsageError as error:
        raise UsageError(f"cell {cell.name}: {error}") from error


def read(cell: Cell, study: Study) -> Inputs:
    """Texts and detectors of a cell."""
    with _naming(cell):
        split, remarks = split_texts(cell, trained=study.trained)
    return Inputs(cell.config, load_detectors(study.detectors), True, split=split, remarks=remarks)


def prepare_cell(cell: Cell, study: Study) -> PreparedCell:
    """Texts and tag of a cell, whose model is located but not loaded."""
    cell = replace(cell, config=replace(cell.config, model=_with_counted_table(cell.config.model)))
    inputs = read(cell, study)
    experiment.check_tokenizers(cell.config, ())
    if inputs.split.unseen:
        check_training(cell.config.training)
    return PreparedCell(cell, inputs, _tag(inputs, study))


def _tag(inputs: Inputs, study: Study) -> str:
    """The tag of a cell, which depends on the weights of its models, not on their names."""
    config, model = inputs.config, inputs.config.model
    device, dtype = resolve_precision(model)
    quantization_options(model.bits, dtype)  # refuses what cannot be loaded
    reference, neighbours = reference_name(model), model.neighbour_model
    views = {view for detector in inputs.detectors for view in detector.views}
    content = {
        "model": _weights(model.model, model.revision),
        "precision": [device.type, str(dtype), model.bits],
        "reference": _weights(reference) if reference and "reference" in views else None,
        "frequencies": _table(model.model, model.revision, frequency_file(model)) if "unigram" in views else None,
        "neighbours": _weights(neighbours) if neighbours not in (None, "words") else neighbours,
        "training": asdict(config.training) if inputs.split.unseen else None,
        "detectors": {d.name: dict(d.settings) for d in inputs.detectors},
        "grids": {spec.key: [candidate.key for candidate in spec.grid] for spec in study.detectors if spec.grid},
        "shots": config.detection.shots,
        "seed": config.seed,
        "texts": [
            [(content_hash(d.text), d.member, d.group, str(d.date), d.period) for d in part] for part in inputs.split
        ],
    }
    return experiment.tag(content)


@functools.cache
def _weights(model: str, revision: str | None = None) -> str:
    return fingerprint(locate(model, revision)[0])


@functools.cache
def _table(model: str, revision: str | None, file: Path | None) -> str | None:
    """Hash of a token-frequency table; refuses one that was made with another tokenizer than the model's."""
    if file is None:
        return None
    FrequencyTable.load(file).matching(*load_tokenizer(model, revision=revision), model)
    return digest(file)


def _with_counted_table(config: ModelConfig) -> ModelConfig:
    """The settings with a file in place of `docstrings:PACKAGE`; the tokens of its manual are counted once."""
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


def _finished(parent: Run) -> dict[str, RunRecord]:
    """Tag of a cell → the newest run that holds its numbers."""
    return {r.tags["cell"]: r for r in reversed(tracking.find_runs(parent.record.experiment, {"kind": "cell"}))}


def run_cells(
    name: str, study: Study, cells: Sequence[PreparedCell], parent: Run
) -> tuple[list[tuple[PreparedCell, RunRecord]], dict[str, str]]:
    """The cells and their runs, and why others are left out: those that no earlier run holds are run, equal ones once.

    A cell whose adapter cannot be trained on its texts is left out; it is an error if all are.
    """
    earlier, done, refused = _finished(parent), set[str](), dict[str, str]()
    model, loaded = None, ""
    with progress(len(cells), name, "cell") as bar:
        for at, prepared in enumerate(sorted(cells, key=attrgetter("cell.config.model.model")), 1):
            (cell, _, tag), start, how = prepared, time.perf_counter(), "reused"
            if tag in earlier and tag not in done:
                _show(earlier[tag], parent)
            elif tag not in done:
                if model is None or loaded != cell.config.model.model:
                    model = None  # one is released before the next is loaded
                    model, loaded = experiment.load_model(cell.config), cell.config.model.model
                refused[tag] = _untrainable(model, prepared.inputs)
                if not refused[tag]:
                    _run(name, study, prepared, model, parent)
                how = "left out" if refused[tag] else f"{time.perf_counter() - start:.1f} s"
            done.add(tag)
            bar.update(1)
            note(f"{name} {at}/{len(cells)}: {cell.name} ({how})")
    left_out = {prepared.cell.name: refused[prepared.tag] for prepared in cells if refused.get(prepared.tag)}
    if len(left_out) == len(cells):
        raise UsageError("cell {}: {}".format(*next(iter(left_out.items()))))
    finished = _finished(parent)
    return [(each, finished[each.tag]) for each in cells if each.cell.name not in left_out], left_out


def _untrainable(model: LanguageModel, inputs: Inputs) -> str:
    """Why no adapter can be trained on the unseen texts, such as AdaLoRA in too few steps; "" if one can."""
    try:
        if inputs.split.unseen:
            training_plan(model, [document.text for document in inputs.split.unseen], inputs.config.training)
    except UsageError as error:
        return str(error)
    return ""


def _show(record: RunRecord, parent: Run) -> None:
    """Show the numbers of a finished cell of an earlier call among those of this one; its scores stay there."""
    tags = {"study": record.tags["study"], "cell": record.tags["cell"], "kind": "reused cell", "from": record.id}
    note = f"Reused from run {record.id}, which holds the scores."
    with tracking.run(
        parent.record.experiment, record.name, params=record.params, tags=tags, description=note, parent=parent
    ) as shown:
        shown.log_metrics(record.metrics)


def _run(name: str, study: Study, prepared: PreparedCell, model: LanguageModel, parent: Run) -> None:
    """Run a cell of the study `name` in an MLflow run nested below `parent`."""
    (cell, inputs, tag), config, parts = prepared, prepared.cell.config, prepared.inputs.split
    tags = {"study": name, "kind": "cell", "cell": tag, "base_model": config.model.model}
    trained = training_params(config.training if parts.unseen else None)
    params = {"cell": cell.labels, **trained, "model": config.model.model, "data": config.data.data}
    title = f"{name}: {cell.name}"
    with tracking.run(parent.record.experiment, title, params=params, tags=tags, parent=parent) as opened:
        opened.log_metrics({f"texts/{part}": len(documents) for part, documents in parts._asdict().items()})
        opened.log_metrics({"texts/test_members": sum(bool(document.member) for document in parts.test)})
        log_texts(opened, parts, config.data, config.data.data or ("embedded corpus",))
        with _naming(cell):
            compute(study, inputs, model, opened)
    opened.check()  # table and figure are made of what is stored


def compute(study: Study, inputs: Inputs, model: LanguageModel, run: Run) -> None:
    """Fine-tune, score and evaluate as the main pipeline does, and log the scores and all numbers to the run."""
    parts, config, loaded = inputs.split, inputs.config, inputs.detectors
    job, deviation = experiment.measure(model, parts, loaded, config, run)
    if parts.unseen:
        judged = results.judge(parts, deviation, None, loaded, seed=config.seed)
        scores, names = best_of_grids(judged.scores, study)
        table, metrics = judged.table, judged.audit.metrics()
    else:  # base scores only: no threshold is chosen, so there is no accuracy
        scores, names = best_of_grids(results.score_table(parts, deviation).drop(columns="text"), study)
        test = scores[scores["split"] == "test"]
        table, metrics = results.evaluate(test, test["label"], list(test["group"]), seed=config.seed), {}
    fallbacks = defaultdict[str, float](float)
    for (name, state, _), texts in deviation.fallbacks.items():
        if state == "base" and name in names:
            fallbacks[f"fallback/{names[name]}.base"] += texts / len(scores)
    shown = table[table["metric"].isin(METRICS)]
    intervals = {
        f"{row.metric}_{end}/{row.detector}.{row.state}": float(getattr(row, end))
        for row in shown.itertuples()
        for end in ("low", "high")
    }
    run.log_metrics({**fallbacks, **metrics, **results.tracked(table), **intervals})
    chosen = {shown: name for name, shown in names.items() if shown != name}
    run.set_tags({"left_out": json.dumps(job.left_out), "chosen": json.dumps(chosen)})
    run.log(SCORES, scores)


def best_of_grids(scores: pd.DataFrame, study: Study) -> tuple[pd.DataFrame, dict[str, str]]:
    """The scores with one column per grid, of its detector with the highest AUC on the test texts.

    The second result is the name in the results of each detector that is kept.
    """
    test = scores[scores["split"] == "test"]
    names = {spec.key: spec.key for spec in study.detectors if not spec.grid}
    for spec in study.detectors:
        columns = [f"{candidate.key}.base" for candidate in spec.grid]
        aucs = {column: auc(test["label"] == 1, test[column]) for column in columns if column in scores}
        if aucs:
            names[max(aucs, key=aucs.__getitem__).removesuffix(".base")] = spec.key
    hidden = {
        f"{candidate.key}.base" for spec in study.detectors for candidate in spec.grid if candidate.key not in names
    }
    kept = scores.drop(columns=[column for column in scores if column in hidden])
    return kept.rename(columns={f"{name}.base": f"{shown}.base" for name, shown in names.items()}), names


def read_scores(record: RunRecord, part: str = "test") -> pd.DataFrame:
    """Scores of the test or validation texts of a cell: label, group, and one column per detector and state."""
    frame = pd.read_parquet(tracking.fetch_artifact(record.id, SCORES))
    return frame[frame["split"] == part].reset_index(drop=True)
