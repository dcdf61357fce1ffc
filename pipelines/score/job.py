"""The steps of `fsd score`: its checks, the scoring of texts at once or in shards, and what an API will be asked."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fsd.config import ScoreConfig
from fsd.data.corpus import Corpus
from fsd.data.fields import parse_columns
from fsd.data.knowledge_cutoffs import labels_for
from fsd.data.layouts import NOT_READ
from fsd.data.near_duplicates import listed
from fsd.data.periods import parse_cutoff
from fsd.data.reading import read_otherwise
from fsd.data.splitting import check_unseen
from fsd.errors import UsageError
from fsd.library import check_apart
from fsd.net.hub import fingerprint, locate
from fsd.plugs import first
from fsd.progress import note
from fsd.scoring.cache import SQLiteStore
from fsd.scoring.model import Model, open_model, outline
from fsd.scoring.model_checks import check_model
from fsd.scoring.plan import ScoringPlan
from fsd.scoring.scorers import frequency_file
from fsd.scoring.services import service_scorers
from fsd.token_stats import Prompt
from fsd.views import Detector
from pipelines.command.context import stage
from pipelines.command.deliver import publish, run_name, show, tracked_run
from pipelines.command.job import Job, api_cost, check_saved, files
from pipelines.command.output import check_table_path, text_table, write_table
from pipelines.command.workers import EXAMPLE, RowWork, Worker, identity, table_by_documents
from pipelines.experiment import detector_settings
from pipelines.experiment.adapter_files import fetched
from pipelines.experiment.inputs import continuable, read_cleaned, read_own

if TYPE_CHECKING:
    import pandas as pd

    from fsd.data.documents import Document

COLUMNS = ("source", "text", "context", "label", "group")
ANSWERS = "_answers.partial"
"""Answers of an API in an output folder, until all shards are there."""


def prepare(config: ScoreConfig) -> Job:
    """Read the texts, and check settings and output file."""
    by_api = config.model.by_api
    if config.chat and (not by_api or config.api.tokenizer or config.api.start_token):
        raise UsageError("chat must come with --model api:NAME, and without --tokenizer and --start-token")
    if config.too_long == "drop" and not by_api:
        raise UsageError("too-long drop must come with --model api:NAME: a local model reads texts of any length")
    # A detector that does not exist is refused before the texts are read, and before a worker needs it.
    detectors = detector_settings.load_detectors(config.detection)
    job: Job | None = first("compute", _by_rows(config, by_api=by_api))
    if job:
        return job
    check_table_path(config.out, filter(None, (*config.data, config.unseen, config.model.frequencies)))
    documents, left_out = read_cleaned(
        config.data, config.columns, config.cleaning, contexts=True, unread=_unread(config.columns)
    )
    documents, too_short = continuable(documents, detectors)
    unseen, blank = _read_unseen(config)
    check_apart(documents.prompts, unseen)
    # Texts without a label are scored too, and say nothing about the dates of members and non-members.
    labelled = [document for document in documents if document.member is not None]
    labels = labels_for(config.model.model, labelled, last=parse_cutoff(config.cutoff))
    remarks = labels.notes + left_out + too_short + blank
    model = outline(config.model, ("base",), chat=config.chat, seed=config.seed)
    inputs = model.inputs(unseen, shots=detector_settings.shots_of(config.detection, config.model.model))
    plan = model.plan(detectors, documents.prompts, inputs, strict=config.detection.named)
    reads = {"texts": files(config.data, len(documents))}
    api = config.api
    asked = partial(api_cost, config.model, api, lambda: plan.asked, chat=config.chat)
    writes = [config.out]
    scoring = partial(run, config, documents, unseen, detectors, remarks)
    return Job(
        scoring,
        reads,
        config.model,
        texts=documents.texts,
        passes=plan.passes,
        writes=writes,
        experiment=f"fsd-{config.domain}",
        notes=remarks,
        api=api,
        adapter=config.adapter,
        asked=asked,
        read=read_otherwise(documents),
    )


def _by_rows(config: ScoreConfig, *, by_api: bool) -> RowWork:
    """The scoring of so many texts that they are not read at once."""
    together: dict[str, object] = {"cutoff": config.cutoff}
    together["near_duplicates"] = config.cleaning.near_duplicates == "drop" and "drop"
    together["too_long"] = config.too_long == "drop" and "drop"
    checks: list[Callable[[], object]] = [partial(check_model, config.model)]
    checks.append(partial(check_saved, config.adapter, config.model))
    if by_api:
        # An API has a concurrency of its own.
        together["engine"] = config.shards.engine
        checks.append(partial(service_scorers, config.model, config.api))
    return RowWork("score", __name__, config, config.data, together, _forget_answers, checks)


def _unread(columns: str) -> list[str]:
    """The fields that have no use here: dates and periods are compared by label alone."""
    if parse_columns(columns, answers=True).get("label") == NOT_READ:
        return ["source", "date", "period"]
    return ["source"]


def _read_unseen(config: ScoreConfig) -> tuple[list[Prompt], list[str]]:
    """The texts that give some detectors a prefix, and remarks about those that were left out."""
    if not config.unseen:
        return [], []
    documents, remarks = read_own([config.unseen], "", config.cleaning)
    check_unseen(documents, ())
    return documents.prompts, remarks


def run(
    config: ScoreConfig,
    documents: Corpus,
    unseen: Sequence[Prompt],
    requested: Sequence[Detector],
    remarks: Sequence[str],
) -> None:
    """Announce the requests to an API, score, write, evaluate labelled texts, track and print."""
    with stage("model"):
        # They load scikit-learn, for which a dry run need not wait.
        from fsd.evaluation.results import fallback_remarks
        from pipelines.score.report import make_report, measure

        model = _open(config, f"{config.out}.partial")
        documents, left_out = _fitting(config, model, documents)
        notes = list(remarks) + left_out
        inputs = model.inputs(unseen, shots=detector_settings.shots_of(config.detection, config.model.model))
        plan = model.plan(requested, documents.prompts, inputs, strict=config.detection.named)
        if model.answers:
            announce(plan, config.api.price)
    with stage("scoring"):
        has_contexts = any(document.context for document in documents)
        # Without any context, a column of blanks would only widen the table.
        columns = [name for name in COLUMNS if name != "context" or has_contexts]
        scored = plan.score()
        table = text_table(documents, *columns).join(scored.frame())
        measured = measure(documents, table, seed=config.seed)
        write_table(table, config.out)
        # Only now: an answer that was paid for is kept until it is in the table.
        if model.answers:
            model.answers.delete()
    notes += fallback_remarks(scored)
    report = make_report(config, table, measured, plan, notes)
    # The run is opened last, so that paid answers are safe by then and a refused API key leaves no failed run.
    name = run_name(config.model.model, config.data, "score")
    with tracked_run(config, f"fsd-{config.domain}", name, tags={"task": "score"}) as tracked:
        with stage("recording"):
            tracked.log_dataset(
                "scored",
                documents.texts,
                labels=[document.member for document in documents],
                source=", ".join(config.data),
                context="score",
            )
            publish(report, tracked)
        show(report, tracked)


def _fitting(config: ScoreConfig, model: Model, documents: Corpus) -> tuple[Corpus, list[str]]:
    """The texts that fit the context which an API names, and a remark on those that are left out."""
    if model.answers is None or config.chat:
        return documents, []
    api: Any = model.scorers["base"]
    long = set(api.scorer.too_long(documents.prompts))
    fits = np.array([prompt not in long for prompt in documents.prompts])
    if fits.all():
        return documents, []
    rows = [document.origin for document in documents.take(~fits)]
    many = f"{len(rows):,} of {len(documents):,} texts are longer than the context that the API names ({listed(rows)})"
    if config.too_long == "refuse" or not fits.any():
        raise UsageError(
            f"texts must fit the context of {config.model.model}; {many}: shorten them, or --too-long drop"
        )
    return documents.take(fits), [f"{many}, and were left out"]


def open_worker(config: ScoreConfig) -> Worker:
    """What scores the shards of an output folder; a detector that no text of a shard allows has no values there."""
    detectors = detector_settings.load_detectors(config.detection)
    unseen, _ = _read_unseen(config)
    # The cache would grow with the texts; a shard that is there is not computed again anyway.
    uncached = replace(config, model=replace(config.model, cache="none"))
    model = _open(uncached, f"{config.out}/{ANSWERS}")
    inputs = model.inputs(unseen, shots=detector_settings.shots_of(config.detection, config.model.model))
    # Chosen by an example, so that all shards have the same columns, whatever their texts allow.
    plan = model.plan(detectors, [EXAMPLE.text], inputs, strict=config.detection.named)
    computable = plan.detectors
    names = [f"{detector.name}.base" for detector in computable]

    def table(documents: "list[Document]") -> "pd.DataFrame":
        shard_plan = model.plan(computable, Corpus(documents).prompts, inputs)
        return text_table(documents, *COLUMNS).join(shard_plan.score().frame().reindex(columns=names))

    return Worker(_identity(config, model), table_by_documents(config, table, unread=_unread(config.columns)))


def _open(config: ScoreConfig, answers: str) -> Model:
    """The model of the settings; the answers of an API are kept in a file until they are in a table."""
    return open_model(
        config.model,
        states=("base",),
        adapter=fetched(config.adapter),
        api=config.api,
        answers=answers,
        chat=config.chat,
        seed=config.seed,
    )


def _identity(config: ScoreConfig, model: Model) -> dict[str, str]:
    """What the scores depend on besides the settings: the weights of the models, and the files that they read."""
    if model.local:
        unseen = Path(config.unseen) if config.unseen else None
        made_by = identity(model.local, frequency_file(config.model), unseen)
    else:
        made_by = {"name": model.name}
    if model.reference:
        folder, _ = locate(model.reference)
        made_by["reference"] = fingerprint(folder)
    return made_by


def _forget_answers(folder: Path, _tables: Sequence[Path], _inputs: Sequence[str]) -> dict[str, Path]:
    """Delete the answers of an API, all of which are in the tables."""
    SQLiteStore(folder / ANSWERS).delete()
    return {}


def announce(plan: ScoringPlan, price: float | None) -> None:
    """Print to stderr how many requests an API will get, before the first one."""
    for name, prompts in plan.asked.items():
        # A memoized scorer knows what it was answered before, by an interrupted command for example.
        scorer: Any = plan.scorers[name]
        unknown = scorer.unknown(list(prompts))
        line = f"{len(plan.prompts):,} texts: {scorer.scorer.cost(unknown).line(price)}"
        kept = len(prompts) - len(unknown)
        if kept:
            line += f"; {kept:,} are kept from before"
        note(line)
