"""Terminal output, figure and HTML report of an audit."""

from collections.abc import Sequence

import pandas as pd

from fsd.evaluation.audit import explains
from fsd.evaluation.metrics import by_key
from fsd.evaluation.results import tracked
from fsd.reporting import console, figures, html
from fsd.reporting.html import p_shown, shown
from fsd.tracking import Run
from pipelines.adapter_audit.audit import FOUND, AuditResults
from pipelines.adapter_audit.config import AuditConfig
from pipelines.common.report import publish

HEADINGS = ["detector", "fine-tuned AUC\n[95 % CI]", "calibrated AUC\n[95 % CI]", "gain", "p (Holm)", "TPR@5%FPR"]


def rows(table: pd.DataFrame, best: str) -> list[list[str]]:
    """The cells of the table of detectors, see `HEADINGS`; the best on validation first."""
    found = by_key(table)
    names = sorted({name for name, state, _ in found if state == "calibrated"}, key=lambda name: (name != best, name))
    return [
        [
            name,
            shown(found.get((name, "tuned", "auc"))),
            shown(found.get((name, "calibrated", "auc"))),
            f"{found[name, '', 'auc_gain'].value:+.2f}",
            p_shown(found[name, "", "auc_gain"].p_holm),
            f"{found[name, 'calibrated', 'tpr_at_5fpr'].value:.2f}",
        ]
        for name in names
    ]


def conclusions(results: AuditResults, fpr: float) -> list[str]:
    """The results in sentences, most important first."""
    best = results.calibration.detector
    auc = by_key(results.table)[best, "calibrated", "auc"].estimate
    many = len(results.parts.test)
    start = f"{best}, best on validation: fine-tuned minus base score, AUC {auc} on {many} test texts"
    blind = results.audit.blind.auc
    if auc.low <= 0.5:
        lines = [f"{start}: not distinguishable from chance"]
    elif blind is not None and explains(blind, auc):
        lines = [f"{start}; a blind classifier reaches {blind}: the two sides differ without the model"]
    else:
        lines = [f"{start}: texts of the fine-tuning data can be told from others"]
    lines.append(
        f"a blind classifier, which never sees the model, reaches {blind}"
        if blind is not None
        else f"no blind classifier could be trained: {results.audit.blind.reason}"
    )
    if results.judged:
        called = int((results.scores["verdict"] == FOUND).sum())
        rate = results.calibration.rate(fpr)
        lines.append(
            f"{called} of the {len(results.judged)} texts without a label are called fine-tuning data at a "
            f"false-positive rate of {fpr:.1%} (of this calibration, between {rate.low:.1%} and {rate.high:.1%}); it "
            "holds for texts of the kind of the labelled ones"
        )
    return [*lines, *results.remarks]


def record(run: Run, results: AuditResults, config: AuditConfig, name: str) -> None:
    """Log scores, calibration, metrics, figure and report."""
    run.log_table("scores.parquet", results.scores)
    run.log_table("summary.csv", results.table)
    run.log_text("calibration.json", results.calibration.to_json())
    run.log_metrics(results.audit.metrics() | tracked(results.table, uncertainty=False))
    test = results.scores[results.scores["split"] == "test"]
    tuned, calibrated = (
        {name.removesuffix(end): test[name].to_numpy(float) for name in map(str, test) if name.endswith(end)}
        for end in (".tuned", ".calibrated")
    )
    names = ("fine-tuned", "calibrated score")
    picture = figures.png(figures.roc(test["label"].to_numpy(bool), tuned, calibrated, names=names))
    run.log_bytes("roc.png", picture)
    table = html.Table(
        "AUC of the fine-tuned model's scores alone, and of their difference from the base model's; 95 % intervals by "
        "groups of related texts. TPR@5%FPR is the share of fine-tuning texts found when 5 of 100 others are called "
        "fine-tuning texts.",
        HEADINGS,
        rows(results.table, results.calibration.detector),
        marked=(0,),
        name="results",
    )
    caption = "Share of fine-tuning texts found against share of other texts wrongly called so."
    best = results.calibration.detector
    publish(
        run,
        html.Page(
            title="Was it in the fine-tuning data?",
            question=f"Can texts that {name} was fine-tuned on be told from others, given the base "
            f"{config.model.model}?",
            findings=conclusions(results, config.fpr),
            sections=[
                html.Section("Results", tables=[table], pictures=[html.Picture(picture, caption)]),
                html.limits(),
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
        ),
        f"{best} {str(by_key(results.table)[best, 'calibrated', 'auc'].estimate).partition(' ')[0]}",
    )


def show(results: AuditResults, notes: Sequence[str]) -> None:
    """Print the table and the conclusions."""
    lines = rows(results.table, results.calibration.detector)
    console.table(HEADINGS, lines, notes, title=f"{len(results.parts.test)} test texts", kept=(0, 2, 1, 3, 4))
