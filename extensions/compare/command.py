"""Which run is better, and by how much? Differences paired by texts, and means over seeds, as a table and a run.

Runs that differ in nothing but the seed are one line, their mean; runs of other settings are compared with the one that
is best on validation, text by text. Runs of other models or texts are refused: such a difference would be theirs.
Each run is an id, as `fsd run` prints it, or a registered version, models:/NAME/VERSION.

Examples:
    fsd compare 6f1c0a8b2d3e4f5061728394a5b6c7d8 0d9e8f7a6b5c4d3e2f1a0b9c8d7e6f50
    fsd compare models:/fsd-arxiv/1 models:/fsd-arxiv/2 --out compared.csv
"""

import re
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from operator import itemgetter
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

from tyro.conf import Positional, arg

from fsd.api import AGAINST, FOR, Finding, OptionalPath, UsageError
from pipelines.api import Job, check_table_path, command, deliver, names, tracked_run, write_table

if TYPE_CHECKING:
    import pandas as pd

    from fsd.api import Estimate, Report

AUCS = {"fsd_auc": "FSD AUC", "base_auc": "Base AUC"}
DIFFERENCES = {
    "fsd_against": "FSD against best",
    "gain": "Gain",
    "placebo_lead": "Above control",
    "base_against": "Base against best",
}
MEASURES = AUCS | DIFFERENCES
"""Columns that are compared, each with `_low` and `_high`, and their headings.

They are of summary.csv, but for the differences from the best settings, which are paired by texts.
"""
REPEATED = ("seed", "device", "data", "audit_repeats")
"""Settings in which repetitions differ; the texts are compared by their hashes."""
MODEL = "base_fingerprint"
"""Tag of the base model of a run."""

ALIKE = "no score differs between the runs on validation: compare other seeds (--seed), methods or settings"
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
    """A run: its settings and tags, its table with a row a detector, and the scores of the test texts."""

    name: str
    params: Mapping[str, str]
    tags: Mapping[str, str]
    metrics: Mapping[str, float]
    summary: "pd.DataFrame"
    tested: "pd.DataFrame"

    @property
    def texts(self) -> str:
        """What the texts are: their hashes, else their names."""
        told = self.tags.get("texts", "")
        return " ".join(sorted(re.findall(r"sha256:\w+", told))) or told


Runs = Sequence[tuple[str, Compared]]
"""Runs with what tells each apart, in words."""


class Choice(NamedTuple):
    """What is best on validation: the score, of those that differ between the settings, and the settings."""

    detector: str
    state: str
    settings: str


def prepare(config: CompareConfig) -> Job:
    """Find the runs and read their tables."""
    # A run that is named twice would count as two draws.
    if len(set(config.runs)) < 2:
        raise UsageError(f"runs must be two or more, each once; got {', '.join(config.runs) or 'none'}")
    # Before the runs are fetched, which may be on a server.
    check_table_path(config.out)
    runs = list(map(read_run, config.runs))
    check_comparable(runs)
    told = list(zip(settings_of(runs), runs, strict=True))
    return Job(partial(run, config, told), {"runs": names(config.runs)}, writes=[config.out], experiment="fsd-compare")


def read_run(name: str) -> Compared:
    """A run of `fsd run`, by its id or a version that it registered."""
    import pandas as pd

    from fsd.api import results, tracking

    version = tracking.version_info(name)
    run_id = version.run_id if version else name
    summary = pd.read_csv(tracking.fetch_artifact(run_id, "summary.csv"))
    # Other commands, and older versions of this one, have other tables of that name.
    missing = {"detector", "fsd_auc", "fsd_auc_low"} - set(summary)
    if missing:
        raise UsageError(f"{name} must be a run of `fsd run`; its summary.csv has no {', '.join(sorted(missing))}")
    scores = pd.read_parquet(tracking.fetch_artifact(run_id, "scores.parquet")).query("split == 'test'")
    kind = results.kinds_in(scores)
    # As in the run's own numbers, later texts are no evidence where there are contemporaries.
    if results.MEMBERSHIP.possible(kind):
        scores = scores[results.MEMBERSHIP.among(kind)]
    data = tracking.open_store().client.get_run(run_id).data
    return Compared(name, data.params, data.tags, data.metrics, summary.set_index("detector"), scores)


