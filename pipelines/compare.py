"""Do runs agree? Mean and interval of every score over seeds and runs, as a table and a run of its own.

Each run is an id, as `fsd run` prints it, or a registered version, models:/NAME/VERSION.

Examples:
    fsd compare 6f1c0a8b2d3e4f5061728394a5b6c7d8 0d9e8f7a6b5c4d3e2f1a0b9c8d7e6f50
    fsd compare models:/fsd-arxiv/1 models:/fsd-arxiv/2 --out compared.csv
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Annotated

from tyro.conf import Positional, arg

from fsd.config import OptionalPath
from fsd.errors import UsageError
from pipelines.common.cli import command
from pipelines.common.job import Job, deliver, tracked_run
from pipelines.common.output import check_table_path, write_table

if TYPE_CHECKING:
    import pandas as pd

    from fsd.reporting.report import Report

AUCS = {"base_auc": "Base AUC", "fsd_auc": "FSD AUC"}
DIFFERENCES = {"gain": "Gain", "placebo_lead": "Above control"}
"""Columns of summary.csv that are compared, each with `_low` and `_high`, and their headings."""

TWO_ERRORS = 3.92
"""Width of a 95 % interval of a normal variable, in standard errors."""


@dataclass(frozen=True)
class CompareConfig:
    """Runs, and where the table goes."""

    runs: Annotated[Positional[tuple[str, ...]], arg(metavar="RUN ...", help_behavior_hint="")]
    """Ids of runs of `fsd run`, or registered versions: two or more, of the same texts or of others."""
    out: OptionalPath = None
    """Output file of the table: .csv, .jsonl or .parquet."""


def prepare(config: CompareConfig) -> Job:
    """Find the runs and read their tables."""
    if len(set(config.runs)) < 2:
        raise UsageError(f"runs must be two or more, each once; got {', '.join(config.runs) or 'none'}")
    check_table_path(config.out)
    summaries = {name: summary_of(name) for name in dict.fromkeys(config.runs)}
    table = compared(summaries)
    if table.empty:
        raise UsageError(f"runs must share a detector; {', '.join(summaries)} have none in common")
    return Job(
        partial(run, config, table, list(summaries)),
        {"runs": ", ".join(summaries)},
        writes=[config.out],
        experiment="fsd-compare",
    )


def summary_of(name: str) -> "pd.DataFrame":
    """The table of a run, one row per detector."""
    import pandas as pd

    from fsd import tracking

    version = tracking.version_info(name)
    if name.startswith("models:") and (version is None or not version.run_id):
        raise UsageError(f"{name} must be a version that a run registered; it names none")
    table = pd.read_csv(tracking.fetch_artifact(version.run_id if version else name, "summary.csv"))
    missing = {"detector", "fsd_auc", "fsd_auc_low"} - set(table)
    if missing:
        raise UsageError(f"{name} must be a run of `fsd run`; its summary.csv has no {', '.join(sorted(missing))}")
    return table.set_index("detector")


def compared(summaries: "Mapping[str, pd.DataFrame]") -> "pd.DataFrame":
    """One row per detector and measure: number of runs, mean with its 95 % interval, deviation, least and most."""
    import pandas as pd

    from fsd.evaluation.metrics import interval

    whole, rows = pd.concat(summaries, names=["run"]), []
    for detector, of_detector in whole.groupby("detector", sort=False):
        for measure in (name for name in AUCS | DIFFERENCES if name in whole):
            known = of_detector[[measure, f"{measure}_low", f"{measure}_high"]].dropna()
            if len(known) > 1:
                values, low, high = known.to_numpy().T
                ends = interval(values, float((high - low).mean()) / TWO_ERRORS)
                numbers = (values.mean(), *ends, values.std(ddof=1), values.min(), values.max())
                rows.append((detector, measure, len(known), *map(float, numbers)))
    columns = ["detector", "measure", "runs", "value", "low", "high", "sd", "least", "most"]
    return pd.DataFrame(rows, columns=columns)


def run(config: CompareConfig, table: "pd.DataFrame", names: Sequence[str]) -> None:
    """Write, track and print."""
    write_table(table, config.out)
    tags = {"task": "compare", "from": ",".join(names)}
    with tracked_run(config, "fsd-compare", f"{len(names)} runs", tags=tags) as tracked:
        deliver(partial(report, table, names, config), tracked)


def report(table: "pd.DataFrame", names: Sequence[str], config: CompareConfig) -> "Report":
    """One line per detector, the best mean first."""
    from fsd.evaluation.metrics import Estimate, shortened
    from fsd.reporting.report import Column, For, Report, Section, Table

    rows = {(row["detector"], row["measure"]): row for row in table.to_dict("records")}
    scores = sorted((row for row in rows.values() if row["measure"] in AUCS), key=lambda row: -row["value"])

    def cell(detector: str, measure: str) -> str:
        row = rows.get((detector, measure))
        if row is None:
            return "–"
        mean = Estimate(row["value"], row["low"], row["high"])
        return f"{mean.signed if measure in DIFFERENCES else mean} ± {shortened(row['sd'])}"

    columns = [Column("Detector", str)]
    columns += [Column(heading, partial(cell, measure=name)) for name, heading in (AUCS | DIFFERENCES).items()]
    best, many = scores[0], len(names)
    mean = Estimate(best["value"], best["low"], best["high"])
    return Report(
        title="Do the runs agree?",
        question="What is the mean of every score over these runs?",
        findings=[
            f"{best['detector']} has the highest mean {AUCS[best['measure']]} of {many} runs, {mean}",
            For("the intervals cover the draws of the runs and those of the texts, taken as shared by all runs"),
        ],
        sections=[
            Section(
                "The runs compared",
                tables=[
                    Table(
                        list(dict.fromkeys(row["detector"] for row in scores)),
                        columns,
                        caption="Mean over the runs with its 95 % interval, ± the standard deviation of the runs.",
                        title=f"{many} runs: mean [95 % CI] ± standard deviation",
                        name="compared",
                        frame=table,
                        marked=(0,),
                        kept=(0, 2, 3, 1),
                    )
                ],
            )
        ],
        facts=[("Runs", ", ".join(names))],
        score=f"{best['detector']} {mean.short}",
        metrics={f"{measure}/{detector}": row["value"] for (detector, measure), row in rows.items()},
        files={"table": config.out} if config.out else {},
    )


if __name__ == "__main__":
    command(CompareConfig, prepare, __doc__ or "", stages={"data": "runs", "recording": "recording"})
