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
from typing import TYPE_CHECKING, Any

from fsd.config import ScoreConfig
from fsd.errors import UsageError
from fsd.progress import note
from pipelines.common.cli import command
from pipelines.common.job import Job, files, passes, publish, run_name, show, stage, tracked_run
from pipelines.common.output import check_table_path, described, write_table

if TYPE_CHECKING:
    import pandas as pd

    from fsd.data.documents import Document
    from fsd.evaluation.metrics import Estimate
    from fsd.reporting.report import Table
    from fsd.scoring.model import ScoringJob
    from fsd.views import Detector
    from pipelines.common.shards import Folder, Worker

COLUMNS = ("source", "text", "context", "label", "group")
ANSWERS = "_answers.partial"
"""Answers of an API in an output folder, until all shards are there."""
BASE_ONLY = "Base scores alone: what separates the texts may be their period or kind as well as membership."


def prepare(config: ScoreConfig) -> Job:
    """Read the texts, and check settings and output file."""
    from fsd.data.knowledge_cutoffs import labels_for
    from fsd.data.splitting import parse_cutoff
    from pipelines.common import experiment, shards
    from pipelines.common.experiment import load_detectors

    if config.chat and (not config.model.model.startswith("api:") or config.api.tokenizer or config.api.start_token):
        raise UsageError("chat must come with --model api:NAME, and without --tokenizer and --start-token")
    if shards.wanted(config.out, config.shards):
        shards.refuse(
            cutoff=config.cutoff,
            near_duplicates=config.cleaning.near_duplicates != "refuse" and "drop",
            engine=config.model.model.startswith("api:") and config.shards.engine,  # which has a concurrency of its own
        )
        load_detectors(config.detection)
        return shards.job("score", shards.Work("pipelines.score", config), config.data, finish=_forget_answers)
    check_table_path(config.out, [*config.data, *filter(None, (config.unseen, config.model.frequencies))])
    documents, remarks = experiment.read_cleaned(config.data, config.columns, config.cleaning, contexts=True)
    unseen, blank = experiment.read_own([config.unseen], "", config.cleaning) if config.unseen else ([], [])
    labelled, last = [d for d in documents if d.member is not None], parse_cutoff(config.cutoff)
    remarks = [*labels_for(config.model.model, labelled, last=last).said, *remarks, *blank]
    texts = [document.text for document in documents]
    detectors = load_detectors(config.detection)
    return Job(
        partial(run, config, documents, [document.text for document in unseen], detectors, remarks),
        {"texts": files(config.data, len(texts))},
        config.model,
        texts=texts,
        passes=passes(
            detectors,
            texts,
            config.model,
            states=("base",),
            unseen=unseen,
            strict=config.detection.named,
            chat=config.chat,
        ),
        writes=[config.out],
        experiment=f"fsd-{config.domain}",
        notes=remarks,
    )


def run(
    config: ScoreConfig,
    documents: "Sequence[Document]",
    unseen: Sequence[str],
    requested: "Sequence[Detector]",
    remarks: Sequence[str],
) -> None:
    """Announce the requests to an API, score, write, evaluate labelled texts, track and print."""
    with stage("model"):
        from fsd.evaluation.metrics import by_key
        from fsd.evaluation.results import tracked as metrics
        from fsd.reporting.report import Against, Report, Section, marked
        from fsd.scoring.model import open_model, view_inputs

        texts = [document.text for document in documents]
        model = open_model(config.model, config.api, f"{config.out}.partial", chat=config.chat, seed=config.seed)
        inputs = view_inputs(config.model, unseen, shots=config.detection.shots, seed=config.seed)
        contexts = [document.context for document in documents]
        work = model.job(requested, texts, inputs, contexts=contexts, strict=config.detection.named)
        if model.answers:
            announce(work, config.api.price)
    with stage("scoring"):
        labels = [document.member for document in documents]
        columns = [name for name in COLUMNS if name != "context" or any(contexts)]
        table = described(documents, *columns).join(work.score().frame())
        results, blind, doubts = judge(documents, table, seed=config.seed)
        write_table(table, config.out)
        if model.answers:
            model.answers.delete()
    score, description = "", ""
    if len(results):
        best = max((row for row in by_key(results).values() if row.metric == "auc"), key=lambda row: row.value)
        score = f"{best.detector} {str(best.estimate).partition(' ')[0]}"
        description = f"{best.detector} base AUC {best.estimate} · blind AUC {blind or 'none'}\n\n{BASE_ONLY}"
    compared = []
    if blind:
        words = f"blind: a classifier of words that never asks the model reaches AUC {blind}"
        compared = [marked(blind.low <= 0.5, words)]
    report = Report(
        headline=f"{len(texts)} texts, {len(work.detectors)} detectors",
        findings=[*map(Against, remarks), *compared, *map(Against, doubts), *work.remarks],
        sections=[Section("", tables=[metrics_table(results)])],
        score=score,
        description=description,
        metrics=metrics(results, uncertainty=False) | ({"audit/blind_auc": blind.value} if blind else {}),
        artifacts={"scores.parquet": table},
        files={"scores": config.out},
    )
    # The run is opened last, so that paid answers are safe by then and a refused API key leaves no failed run.
    name = run_name(config.model.model, config.data, "score")
    with tracked_run(config, f"fsd-{config.domain}", name, tags={"task": "score"}) as tracked:
        with stage("recording"):
            tracked.log_dataset("scored", texts, labels=labels, source=", ".join(config.data), context="score")
            publish(report, tracked)
        show(report, tracked)