def check_comparable(runs: Sequence[Compared]) -> None:
    """Refuse runs of several models or texts: a difference between them would be that of the models or texts."""
    first, *others = runs
    for other in others:
        of_texts = (first.texts, other.texts, "the same texts", "texts")
        of_model = (first.tags.get(MODEL), other.tags.get(MODEL), "one model", "base_model")
        for ours, theirs, must, tag in (of_texts, of_model):
            if ours != theirs:
                came = f"{first.name} is of {first.tags.get(tag)}, {other.name} of {other.tags.get(tag)}"
                raise UsageError(f"runs must be of {must}; {came}")


def settings_of(runs: Sequence[Compared]) -> list[str]:
    """What tells each run apart: what comes with the method, which others lack or have otherwise, is not named."""
    import pandas as pd

    params = pd.DataFrame([run.params for run in runs]).fillna("–").astype(str)
    told = pd.Series("", params.index)
    # The method first, with which others go.
    for name in sorted(params.columns.difference(list(REPEATED)), key="method".__ne__):
        further = told + f", {name} " + params[name]
        # Also what tells no more apart, as epochs that each method has of its own: a difference may be theirs.
        known = params[name][params[name] != "–"]
        if further.nunique() > told.nunique() or (known.nunique() > 1 and name != "target_modules"):
            told = further
    return [words.removeprefix(", ").removeprefix("method ") for words in told]


def choose(numbers: "pd.DataFrame") -> Choice | None:
    """What is best on validation, of the scores whose mean differs between the settings; None if none does."""
    # Without validation texts there are no such columns.
    columns = numbers.columns.intersection(["fsd_validation_auc", "base_validation_auc"])
    means: Any = numbers.groupby(["detector", "settings"], sort=False)[list(columns)].mean().stack()
    differing = means[means.groupby(level=[0, 2]).transform("nunique") > 1]
    if differing.empty:
        return None
    detector, settings, column = differing.idxmax()
    return Choice(detector, column.partition("_")[0], settings)


def differences_in(runs: Runs, best: str) -> "pd.DataFrame":
    """How far each score of a run is above that of the best settings on the same texts, which pair them."""
    import pandas as pd

    from fsd.api import Bootstrap, columns_of, compare

    references = {}
    for settings, run in runs:
        if settings == best:
            references[tuple(run.tested["id"])] = columns_of(run.tested)
    rows: dict[tuple[str, str, str], dict[str, float]] = defaultdict(dict)
    for settings, run in runs:
        texts = run.tested
        reference = references.get(tuple(texts["id"]))
        if settings == best or not reference:
            continue
        bootstrap = Bootstrap.draw(texts["label"], texts["group"].tolist())
        for score, column in columns_of(texts).items():
            if score in reference:
                (row,) = compare(bootstrap, {"": reference[score]}, {"": column}).values()
                against = f"{score.state}_against"
                numbers = {against: row.value, f"{against}_low": row.low, f"{against}_high": row.high}
                rows[settings, run.name, score.detector] |= numbers
    return pd.DataFrame.from_dict(rows, orient="index")


def compared(table: "pd.DataFrame", runs: Runs) -> "pd.DataFrame":
    """One row per settings, detector and measure: runs, mean with its 95 % interval, deviation of the runs."""
    import pandas as pd

    from fsd.api import interval

    rows = []
    # Base scores alone have no gain, and a run without a control no lead over it.
    measures = table.columns.intersection(list(MEASURES))
    counts = Counter(map(itemgetter(0), runs))
    for (settings, detector), of_detector in table.groupby(["settings", "detector"], sort=False):
        for measure in measures:
            estimates = of_detector[[measure, f"{measure}_low", f"{measure}_high"]].dropna()
            # What a single one of several runs has is no mean.
            if len(estimates) < min(counts[str(settings)], 2):
                continue
            values, low, high = estimates.to_numpy().T
            ends = (low[0], high[0])
            if len(values) > 1:
                # The runs may be of the same texts: what these add to the error is not divided by the number of runs.
                of_texts = float((high - low).mean()) / TWO_ERRORS
                # Student's interval of two runs is wide, and no AUC is above 1.
                ends = interval(values, of_texts, within=(-1 if measure in DIFFERENCES else 0, 1))
            rows.append((settings, detector, measure, len(values), values.mean(), *ends, estimates[measure].std()))
    columns = ["settings", "detector", "measure", "runs", "value", "low", "high", "sd"]
    return pd.DataFrame(rows, columns=columns)


