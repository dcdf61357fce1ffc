"""What a study leaves at the root of its run: table.csv, table.md, figure.png and cells.csv."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from pipelines.study import figures, tables
from pipelines.study.cells import Done
from pipelines.study.spec import Study

if TYPE_CHECKING:
    from fsd.tracking import Run

OFTEN = 0.1
"""Share of the texts beyond which a fallback is told."""
LISTED = 5
"""Most detectors that a note names."""


def publish(run: "Run", study: Study, cells: Sequence[Done]) -> str:
    """Write table and figure into the run, and give the page with the table."""
    from fsd.reporting import figures as plots

    found = tables.numbers(study, cells)
    shown = [*found, *tables.paired(study, cells)]
    table = tables.layout(study, shown)
    text = page(study, cells, table)
    run.log_table("table.csv", tables.frame(study, table))
    run.log_table("cells.csv", tables.long(study, cells, shown))
    run.log_text("table.md", text)
    run.log_bytes("figure.png", plots.png(figures.figure(study, cells, found)))
    run.log_metrics({"cells/run": sum(not d.reused for d in cells), "cells/reused": sum(d.reused for d in cells)})
    return text


def page(study: Study, cells: Sequence[Done], table: tables.Layout) -> str:
    """The table under its question, and over what must be known to read it."""
    shown = tables.markdown(study, table)
    lines = [f"# {study.place}", "", study.title, "", shown, *_notes(study, cells, bracketed="[" in shown)]
    return "\n".join(lines) + "\n"


def _notes(study: Study, cells: Sequence[Done], *, bracketed: bool) -> list[str]:
    models = dict.fromkeys(_short(done.cell.config.model.model) for done in cells)
    data = dict.fromkeys(", ".join(map(_short, done.cell.config.data.data)) for done in cells)
    tested = sorted({int(done.metrics["texts/test"]) for done in cells})
    notes = [
        f"Model: {', '.join(models)}. Texts: {'; '.join(data)}; {_span(tested)} tested, "
        f"seed {cells[0].cell.config.seed}.",
    ]
    if bracketed:
        notes.append("In brackets: 95 % intervals, resampled by groups of texts.")
    found = sorted({round(d.metrics["audit/blind_auc"], 2) for d in cells if "audit/blind_auc" in d.metrics})
    if found:
        notes.append(f"A bag of words that asks no model reaches AUC {_span(found)} on the same texts.")
    notes += [study.note] if study.note else []
    notes += _fallbacks(study, cells)
    for name, reason in dict.fromkeys(pair for done in cells for pair in done.left_out.items()):
        notes.append(f"{name} is left out where it cannot be computed: {reason}.")
    notes.append(_paper(study, list(models)))
    return [f"- {note}" for note in notes]


def _fallbacks(study: Study, cells: Sequence[Done]) -> list[str]:
    """Which detectors are, on more than a tenth of the texts of some cell, a fallback and not themselves."""
    often = [
        detection.shown
        for detection in study.detectors
        if max(done.metrics.get(f"fallback/{detection.key}.base", 0.0) for done in cells) > OFTEN
    ]
    if not often:
        return []
    named = ", ".join(often) if len(often) <= LISTED else f"{len(often)} of {len(study.detectors)} settings"
    return [f"On more than {OFTEN:.0%} of the texts no token met the condition, and a fallback was scored: {named}."]


def _paper(study: Study, models: Sequence[str]) -> str:
    if not study.paper:
        return "The paper's own numbers are not on record here."
    known = {key[0] for key in study.paper} & set(models)
    return "In parentheses: the paper's own numbers." if known else "The paper's own numbers are of other models."


def _short(name: str) -> str:
    return Path(name).name if Path(name).exists() else name


def _span(values: Sequence[float]) -> str:
    return f"{values[0]}" if len(values) == 1 else f"{values[0]} to {values[-1]}"
