"""Which run is better, and by how much? Differences paired by texts, and means over seeds, as a table and a run.

Runs that differ in nothing but the seed are one line, their mean; runs of other settings are compared with the one that
is best on validation, text by text. Runs of other models or texts are refused: such a difference would be theirs.
Each run is an id, as `fsd run` prints it, or a registered version, models:/NAME/VERSION.

Examples:
    fsd compare 6f1c0a8b2d3e4f5061728394a5b6c7d8 0d9e8f7a6b5c4d3e2f1a0b9c8d7e6f50
    fsd compare models:/fsd-arxiv/1 models:/fsd-arxiv/2 --out compared.csv
"""

import math
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Annotated, NamedTuple

import numpy as np
from tyro.conf import Positional, arg

from fsd.api import AGAINST, FOR, Finding, OptionalPath, UsageError
from pipelines.api import Job, check_table_path, command, deliver, names, tracked_run, write_table

if TYPE_CHECKING:
    import pandas as pd

    from fsd.api import Estimate, Report, Score

AUCS = {"base_auc": "Base AUC", "fsd_auc": "FSD AUC"}
DIFFERENCES = {"gain": "Gain", "placebo_lead": "Above control"}
MEASURES = AUCS | DIFFERENCES
"""Columns of summary.csv that are compared, each with `_low` and `_high`, and their headings."""
HEADINGS = {
    "fsd_auc": "FSD AUC",
    "fsd_against": "FSD against best",
    "base_auc": "Base AUC",
    "base_against": "Base against best",
    **DIFFERENCES,
}
"""Measures of the table, and their headings; differences from the best settings are taken text by text."""
COLUMNS = ("settings", "detector", "measure", "runs", "value", "low", "high", "sd", "least", "most")
REPEATED = ("seed", "device", "data", "audit_repeats")
"""Settings in which repetitions differ; the texts are compared by their hashes."""

TWO_ERRORS = 3.92
"""Width of a 95 % interval of a normal variable, in standard errors."""


@dataclass(frozen=True)
class CompareConfig:
    """Runs, and where the table goes."""

    runs: Annotated[Positional[tuple[str, ...]], arg(metavar="RUN ...", help_behavior_hint="")]
    """Ids of runs of `fsd run`, or registered versions: two or more, of the same model and texts."""
    out: OptionalPath = None
    """Output file of the table: .csv, .jsonl or .parquet."""


class Compared(NamedTuple):
    """A run: its settings and tags, its table with a row a detector, and its scores, of texts that are judged."""

    name: str
    params: Mapping[str, str]
    tags: Mapping[str, str]
    summary: "pd.DataFrame"
    scores: "pd.DataFrame"

    def settings(self, chosen: Sequence[str]) -> tuple[str, ...]:
        """The values of these settings."""
        return tuple(self.params.get(name, "–") for name in chosen)

    @property
    def texts(self) -> str:
        """What the texts are: their hashes, else their names."""
        told = self.tags.get("texts", "")
        return " ".join(sorted(re.findall(r"sha256:\w+", told))) or told

    @property
    def tested(self) -> "pd.DataFrame":
        """The scores of the test texts."""
        return self.scores[self.scores["split"] == "test"]

    @property
    def chosen_on(self) -> "pd.DataFrame":
        """The scores of the validation texts; without any, of all."""
        validation = self.scores[self.scores["split"] == "validation"]
        if validation.empty:
            return self.scores
        return validation


Groups = Mapping[str, Sequence[Compared]]
"""What differs, in words → the runs that share it."""


class Choice(NamedTuple):
    """The score, of those that differ between the settings, and the settings that are best on validation."""

    score: "Score"
    settings: str


def prepare(config: CompareConfig) -> Job:
    """Find the runs and read their tables."""
    # A run that is named twice would count as two draws.
    if len(set(config.runs)) < 2:
        raise UsageError(f"runs must be two or more, each once; got {', '.join(config.runs) or 'none'}")
    # Before the runs are fetched, which may be on a server.
    check_table_path(config.out)
    runs = list(map(read_run, config.runs))
    compared_runs = names(config.runs)
    if not set.intersection(*(set(run.summary.index) for run in runs)):
        raise UsageError(f"runs must share a detector; {compared_runs} have none in common")
    check_comparable(runs)
    return Job(
        partial(run, config, grouped(runs)), {"runs": compared_runs}, writes=[config.out], experiment="fsd-compare"
    )


def read_run(name: str) -> Compared:
    """A run of `fsd run`, by its id or a version that it registered."""
    import pandas as pd

    from fsd.api import results, tracking

    version = tracking.version_info(name)
    # A version that was registered by hand may come from no run.
    if version and not version.run_id:
        raise UsageError(f"{name} must be a version that a run registered; it names none")
    run_id = version.run_id if version else name
    summary = pd.read_csv(tracking.fetch_artifact(run_id, "summary.csv"))
    # Other commands, and older versions of this one, have other tables of that name.
    missing = {"detector", "fsd_auc", "fsd_auc_low"} - set(summary)
    if missing:
        raise UsageError(f"{name} must be a run of `fsd run`; its summary.csv has no {', '.join(sorted(missing))}")
    scores = pd.read_parquet(tracking.fetch_artifact(run_id, "scores.parquet"))
    kind = results.kinds_in(scores)
    # As in the run's own numbers, later texts are no evidence where there are contemporaries.
    if results.MEMBERSHIP.possible(kind):
        scores = scores[results.MEMBERSHIP.among(kind)]
    data = tracking.open_store().client.get_run(run_id).data
    return Compared(name, data.params, data.tags, summary.set_index("detector"), scores)


