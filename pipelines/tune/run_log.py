"""Records of tuning in MLflow: a table of all trials, figures, and the winners' settings."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd

from fsd import tracking
from fsd.reporting import figures
from fsd.reporting.report import Report, Section, plain
from fsd.search_space import Range
from fsd.tracking import Run
from fsd.tuning import optuna_study
from fsd.tuning.objective import DetectorTask, Settings, TrialRecord, Winner, grid
from pipelines.tune.job import TuningResult

SETTINGS = "settings.json"
POINTS = 40
"""Points of the history at most; the number of trials is on a logarithmic scale, as early ones change the best most."""


def track(run: Run, result: TuningResult, gains: pd.DataFrame, study: str) -> None:
    """Log tables, figures, settings and metrics of a tuning job."""
    trials = trials_frame(result.trials)
    run.log("trials.parquet", trials)
    run.log("trials.csv", trials)
    run.log("tuning.csv", gains)
    for name, picture in result.figures.items():
        run.log(name, picture)
    run.log(SETTINGS, settings_json(result.winners, study))
    run.log_metrics(optuna_study.metrics(gains))
    for winner, (_, row) in zip(result.winners, gains.iterrows(), strict=True):
        if winner.label in result.trials:  # the trials of an adapter are nested runs themselves
            records = result.trials[winner.label]
            _track_study(run, winner, row, records, f"fsd-{result.job.data.domain}", f"{study}/{winner.label}")


def _track_study(
    parent: Run, winner: Winner, row: Any, trials: Sequence[TrialRecord], experiment: str, study: str
) -> None:
    """A nested run for the study of a detector's score, with the winner's settings and numbers of the same names."""
    numbers = {name.replace("tuning_", "tuning/", 1): row[column] for column, name in optuna_study.METRICS.items()}
    tags = {"study": study, "kind": "study"}
    with tracking.run(experiment, f"tune {winner.label}", params=winner.settings, tags=tags, parent=parent) as run:
        run.log_metrics({**numbers, "tuning/trials": len(trials)})
        run.log("trials.csv", trials_frame({winner.label: trials}))


def with_gains(report: Report, gains: pd.DataFrame, notes: Sequence[str], objective: str) -> Report:
    """The report of the run with the tuned settings, their gains over the defaults first."""
    table = plain(
        optuna_study.HEADINGS,
        optuna_study.rows(gains),
        words=(0, 1),
        title=f"Tuned for {objective} on validation; the test texts were opened once",
        name="tuning",
        frame=gains,
        kept=(0, 5, 4, 6, 1, 2),
        source="tuning.csv",
    )
    return replace(report, findings=notes, sections=[Section("Tuning", tables=[table]), *report.sections])


def settings_json(winners: Sequence[Winner], study: str) -> str:
    """The winners' settings by detector and state, and the study that they were found in."""
    settings: dict[str, dict[str, Settings]] = {}
    for w in winners:
        name, _, state = w.label.partition(".")
        settings.setdefault(name, {})[state] = w.settings
    return json.dumps({"detectors": settings, "origin": {"study": study}}, indent=2) + "\n"


def trials_frame(trials: Mapping[str, Sequence[TrialRecord]]) -> pd.DataFrame:
    """One row per trial of any study, with the settings as columns."""
    rows: list[dict[str, Any]] = [
        {
            "study": label,
            "number": t.number,
            "state": t.state,
            "value": t.value,
            "fold_sd": float(np.std(t.folds)) if t.folds else None,
            "seconds": t.seconds,
            **{f"setting.{name}": str(v) if isinstance(v, bool) else v for name, v in t.settings.items()},
        }
        for label, records in trials.items()
        for t in records
    ]
    return pd.DataFrame(rows)


def draw(
    trials: Mapping[str, Sequence[TrialRecord]],
    importances: Mapping[str, Mapping[str, float]],
    objective: str,
    tasks: Sequence[DetectorTask] = (),
) -> dict[str, bytes]:
    """File name → PNG: history and importance of the studies, and the objective over the settings of detectors."""
    pictures = {"history.png": _history(trials, objective)}
    importance = _importance(importances)
    if importance:
        pictures["importance.png"] = importance
    for task in tasks:
        pictures |= _heat_map(task, objective)
    for name in dict.fromkeys(task.detector.name for task in tasks):
        pictures |= _curve([task for task in tasks if task.detector.name == name], objective)
    return pictures


def _history(trials: Mapping[str, Sequence[TrialRecord]], objective: str) -> bytes:
    """Best value so far over the number of finished trials."""
    longest = max(len(records) for records in trials.values())
    x = sorted({round(v) for v in np.geomspace(1, longest, min(POINTS, longest))})
    lines = {}
    for label, records in trials.items():
        best = np.fmax.accumulate([t.value if t.state == "complete" else np.nan for t in records])
        lines[label] = [float(best[min(at, len(best)) - 1]) for at in x]
    title, y_name = "Best on validation so far", f"mean {objective} of the folds"
    return figures.png(figures.curves(x, {title: lines}, x_name="finished trials", y_name=y_name))


def _importance(importances: Mapping[str, Mapping[str, float]]) -> bytes | None:
    """Share of the variance between trials that each setting explains; None if no study has an estimate."""
    studies = {label: shares for label, shares in importances.items() if shares}
    if not studies:
        return None
    names = list(dict.fromkeys(name for shares in studies.values() for name in shares))
    table = np.array([[shares.get(name, np.nan) for name in names] for shares in studies.values()])
    figure = figures.heat_map(
        names, list(studies), table, x_name="setting", y_name="study", name="importance", title="Which settings matter"
    )
    return figures.png(figure)


def _heat_map(task: DetectorTask, objective: str) -> dict[str, bytes]:
    """The objective over the two numeric settings of a detector on a grid, if it has just two."""
    numbers = _numbers(task)
    if len(numbers) != 2 or not all(search.step for search in numbers.values()):
        return {}
    (x, xs), (y, ys) = ((name, grid(search)) for name, search in reversed(numbers.items()))
    values = np.array([[_mean(task, {x: a, y: b}) for a in xs] for b in ys])
    title = f"{task.label} on validation"
    figure = figures.heat_map(xs, ys, values, x_name=x, y_name=y, name=objective, title=title)
    return {f"heat_map_{task.label}.png": figures.png(figure)}


def _curve(tasks: Sequence[DetectorTask], objective: str) -> dict[str, bytes]:
    """The objective over the single numeric setting of a detector, for base and FSD."""
    name, numbers = tasks[0].detector.name, _numbers(tasks[0])
    if len(numbers) != 1:
        return {}
    ((setting, search),) = numbers.items()
    xs = grid(search)
    lines = {task.state: [_mean(task, {setting: x}) for x in xs] for task in tasks}
    y_name, title = f"mean {objective} of the folds", f"{name} on validation"
    figure = figures.curves(xs, {title: lines}, x_name=setting, y_name=y_name, x_log=search.log)
    return {f"curve_{name}.png": figures.png(figure)}


def _numbers(task: DetectorTask) -> dict[str, Range]:
    return {name: search for name, search in task.space.items() if isinstance(search, Range)}


def _mean(task: DetectorTask, settings: Settings) -> float:
    """Value of the settings, with the others at their default."""
    return float(task.evaluate({**task.default, **settings}).mean())
