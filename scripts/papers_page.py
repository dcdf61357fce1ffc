"""Write docs/papers.md and docs/papers.tsv: every table and figure of the papers, and what is not as in the paper here.

The table docs/papers.tsv has more of each study: what is as in the paper, and what was measured at the small scale.
"""

import argparse
import functools
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import pandas as pd

from extensions.study.catalogue import OWN, Paper, Study, in_order, papers, studies, without_study
from fsd import tracking
from fsd.config import FSDConfig
from fsd.data import benchmarks
from fsd.errors import UsageError
from fsd.reporting.report import markdown_row
from fsd.statistics.intervals import shortened
from fsd.tracking import RunRecord

DOCS = Path(__file__).parents[1] / "docs"
# What the studies measured at the small scale; --update writes it.
RESULTS = Path(__file__).with_name("papers_small.csv")
HEADINGS = ("in the paper", "command", "not as in the paper, and why")
TABLE_HEADINGS = (
    "in the paper",
    "study",
    "as in the paper",
    "not as in the paper, and why",
    "prints",
    "small scale here, AUC",
)
# Detectors named in the column of results; of more, such as the settings of a grid, the range is given.
NAMED = 5
INTRODUCTION = """# The three papers, table by table

For whoever compares a number of this package with a printed one. Each table and figure with results is a study, whose
command runs it at the paper's scale, given a GPU and the hub. **None was run at that scale here.**
[Studies](results.md) says how to run one, and which choices of the papers' code are flags.

[A table](papers.tsv) has more: what is as in the paper, how many numbers are printed, and the embedded model's AUCs,
which say nothing about the papers' models. `python -m scripts.papers_page` makes both.
"""


class Line(NamedTuple):
    """The AUCs of a detector in a state over the cells of a study."""

    study: str
    detector: str
    state: str
    low: float
    high: float


def page() -> str:
    """The text of the page, in Markdown."""
    parts = [INTRODUCTION]
    for name, paper in papers().items():
        parts.append(_section(name, paper))
    parts.append(_own())
    return "\n".join(parts)


def table() -> str:
    """The table of all studies, with tabs between its columns."""
    lines = ["\t".join(TABLE_HEADINGS)]
    for name in in_order():
        study = studies()[name]
        cells = (
            study.place,
            command(name, study),
            study.agrees,
            study.differs,
            str(len(study.paper)),
            small_scale(name),
        )
        lines.append("\t".join(cells))
    return "\n".join([*lines, ""])


def _section(name: str, paper: Paper) -> str:
    """The part of the page on one paper."""
    cited = f'"{paper.title}", [arXiv {paper.arxiv}](https://arxiv.org/abs/{paper.arxiv}).'
    lines = [f"## {name}", "", cited, ""]
    remarks = filter(None, (paper.agrees, paper.differs))
    lines += [f"- {remark}." for remark in remarks]
    lines.append("")
    start = f"{name},"
    lines += _table([study for study in in_order() if studies()[study].place.startswith(start)])
    lines.append("")
    for place, why in without_study():
        if place.startswith(start):
            lines.append(f"- {place}: no study; {why}.")
    lines.append("")
    return "\n".join(lines)


def _own() -> str:
    """The part of the page on the studies that are of no paper."""
    unpublished = [f"`fsd study {name}`" for name in in_order() if studies()[name].place.startswith(OWN)]
    measured = "[measured](benchmarks.md#what-was-measured) on the embedded models"
    return f"## Studies of our own\n\n{', '.join(unpublished)}: {measured}.\n"


def _table(names: Sequence[str]) -> Iterator[str]:
    """The lines of the table of some studies."""
    yield markdown_row(HEADINGS)
    yield markdown_row(["---"] * len(HEADINGS))
    for name in names:
        study = studies()[name]
        yield markdown_row([study.place, f"`{command(name, study)}`", study.differs])


def command(name: str, study: Study) -> str:
    """The command that runs a study as in the paper."""
    words = ["fsd study", name, "--scale full"]
    settings = set(study.settings)
    for axis in study.axes:
        for varied in axis.levels.values():
            settings.update(varied)
    if not study.model and "model.model" not in settings:
        words.append("--model ID")
    if study.benchmark:
        words.append(f"--data {study.benchmark}:{','.join(benchmarks.sources()[study.benchmark].parts)}")
    elif "data.data" not in settings:
        words.append("--data FILE")
    if any(detector.name == "dc_pdd" for detector in study.detectors):
        words.append("--frequencies TABLE.npz")
    if study.trained:
        words.append("--split paper")
    return " ".join(words)


def small_scale(name: str) -> str:
    """What a study measured at the small scale, in one line."""
    detectors: dict[str, list[str]] = {}
    ends = []
    for line in results():
        if line.study == name:
            detectors.setdefault(line.detector, []).append(_state(line))
            ends += [line.low, line.high]
    if not detectors:
        return "–"
    if len(detectors) > NAMED:
        return f"{len(detectors)} detectors or settings, {_range(min(ends), max(ends))}"
    parts = []
    for detector, states in detectors.items():
        parts.append(f"{detector} {', '.join(states)}")
    return "; ".join(parts)


def _state(line: Line) -> str:
    numbers = _range(line.low, line.high)
    return numbers if line.state == "base" else f"{line.state} {numbers}"


def _range(low: float, high: float) -> str:
    ends = dict.fromkeys((shortened(low), shortened(high)))
    return " to ".join(ends)


@functools.cache
def results() -> Sequence[Line]:
    """What the studies measured at the small scale."""
    table = pd.read_csv(RESULTS)
    return [Line(*row) for row in table.itertuples(index=False)]


def summary(name: str, measured: pd.DataFrame) -> list[Line]:
    """The range of the AUCs of a study over its cells, for each detector and state, from its table cells.csv."""
    aucs = measured[measured["metric"] == "AUC"]
    lines = []
    for (detector, state), values in aucs.groupby(["detector", "state"], sort=False)["value"]:
        low = round(values.min(), 2)
        high = round(values.max(), 2)
        lines.append(Line(name, str(detector), str(state), low, high))
    return lines


def _measured(experiment: str) -> list[Line]:
    """The summaries of the newest runs of all studies at the small scale."""
    lines = []
    for name in in_order():
        small = list(filter(_is_plain, tracking.find_runs(experiment, {"study": name})))
        if not small:
            raise UsageError(f"store must hold a run of each study at the small scale; it has none of {name}")
        # The newest comes first.
        lines += summary(name, pd.read_csv(tracking.fetch_artifact(small[0].id, "cells.csv")))
    return lines


def _is_plain(run: RunRecord) -> bool:
    """Whether a run is of a whole study at the small scale, on the embedded models and texts."""
    if "kind" in run.tags or run.params.get("scale") != "small":
        return False
    # What is not given is not recorded.
    return not {"model", "data"} & run.params.keys()


def write(update: bool) -> None:
    """Write page and table; first take over what the newest runs of the studies have measured, if asked to."""
    if update:
        measured = pd.DataFrame(_measured(f"fsd-{FSDConfig().data.domain}"))
        RESULTS.write_text(measured.to_csv(index=False), encoding="utf-8")
        results.cache_clear()
    DOCS.joinpath("papers.md").write_text(page(), encoding="utf-8")
    DOCS.joinpath("papers.tsv").write_text(table(), encoding="utf-8")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--update", action="store_true", help="take over the numbers of the newest runs of all studies")
    write(parser.parse_args().update)
