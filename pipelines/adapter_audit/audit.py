"""The audit of a fine-tuned model: its scores beside those of the base, measured, calibrated and registered."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import pandas as pd

from fsd import tracking
from fsd.config import AdapterConfig, DetectorConfig, ModelConfig
from fsd.data.documents import Document, digest
from fsd.data.embedded import corpus
from fsd.data.near_duplicates import families, refuse_contradictions
from fsd.data.readers import parse_columns, read_files
from fsd.data.splitting import Split, split_labelled
from fsd.errors import UsageError
from fsd.evaluation import results
from fsd.evaluation.calibration import Calibration
from fsd.evaluation.domain_check import power
from fsd.evaluation.metrics import by_key, by_state
from fsd.evaluation.results import Results, charted
from fsd.evaluation.sentences import AuditSummary, audit_summary
from fsd.evaluation.verdicts import ASSERTED, MEMBER, Judge, Rules
from fsd.models import language_model
from fsd.models.adapters import attach
from fsd.models.finetuning import finetune
from fsd.models.language_model import BaseIdentity
from fsd.reporting import figures
from fsd.reporting.report import (
    Against,
    Column,
    For,
    Picture,
    Report,
    Section,
    Table,
    limits,
    marked,
    numbers,
    p_value,
    plain,
    shown,
)
from fsd.scoring import deviation
from fsd.scoring.model import build_scorers
from fsd.scoring.token_frequencies import fingerprint
from fsd.token_stats import Scorer
from fsd.tracking import Run, Version
from fsd.views import Detector, usable
from pipelines.adapter_audit import AuditConfig
from pipelines.common import adapter_files, job
from pipelines.common.adapter_files import AUDITED
from pipelines.common.experiment import audited, load_detectors
from pipelines.common.job import Job
from pipelines.common.output import check_table_path, write_table

FOUND = "in the fine-tuning data"


def prepare(config: AuditConfig) -> Job:
    """Read the texts, and check the settings: every text is scored by the base and by the fine-tuned model."""
    if config.demo:
        return Job(partial(demo, config.seed), {"texts": "100 embedded abstracts"})
    parts, judged = texts_of(config)
    check_table_path(config.out, config.data)
    detectors = audited(load_detectors(config.detection))
    texts = [document.text for document in (*parts.validation, *parts.test, *judged)]
    sizes = f"{len(parts.validation):,} validation, {len(parts.test):,} test, {len(judged):,} to be judged"
    return Job(
        partial(run, config, parts, judged),
        {
            "texts": f"{job.files(config.data, len(texts))}: {sizes}",
            "fine-tuned model": str(config.adapter or config.tuned),
        },
        config.model,
        texts=texts,
        passes=job.passes(detectors, texts, config.model),
        writes=["a registered adapter" if config.adapter else None, config.out],
        experiment=f"fsd-{config.domain}",
    )


def texts_of(config: AuditConfig) -> tuple[Split, list[Document]]:
    """The labelled texts in two parts, by family, and the texts to be judged."""
    if not config.data:
        raise UsageError("data must be given, files with labelled texts (or --demo); got none")
    if (config.adapter is None) == (config.tuned is None):
        given = "both" if config.adapter else "none"
        raise UsageError(f"the fine-tuned model must be given by either --adapter or --tuned; got {given}")
    for name in ("validation", "fpr"):
        if not 0 < getattr(config, name) < 1:
            raise UsageError(f"{name} must be above 0 and below 1; got {getattr(config, name):g}")
    documents = read_files(config.data, parse_columns(config.columns))
    labelled = [document for document in documents if document.member is not None]
    judged = [document for document in documents if document.member is None]
    known = {document.text for document in labelled}
    both = next((document for document in judged if document.text in known), None)
    if both:
        raise UsageError(f"a text to be judged must not be labelled elsewhere; {both.source} is")
    refuse_contradictions(labelled)
    parts = split_labelled(labelled, validation=config.validation, seed=config.seed)
    groups = len(set(families([document for document in parts.validation if not document.member])))
    if judged and config.fpr < 1 / (groups + 1):
        raise UsageError(
            f"fpr must be at least {1 / (groups + 1):.4g} = 1/({groups}+1), with {groups} families of other texts in "
            f"validation; got {config.fpr:g}"
        )
    return parts, judged


def run(config: AuditConfig, parts: Split, judged: Sequence[Document]) -> None:
    """Load the models, score, judge, write, track and print."""
    with job.stage("model"):
        scorers, name, identity = load(config)
    tags = {"task": "adapter audit", "model": config.model.model, "adapter": name}
    title = job.run_name(config.model.model, config.data, "adapter audit")
    with job.tracked_run(config, f"fsd-{config.domain}", title, tags=tags) as tracked:
        with job.stage("scoring"):
            audit = judge(parts, judged, scorers, config)
        with job.stage("recording"):
            found = report(audit, config, name)
            job.publish(found, tracked)
            write_table(audit.scores, config.out)
            version = register(tracked, audit, config, identity) if config.adapter else None
        job.show(found, tracked, version)


def load(config: AuditConfig) -> tuple[dict[str, Scorer], str, BaseIdentity]:
    """Scorers of the base and the fine-tuned model, the name of the latter, and the identity of the base."""
    adapter = tracking.fetch_adapter(config.adapter) if config.adapter else None
    base = language_model.load(config.model)
    if adapter:
        attach(base, adapter)
        return build_scorers(base, config.model), str(config.adapter), base.identity
    tuned = language_model.load(config.model, model=config.tuned, revision=None)
    if fingerprint(base.tokenizer) != fingerprint(tuned.tokenizer):
        raise UsageError(f"tuned must have the tokenizer of its base {config.model.model}; {config.tuned} has another")
    scorers = {**build_scorers(base, config.model), "tuned": build_scorers(tuned, config.model)["base"]}
    return scorers, str(config.tuned), base.identity


@dataclass(frozen=True)
class Audit:
    """What an audit measured; in `results`, "base" is the fine-tuned model and "fsd" fine-tuned minus base score."""

    results: Results
    calibration: Calibration
    scores: pd.DataFrame
    detectors: Sequence[Detector]
    remarks: Sequence[str]

    @property
    def table(self) -> pd.DataFrame:
        """One row per number, with the states "tuned" and "calibrated"."""
        table = self.results.table[~self.results.table["metric"].isin(("accuracy", "validation_auc"))]
        states = table["state"].replace({"base": "tuned", "fsd": self.calibration.state})
        return table.assign(state=states).reset_index(drop=True)

    @property
    def summary(self) -> AuditSummary:
        """How well the best detector and a blind classifier separate the labelled texts."""
        return audit_summary(self.results, self.calibration.state)


def judge(parts: Split, judged: Sequence[Document], scorers: dict[str, Scorer], config: AuditConfig) -> Audit:
    """Score all texts by fine-tuned minus base, measure on test, calibrate on validation, judge the others."""
    requested = load_detectors(config.detection)
    comparable = {detector.name: detector for detector in audited(requested)}
    excluded = {d.name: "an audit compares plain scores" for d in requested if d.name not in comparable}
    requested = [comparable.get(detector.name, detector) for detector in requested]
    labelled = len(parts.validation) + len(parts.test)
    texts = [document.text for document in (*parts.validation, *parts.test, *judged)]
    strict = config.detection.named
    computable, left_out = usable(requested, texts, scorers, excluded=excluded, strict=strict, use="used in an audit")
    scored = deviation.evaluate(texts, computable, scorers, shown=True)
    calibrated = {name: -column for name, column in scored.fsd.items()}
    compared = deviation.Deviation(
        base={name: column[:labelled] for name, column in scored.tuned.items()},
        fsd={name: column[:labelled] for name, column in calibrated.items()},
    )
    measured = results.judge(parts, compared, None, computable, seed=config.seed)
    assert measured.calibration is not None  # the share of validation is above 0
    reference = replace(measured.calibration.reference, power=power(measured.calibration.reference))
    calibration = replace(measured.calibration, state=AUDITED, reference=reference)
    everything = results.score_table(parts._replace(test=(*parts.test, *judged)), scored)
    scores = everything.rename(columns={f"{name}.fsd": f"{name}.{AUDITED}" for name in calibrated})
    scores[[f"{name}.{AUDITED}" for name in calibrated]] *= -1
    asked = np.arange(len(scores)) >= labelled
    label, split = scores["label"].astype("Int64").mask(asked), scores["split"].mask(asked, "judged")
    verdict = pd.array([None] * len(scores), "string")
    scores = scores.assign(label=label, split=split, p_value=np.nan, verdict=verdict)
    remarks: list[str] = []
    if judged:
        found = Judge(calibration).classify(
            judged,
            lambda at: {name: column[[labelled + n for n in at]] for name, column in calibrated.items()},
            Rules(config.fpr, same_source=config.same_source),
        )
        verdicts = found.table["verdict"].replace(MEMBER, FOUND)
        scores.loc[labelled:, ["p_value", "verdict"]] = np.stack([found.table["p_value"], verdicts], axis=1)
        remarks += [Against(f"no verdicts: {basis.reason}") for basis in found.bases if basis.reason]
        remarks += [Against(f"verdicts are {ASSERTED}") for basis in found.bases if basis.verdict == ASSERTED]
    remarks += [f"{name} left out: {reason}" for name, reason in left_out.items()]
    return Audit(measured, calibration, scores, computable, remarks)


def detectors_table(audit: Audit) -> Table:
    """One line per detector; the best on validation first, the others by their AUC."""
    rows, best, own = by_key(audit.table), audit.calibration.detector, audit.calibration.state
    names = {name for name, state, _ in rows if state == own}
    gains = {name: row for (name, _, metric), row in rows.items() if metric == "auc_gain"}
    return Table(
        sorted(names, key=lambda name: (name != best, -rows[name, own, "auc"].value)),
        (
            Column("detector", str),
            Column("fine-tuned AUC\n[95 % CI]", lambda name: shown(rows.get((name, "tuned", "auc")))),
            Column("calibrated AUC\n[95 % CI]", lambda name: shown(rows.get((name, own, "auc")))),
            Column("gain", lambda name: f"{gains[name].value:+z.2f}" if name in gains else "–"),
            Column("p (Holm)", lambda name: p_value(gains[name].p_holm) if name in gains else "–"),
            Column("TPR@5%FPR", lambda name: f"{rows[name, own, 'tpr_at_5fpr'].value:.2f}"),
            Column("TPR@1%FPR", lambda name: f"{rows[name, own, 'tpr_at_1fpr'].value:.2f}"),
        ),
        caption="AUC of the fine-tuned model's scores alone, and of their difference from the base model's; 95 % "
        "intervals by groups of related texts. TPR@5%FPR is the share of fine-tuning texts found when 5 of 100 others "
        "are called fine-tuning texts. reference, min_k_reference and wbc compare the two models themselves.",
        title=f"{len(audit.results.parts.test)} test texts",
        name="results",
        frame=audit.table,
        marked=(0,),
        kept=(0, 2, 1, 3, 4),
    )


def conclusions(audit: Audit, fpr: float) -> list[str]:
    """The results in sentences, most important first."""
    summary, many = audit.summary, len(audit.results.parts.test)
    start = (
        f"{summary.detector}, best on validation: fine-tuned minus base score, AUC {summary.auc} on {many} test texts"
    )
    if summary.auc.low <= 0.5:
        lines = [f"{start}: not distinguishable from chance"]
    elif summary.explains:
        lines = [f"{start}; a blind classifier reaches {summary.blind}: the two sides differ without the model"]
    else:
        lines = [f"{start}: texts of the fine-tuning data can be distinguished from others"]
    blind = (
        f"a blind classifier, which never sees the model, reaches {summary.blind}"
        if summary.blind is not None
        else f"no blind classifier could be trained: {summary.reason}"
    )
    lines.append(marked(summary.clean, blind))
    verdicts = audit.scores.loc[audit.scores["split"] == "judged", "verdict"]
    if len(verdicts):
        rate = audit.calibration.rate(fpr)
        called = int((verdicts == FOUND).sum())
        judged = (
            f"{called} of the {len(verdicts)} texts without a label are called fine-tuning "
            f"data at a false-positive rate of {fpr:.1%} (of this calibration, between {rate.low:.1%} and "
            f"{rate.high:.1%}); it holds for texts of the kind of the labelled ones"
        )
        lines.append(marked(called > 0, judged))
    return [*lines, *audit.remarks]


def report(audit: Audit, config: AuditConfig, name: str) -> Report:
    """The report; `name` is the fine-tuned model's."""
    test = audit.scores[audit.scores["split"] == "test"]
    scores = by_state(test, ("tuned", audit.calibration.state))
    roc = figures.roc(test["label"].to_numpy(bool), *scores.values(), names=("fine-tuned", "calibrated score"))
    caption = "Share of fine-tuning texts found against share of other texts wrongly called so."
    verdicts = numbers("verdicts", audit.scores[audit.scores["split"] == "judged"])
    return Report(
        title="Was it in the fine-tuning data?",
        question=f"Can texts that {name} was fine-tuned on be distinguished from others, given the base "
        f"{config.model.model}?",
        findings=conclusions(audit, config.fpr),
        sections=[
            Section(
                "Results",
                tables=[detectors_table(audit), verdicts],
                pictures=[Picture(figures.png(roc), caption, name="roc.png")],
            ),
            limits(),
        ],
        facts=[
            ("Base", config.model.model),
            ("Fine-tuned model", name),
            ("Texts", ", ".join(config.data)),
            ("Seed", str(config.seed)),
        ],
        changes=[
            "Texts of both labels from one period and kind, if a classifier without the model separates these.",
            "More labelled texts, which narrow the intervals.",
        ],
        score=f"{audit.summary.detector} {audit.summary.auc.short}",
        metrics=audit.results.audit.metrics() | charted(audit.table),
        artifacts={
            "scores.parquet": audit.scores,
            "summary.csv": audit.table,
            "calibration.json": audit.calibration.to_json(),
        },
        files={"scores": config.out} if config.out else {},
    )


