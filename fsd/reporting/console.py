"""The table at the end of a run."""

from rich.console import Console
from rich.table import Table

from fsd.evaluation.placebo import Placebo
from fsd.evaluation.results import Outcome, notes


def show(outcome: Outcome) -> None:
    """One table on the terminal, and under it what the controls say."""
    table = Table(title=f"{len(outcome.parts.test)} test texts, best on validation: {outcome.best}", title_style="")
    headings = ["detector", "base AUC [95 % CI]", "FSD AUC [95 % CI]", "gain", "p", "TPR@5%FPR base → FSD"]
    placebo = outcome.placebo[1] if outcome.placebo else {}
    for heading in [*headings, *["placebo"] * bool(placebo)]:
        table.add_column(heading, justify="left" if heading == "detector" else "right", no_wrap=True)
    for row in outcome.results:
        before = f"{row.base.tpr_at_5fpr.value:.2f}" if row.base else "–"
        table.add_row(
            row.detector,
            str(row.base.auc) if row.base else "–",
            str(row.fsd.auc),
            f"{row.comparison.gain.value:+.2f}" if row.comparison else "–",
            _p(row.comparison.p) if row.comparison else "–",
            f"{before} → {row.fsd.tpr_at_5fpr.value:.2f}",
            *([_auc(placebo.get(row.detector))] if placebo else []),
        )
    console = Console(soft_wrap=False, width=max(110, Console().width))
    console.print(table)
    for line in notes(outcome):
        console.print(f"• {line}", highlight=False, soft_wrap=True)


def _auc(sham: Placebo | None) -> str:
    return str(sham.auc).partition(" ")[0] if sham else "–"


def _p(p: float) -> str:
    return "<.0001" if p < 1e-4 else f"{p:.4f}".replace("0.", ".", 1)
