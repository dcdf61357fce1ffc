"""Cells of a study: their texts, the tag by which a finished cell is found, and the runs that hold their numbers.

`catalogue` reads the declarations, `grid` expands one into cells, `tables` lays out the results as the paper does.
"""

import functools
import json
import math
import time
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, replace
from datetime import timedelta
from functools import partial
from importlib.metadata import version
from operator import attrgetter
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from extensions.study import store
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
from extensions.study.docstrings import docstring_paragraphs
from extensions.study.grid import Cell
from fsd.api import (
    BASE,
    METRICS,
    Corpus,
    DataConfig,
    Detector,
    Document,
    FrequencyTable,
    LanguageModel,
    ModelConfig,
    Passage,
    Run,
    RunRecord,
    Split,
    UsageError,
    auc,
    benchmarks,
    check_model,
    check_tokenizer_located,
    check_training,
    content_hash,
    count,
    default_folder,
    embedded,
    evaluate,
    language_model,
    load_detector,
    load_tokenizer,
    parse_cutoff,
    resolve_precision,
    results,
    roc,
    segments,
    split,
    surprising,
    with_periods,
)
from fsd.api import model as scoring
from fsd.api import plan as training_plan
from pipelines.api import (
    Experiment,
    LabelledTexts,
    check_tokenizers,
    experiment,
    load_texts,
    log_texts,
    shots_of,
    training_params,
)

EMBEDDED = embedded.CORPORA["arxiv"]

# Ending of the metrics at a false-positive rate below the bound, where the others are at one up to it.
BELOW = "_below"


def rates() -> dict[str, float]:
    """Name of a metric → the false-positive rate that bounds it."""
    return {name: metric.rate for name, metric in METRICS.items() if metric.rate}


def heading(name: str) -> str:
    """The metric of a name in a table: AUC, TPR@5%FPR, and TPR@<5%FPR below the bound."""
    label = METRICS[name.removesuffix(BELOW)].label
    return label.replace("@", "@<") if name.endswith(BELOW) else label


# Column of the table of results → what the name of its metric ends in.
ENDINGS = {"value": "", "low": "_low", "high": "_high", "p": "_p", "p_holm": "_p_holm"}
# Rates are fractions of whole numbers, up to rounding.
SLACK = 1e-9
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
    inputs: Experiment
    tag: str

    @property
    def name(self) -> str:
        """That of the cell."""
        return self.cell.name


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


def _labelled_texts(entries: tuple[str, ...], cell: Cell) -> LabelledTexts:
    """The texts of some entries, read as the settings of the cell say."""
    data = cell.config.data
    read = []
    rows_are_ids = False
    for entry in entries:
        source = benchmarks.source_of(entry)
        if source and source.reader == "books" and cell.texts.where:
            # Segments, which it cuts otherwise, have no head, middle and tail.
            entry += ",whole"
        rows_are_ids |= bool(source and source.start is not None)
        read.append(entry)
    # Without the split and the model, on which the texts do not depend, more cells share what is read.
    reading = DataConfig(data=tuple(read), columns=data.columns, cutoff=data.cutoff, cleaning=data.cleaning)
    if not rows_are_ids:
        return load(reading, Path.cwd())
    # The rows are token ids, which the tokenizer of the model turns into texts.
    model = cell.config.model
    return load(reading, Path.cwd(), ModelConfig(model.model, model.revision))


def split_texts(cell: Cell, *, trained: bool) -> tuple[Split, tuple[str, ...]]:
    """Unseen, validation and test texts of a cell, and remarks on them; without training all are test texts."""
    loaded = _labelled_texts(cell.config.data.data, cell)
    remarks = (*loaded.labels(cell.config).notes, *loaded.remarks)
    documents: Sequence[Document] = retime(loaded.documents, cell.texts.timestamps)
    words = cell.texts.words
    lengths = [len(text.split()) for text in loaded.documents.texts]
    given = ", ".join(cell.config.data.data)
    _check_lengths(cell.texts, lengths, given)
    if words and cell.texts.where:
        documents = _passages(documents, words, cell.texts.where)
    elif words:
        documents = truncate(documents, words)
    members = sum(document.member is True for document in documents)
    nonmembers = len(documents) - members
    if not documents or not (trained or (members and nonmembers)):
        # Such as where all texts of a class are too short.
        length = f" of at least {words} words" if words else ""
        sizes = f"{members} members and {nonmembers} non-members, and its longest text {max(lengths)} words"
        raise UsageError(f"texts{length} must be of both classes; {given} has {sizes}")
    if trained:
        return _split(documents, cell), remarks
    return Split((), (), documents).without_later(), remarks


