"""What the labels of scored texts show, and the report of `fsd score`."""

from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

import numpy as np
import pandas as pd

from fsd.config import ScoreConfig
from fsd.data.corpus import Corpus
from fsd.errors import counted
from fsd.evaluation.findings import AGAINST, Finding, as_findings
from fsd.evaluation.results import tracked as metrics_of
from fsd.evaluation.rows import Row, by_key, evaluate
from fsd.evaluation.sentences import too_few
from fsd.reporting.report import Column, Report, Section, Table
from fsd.scoring.plan import ScoringPlan
from fsd.statistics.intervals import Estimate
from fsd.statistics.metrics import METRICS
from fsd.text_audit.audit import blind

BASE_ONLY = "Base scores alone: what separates the texts may be their period or kind as well as membership."

UNLABELLED = (
    "no AUC: it needs two independent texts of each label; higher means more likely a member, but no score alone says "
    "how likely: fsd detect gives verdicts on texts without labels"
)


class Measured(NamedTuple):
    """What the labels show: the metrics, the AUC of a classifier that never asks the model, and doubts about both."""

    results: pd.DataFrame
    blind: Estimate | None = None
    doubts: Sequence[str] = ()


def measure(documents: Corpus, table: pd.DataFrame, *, seed: int) -> Measured:
    """Metrics, blind AUC and doubts of the labelled texts; none without two groups a side, as one has no interval."""
    labelled = Corpus(document for document in documents if document.member is not None)
    members = labelled.members
    groups = labelled.family
    n_nonmembers = np.unique(groups[~members]).size
    if min(np.unique(groups[members]).size, n_nonmembers) < 2:
        return Measured(table.iloc[:0, :0])
    # With its context, in which the two sides may differ as well.
    texts = [document.whole for document in labelled]
    control = blind(texts, members.tolist(), groups.tolist(), seed=seed)
    return Measured(
        evaluate(table[table["label"].notna()], members, groups.tolist(), seed=seed), control.auc, too_few(n_nonmembers)
    )


def make_report(
    config: ScoreConfig, table: pd.DataFrame, measured: Measured, plan: ScoringPlan, remarks: Sequence[str]
) -> Report:
    """The metrics of the labelled texts beside the blind classifier, and what could not be computed."""
    results, blind_auc, doubts = measured
    metrics = metrics_of(results, uncertainty=False)
    findings = as_findings(remarks, AGAINST)
    if blind_auc:
        findings.append(
            Finding(
                f"blind: a classifier of words that never asks the model reaches AUC {blind_auc}", blind_auc.low <= 0.5
            )
        )
        metrics["audit/blind_auc"] = blind_auc.value
    if results.empty:
        findings.append(Finding(UNLABELLED, AGAINST))
    findings += as_findings(doubts, AGAINST) + as_findings(plan.remarks)
    score = ""
    description = ""
    aucs = _ranked_aucs(results)
    if aucs:
        best = aucs[0]
        score = f"{best.detector} {best.estimate.short}"
        # Beside the blind classifier, since the page of the run is read without the rest of the report.
        description = f"{best.detector} base AUC {best.estimate} · blind AUC {blind_auc or 'none'}\n\n{BASE_ONLY}"
    section = Section("", tables=[metrics_table(results)])
    headline = f"{counted(len(table), 'text')}, {counted(len(plan.detectors), 'detector')}"
    return Report(
        headline=headline,
        findings=findings,
        sections=[section],
        score=score,
        description=description,
        metrics=metrics,
        artifacts={"scores.parquet": table},
        files={"scores": config.out},
    )


def _ranked_aucs(results: pd.DataFrame) -> list[Row]:
    """The rows of the AUC, the highest first; no rows without labels."""
    aucs = [row for row in by_key(results).values() if row.metric == "auc"]
    return sorted(aucs, key=lambda row: -row.value)


def metrics_table(results: pd.DataFrame) -> Table:
    """The metrics of labelled texts; no lines without labels."""
    rows = by_key(results)

    def cell(row: Row, metric: str) -> str:
        return f"{rows[row.detector, 'base', metric].value:.2f}"

    columns = [Column("detector", "detector"), Column("base AUC\n[95 % CI]", lambda row: str(row.estimate))]
    for name, metric in METRICS.items():
        # A threshold would have to come from other texts.
        if name != "auc" and not metric.needs_threshold:
            columns.append(Column(metric.label, partial(cell, metric=name)))
    return Table(_ranked_aucs(results), columns, name="results", frame=results, marked=(0,))