def run(config: CompareConfig, runs: Runs) -> None:
    """Compare, write, track and print."""
    import pandas as pd

    tables = {}
    for settings, run in runs:
        tables[settings, run.name] = run.summary
    numbers = pd.concat(tables, names=["settings", "run"])
    choice = choose(numbers)
    if choice:
        against = differences_in(runs, choice.settings)
        numbers = pd.concat([numbers, against.reindex(numbers.index)], axis=1)
    table = compared(numbers, runs)
    write_table(table, config.out)
    with tracked_run(
        config, "fsd-compare", f"{len(runs)} runs", tags={"task": "compare", "from": ",".join(config.runs)}
    ) as tracked:
        deliver(partial(report, table, choice, runs[0][1].metrics.get("headline/blind"), config), tracked)


def report(table: "pd.DataFrame", choice: Choice | None, blind: float | None, config: CompareConfig) -> "Report":
    """Which settings are better by how much, and one line per detector and settings, the best first."""
    import pandas as pd

    from fsd.api import Estimate, Report, Section, plain, shortened

    found = {}
    cells = {}
    metrics = {}
    for settings, detector, measure, runs, *estimate, sd in table.to_numpy().tolist():
        key = (detector, settings, measure)
        found[key] = Estimate(*estimate)
        cells[key] = found[key].signed if measure in DIFFERENCES else str(found[key])
        if runs > 1:
            cells[key] += f" ± {shortened(sd)}"
        # MLflow refuses other signs in a name, such as commas.
        suffix = re.sub(r"[^\w.: -]", "_", f".{settings}").rstrip(".")
        metrics[f"{measure}/{detector}{suffix}"] = found[key].value
    # Chosen among AUCs alone: a gain has another scale. A detector stands where its best AUC does.
    aucs = table[table["measure"].isin(list(AUCS))].sort_values("value", ascending=False, kind="stable")
    order = aucs["detector"].tolist()
    detector, settings, measure = aucs[["detector", "settings", "measure"]].iloc[0]
    mean = found[detector, settings, measure]
    score = f"{detector} {mean.short}"
    findings = [Finding(f"{detector} has the highest mean {AUCS[measure]} of {len(config.runs)} runs, {mean}")]
    if choice:
        order.insert(0, choice.detector)
        score = choice.settings
        findings = differences(choice, found)
    elif not table["sd"].any():
        findings.append(Finding(ALIKE, AGAINST))
    if blind is not None:
        # What a difference is worth: that of two scores which the texts explain is worth nothing.
        findings.append(Finding(f"a classifier that never sees the model reaches {shortened(blind)}", AGAINST))
    grid = pd.Series(cells).unstack(sort=False).reindex(list(dict.fromkeys(order)), level=0)
    # A run without a control has no lead over it.
    grid = grid.reindex(columns=list(MEASURES)).dropna(axis=1, how="all").fillna("–")
    about = ["Detector", "Settings"]
    if not settings:
        # Runs that differ in the seed alone have none to be named by.
        about.pop()
        grid = grid.droplevel(1)
    headings = about + list(map(MEASURES.__getitem__, map(str, grid)))
    lines = grid.reset_index().to_numpy().tolist()
    title = f"{len(config.runs)} runs: mean [95 % CI] ± standard deviation"
    words = range(len(about))
    shown = plain(headings, lines, words=words, title=title, name="compared", frame=table, marked=(0,), kept=(0, 2, 1))
    files = {"table": config.out} if config.out else {}
    return Report(
        title="Which run is better?",
        question="What is every score in these runs, and by how much do they differ?",
        findings=findings,
        sections=[Section("The runs compared", tables=[shown])],
        facts=[("Runs", ", ".join(config.runs))],
        score=score,
        metrics=metrics,
        files=files,
    )


def differences(choice: Choice, found: "Mapping[tuple[str, str, str], Estimate]") -> list[Finding]:
    """Which settings are best, by how much, and what this rests on."""
    from fsd.api import Score

    detector, state, best = choice
    words = [f"{best} is best on validation: {Score(detector, state).title()} {found[detector, best, f'{state}_auc']}"]
    # In the order of the table.
    for settings in dict.fromkeys(map(itemgetter(1), found)):
        difference = found.get((detector, settings, f"{state}_against"))
        if difference:
            meaning = "no clear difference"
            if difference.high < 0:
                meaning = "lower"
            elif difference.low > 0:
                meaning = "higher"
            words.append(f"{settings} {difference.signed}, {meaning}")
        elif settings != best:
            words.append(f"{settings} has other test texts, and no difference is given (use one --seed and --split)")
    rests_on = Finding("differences are paired by the test texts; each interval is of one comparison", FOR)
    return [Finding("; ".join(words)), rests_on]


if __name__ == "__main__":
    command(CompareConfig, prepare, __doc__, stages={"data": "runs", "recording": "recording"})
