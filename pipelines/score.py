"""Base scores of texts, without fine-tuning, by a local model or through a completions API.

`--detectors perplexity` is minus the per-document perplexity. Texts with a column `context`, such as answers after
their prompts, are scored given that context, which is not scored itself: the perplexity of the answer alone.

`fsd score --model api:NAME --base-url http://localhost:8000/v1 --data FILE --out scores.parquet`. An
API returns log-probabilities of the text's own tokens only; detectors that need more are left out, with a remark.
Without `api:`, --model is a local model or a hub id. AUCs are computed if there are labels.

Examples:
    fsd score --data corpus.jsonl --model ./my-model --out scores.parquet
    fsd score --data corpus.jsonl --model ./my-model --out scores.csv --detectors loss,min_k --json
    fsd score --data answers.csv --columns text=answer,context=prompt --model ./my-model --out scores.csv
"""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from fsd.config import ScoreConfig
from fsd.errors import UsageError
from fsd.progress import note
from pipelines.common.cli import command
from pipelines.common.context import stage
from pipelines.common.deliver import publish, run_name, show, tracked_run
from pipelines.common.job import Job, files
from pipelines.common.output import check_table_path, text_table, write_table

if TYPE_CHECKING:
    import pandas as pd

    from fsd.data.corpus import Corpus
    from fsd.data.documents import Document
    from fsd.evaluation.rows import Row
    from fsd.reporting.report import Report, Table
    from fsd.scoring.plan import ScoringPlan
    from fsd.statistics.intervals import Estimate
    from fsd.views import Detector
    from pipelines.common.shards import Folder, Worker

COLUMNS = ("source", "text", "context", "label", "group")
ANSWERS = "_answers.partial"
"""Answers of an API in an output folder, until all shards are there."""
BASE_ONLY = "Base scores alone: what separates the texts may be their period or kind as well as membership."


class Measured(NamedTuple):
    """What the labels show: the metrics, the AUC of a classifier that never asks the model, and doubts about both."""

    results: "pd.DataFrame"
    blind: "Estimate | None" = None
    doubts: Sequence[str] = ()


def prepare(config: ScoreConfig) -> Job:
    """Read the texts, and check settings and output file."""
    from fsd.data.knowledge_cutoffs import labels_for
    from fsd.data.splitting import parse_cutoff
    from fsd.scoring.model import outline
    from pipelines.common import detector_settings, shards
    from pipelines.common.inputs import read_cleaned

    by_api = config.model.model.startswith("api:")
    if config.chat and (not by_api or config.api.tokenizer or config.api.start_token):
        raise UsageError("chat must come with --model api:NAME, and without --tokenizer and --start-token")
    # A detector that does not exist is refused before the texts are read, and before a worker needs it.
    detectors = detector_settings.load_detectors(config.detection)
    if shards.wanted(config.out, config.shards):
        # Both need all texts at once; and an API has a concurrency of its own.
        shards.refuse(
            cutoff=config.cutoff,
            near_duplicates=config.cleaning.near_duplicates != "refuse" and "drop",
            engine=by_api and config.shards.engine,
        )
        return shards.job(
            "score",
            shards.Work("pipelines.score", config),
            config.data,
            finish=_forget_answers,
        )
    sources = (*config.data, config.unseen, config.model.frequencies)
    check_table_path(config.out, filter(None, sources))
    documents, left_out = read_cleaned(config.data, config.columns, config.cleaning, contexts=True)
    unseen, blank = _read_unseen(config)
    # Texts without a label are scored too, and say nothing about the dates of members and non-members.
    labelled = [document for document in documents if document.member is not None]
    labels = labels_for(config.model.model, labelled, last=parse_cutoff(config.cutoff))
    remarks = labels.notes + left_out + blank
    model = outline(config.model, ("base",), chat=config.chat, seed=config.seed)
    inputs = model.inputs(unseen, shots=config.detection.shots)
    plan = model.plan(detectors, documents.texts, inputs, strict=config.detection.named)
    return Job(
        partial(run, config, documents, unseen, detectors, remarks),
        {"texts": files(config.data, len(documents))},
        config.model,
        texts=documents.texts,
        passes=plan.passes,
        writes=[config.out],
        experiment=f"fsd-{config.domain}",
        notes=remarks,
    )


