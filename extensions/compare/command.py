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

from fsd.api import OptionalPath, UsageError
from pipelines.api import Job, check_table_path, command, deliver, names, tracked_run, write_table

if TYPE_CHECKING:
    import pandas as pd

    from fsd.api import Report

AUCS = {"base_auc": "Base AUC", "fsd_auc": "FSD AUC"}
DIFFERENCES = {"gain": "Gain", "placebo_lead": "Above control"}
MEASURES = AUCS | DIFFERENCES
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
    # A run that is named twice would count as two draws.
    if len(set(config.runs)) < 2:
        raise UsageError(f"runs must be two or more, each once; got {', '.join(config.runs) or 'none'}")
    # Before the runs are fetched, which may be on a server.
    check_table_path(config.out)
    summaries = {name: summary_of(name) for name in config.runs}
    compared_runs = names(list(summaries))
    table = compared(summaries)
    if table.empty:
        raise UsageError(f"runs must share a detector; {compared_runs} have none in common")
    return Job(
        partial(run, config, table, list(summaries)),
        {"runs": compared_runs},
        writes=[config.out],
        experiment="fsd-compare",
    )


def summary_of(name: str) -> "pd.DataFrame":
    """The table of a run, one row per detector."""
    import pandas as pd

    from fsd.api import tracking

    version = tracking.version_info(name)
    # A version that was registered by hand may come from no run.
    if version and not version.run_id:
        raise UsageError(f"{name} must be a version that a run registered; it names none")
    table = pd.read_csv(tracking.fetch_artifact(version.run_id if version else name, "summary.csv"))
    # Other commands, and older versions of this one, have other tables of that name.
    missing = {"detector", "fsd_auc", "fsd_auc_low"} - set(table)
    if missing:
        raise UsageError(f"{name} must be a run of `fsd run`; its summary.csv has no {', '.join(sorted(missing))}")
    return table.set_index("detector")


def compared(summaries: "Mapping[str, pd.DataFrame]") -> "pd.DataFrame":
    """One row per detector and measure: number of runs, mean with its 95 % interval, deviation, least and most."""
    import pandas as pd

    from fsd.api import interval

    rows = []
    joined = pd.concat(summaries, names=["run"])
    # Base scores alone have no gain, and a run without a control no lead over it.
    measures = [measure for measure in MEASURES if measure in joined]
    for detector, of_detector in joined.groupby("detector", sort=False):
        for measure in measures:
            estimates = of_detector[[measure, f"{measure}_low", f"{measure}_high"]].dropna()
            if len(estimates) < 2:
                continue
            values, low, high = estimates.to_numpy().T
            # The runs may be of the same texts: what these add to the error is not divided by the number of runs.
            of_texts = float((high - low).mean()) / TWO_ERRORS
            # Student's interval of two runs is wide, and no AUC is above 1.
            least = 0 if measure in AUCS else -1
            ends = interval(values, of_texts, within=(least, 1))
            spread = (values.std(ddof=1), values.min(), values.max())
            rows.append((detector, measure, len(values), values.mean(), *ends, *spread))
    return pd.DataFrame(rows, columns=["detector", "measure", "runs", "value", "low", "high", "sd", "least", "most"])


def run(config: CompareConfig, table: "pd.DataFrame", names: Sequence[str]) -> None:
    """Write, track and print."""
    write_table(table, config.out)
    with tracked_run(
        config, "fsd-compare", f"{len(names)} runs", tags={"task": "compare", "from": ",".join(names)}
    ) as tracked:
        deliver(partial(report, table, names, config), tracked)


def report(table: "pd.DataFrame", names: Sequence[str], config: CompareConfig) -> "Report":
    """One line per detector, the best mean first."""
    from fsd.api import AGAINST, FOR, Column, Estimate, Finding, Report, Section, Table, shortened

    metrics = {}
    cells = {}
    means = list(map(Estimate, table["value"], table["low"], table["high"]))
    for mean, row in zip(means, table.to_dict("records"), strict=True):
        metrics[f"{row['measure']}/{row['detector']}"] = mean.value
        estimate = mean.signed if row["measure"] in DIFFERENCES else mean
        cells[row["detector"], row["measure"]] = f"{estimate} ± {shortened(row['sd'])}"

    def cell(detector: str, measure: str) -> str:
        # A run without a control has no lead over it.
        return cells.get((detector, measure), "–")

    # Chosen among AUCs alone: a gain has another scale.
    aucs = table[table["measure"].isin(list(AUCS))].sort_values("value", ascending=False, kind="stable")
    best = aucs.to_dict("records")[0]
    mean = means[aucs.index[0]]
    columns = [Column(heading, partial(cell, measure=measure)) for measure, heading in MEASURES.items()]
    columns.insert(0, Column("Detector", str))
    # A detector has two AUCs, and its line stands where the better one does.
    detectors = aucs["detector"].unique().tolist()
    runs = Table(
        detectors,
        columns,
        caption="Mean over the runs with its 95 % interval, ± the standard deviation of the runs.",
        title=f"{len(names)} runs: mean [95 % CI] ± standard deviation",
        name="compared",
        frame=table,
        marked=(0,),
        kept=(0, 2, 3, 1),
    )
    result = f"{best['detector']} has the highest mean {AUCS[best['measure']]} of {len(names)} runs, {mean}"
    covered = Finding(
        "the intervals cover the draws of the runs and those of the texts, taken as shared by all runs", FOR
    )
    if not table["sd"].any():
        covered = Finding(
            "all numbers are equal: the runs are one computation, repeated; compare runs of other seeds (--seed)",
            AGAINST,
        )
    return Report(
        title="Do the runs agree?",
        question="What is the mean of every score over these runs?",
        findings=[Finding(result), covered],
        sections=[Section("The runs compared", tables=[runs])],
        facts=[("Runs", ", ".join(names))],
        score=f"{best['detector']} {mean.short}",
        metrics=metrics,
        files={"table": config.out} if config.out else {},
    )


if __name__ == "__main__":
    command(CompareConfig, prepare, __doc__, stages={"data": "runs", "recording": "recording"})
