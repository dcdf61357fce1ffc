"""Cells of a study: their texts, the tag by which a finished cell is found, and the runs that hold their numbers.

`catalogue` reads the declarations, `grid` expands one into cells, `tables` lays out the results as the paper does.
"""

import functools
import json
import time
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, replace
from datetime import timedelta
from importlib.metadata import version
from operator import attrgetter
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd

import detectors
from detectors.surp import surprising
from extensions.lab.docstrings import docstring_paragraphs
from extensions.study.ablations import (
    add_unseen,
    balanced,
    counted,
    fine_tuning_set,
    hold_out_each,
    retime,
    take_unseen,
    truncate,
)
from extensions.study.catalogue import DetectorSpec, Study, TextOptions
from extensions.study.grid import Cell
from fsd import tracking
from fsd.config import DataConfig, ModelConfig, check_training
from fsd.data import benchmarks, embedded
from fsd.data.corpus import Corpus, Split
from fsd.data.documents import Document, content_hash, segments
from fsd.data.readers import Passage
from fsd.data.splitting import parse_cutoff, split, with_periods
from fsd.errors import UsageError
from fsd.evaluation import results
from fsd.evaluation.rows import by_key
from fsd.models import language_model
from fsd.models.devices import resolve_precision
from fsd.models.finetuning import plan as training_plan
from fsd.models.language_model import LanguageModel, load_tokenizer, quantization_options
from fsd.net.hub import check_tokenizer_located
from fsd.progress import note, progress
from fsd.scores import BASE, Score, columns_of
from fsd.scoring import model as scoring
from fsd.scoring.model_checks import check_model
from fsd.scoring.scorers import cache_folder, frequency_file
from fsd.scoring.token_counting import count
from fsd.scoring.token_frequencies import FrequencyTable
from fsd.statistics.metrics import FPR_SLACK, auc, roc
from fsd.tracking import Run, RunRecord
from fsd.views import Detector
from pipelines.command.deliver import finished_cells
from pipelines.experiment import experiment
from pipelines.experiment.detector_settings import shots_of
from pipelines.experiment.inputs import Inputs, LabelledTexts, check_tokenizers, load_texts
from pipelines.experiment.registration import log_texts, training_params

EMBEDDED = embedded.CORPORA["arxiv"]

METRICS = {
    "auc": "AUC",
    "tpr_at_1fpr": "TPR@1%FPR",
    "tpr_at_5fpr": "TPR@5%FPR",
    "tpr_at_10fpr": "TPR@10%FPR",
    "accuracy": "accuracy",
    "tpr_at_1fpr_below": "TPR@<1%FPR",
    "tpr_at_5fpr_below": "TPR@<5%FPR",
    "tpr_at_10fpr_below": "TPR@<10%FPR",
}
RATES = {"tpr_at_1fpr": 0.01, "tpr_at_5fpr": 0.05, "tpr_at_10fpr": 0.1}
# Ending of the metrics at a false-positive rate below the bound, where the others are at one up to it.
BELOW = "_below"
SCORES = "scores.parquet"
TOKENS = "tokens.parquet"
# Tokens of each class that are drawn in a figure of tokens.
DRAWN_TOKENS = 2000
# Prefix of a reference corpus that consists of the docstrings of an installed package.
DOCSTRINGS = "docstrings:"
PARAGRAPHS = 300
# Views that need no forward pass besides one of the base and one of the tuned model.
CHEAP_VIEWS = {"text", "tuned", "unigram"}
# Length of the embedded corpus's period: by so much the non-members of `embedded:dated` are later than their dates.
LATER = timedelta(days=912)


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
    corpora = []
    files = []
    for entry in data.data:
        name, _, part = entry.partition(":")
        if name == "embedded":
            corpora += _embedded(part)
        else:
            files.append(entry)
    loaded = LabelledTexts(Corpus(), {})
    if files:
        loaded = load_texts(replace(data, data=tuple(files)), model or ModelConfig())
    documents = with_periods([*loaded.documents, *corpora], parse_cutoff(data.cutoff))
    return loaded._replace(documents=Corpus(documents))