def _read_unseen(config: ScoreConfig) -> tuple[list[str], list[str]]:
    """The texts that give some detectors a prefix, and remarks about those that were left out."""
    from pipelines.common.inputs import read_own

    if not config.unseen:
        return [], []
    documents, remarks = read_own([config.unseen], "", config.cleaning)
    return documents.texts, remarks


def run(
    config: ScoreConfig,
    documents: "Corpus",
    unseen: Sequence[str],
    requested: "Sequence[Detector]",
    remarks: Sequence[str],
) -> None:
    """Announce the requests to an API, score, write, evaluate labelled texts, track and print."""
    contexts = [document.context for document in documents]
    with stage("model"):
        from fsd.scoring.model import open_model

        model = open_model(
            config.model,
            api=config.api,
            answers=f"{config.out}.partial",
            chat=config.chat,
            seed=config.seed,
        )
        inputs = model.inputs(unseen, shots=config.detection.shots)
        plan = model.plan(
            requested,
            documents.texts,
            inputs,
            contexts=contexts,
            strict=config.detection.named,
        )
        if model.answers:
            announce(plan, config.api.price)
    with stage("scoring"):
        # Without any context, a column of blanks would only widen the table.
        columns = [name for name in COLUMNS if name != "context" or any(contexts)]
        table = text_table(documents, *columns).join(plan.score().frame())
        measured = measure(documents, table, seed=config.seed)
        write_table(table, config.out)
        # Only now: an answer that was paid for is kept until it is in the table.
        if model.answers:
            model.answers.delete()
    report = make_report(config, table, measured, plan, remarks)
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


def make_report(
    config: ScoreConfig,
    table: "pd.DataFrame",
    measured: Measured,
    plan: "ScoringPlan",
    remarks: Sequence[str],
) -> "Report":
    """The metrics of the labelled texts beside the blind classifier, and what could not be computed."""
    from fsd.evaluation.findings import AGAINST, Finding, as_findings
    from fsd.evaluation.results import tracked as metrics_of
    from fsd.evaluation.rows import by_key
    from fsd.reporting.report import Report, Section

    results, blind, doubts = measured
    metrics = metrics_of(results, uncertainty=False)
    findings = as_findings(remarks, AGAINST)
    if blind:
        words = f"blind: a classifier of words that never asks the model reaches AUC {blind}"
        findings.append(Finding(words, blind.low <= 0.5))
        metrics["audit/blind_auc"] = blind.value
    findings += as_findings(doubts, AGAINST)
    findings += as_findings(plan.remarks)
    score = ""
    description = ""
    if len(results):
        best = max(
            (row for row in by_key(results).values() if row.metric == "auc"),
            key=lambda row: row.value,
        )
        score = f"{best.detector} {best.estimate.short}"
        # Beside the blind classifier, since the page of the run is read without the rest of the report.
        description = f"{best.detector} base AUC {best.estimate} · blind AUC {blind or 'none'}\n\n{BASE_ONLY}"
    return Report(
        headline=f"{len(table)} texts, {len(plan.detectors)} detectors",
        findings=findings,
        sections=[Section("", tables=[metrics_table(results)])],
        score=score,
        description=description,
        metrics=metrics,
        artifacts={"scores.parquet": table},
        files={"scores": config.out},
    )


def open_worker(config: ScoreConfig) -> "Worker":
    """What scores the shards of an output folder; a detector that no text of a shard allows has no values there."""
    from fsd.data.corpus import Corpus
    from fsd.net.hub import fingerprint, locate
    from fsd.scoring.model import open_model
    from fsd.scoring.scorers import frequency_file
    from pipelines.common import detector_settings, shards

    detectors = detector_settings.load_detectors(config.detection)
    unseen, _ = _read_unseen(config)
    # The cache would grow with the texts; a shard that is there is not computed again anyway.
    uncached = replace(config.model, cache="none")
    model = open_model(
        uncached,
        api=config.api,
        answers=f"{config.out}/{ANSWERS}",
        chat=config.chat,
        seed=config.seed,
    )
    inputs = model.inputs(unseen, shots=config.detection.shots)
    # Chosen by an example, so that all shards have the same columns, whatever their texts allow.
    computable = model.plan(
        detectors,
        [shards.EXAMPLE.text],
        inputs,
        strict=config.detection.named,
    ).detectors
    names = [f"{detector.name}.base" for detector in computable]

    def table(documents: "list[Document]") -> "pd.DataFrame":
        contexts = [document.context for document in documents]
        scores = model.plan(computable, Corpus(documents).texts, inputs, contexts=contexts).score().frame()
        return text_table(documents, *COLUMNS).join(scores.reindex(columns=names))

    if model.local:
        unseen_file = Path(config.unseen) if config.unseen else None
        identity = shards.identity(model.local, frequency_file(config.model), unseen_file)
    else:
        identity = {"name": model.name}
    if model.reference:
        folder, _ = locate(model.reference)
        identity["reference"] = fingerprint(folder)
    return shards.Worker(identity, shards.of_documents(config, table, contexts=True))