def check_comparable(runs: Sequence[Compared]) -> None:
    """Refuse runs of several models or texts: a difference between them would be that of the models or texts."""
    first, *others = runs
    for other in others:
        if other.tags.get("base_fingerprint") != first.tags.get("base_fingerprint"):
            models = [f"{run.name} is of {run.tags.get('base_model')}" for run in (first, other)]
            raise UsageError(f"runs must be of one model; {', '.join(models)}")
        if other.texts != first.texts:
            texts = [f"{run.name} has {run.tags.get('texts')}" for run in (first, other)]
            raise UsageError(f"runs must be of the same texts; {'; '.join(texts)}")


def grouped(runs: Sequence[Compared]) -> Groups:
    """The runs by the settings that tell them apart, the fewest: what comes with the method is not named."""
    # The method first, with which others go.
    every = {"method": None}
    for run in runs:
        every |= dict.fromkeys(run.params)
    chosen: list[str] = []
    parts = 1
    for name in every:
        apart = len({run.settings([*chosen, name]) for run in runs})
        if name not in REPEATED and apart > parts:
            chosen.append(name)
            parts = apart
    groups = defaultdict(list)
    for run in runs:
        words = []
        for name, value in zip(chosen, run.settings(chosen), strict=True):
            words.append(value if name == "method" else f"{name} {value}")
        groups[", ".join(words)].append(run)
    return groups


def choose(groups: Groups) -> Choice | None:
    """What is best on validation, of the scores whose mean differs between the settings; None if none does."""
    from fsd.api import auc, columns_of

    means: dict[Score, dict[str, float]] = defaultdict(dict)
    for settings, runs in groups.items():
        found = defaultdict(list)
        for run in runs:
            for score, column in columns_of(run.chosen_on).items():
                found[score].append(auc(run.chosen_on["label"], column))
        for score, aucs in found.items():
            means[score][settings] = float(np.mean(aucs))
    choices = {}
    for score, by_settings in means.items():
        if len(by_settings) == len(groups) and len(set(by_settings.values())) > 1:
            best = max(by_settings, key=by_settings.__getitem__)
            choices[Choice(score, best)] = by_settings[best]
    return max(choices, key=choices.__getitem__, default=None)


def against(run: Compared, best: Compared) -> "Iterator[tuple[Score, Estimate]]":
    """How far each score of a run is above that of the best run, paired by texts; nothing if these are others."""
    from fsd.api import Bootstrap, columns_of, compare

    texts = run.tested
    if texts["id"].tolist() != best.tested["id"].tolist():
        return
    bootstrap = Bootstrap.draw(texts["label"], texts["group"].tolist())
    reference = columns_of(best.tested)
    for score, column in columns_of(texts).items():
        # What fine-tuning does not change is no difference.
        if score in reference and not np.array_equal(column, reference[score]):
            (row,) = compare(bootstrap, {"": reference[score]}, {"": column}).values()
            yield score, row.estimate


def compared(groups: Groups, best: str) -> "pd.DataFrame":
    """One row per settings, detector and measure: runs, mean with its 95 % interval, deviation, least and most."""
    import pandas as pd

    rows = []
    for settings, runs in groups.items():
        found: dict[tuple[str, str], list[Sequence[float]]] = defaultdict(list)
        for run in runs:
            # Base scores alone have no gain, and a run without a control no lead over it.
            for measure in run.summary.columns.intersection(list(MEASURES)):
                estimates = run.summary[[measure, f"{measure}_low", f"{measure}_high"]].dropna()
                for detector, *estimate in estimates.itertuples():
                    found[detector, measure].append(estimate)
            for other in groups[best] if settings != best else ():
                for score, difference in against(run, other):
                    found[score.detector, f"{score.state}_against"].append(difference)
        for (detector, measure), draws in found.items():
            # A mean of the seeds that have a score is none of those settings' where one seed has it.
            if len(draws) > 1 or len(runs) == 1:
                rows.append((settings, detector, measure, *mean_of(draws, 0 if measure in AUCS else -1)))
    return pd.DataFrame(rows, columns=list(COLUMNS))


def mean_of(draws: Sequence[Sequence[float]], least: int) -> tuple[float, ...]:
    """Number, mean with its interval, deviation, least and most of estimates that are at least `least`."""
    from fsd.api import interval

    values, low, high = np.array(draws).T
    if len(draws) == 1:
        return 1, *draws[0], math.nan, *values, *values
    # The runs may be of the same texts: what these add to the error is not divided by the number of runs.
    of_texts = float((high - low).mean()) / TWO_ERRORS
    # Student's interval of two runs is wide, and no AUC is above 1.
    ends = interval(values, of_texts, within=(least, 1))
    return len(draws), values.mean(), *ends, values.std(ddof=1), values.min(), values.max()