def _embedded(part: str) -> list[Document]:
    """The embedded corpus, or that of another domain; with dates put before the texts (`dated`), or of some fields."""
    corpus = list(embedded.corpus(part if part in embedded.CORPORA else "arxiv"))
    if not part or part in embedded.CORPORA:
        return corpus
    if part == "dated":
        dated = []
        for document in corpus:
            day = document.date or EMBEDDED.cutoff
            # Members and non-members then are of two periods, as in a benchmark that is split by time.
            if not document.member:
                day += LATER
            dated.append(replace(document, text=f"{day:%d %B %Y}. {document.text}"))
        return dated
    fields = {}
    for line in EMBEDDED.file.read_text(encoding="utf-8").splitlines():
        row = json.loads(line)
        # Only the field before the point: stat.ML is stat.
        fields[row["id"]] = row["field"].partition(".")[0]
    wanted = set(part.split(","))
    available = set(fields.values())
    if not wanted <= available:
        raise UsageError(f"fields must be out of {', '.join(sorted(available))}; got {part!r}")
    return [document for document in corpus if fields[document.group] in wanted]


def _passages(entry: str, options: TextOptions) -> str:
    """An entry of --data; of whole books, with the place and the length of the passages that a study takes of them.

    A benchmark of books cuts them itself: what it gives without these cannot be cut at another place.
    """
    source = benchmarks.source_of(entry)
    if options.where and source and source.reader == "books":
        return f"{entry},{options.where},{options.words}"
    return entry


def _labelled_texts(entries: tuple[str, ...], cell: Cell) -> LabelledTexts:
    """The texts of some entries, read as the settings of the cell say."""
    data = cell.config.data
    entries = tuple(_passages(entry, cell.texts) for entry in entries)
    # Without the split and the model, on which the texts do not depend, more cells share what is read.
    reading = DataConfig(data=entries, columns=data.columns, cutoff=data.cutoff, cleaning=data.cleaning)
    if all(benchmarks.start_of(entry) is None for entry in entries):
        return load(reading, Path.cwd())
    # The rows are token ids, which the tokenizer of the model turns into texts.
    model = cell.config.model
    return load(reading, Path.cwd(), ModelConfig(model.model, model.revision))


def split_texts(cell: Cell, *, trained: bool) -> tuple[Split, tuple[str, ...]]:
    """Unseen, validation and test texts of a cell, and remarks on them; without training all are test texts."""
    data = cell.config.data
    words = cell.texts.words
    loaded = _labelled_texts(data.data, cell)
    labels = loaded.labels(cell.config)
    remarks = (*labels.notes, *loaded.remarks)
    documents = retime(loaded.documents, cell.texts.timestamps)
    if words:
        documents = _shortened(documents, words, cell.texts.where)
    if not documents:
        longest = max(len(text.split()) for text in loaded.documents.texts)
        raise UsageError(
            f"texts must have at least {words} words; none of {', '.join(data.data)} has, the longest has {longest}"
        )
    if trained:
        return _split(documents, cell), remarks
    parts = Split((), (), documents).without_later()
    _check_classes(parts.test, cell)
    return parts, remarks


def _check_classes(tested: Corpus, cell: Cell) -> None:
    """Refuse texts of one class, such as where all texts of the other are too short, before anything is scored."""
    members = int(tested.members.sum())
    nonmembers = len(tested) - members
    if members and nonmembers:
        return
    words = cell.texts.words
    length = f" of at least {words} words" if words else ""
    raise UsageError(
        f"texts{length} must be of both classes; {', '.join(cell.config.data.data)} has {members} members and "
        f"{nonmembers} non-members"
    )


def _shortened(documents: Sequence[Document], words: int, where: str | None) -> tuple[Document, ...]:
    """The texts cut to a number of words, from their beginning or `where`; those with fewer are left out."""
    if where is None:
        return truncate(documents, words)
    shortened = []
    for document in documents:
        for text in segments(document.text, words, (where,)):
            shortened.append(replace(document, text=text))  # noqa: PERF401 - a loop in a loop
    return tuple(shortened)


