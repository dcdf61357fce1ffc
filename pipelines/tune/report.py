"""Records of tuning: a table of all trials, figures, the winners' settings, and their gains over the defaults."""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from optuna.trial import FrozenTrial

from fsd import tracking
from fsd.evaluation.findings import Finding, as_findings
from fsd.reporting import charts, figures
from fsd.reporting.report import Column, Report, Section, Table
from fsd.search_space import Range
from fsd.statistics import intervals, metrics
from fsd.statistics.intervals import Estimate
from fsd.statistics.intervals import shortened as short
from fsd.tracking import Run
from fsd.tuning.objective import DetectorTask, Settings, Winner, settings_of
from fsd.tuning.optuna_study import importance
from pipelines.tune.job import Tuned, TuningData

SETTINGS = "settings.json"
POINTS = 40
"""Points of the history at most; the number of trials is on a logarithmic scale, as early ones change the best most."""
Trials = Mapping[str, Sequence[FrozenTrial]]
"""Label of a study → its trials."""
LOGGED = [
    "validation_default",
    "validation_tuned",
    "validation_chosen_elsewhere",
    "test_default",
    "test_tuned",
    "test_gain",
    "p",
    "validation_test_gap",
]
"""Columns of the table of gains that are metrics, after `tuning/`."""


def track(run: Run, tuned: Tuned, gains: pd.DataFrame, data: TuningData, storage: str) -> None:
    """Log tables, figures, settings and mean gains of a tuning job, and a nested run for each study of detectors."""
    run.log("trials.csv", trials_frame(tuned.trials))
    run.log("tuning.csv", gains)
    importances = {label: importance(data.name_of(label), storage) for label in tuned.trials}
    for name, figure in draw(tuned.trials, importances, data.validation.objective, tuned.tasks).items():
        run.log(name, figure)
    run.log(SETTINGS, settings_json(tuned.winners, data.study))
    names = {"p": "test_gain_p", "validation_test_gap": "gap"}
    measured = gains.set_index("task")[LOGGED].rename(columns=names).add_prefix("tuning/")
    # A mean of p-values would have no meaning.
    run.log_metrics(dict(measured.drop(columns="tuning/test_gain_p").mean()))
    for winner in tuned.winners:
        trials_of_task = tuned.trials.get(winner.task)
        # Tuning an adapter is one study with a winner for each detector; its trials have runs of their own.
        if not trials_of_task:
            continue
        experiment = f"fsd-{tuned.run_config.data.domain}"
        with tracking.run(
            experiment,
            f"tune {winner.task}",
            params=winner.tuned,
            tags={"study": data.name_of(winner.task), "kind": "study"},
            parent=run,
        ) as nested:
            nested.log_metrics(dict(measured.T[winner.task]))
            nested.log_metrics({"tuning/trials": len(trials_of_task)})


def with_gains(report: Report, gains: pd.DataFrame, objective: str) -> Report:
    """The report of the run with the tuned settings, their gains over the defaults first."""
    columns = [
        Column("tuned", "task", words=True),
        Column("winner", _settings, words=True),
        Column("validation", _validation),
        Column("cross-val.", _cross_validated),
    ]
    columns += [Column("test [95 % CI]", _test), Column("gain", _gain), Column("p", lambda row: f"{row.p:.3f}")]
    table = Table(
        gains,
        columns,
        title=f"Tuned for {objective} on validation; the test texts were opened once",
        name="tuning",
        # A narrow terminal keeps what was tuned, its gain, and the interval on the test texts longest.
        kept=(0, 5, 4, 6, 1, 2),
        source="tuning.csv",
    )
    notes = remarks(gains)
    # Its sign is on the terminal, where the table of gains takes the place of that of the detectors.
    gained = Finding(notes[0], bool((gains.test_gain_low > 0).any()))
    findings = list(report.findings) + as_findings(notes)
    tuning = Section("Tuning", tables=[table])
    return replace(
        report, brief=table, findings=findings, signs=[gained, *report.signs], sections=[tuning, *report.sections]
    )


def _settings(row: Any) -> str:
    """The settings of a winner, and the share of the validation texts whose score by them is a fallback."""
    settings = []
    if row.tuned == row.default:
        settings.append("default")
    else:
        for name, value in json.loads(row.tuned).items():
            text = f"{value:.4g}" if isinstance(value, float) else value
            settings.append(f"{name}={text}")
    if row.fallback:
        settings.append(f"(fallback {row.fallback:.0%})")
    return " ".join(settings)


def _validation(row: Any) -> str:
    return f"{short(row.validation_default)} → {short(row.validation_tuned)}"


def _cross_validated(row: Any) -> str:
    value = row.validation_chosen_elsewhere
    return "–" if math.isnan(value) else short(value)


def _test(row: Any) -> str:
    default = _interval(row, "test_default")
    tuned = _interval(row, "test_tuned")
    return f"{default}\n→ {tuned}"


def _gain(row: Any) -> str:
    return _interval(row, "test_gain").signed.replace(" [", "\n[")


def _interval(row: Any, name: str) -> Estimate:
    return Estimate(getattr(row, name), getattr(row, f"{name}_low"), getattr(row, f"{name}_high"))


def remarks(gains: pd.DataFrame) -> list[str]:
    """Conclusions about tuning itself, one line each."""
    above = ", ".join(gains.task[gains.test_gain_low > 0]) or "none"
    gained = f"gain on test texts with an interval above 0: {above}"
    below = ", ".join(gains.task[gains.test_gain_high < 0])
    if below:
        gained += f"; below 0: {below}"
    gap = gains.validation_test_gap.mean()
    lines = [gained, f"on average, winners have {gap:+z.3f} more on validation than on the test texts"]
    optimism = (gains.validation_tuned - gains.validation_chosen_elsewhere).mean()
    # An adapter of several detectors has no cross-validated choice.
    if not math.isnan(optimism):
        lines.append(f"optimism of the selection: {optimism:+z.3f} compared with the cross-validated choice")
    return lines