def _check_lengths(options: TextOptions, lengths: Sequence[int], given: str) -> None:
    """Refuse segments where whole works are cut, and whole works where passages are scored."""
    short, long = np.quantile(lengths, [0.25, 0.75])
    wanted = ""
    # The head of a text of one segment is its middle and its tail.
    if options.where and options.words and short < 2 * options.words:
        wanted = f"whole works, not segments of {options.words:,} words"
    if options.longest and long > options.longest:
        wanted = "passages, not whole works"
    if wanted:
        raise UsageError(f"texts must be {wanted}; half of {given} have {short:,.0f} to {long:,.0f} words")


def _passages(documents: Sequence[Document], words: int, where: str) -> list[Document]:
    """Passages of a number of words, from the head, middle or tail of each text."""
    passages = []
    for document in documents:
        for text in segments(document.text, words, (where,)):
            passages.append(replace(document, text=text))  # noqa: PERF401 - a loop in a loop
    return passages


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
        parts = add_unseen(parts, foreign.unseen, with_own=options.unseen_from == "both")
    if options.unseen_count is not None:
        parts = take_unseen(parts, options.unseen_count, seed=seed)
    return parts


def below_the_bounds(study: Study) -> Study:
    """The study with true-positive rates at false-positive rates below the bounds, as in the papers' code."""
    below = {metric: metric + BELOW for metric in rates()}
    metrics = [below.get(metric, metric) for metric in study.metrics]
    return replace(study, metrics=tuple(metrics))


def at_small_scale(study: Study, requested: Collection[str] = ()) -> Study:
    """The study without detectors that need more than one forward pass per text and model state, unless `requested`."""
    cheap = []
    omitted = []
    for spec in study.detectors:
        views = load_detector(spec.name).views
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
            loaded.append(replace(load_detector(spec.name, **spec.settings), name=spec.key))
    return loaded


@contextmanager
def _naming(cell: Cell) -> Iterator[None]:
    try:
        yield
    except UsageError as error:
        raise UsageError(f"cell {cell.name}: {error}") from error


def read(cell: Cell, study: Study, *, local: bool = True) -> Experiment:
    """Detectors of a cell, and its texts if they are on this machine."""
    inputs = Experiment(cell.config, load_detectors(study.detectors))
    if not local:
        return inputs
    with _naming(cell):
        split, remarks = split_texts(cell, trained=study.trained)
    return inputs._replace(texts_are_local=True, split=split, remarks=remarks)


def check_settings(cells: Iterable[Cell], study: Study) -> None:
    """Refuse models and numbers of trainings that no cell could run with; their texts may not be here yet."""
    for cell in cells:
        with _naming(cell):
            for entry in cell.config.data.data:
                benchmarks.check_entry(entry)
            model = cell.config.model
            check_tokenizer_located(model.model, model.revision)
            check_model(model)
            if study.trained:
                check_training(cell.config.training)


def prepare_cell(cell: Cell, study: Study) -> PreparedCell:
    """Texts and tag of a cell, whose model is located but not loaded."""
    inputs = read(cell, study)
    check_tokenizers(cell.config, ())
    model = cell.config.model
    if model.frequencies:
        # One of another tokenizer is refused before any cell is run.
        tokenizer, vocabulary = load_tokenizer(model.model, revision=model.revision)
        FrequencyTable.load(Path(model.frequencies)).matching(tokenizer, vocabulary, model.model)
    return PreparedCell(cell, inputs, _tag(inputs, study))


def _tag(inputs: Experiment, study: Study) -> str:
    """The tag of a cell, which depends on the weights of its models, not on their names."""
    config = inputs.config
    model = config.model
    device, dtype = resolve_precision(model)
    content: dict[str, Any] = dict(experiment.read_besides(model, inputs.detectors))
    content["model"] = experiment.weights_of(model.model, model.revision)
    content["precision"] = [device.type, str(dtype), model.bits]
    content["first token"] = model.first_token
    content["shots"] = shots_of(config.detection, model.model)
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
            content["grids"][spec.key] = list(map(attrgetter("key"), spec.grid))
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


def with_counted_table(cell: Cell) -> Cell:
    """The cell with a file in place of `docstrings:PACKAGE`: the tokens of the manual of a package, counted once."""
    config = cell.config.model
    package = (config.frequencies or "").partition(DOCSTRINGS)[2]
    if not package:
        return cell
    # The manual changes with the version of the package, and the tokens with the model.
    weights = experiment.weights_of(config.model, config.revision)
    file = default_folder(config.cache) / "frequencies" / f"{weights}-{package}-{version(package)}.npz"
    if not file.exists():
        tokenizer, vocabulary = load_tokenizer(config.model, revision=config.revision)
        texts = docstring_paragraphs((package,), limit=PARAGRAPHS, seed=0)
        name = f"{PARAGRAPHS} paragraphs of the manual of {package}"
        file.parent.mkdir(parents=True, exist_ok=True)
        count(map(Passage, texts), tokenizer, vocabulary, model=config.model, corpus=name).save(file)
    return replace(cell, config=replace(cell.config, model=replace(config, frequencies=str(file))))


