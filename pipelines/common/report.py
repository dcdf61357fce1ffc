"""The end of every run with a report: its page, its tables, its name and its description in MLflow."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import date
from pathlib import Path

import pandas as pd

from fsd import tracking
from fsd.reporting import html
from fsd.tracking import Run

DESCRIBED = 3
"""Findings in the description of a run."""


def run_name(model: str, files: Sequence[str], method: str) -> str:
    """Name of a run: model, texts and method in few characters; `Run.conclude` adds the best score."""
    texts = Path(files[0]).stem + (f" + {len(files) - 1}" if len(files) > 1 else "") if files else ""
    return tracking.run_name(Path(model).name, texts, method)


def publish(run: Run, page: html.Page, score: str, description: str = "") -> str:
    """Log the report and its named tables, and give the run its final name and its description.

    Args:
        run: the open run.
        page: the report; the date is added to its facts.
        score: best score in a few characters, the end of the run's name.
        description: Markdown for the run's page; the first findings if empty.

    Returns:
        The page in HTML.
    """
    text = replace(page, facts=[*page.facts, ("Date", date.today().isoformat())]).render()
    run.log_text("report.html", text)
    for table in (table for section in page.sections for table in section.tables):
        if table.name:
            run.log_table(f"{table.name}.json", pd.DataFrame(table.rows, columns=list(table.head)))
    run.conclude(score, description or "\n\n".join(page.findings[:DESCRIBED]))
    return text