def _split(documents: Sequence[Document], cell: Cell) -> Split:
    """The split of a cell that is trained, with the unseen texts that its study asks for."""
    options = cell.texts
    seed = cell.config.seed
    share = float(cell.config.data.unseen)
    validation = cell.config.data.validation
    if options.validated and cell.config.data.split == "paper":
        validation = 0.0
    common: dict[str, Any] = {"validation": validation, "scheme": cell.config.data.split, "seed": seed}
    if options.trained_on:
        return fine_tuning_set(documents, options.trained_on, share=share, **common)
    if options.reserved:
        parts = counted(
            documents,
            unseen=options.reserved,
            tested=options.tested or len(documents),
            scheme=common["scheme"],
            seed=seed,
        )
    else:
        parts = split(documents, unseen=share, **common)
        if options.tested:
            parts = balanced(parts, options.tested, seed=seed)
    # The grouped split has held out whole families already.
    if options.validated and common["scheme"] == "paper":
        parts = hold_out_each(parts, options.validated, seed=seed)
    if options.unseen_from != "own":
        # Split in the same way, the other domain gives as large a share of its texts.
        foreign = split(_labelled_texts(options.other, cell).documents, unseen=share, **common)
        parts = add_unseen(parts, foreign.unseen, own=options.unseen_from == "both")
    if options.unseen_count is not None:
        parts = take_unseen(parts, options.unseen_count, seed=seed)
    return parts


def below_the_bounds(study: Study) -> Study:
    """The study with true-positive rates at false-positive rates below the bounds, as in the papers' code."""
    below = {metric: metric + BELOW for metric in RATES}
    metrics = [below.get(metric, metric) for metric in study.metrics]
    return replace(study, metrics=tuple(metrics))


def at_small_scale(study: Study, requested: Collection[str] = ()) -> Study:
    """The study without detectors that need more than one forward pass per text and model state, unless `requested`."""
    cheap = []
    omitted = []
    for spec in study.detectors:
        views = detectors.load(spec.name).views
        if spec.name in requested or CHEAP_VIEWS.issuperset(views):
            cheap.append(spec)
        else:
            omitted.append(spec.shown)
    if not omitted:
        return study
    names = ", ".join(dict.fromkeys(omitted))
    note = f"The small scale omits {names}, which need further forward passes over the texts. {study.note}"
    return replace(study, detectors=tuple(cheap), note=note.strip())


def load_detectors(specs: Iterable[DetectorSpec]) -> list[Detector]:
    """Load detectors, each named by its key; of a grid, one for each of its settings."""
    loaded = []
    for spec in specs:
        if spec.grid:
            loaded += load_detectors(spec.grid)
        else:
            loaded.append(replace(detectors.load(spec.name, **spec.settings), name=spec.key))
    return loaded


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


def check_settings(cells: Iterable[Cell], study: Study) -> None:
    """Refuse models and numbers of trainings that no cell could run with; their texts may not be here yet."""
    for cell in cells:
        with _naming(cell):
            for entry in cell.config.data.data:
                benchmarks.check_entry(entry)
            model = cell.config.model
            check_tokenizer_located(model.model, model.revision)
            if _counted_package(model):
                # The table is made when the cell is prepared, which needs the model's tokenizer.
                model = replace(model, frequencies=None)
            check_model(model)
            if study.trained:
                check_training(cell.config.training)


def check_texts(cells: Iterable[Cell], study: Study) -> None:
    """Refuse texts of files that a cell cannot be split from."""
    for cell in cells:
        read(cell, study)


def prepare_cell(cell: Cell, study: Study) -> PreparedCell:
    """Texts and tag of a cell, whose model is located but not loaded."""
    cell = replace(cell, config=replace(cell.config, model=_with_counted_table(cell.config.model)))
    inputs = read(cell, study)
    check_tokenizers(cell.config, ())
    if inputs.split.unseen:
        check_training(cell.config.training)
    return PreparedCell(cell, inputs, _tag(inputs, study))