def _forget_answers(folder: "Folder") -> dict[str, Path]:
    """Delete the answers of an API, all of which are in the shards."""
    from fsd.scoring.cache import SQLiteStore

    SQLiteStore(folder.path / ANSWERS).delete()
    return {}


def announce(plan: "ScoringPlan", price: float | None) -> None:
    """Print to stderr how many requests an API will get, before the first one."""
    from fsd.token_stats import Prompt
    from fsd.views import FORMS, VIEWS, scorer_of

    texts = [Prompt(text, context) for text, context in zip(plan.texts, plan.contexts, strict=True)]
    # Two views of a scorer may ask the same, such as a text and its copy in small letters: each prompt is sent once.
    asked: dict[str, dict[Prompt, None]] = {}
    for view in sorted({VIEWS[name] for detector in plan.detectors for name in detector.views}):
        if view.reader == "base":
            prompts = asked.setdefault(scorer_of(view), {})
            for text in texts:
                prompts.update(dict.fromkeys(FORMS[view.form](text, plan.inputs)))
    for name, prompts in asked.items():
        # A memoized scorer knows what it was answered before, by an interrupted command for example.
        scorer: Any = plan.scorers[name]
        unknown = scorer.unknown(list(prompts))
        line = f"{len(texts):,} texts: {scorer.scorer.estimate(unknown, price)}"
        if len(unknown) < len(prompts):
            line += f"; {len(prompts) - len(unknown):,} are kept from before"
        note(line)


def measure(documents: "Sequence[Document]", table: "pd.DataFrame", *, seed: int) -> Measured:
    """Metrics, blind AUC and doubts of the labelled texts; none without two groups a side, as one has no interval."""
    import numpy as np

    from fsd.data.corpus import Corpus
    from fsd.evaluation.audit import blind
    from fsd.evaluation.results import evaluate
    from fsd.evaluation.sentences import too_few

    labelled = Corpus(document for document in documents if document.member is not None)
    members = labelled.members
    groups = labelled.family.tolist()
    independent = np.unique(labelled.family[~members]).size
    if min(np.unique(labelled.family[members]).size, independent) < 2:
        return Measured(table.iloc[:0, :0])
    # With its context, in which the two sides may differ as well.
    texts = [document.whole for document in labelled]
    control = blind(texts, members.tolist(), groups, seed=seed)
    results = evaluate(table[table["label"].notna()], members, groups, seed=seed)
    return Measured(results, control.auc, too_few(independent))


def metrics_table(results: "pd.DataFrame") -> "Table":
    """The metrics of labelled texts; no lines without labels."""
    from fsd.evaluation.rows import by_key
    from fsd.reporting.report import Column, Table
    from fsd.statistics.metrics import METRICS

    rows = by_key(results)

    def cell(row: "Row", metric: str) -> str:
        return f"{rows[row.detector, 'base', metric].value:.2f}"

    columns = [
        Column("detector", "detector"),
        Column("base AUC\n[95 % CI]", lambda row: str(row.estimate)),
    ]
    for name, metric in METRICS.items():
        # A threshold would have to come from other texts.
        if name != "auc" and not metric.needs_threshold:
            columns.append(Column(metric.label, partial(cell, metric=name)))
    aucs = [row for row in rows.values() if row.metric == "auc"]
    aucs.sort(key=lambda row: -row.value)
    return Table(aucs, columns, name="results", frame=results, marked=(0,))


if __name__ == "__main__":
    command(ScoreConfig, prepare, __doc__ or "")