def register(run: Run, audit: Audit, config: AuditConfig, identity: BaseIdentity) -> Version | None:
    """Register the adapter with the calibration as a version of fsd-<domain>, for `fsd detect` and MLflow.

    None of the texts that it was trained on, which are the question, travels with it. It does not become champion if a
    blind classifier explains the result, nor in place of an audit of another adapter.
    """
    summary, parts = audit.summary, audit.results.parts
    return tracking.register(
        run,
        f"fsd-{config.domain}",
        tracking.fetch_adapter(str(config.adapter)),
        adapter_files.SERVING,
        validation_score=audit.results.validation_auc,
        files=adapter_files.contents(
            config.model,
            config.detection,
            audit.detectors,
            summary,
            audit.calibration,
            domain=config.domain,
            seed=config.seed,
        ),
        tags={"base_model": identity.id, "adapter": config.adapter, "detector": summary.detector},
        judged_on={
            "benchmark": f"validation {digest(parts.validation)}, test {digest(parts.test)}",
            "base_fingerprint": identity.fingerprint,
            "judging": f"audit of {config.adapter}, seed {config.seed}, state {summary.state}",
        },
        barred=summary.sentence if summary.explains else "",
        example=adapter_files.example(parts),
    )


def demo(seed: int) -> None:
    """Fine-tune the embedded model on some abstracts, and distinguish them from others, with the base and without."""
    with job.stage("model"):
        detection = DetectorConfig(detectors="loss,min_k,zlib")
        config = AuditConfig(model=ModelConfig(cache="none"), detection=detection, seed=seed)
        others = [document for document in corpus() if not document.member][:100]
        documents = [replace(document, member=at < len(others) // 2) for at, document in enumerate(others)]
        parts = split_labelled(documents, validation=config.validation, seed=seed)
        model = language_model.load(config.model)
        training = AdapterConfig(epochs=8, learning_rate=3e-3, batch_size=4)
        finetune(model, [d.text for d in documents if d.member], training, seed=seed)
        scorers = build_scorers(model, config.model)
    with job.stage("scoring"):
        tuned, control = (
            detectors_table(judge(parts, [], {**scorers, "tuned": scorers[name]}, config)) for name in ("tuned", "base")
        )
    shown = plain(
        ["model", *(column.heading for column in tuned.columns)],
        [
            *(["fine-tuned on half", *row] for row in tuned.rows),
            *(["control, not fine-tuned", *row] for row in control.rows),
        ],
        words=(0, 1),
        title=f"{len(parts.test)} test texts, half of them fine-tuning data",
        name="results",
        kept=(0, 1, 3, 2),
        source="--json",
    )
    found = f"{tuned.rows[0][0]}, fine-tuned minus base: AUC {tuned.rows[0][2]}; the control: {control.rows[0][2]}"
    note = "the control is the base itself in place of the fine-tuned model: the same texts and labels, no training"
    use = ["fsd adapter-audit --model BASE --adapter DIR --data FILE"]
    job.show(Report(findings=[found, For(note)], sections=[Section("", tables=[shown])], next=use))