def _tag(inputs: Inputs, study: Study) -> str:
    """The tag of a cell, which depends on the weights of its models, not on their names."""
    config = inputs.config
    model = config.model
    device, dtype = resolve_precision(model)
    # For its refusals: what cannot be loaded is told before any cell is run.
    quantization_options(model.bits, dtype)
    content: dict[str, Any] = dict(experiment.read_besides(model, inputs.detectors))
    table = frequency_file(model)
    if table and content.get("frequencies"):
        _check_table(model.model, model.revision, table)
    content["model"] = experiment.weights_of(model.model, model.revision)
    content["precision"] = [device.type, str(dtype), model.bits]
    content["first token"] = model.first_token
    content["shots"] = shots_of(config.detection, config.model.model)
    content["seed"] = config.seed
    # A figure of tokens has a file that other studies of the same scores have not.
    content["tokens"] = study.figure == "tokens"
    # Base scores are the same however an adapter would be trained.
    content["training"] = asdict(config.training) if inputs.split.unseen else None
    content["detectors"] = {detector.name: dict(detector.settings) for detector in inputs.detectors}
    content["grids"] = {}
    for spec in study.detectors:
        if spec.grid:
            # The choice of a grid depends on all of its settings.
            content["grids"][spec.key] = [candidate.key for candidate in spec.grid]
    content["texts"] = [list(map(_identity, part)) for part in inputs.split]
    return experiment.tag(content)


def _identity(document: Document) -> tuple[object, ...]:
    """What moves the numbers of a text; where it was read does not."""
    parts = (content_hash(document.text), document.member, document.group, str(document.date), document.period)
    # The words of a chat are not all that its numbers depend on. Cells of texts alone keep their keys.
    if document.context or document.chat:
        read = [document.context, document.chat and document.chat.identity]
        return (*parts, content_hash(json.dumps(read)))
    return parts


@functools.cache
def _check_table(model: str, revision: str | None, file: Path) -> None:
    """Refuse a token-frequency table that was made with another tokenizer than the model's."""
    tokenizer, vocabulary = load_tokenizer(model, revision=revision)
    FrequencyTable.load(file).matching(tokenizer, vocabulary, model)


def _counted_package(config: ModelConfig) -> str:
    """The PACKAGE of `docstrings:PACKAGE`; empty for another table, such as a path, and for none."""
    return (config.frequencies or "").partition(DOCSTRINGS)[2]


def _with_counted_table(config: ModelConfig) -> ModelConfig:
    """The settings with a file in place of `docstrings:PACKAGE`; the tokens of its manual are counted once."""
    package = _counted_package(config)
    folder = cache_folder(config)
    if not package or folder is None:
        return config
    # The manual changes with the version of the package, and the tokens with the model.
    weights = experiment.weights_of(config.model, config.revision)
    file = folder / "frequencies" / f"{weights}-{package}-{version(package)}.npz"
    if not file.exists():
        tokenizer, vocabulary = load_tokenizer(config.model, revision=config.revision)
        texts = docstring_paragraphs((package,), limit=PARAGRAPHS, seed=0)
        name = f"{PARAGRAPHS} paragraphs of the manual of {package}"
        file.parent.mkdir(parents=True, exist_ok=True)
        count(map(Passage, texts), tokenizer, vocabulary, model=config.model, corpus=name).save(file)
    return replace(config, frequencies=str(file))