def open_worker(config: ScoreConfig) -> "Worker":
    """What scores the shards of an output folder; a detector that no text of a shard allows has no values there."""
    from fsd.net.hub import fingerprint, locate
    from fsd.scoring.model import frequency_file, open_model, view_inputs
    from pipelines.common import experiment, shards

    detectors = experiment.load_detectors(config.detection)
    unseen = experiment.read_own([config.unseen], "", config.cleaning)[0] if config.unseen else []
    uncached, answers = replace(config.model, cache="none"), f"{config.out}/{ANSWERS}"
    model = open_model(uncached, config.api, answers, chat=config.chat, seed=config.seed)
    inputs = view_inputs(config.model, [d.text for d in unseen], shots=config.detection.shots, seed=config.seed)
    computable = model.job(detectors, [shards.EXAMPLE.text], inputs, strict=config.detection.named).detectors

    def table(documents: "list[Document]") -> "pd.DataFrame":
        contexts = [document.context for document in documents]
        scores = model.job(computable, [d.text for d in documents], inputs, contexts=contexts).score().frame()
        columns = [f"{detector.name}.base" for detector in computable]
        return described(documents, *COLUMNS).join(scores.reindex(columns=columns))

    files = (frequency_file(config.model), Path(config.unseen) if config.unseen else None)
    own = shards.identity(model.local, *files) if model.local else {"name": model.name}
    if model.reference:
        own["reference"] = fingerprint(locate(model.reference)[0])
    return shards.Worker(own, shards.of_documents(config, table, contexts=True))


def _forget_answers(folder: "Folder") -> dict[str, Path]:
    from fsd.scoring.cache import SQLiteStore

    SQLiteStore(folder.path / ANSWERS).delete()
    return {}


def announce(work: "ScoringJob", price: float | None) -> None:
    """Print to stderr how many requests an API will get, before the first one."""
    from fsd.token_stats import Prompt
    from fsd.views import FORMS, VIEWS, scorer_of

    views = {VIEWS[view] for detector in work.detectors for view in detector.views}
    given = list(map(Prompt, work.texts, work.contexts))
    asked: dict[str, dict[Prompt, None]] = {}
    for view in sorted(view for view in views if view.reader == "base"):
        found = dict.fromkeys(prompt for each in given for prompt in FORMS[view.form](each, work.inputs))
        asked.setdefault(scorer_of(view), {}).update(found)
    for name, prompts in asked.items():
        scorer: Any = work.scorers[name]
        unknown = scorer.unknown(list(prompts))
        kept = len(prompts) - len(unknown)
        before = f"; {kept:,} are kept from before" if kept else ""
        note(f"{len(work.texts):,} texts: {scorer.scorer.estimate(unknown, price)}{before}")


def judge(
    documents: "Sequence[Document]", table: "pd.DataFrame", *, seed: int
) -> "tuple[pd.DataFrame, Estimate | None, list[str]]":
    """Metrics, blind AUC and doubts of the labelled texts; empty without two groups a side, as one has no interval."""
    from fsd.data.near_duplicates import families
    from fsd.evaluation.audit import blind
    from fsd.evaluation.results import evaluate
    from fsd.evaluation.sentences import too_few

    labelled = [document for document in documents if document.member is not None]
    member, groups = [bool(document.member) for document in labelled], families(labelled)
    sides = [{group for group, of in zip(groups, member, strict=True) if of is side} for side in (True, False)]
    if min(map(len, sides)) < 2:
        return table.iloc[:0, :0], None, []
    results = evaluate(table[table["label"].notna()], member, groups, seed=seed)
    return results, blind([d.whole for d in labelled], member, groups, seed=seed).auc, too_few(len(sides[1]))


def metrics_table(results: "pd.DataFrame") -> "Table":
    """The metrics of labelled texts; no lines without labels."""
    from fsd.evaluation.metrics import METRICS, by_key
    from fsd.reporting.report import Column, Table

    rows = by_key(results)
    columns = [Column("detector", "detector"), Column("base AUC\n[95 % CI]", lambda row: str(row.estimate))]
    columns += [
        Column(metric.label, partial(lambda name, row: f"{rows[row.detector, 'base', name].value:.2f}", name))
        for name, metric in METRICS.items()
        if name != "auc" and not metric.needs_threshold
    ]
    aucs = sorted((row for row in rows.values() if row.metric == "auc"), key=lambda row: -row.value)
    return Table(aucs, columns, name="results", frame=results, marked=(0,))


if __name__ == "__main__":
    command(ScoreConfig, prepare, __doc__ or "")