def settings_json(winners: Sequence[Winner], study: str) -> str:
    """The winners' settings by detector and state, and the study that they were found in."""
    settings: dict[str, dict[str, Settings]] = {}
    for winner in winners:
        name, _, state = winner.task.partition(".")
        settings.setdefault(name, {})[state] = winner.tuned
    return json.dumps({"detectors": settings, "origin": {"study": study}}, indent=2) + "\n"


def trials_frame(trials: Trials) -> pd.DataFrame:
    """One row per trial of any study, with the settings as columns."""
    rows = []
    for label, tried in trials.items():
        for trial in tried:
            row = {"study": label, "number": trial.number, "state": trial.state.name.lower(), "value": trial.value}
            # A pruned trial may have no folds.
            row["fold_sd"] = np.std(trial.user_attrs.get("folds", np.nan))
            row["seconds"] = trial.duration.total_seconds()
            for name, value in settings_of(trial).items():
                row[f"setting.{name}"] = value
            rows.append(row)
    return pd.DataFrame(rows)


def draw(
    trials: Trials, importances: Mapping[str, Mapping[str, float]], objective: str, tasks: Sequence[DetectorTask] = ()
) -> dict[str, bytes]:
    """File name → PNG: history and importance of the studies, and the objective over the settings of detectors."""
    measured = f"{metrics.METRICS[objective].label} on validation"
    drawn = {"history.png": _history(trials, measured)}
    # Importance cannot be estimated for every study.
    shares = pd.DataFrame(importances).T.dropna(how="all")
    if len(shares):
        drawn["importance.png"] = charts.heat_map(
            list(shares),
            list(shares.index),
            shares.to_numpy(),
            x_name="setting",
            y_name="study",
            name="importance",
            title="Which settings matter",
        )
    by_detector: dict[str, list[DetectorTask]] = {}
    for task in tasks:
        ranges = _ranges(task)
        if len(ranges) == 1:
            by_detector.setdefault(task.detector.name, []).append(task)
        # A heat map's cells are the steps of the grid; without steps there are too many.
        elif len(ranges) == 2 and all(search.step for search in ranges.values()):
            drawn[f"heat_map_{task.label}.png"] = _heat_map(task, measured)
    for name, states in by_detector.items():
        drawn[f"curve_{name}.png"] = _curves(states, measured)
    return {name: figures.png(figure) for name, figure in drawn.items()}


def _history(trials: Trials, measured: str) -> Figure:
    """The best value after as many trials, for each study."""
    longest = max(map(len, trials.values()))
    points = np.geomspace(1, longest, min(POINTS, longest))
    counts = np.unique(points.round().astype(int)).tolist()
    lines: dict[Any, Any] = {}
    for label, tried in trials_frame(trials).groupby("study", sort=False):
        # The value of a pruned trial is that of the epoch at which it was stopped.
        values = tried["value"].where(tried["state"] == "complete")
        best = np.fmax.accumulate(values.to_numpy(float))
        # A study with fewer trials keeps its last value.
        lines[label] = list(best[np.minimum(counts, len(best)) - 1])
    return charts.curves(counts, {"Best on validation so far": lines}, x_name="finished trials", y_name=measured)


def _ranges(task: DetectorTask) -> dict[str, Range]:
    """The settings of a detector that are numbers."""
    return {name: search for name, search in task.space.items() if isinstance(search, Range)}


def _curves(tasks: Sequence[DetectorTask], measured: str) -> Figure:
    """The objective over the only number of a detector, one line for each of its states."""
    detector = tasks[0].detector.name
    ((setting, search),) = _ranges(tasks[0]).items()
    x = search.grid
    lines = {}
    for task in tasks:
        lines[_state(task)] = [_over_folds(task, {setting: value}) for value in x]
    return charts.curves(
        x, {detector: lines}, x_name=f"{detector}.{setting}", y_name=measured, x_log=search.log, colours=figures.STATES
    )


def _heat_map(task: DetectorTask, measured: str) -> Figure:
    """The objective over the two numbers of a detector."""
    detector = task.detector.name
    (y_name, y_search), (x_name, x_search) = _ranges(task).items()
    x = x_search.grid
    y = y_search.grid
    values = []
    for y_value, x_value in product(y, x):
        estimate = _over_folds(task, {x_name: x_value, y_name: y_value})
        values.append(estimate.value)
    return charts.heat_map(
        x,
        y,
        np.reshape(values, (len(y), len(x))),
        x_name=f"{detector}.{x_name}",
        y_name=f"{detector}.{y_name}",
        name=measured,
        title=f"{detector}, {_state(task)}",
        default=(task.default[x_name], task.default[y_name]),
    )


def _state(task: DetectorTask) -> str:
    return "base score" if task.state == "base" else "FSD"


def _over_folds(task: DetectorTask, settings: Settings) -> Estimate:
    """Mean over the folds of the settings and its 95 % interval, which repeated divisions do not narrow."""
    values = task.evaluate(task.default | settings)
    mean = float(values.mean())
    # Each division holds every text once: dividing again gives more folds, but no more texts.
    divisions = sum(map(len, task.validation.folds)) / task.validation.member.size
    half = (intervals.interval(values, 0.0)[1] - mean) * math.sqrt(divisions)
    return Estimate(mean, max(0.0, mean - half), min(1.0, mean + half))