def run_cells(
    name: str, study: Study, cells: Sequence[PreparedCell], parent: Run
) -> tuple[list[tuple[PreparedCell, RunRecord]], dict[str, str]]:
    """The cells and their runs, and why others are left out: those that no earlier run holds are run, equal ones once.

    A cell whose adapter cannot be trained on its texts is left out; it is an error if all are.
    """
    earlier = finished_cells(parent)
    refusals = {}
    model = None
    loaded = ""
    with progress(len(cells), name, "cell") as bar:
        # Cells of one model follow one another, so that each is loaded once.
        for number, prepared in enumerate(sorted(cells, key=attrgetter("cell.config.model.model")), 1):
            config = prepared.cell.config
            start = time.perf_counter()
            outcome = "reused"
            if prepared.tag in refusals:  # an equal cell came before
                pass
            elif prepared.tag in earlier:
                _show(earlier[prepared.tag], parent)
                refusals[prepared.tag] = ""
            else:
                if model is None or loaded != config.model.model:
                    model = None  # one is released before the next is loaded
                    model = language_model.load(config.model)
                    loaded = config.model.model
                refusal = refusals[prepared.tag] = _untrainable(model, prepared.inputs)
                outcome = "left out"
                if not refusal:
                    _run(name, study, prepared, model, parent)
                    outcome = f"{time.perf_counter() - start:.1f} s"
            bar.update(1)
            note(f"{name} {number}/{len(cells)}: {prepared.cell.name} ({outcome})")
    finished = finished_cells(parent)
    results = []
    left_out = {}
    for prepared in cells:
        if refusal := refusals[prepared.tag]:
            left_out[prepared.cell.name] = refusal
        else:
            results.append((prepared, finished[prepared.tag]))
    if not results:
        refused = cells[0]
        raise UsageError(f"cell {refused.cell.name}: {refusals[refused.tag]}")
    return results, left_out


def _untrainable(model: LanguageModel, inputs: Inputs) -> str:
    """Why no adapter can be trained on the unseen texts, such as AdaLoRA in too few steps; "" if one can."""
    try:
        if inputs.split.unseen:
            training_plan(model, inputs.split.unseen.prompts, inputs.config.training)
    except UsageError as error:
        return str(error)
    return ""


def _show(record: RunRecord, parent: Run) -> None:
    """Show the numbers of a finished cell of an earlier call among those of this one; its scores stay there."""
    tags = {"study": record.tags["study"], "cell": record.tags["cell"], "kind": "reused cell", "from": record.id}
    with tracking.run(
        parent.experiment,
        record.name,
        params=record.params,
        tags=tags,
        description=f"Reused from run {record.id}, which holds the scores.",
        parent=parent,
    ) as opened:
        opened.log_metrics(record.metrics)


def _run(name: str, study: Study, prepared: PreparedCell, model: LanguageModel, parent: Run) -> None:
    """Run a cell of the study `name` in an MLflow run nested below `parent`."""
    cell = prepared.cell
    config = cell.config
    parts = prepared.inputs.split
    params: dict[str, object] = {"cell": cell.labels, "model": config.model.model, "data": config.data.data}
    if parts.unseen:
        params |= training_params(config.training)
    tags = {"study": name, "kind": "cell", "cell": prepared.tag, "base_model": config.model.model}
    with tracking.run(parent.experiment, f"{name}: {cell.name}", params=params, tags=tags, parent=parent) as opened:
        counts = {f"texts/{part}": len(documents) for part, documents in parts._asdict().items()}
        counts["texts/test_members"] = int(parts.test.members.sum())
        opened.log_metrics(counts)
        log_texts(opened, parts, config.data, config.data.data or ("embedded corpus",))
        with _naming(cell):
            compute(study, prepared.inputs, model, opened)
    opened.check()  # table and figure are made of what is stored


def compute(study: Study, inputs: Inputs, model: LanguageModel, run: Run) -> None:
    """Fine-tune, score and evaluate as the main pipeline does, and log the scores and all numbers to the run."""
    parts = inputs.split
    seed = inputs.config.seed
    plan, scored = experiment.measure(model, parts, inputs.detectors, inputs.config, run)
    metrics: dict[str, float] = {}
    if parts.unseen:
        measured = results.compute_results(parts, scored, None, inputs.detectors, seed=seed)
        scores, names = best_of_grids(measured.scores, study)
        table = measured.table
        metrics |= measured.audit.metrics()
    else:  # base scores only: no threshold is chosen, so there is no accuracy
        scores = results.score_table(parts, scored).drop(columns="text")
        scores, names = best_of_grids(scores, study)
        test = scores[scores["split"] == "test"]
        table = results.evaluate(test, test["label"], list(test["group"]), seed=seed)
    for (score, _), replaced in scored.fallbacks.items():
        if score.state == BASE and score.detector in names:
            key = f"fallback/{Score(names[score.detector], BASE)}"
            # A detector may have several fallbacks, each for other texts.
            metrics[key] = metrics.get(key, 0.0) + replaced / len(scores)
    metrics |= results.tracked(table)
    # A table shows the interval of every number, where the main pipeline tracks that of the AUC alone.
    for (detector, state, metric), row in by_key(table).items():
        if metric in METRICS:
            key = f"{detector}.{state}"
            metrics[f"{metric}_low/{key}"] = row.estimate.low
            metrics[f"{metric}_high/{key}"] = row.estimate.high
    metrics |= _rates_below(scores)
    run.log_metrics(metrics)
    chosen = {key: name for name, key in names.items() if key != name}
    run.set_tags({"left_out": json.dumps(plan.left_out), "chosen": json.dumps(chosen)})
    run.log(SCORES, scores)
    if study.figure == "tokens":
        run.log(TOKENS, _tokens(inputs, model))


