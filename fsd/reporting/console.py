"""Tables in the terminal."""

from collections.abc import Collection, Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from fsd.errors import printable
from fsd.evaluation.contrasts import CONTRASTS
from fsd.evaluation.metrics import METRICS, by_key
from fsd.evaluation.results import Results


def table(
    headings: Sequence[str],
    rows: Sequence[Sequence[str]],
    notes: Sequence[str],
    *,
    title: str = "",
    left: Collection[int] = (0,),
) -> None:
    """Print a table and, under it, one line per note.

    Args:
        headings: names of the columns.
        rows: plain text of the cells; without rows there is no table.
        notes: lines under the table.
        title: above the table.
        left: indices of the columns of words; the others are aligned to the right and never wrapped.
    """
    console = Console(width=max(110, Console().width))
    if rows:
        grid = Table(title=Text(printable(title)) if title else None, title_style="")
        for at, heading in enumerate(headings):
            grid.add_column(heading, justify="left" if at in left else "right", no_wrap=at not in left)
        for row in rows:
            grid.add_row(*(Text(printable(cell)) for cell in row))
        console.print(grid)
    for note in notes:
        console.print(f"• {printable(note)}", highlight=False, markup=False, soft_wrap=True)


def show_contrasts(results: Results) -> None:
    """One table for each of the three contrasts, no wider than 80 columns."""
    rows = by_key(results.table)
    headings = ("detector", "base AUC", "FSD AUC", "gain", "Holm p")
    for contrast in CONTRASTS:
        lines = []
        for (detector, state, metric), row in rows.items():
            if (state, metric) == ("fsd", f"auc_{contrast.name}"):
                base = rows.get((detector, "base", metric))
                gain = rows.get((detector, "", f"auc_gain_{contrast.name}"))
                change = (f"{gain.value:+.2f}", _p(gain.p_holm)) if gain else ("–", "–")
                lines.append([detector, str(base.estimate) if base else "–", str(row.estimate), *change])
        table(headings, lines, (), title=f"{contrast.title} ({contrast.meaning})")


def show(results: Results) -> None:
    """One table of detectors, with those of the three contrasts above it if there are any, and the conclusions."""
    if results.contrasts:
        show_contrasts(results)
    rows = by_key(results.table)
    headings = ["detector", "base AUC [95 % CI]", "FSD AUC [95 % CI]", "gain", "Holm p"]
    both = [name for name, metric in METRICS.items() if metric.in_terminal and name != "auc"]
    headings += [f"{METRICS[name].label} base → FSD" for name in both]
    headings += ["placebo"] * (results.placebo is not None)
    lines = []
    for detector in dict.fromkeys(row.detector for row in rows.values()):
        base, gain = rows.get((detector, "base", "auc")), rows.get((detector, "", "auc_gain"))
        placebo = rows.get((detector, "fsd", "placebo_auc"))
        line = [
            detector,
            str(base.estimate) if base else "–",
            str(rows[detector, "fsd", "auc"].estimate),
            f"{gain.value:+.2f}" if gain else "–",
            _p(gain.p_holm) if gain else "–",
        ]
        for name in both:
            states = (rows.get((detector, state, name)) for state in ("base", "fsd"))
            line.append(" → ".join(f"{row.value:.2f}" if row else "–" for row in states))
        if results.placebo is not None:
            line.append(str(placebo.estimate).partition(" ")[0] if placebo else "–")
        lines.append(line)
    chosen = "validation" if results.parts.validation else "the test texts themselves"
    title = f"{len(results.judged)} test texts, best on {chosen}: {results.best}"
    table(headings, lines, results.notes(), title=title)


def _p(p: float) -> str:
    return "<.0001" if p < 1e-4 else f"{p:.4f}".replace("0.", ".", 1)
