"""Report of an audit."""

from fsd.evaluation.audit import explains
from fsd.evaluation.metrics import by_key
from fsd.evaluation.results import tracked
from fsd.reporting import figures, html
from fsd.reporting.report import Column, Picture, Report, Section, Table, numbers, p_value, shown
from pipelines.adapter_audit.audit import FOUND, AuditResults
from pipelines.adapter_audit.config import AuditConfig


def detectors_table(results: AuditResults) -> Table:
    """One line per detector; the best on validation first."""
    found, best = by_key(results.table), results.calibration.detector
    names = {name for name, state, _ in found if state == "calibrated"}
    return Table(
        [(name, found) for name in sorted(names, key=lambda name: (name != best, name))],
        columns(),
        caption="AUC of the fine-tuned model's scores alone, and of their difference from the base model's; 95 % "
        "intervals by groups of related texts. TPR@5%FPR is the share of fine-tuning texts found when 5 of 100 others "
        "are called fine-tuning texts.",
        title=f"{len(results.parts.test)} test texts",
        name="results",
        frame=results.table,
        marked=(0,),
        kept=(0, 2, 1, 3, 4),
    )


def columns() -> list[Column]:
    """How the name of a detector and all rows of the table of results are shown."""
    return [
        Column("detector", lambda line: line[0]),
        Column("fine-tuned AUC\n[95 % CI]", lambda line: shown(line[1].get((line[0], "tuned", "auc")))),
        Column("calibrated AUC\n[95 % CI]", lambda line: shown(line[1].get((line[0], "calibrated", "auc")))),
        Column("gain", lambda line: f"{line[1][line[0], '', 'auc_gain'].value:+.2f}"),
        Column("p (Holm)", lambda line: p_value(line[1][line[0], "", "auc_gain"].p_holm)),
        Column("TPR@5%FPR", lambda line: f"{line[1][line[0], 'calibrated', 'tpr_at_5fpr'].value:.2f}"),
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
        lines = [f"{start}: texts of the fine-tuning data can be distinguished from others"]
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


def report(results: AuditResults, config: AuditConfig, name: str) -> Report:
    """The report; `name` is the fine-tuned model's."""
    test = results.scores[results.scores["split"] == "test"]
    tuned, calibrated = (
        {name.removesuffix(end): test[name].to_numpy(float) for name in map(str, test) if name.endswith(end)}
        for end in (".tuned", ".calibrated")
    )
    labels = test["label"].to_numpy(bool)
    picture = Picture(
        figures.png(figures.roc(labels, tuned, calibrated, names=("fine-tuned", "calibrated score"))),
        "Share of fine-tuning texts found against share of other texts wrongly called so.",
        name="roc.png",
    )
    best = results.calibration.detector
    verdicts = numbers("verdicts", results.scores[results.scores["split"] == "judged"])
    return Report(
        title="Was it in the fine-tuning data?",
        question=f"Can texts that {name} was fine-tuned on be distinguished from others, given the base "
        f"{config.model.model}?",
        findings=conclusions(results, config.fpr),
        sections=[
            Section("Results", tables=[detectors_table(results), verdicts], pictures=[picture]),
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
        score=f"{best} {str(by_key(results.table)[best, 'calibrated', 'auc'].estimate).partition(' ')[0]}",
        metrics=results.audit.metrics() | tracked(results.table, uncertainty=False),
        artifacts={
            "scores.parquet": results.scores,
            "summary.csv": results.table,
            "calibration.json": results.calibration.to_json(),
        },
        files={"scores": config.out} if config.out else {},
    )