def _rates_below(scores: pd.DataFrame) -> dict[str, float]:
    """The true-positive rates at false-positive rates below the bounds, where the others are at rates up to them."""
    test = scores[scores["split"] == "test"]
    member = test["label"] == 1
    metrics = {}
    for score, column in columns_of(test).items():
        alarms, hits, _ = roc(member, column)
        for metric, bound in RATES.items():
            allowed = alarms < bound - FPR_SLACK
            metrics[f"{metric}{BELOW}/{score}"] = float(hits[allowed].max())
    return metrics


def _tokens(inputs: Inputs, model: LanguageModel) -> pd.DataFrame:
    """Entropy and log-probability of tokens of the tested texts, drawn at random, and which ones each detector selects.

    One row a token: label, entropy, logp, and a column of a setting of surp by its key.
    """
    seed = inputs.config.seed
    test = inputs.split.test
    opened = scoring.open_model(inputs.config.model, states=("base",), local=model, seed=seed)
    # The statistics that the detectors were given, from the cache.
    statistics = opened.scorers["base"](opened.prompts(test.prompts))
    frames = []
    for member, text in zip(test.members, statistics, strict=True):
        frame = pd.DataFrame({"entropy": -text.mean, "logp": text.logp})
        frame["label"] = int(member)
        for detector in inputs.detectors:
            frame[detector.name] = surprising(text, **detector.settings)
        frames.append(frame)
    tokens = pd.concat(frames)
    sizes = tokens["label"].value_counts()
    fewest = min(DRAWN_TOKENS, int(sizes.min()))
    return tokens.groupby("label").sample(fewest, random_state=seed)


def best_of_grids(scores: pd.DataFrame, study: Study) -> tuple[pd.DataFrame, dict[str, str]]:
    """The scores with one column per grid, of its detector with the highest AUC on the test texts.

    The second result is the name in the results of each detector that is kept.
    """
    test = scores[scores["split"] == "test"]
    names = {}
    columns = {}
    for spec in study.detectors:
        if not spec.grid:
            names[spec.key] = spec.key
            continue
        aucs = {}
        for candidate in spec.grid:
            column = f"{candidate.key}.base"
            # A detector that cannot be computed, such as for lack of a model, has no column.
            if column in scores:
                aucs[candidate.key] = auc(test["label"] == 1, test[column])
        if not aucs:
            continue
        best = max(aucs, key=aucs.__getitem__)
        names[best] = spec.key
        columns[f"{best}.base"] = f"{spec.key}.base"
        del aucs[best]
        scores = scores.drop(columns=[f"{key}.base" for key in aucs])
    return scores.rename(columns=columns), names


def read_tokens(record: RunRecord) -> pd.DataFrame:
    """The tokens that a cell has for a figure."""
    return pd.read_parquet(tracking.fetch_artifact(record.id, TOKENS))


def read_scores(record: RunRecord, part: str = "test") -> pd.DataFrame:
    """Scores of the test or validation texts of a cell: label, group, and one column per detector and state."""
    frame = pd.read_parquet(tracking.fetch_artifact(record.id, SCORES))
    return frame[frame["split"] == part].reset_index(drop=True)