def run(config: CompareConfig, groups: Groups) -> None:
    """Compare, write, track and print."""
    choice = choose(groups)
    best = choice.settings if choice else next(iter(groups))
    table = compared(groups, best)
    write_table(table, config.out)
    with tracked_run(
        config, "fsd-compare", f"{len(config.runs)} runs", tags={"task": "compare", "from": ",".join(config.runs)}
    ) as tracked:
        deliver(partial(report, table, groups, choice, config), tracked)


def report(table: "pd.DataFrame", groups: Groups, choice: Choice | None, config: CompareConfig) -> "Report":
    """Which settings are better by how much, and one line per detector and settings, the best first."""
    from fsd.api import Estimate, Report, Section, plain, shortened

    metrics = {}
    found = {}
    cells = {}
    for row in table.to_dict("records"):
        detector, settings, measure = key = (row["detector"], row["settings"], row["measure"])
        metrics[f"{measure}/{'.'.join(filter(None, [detector, settings]))}"] = row["value"]
        found[key] = Estimate(row["value"], row["low"], row["high"])
        cells[key] = str(found[key]) if measure in AUCS else found[key].signed
        if row["runs"] > 1:
            cells[key] += f" ± {shortened(row['sd'])}"

    # Chosen among AUCs alone: a gain has another scale. A detector has two, and stands where the better one does.
    aucs = table[table["measure"].isin(list(AUCS))].sort_values("value", ascending=False, kind="stable")
    detectors = aucs["detector"].unique().tolist()
    if choice:
        detectors.sort(key=lambda detector: detector != choice.score.detector)
    measures = [measure for measure in HEADINGS if measure in set(table["measure"])]
    # Runs that differ in nothing have no settings to be named by.
    about = ["Detector", "Settings"][: len(groups)]
    lines = []
    for detector in detectors:
        for settings in groups:
            # A run without a control has no lead over it.
            numbers = [cells.get((detector, settings, measure), "–") for measure in measures]
            lines.append([detector, settings][: len(about)] + numbers)
    runs = plain(
        about + [HEADINGS[measure] for measure in measures],
        lines,
        words=range(len(about)),
        caption="Means over the runs of the same settings, with their 95 % intervals, ± the deviation of the runs.",
        title=f"{len(config.runs)} runs: mean [95 % CI] ± standard deviation",
        name="compared",
        frame=table,
        marked=(0,),
    )
    detector, settings, measure = aucs[["detector", "settings", "measure"]].iloc[0]
    mean = found[detector, settings, measure]
    score = f"{detector} {mean.short}"
    findings = [Finding(f"{detector} has the highest mean {HEADINGS[measure]} of {len(config.runs)} runs, {mean}")]
    if choice:
        score = f"{choice.settings} {choice.score.title()}"
        findings = differences(groups, choice, found)
    elif table["sd"].any():
        findings.append(
            Finding("the intervals cover the draws of the runs and those of the texts, which the runs share", FOR)
        )
    else:
        findings.append(
            Finding(
                "all numbers are equal: the runs are one computation, repeated; compare runs of other seeds (--seed)",
                AGAINST,
            )
        )
    return Report(
        title="Which run is better?",
        question="What is every score in these runs, and by how much do they differ?",
        findings=findings,
        sections=[Section("The runs compared", tables=[runs])],
        facts=[("Runs", ", ".join(config.runs))],
        score=score,
        metrics=metrics,
        files={"table": config.out} if config.out else {},
    )


def differences(groups: Groups, choice: Choice, found: "Mapping[tuple[str, str, str], Estimate]") -> "list[Finding]":
    """Which settings are best, by how much, and what this rests on."""
    detector, state = choice.score
    paired = {}
    apart = []
    for settings in groups:
        difference = found.get((detector, settings, f"{state}_against"))
        if difference:
            paired[settings] = difference
        elif settings != choice.settings:
            apart.append(settings)
    best = found[detector, choice.settings, f"{state}_auc"]
    words = [f"{choice.settings} is best on validation: {choice.score.title()} {best}"]
    words += [f"{settings} {difference.signed}, {_clear(difference)}" for settings, difference in paired.items()]
    findings = [Finding("; ".join(words))]
    if paired:
        findings.append(Finding("differences are paired by the test texts; each interval is of one comparison", FOR))
    if apart:
        reason = f"no difference is given: other test texts than {choice.settings}; use one --seed and --split"
        findings.append(Finding(f"{', '.join(apart)}: {reason}", AGAINST))
    for run in groups[choice.settings]:
        if "validation" not in set(run.scores["split"]):
            findings.append(Finding("the best was chosen on the texts that measure it: no validation texts", AGAINST))
            break
    return findings


def _clear(difference: "Estimate") -> str:
    if difference.high < 0:
        return "lower"
    if difference.low > 0:
        return "higher"
    return "no clear difference"


if __name__ == "__main__":
    command(CompareConfig, prepare, __doc__, stages={"data": "runs", "recording": "recording"})
