"""What an audit found: the report, and the adapter as a registered model, which judges further texts."""

from dataclasses import replace
from pathlib import Path

from fsd import tracking
from fsd.data.documents import digest
from fsd.evaluation.metrics import by_key, by_state
from fsd.evaluation.results import tracked
from fsd.models.language_model import BaseIdentity
from fsd.reporting import figures
from fsd.reporting.report import Column, Picture, Report, Section, Table, limits, numbers, p_value, shown
from fsd.scoring.model import TABLE, frequency_file
from fsd.tracking import Run, Version
from pipelines.adapter_audit.audit import FOUND, AuditResults
from pipelines.adapter_audit.config import AuditConfig
from pipelines.common import adapter_files
from pipelines.common.adapter_files import AUDITED
from pipelines.common.run_log import SERVING

COLUMNS = (
    Column("detector", lambda line: line[0]),
    Column("fine-tuned AUC\n[95 % CI]", lambda line: shown(line[1].get((line[0], "tuned", "auc")))),
    Column("calibrated AUC\n[95 % CI]", lambda line: shown(line[1].get((line[0], AUDITED, "auc")))),
    Column("gain", lambda line: f"{line[1][line[0], '', 'auc_gain'].value:+.2f}"),
    Column("p (Holm)", lambda line: p_value(line[1][line[0], "", "auc_gain"].p_holm)),
    Column("TPR@5%FPR", lambda line: f"{line[1][line[0], AUDITED, 'tpr_at_5fpr'].value:.2f}"),
)
"""How the name of a detector and all rows of the table of results are shown."""


def detectors_table(results: AuditResults) -> Table:
    """One line per detector; the best on validation first."""
    found, best = by_key(results.table), results.calibration.detector
    names = {name for name, state, _ in found if state == AUDITED}
    return Table(
        [(name, found) for name in sorted(names, key=lambda name: (name != best, name))],
        COLUMNS,
        caption="AUC of the fine-tuned model's scores alone, and of their difference from the base model's; 95 % "
        "intervals by groups of related texts. TPR@5%FPR is the share of fine-tuning texts found when 5 of 100 others "
        "are called fine-tuning texts.",
        title=f"{len(results.results.parts.test)} test texts",
        name="results",
        frame=results.table,
        marked=(0,),
        kept=(0, 2, 1, 3, 4),
    )


def conclusions(results: AuditResults, fpr: float) -> list[str]:
    """The results in sentences, most important first."""
    summary, many = results.summary, len(results.results.parts.test)
    start = (
        f"{summary.detector}, best on validation: fine-tuned minus base score, AUC {summary.auc} on {many} test texts"
    )
    if summary.auc.low <= 0.5:
        lines = [f"{start}: not distinguishable from chance"]
    elif summary.explains:
        lines = [f"{start}; a blind classifier reaches {summary.blind}: the two sides differ without the model"]
    else:
        lines = [f"{start}: texts of the fine-tuning data can be distinguished from others"]
    lines.append(
        f"a blind classifier, which never sees the model, reaches {summary.blind}"
        if summary.blind is not None
        else f"no blind classifier could be trained: {summary.reason}"
    )
    if results.judged:
        called, rate = int((results.scores["verdict"] == FOUND).sum()), results.calibration.rate(fpr)
        lines.append(
            f"{called} of the {len(results.judged)} texts without a label are called fine-tuning data at a "
            f"false-positive rate of {fpr:.1%} (of this calibration, between {rate.low:.1%} and {rate.high:.1%}); it "
            "holds for texts of the kind of the labelled ones"
        )
    return [*lines, *results.remarks]


def report(results: AuditResults, config: AuditConfig, name: str) -> Report:
    """The report; `name` is the fine-tuned model's."""
    test = results.scores[results.scores["split"] == "test"]
    scores = by_state(test, ("tuned", AUDITED))
    picture = Picture(
        figures.png(
            figures.roc(test["label"].to_numpy(bool), *scores.values(), names=("fine-tuned", "calibrated score"))
        ),
        "Share of fine-tuning texts found against share of other texts wrongly called so.",
        name="roc.png",
    )
    verdicts = numbers("verdicts", results.scores[results.scores["split"] == "judged"])
    return Report(
        title="Was it in the fine-tuning data?",
        question=f"Can texts that {name} was fine-tuned on be distinguished from others, given the base "
        f"{config.model.model}?",
        findings=conclusions(results, config.fpr),
        sections=[
            Section("Results", tables=[detectors_table(results), verdicts], pictures=[picture]),
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
        score=f"{results.summary.detector} {results.summary.auc.short}",
        metrics=results.results.audit.metrics() | tracked(results.table, uncertainty=False),
        artifacts={
            "scores.parquet": results.scores,
            "summary.csv": results.table,
            "calibration.json": results.calibration.to_json(),
        },
        files={"scores": config.out} if config.out else {},
    )


def register(run: Run, results: AuditResults, config: AuditConfig, identity: BaseIdentity) -> Version | None:
    """Register the adapter with the calibration as a version of fsd-<domain>, for pipelines.detect and MLflow.

    None of the texts that it was trained on, which are the question, travels with it. It does not become champion if a
    blind classifier explains the result, nor in place of an audit of another adapter.
    """
    table, summary, parts = frequency_file(config.model), results.summary, results.results.parts
    setup = adapter_files.setup(
        replace(config.model, frequencies=None, cache=None),
        domain=config.domain,
        detectors=results.detectors,
        shots=config.detection.shots,
        seed=config.seed,
        training=None,
    )
    files: dict[str, str | Path] = {
        adapter_files.CALIBRATION: results.calibration.to_json(),
        adapter_files.SETUP: setup,
        adapter_files.AUDIT: summary.to_json(),
    }
    return tracking.register(
        run,
        f"fsd-{config.domain}",
        tracking.fetch_adapter(str(config.adapter)),
        SERVING,
        validation_score=results.results.validation_auc,
        files=files | ({TABLE: table} if table else {}),
        tags={
            "base_model": identity.id,
            "base_revision": identity.revision or "local",
            "base_fingerprint": identity.fingerprint,
            "adapter": config.adapter,
            "detector": summary.detector,
            "benchmark": f"validation {digest(parts.validation)}, test {digest(parts.test)}",
            "judging": f"audit of {config.adapter}, seed {config.seed}, state {AUDITED}",
        },
        barred=summary.sentence if summary.explains else "",
    )