def run_cells(
    name: str, study: Study, cells: Sequence[PreparedCell], parent: Run
) -> tuple[list[tuple[PreparedCell, RunRecord]], dict[str, str]]:
    """The cells and their runs, and why others are left out.

    A cell whose adapter cannot be trained on its texts is left out; it is an error if all are.
    """
    left_out: dict[str, str] = {}
    # Cells of one model follow one another, so that each is loaded once.
    ordered = sorted(cells, key=attrgetter("cell.config.model.model"))
    finished = store.finish(name, ordered, parent, partial(_run, name, study, parent, left_out))
    results = []
    reasons = {}
    for cell in cells:
        if cell.tag in finished:
            results.append((cell, finished[cell.tag]))
        if cell.tag in left_out:
            reasons[cell.name] = left_out[cell.tag]
    if not results:
        raise UsageError(f"cell {cells[0].name}: {left_out[cells[0].tag]}")
    return results, reasons


def _run(
    name: str, study: Study, parent: Run, left_out: dict[str, str], cells: Sequence[PreparedCell]
) -> Iterator[tuple[PreparedCell, str]]:
    """Run cells of the study `name`, each in a run of its own but for those that are `left_out`: tag → why."""
    model = None
    loaded = ""
    for prepared in cells:
        start = time.perf_counter()
        config = prepared.cell.config
        parts = prepared.inputs.split
        if model is None or loaded != config.model.model:
            model = None  # one is released before the next is loaded
            model = language_model.load(config.model)
            loaded = config.model.model
        try:
            if parts.unseen:
                # Its refusals are of a training in this cell alone, such as AdaLoRA in too few steps.
                training_plan(model, parts.unseen.prompts, config.training)
        except UsageError as error:
            left_out[prepared.tag] = str(error)
            yield prepared, "left out"
            continue
        params: dict[str, object] = {"cell": prepared.cell.labels, "model": loaded, "data": config.data.data}
        if parts.unseen:
            params |= training_params(config.training)
        with store.run_of(name, prepared, params, parent) as opened, _naming(prepared.cell):
            counts = {"texts/test_members": int(parts.test.members.sum())}
            for part, documents in parts._asdict().items():
                counts[f"texts/{part}"] = len(documents)
            opened.log_metrics(counts)
            log_texts(opened, parts, config.data, config.data.data or ("embedded corpus",))
            compute(study, prepared.inputs, model, opened)
        yield prepared, f"{time.perf_counter() - start:.1f} s"


def compute(study: Study, inputs: Experiment, model: LanguageModel, run: Run) -> None:
    """Fine-tune, score and evaluate as the main pipeline does, and log the scores and all numbers to the run."""
    parts = inputs.split
    seed = inputs.config.seed
    plan, scored = inputs.measure(model, run)
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
        table = evaluate(test, test["label"], list(test["group"]), seed=seed)
    for (score, _), replaced in scored.fallbacks.items():
        if score.state == BASE and score.detector in names:
            metrics[f"fallback/{names[score.detector]}.{BASE}"] = replaced / scored.texts
    for row in table.to_dict("records"):
        score_name = f"{row['detector']}.{row['state']}".rstrip(".")
        for column, ending in ENDINGS.items():
            if not math.isnan(row[column]):
                metrics[f"{row['metric']}{ending}/{score_name}"] = row[column]
    run.log_metrics(metrics | _rates_below(scores))
    chosen = {key: name for name, key in names.items() if key != name}
    run.set_tags({"left_out": json.dumps(plan.left_out), "chosen": json.dumps(chosen)})
    run.log(store.SCORES, scores)
    if study.figure == "tokens":
        run.log(TOKENS, _tokens(inputs, model))


def _rates_below(scores: pd.DataFrame) -> dict[str, float]:
    """The true-positive rates at false-positive rates below the bounds, where the others are at rates up to them."""
    test = scores[scores["split"] == "test"]
    member = test["label"] == 1
    metrics = {}
    for score in test.filter(regex=r"\.(base|fsd)$"):
        alarms, hits, _ = roc(member, test[score])
        for metric, bound in rates().items():
            allowed = alarms < bound - SLACK
            metrics[f"{metric}{BELOW}/{score}"] = float(hits[allowed].max())
    return metrics


def _tokens(inputs: Experiment, model: LanguageModel) -> pd.DataFrame:
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
