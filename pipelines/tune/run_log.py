"""What tuning leaves in MLflow: every trial as a row, figures, and the settings that travel with the adapter."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from fsd.reporting import figures as plots
from fsd.search_space import Range
from fsd.token_stats import FloatArray
from fsd.tracking import Run
from fsd.tuning.objective import DetectorTask, TrialRecord, Winner, grid

SETTINGS = "settings.json"
POINTS = 40
"""Points of the history, at most; few trials show the start, where the best one still changes."""


def settings_json(winners: Sequence[Winner], origin: Mapping[str, Any]) -> str:
    """The winners' settings by detector and state, and where they come from."""
    found: dict[str, dict[str, Any]] = {}
    for w in winners:
        name, _, state = w.label.partition(".")
        found.setdefault(name, {})[state] = w.settings
    return json.dumps({"detectors": found, "origin": dict(origin)}, indent=2) + "\n"


def trials_frame(trials: Mapping[str, Sequence[TrialRecord]]) -> pd.DataFrame:
    """One row a trial of any study; settings as columns."""
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
        for label, tried in trials.items()
        for t in tried
    ]
    return pd.DataFrame(rows)


def history(trials: Mapping[str, Sequence[TrialRecord]], objective: str) -> bytes:
    """Best value so far, over the number of finished trials."""
    longest = max(len(tried) for tried in trials.values())
    x = sorted({round(v) for v in np.geomspace(1, longest, min(POINTS, longest))})
    lines = {}
    for label, tried in trials.items():
        best = np.fmax.accumulate([t.value if t.state == "complete" else np.nan for t in tried])
        lines[label] = [float(best[min(at, len(best)) - 1]) for at in x]
    title = "Best on validation so far"
    return plots.png(
        plots.curve(x, lines, x_name="finished trials", y_name=f"mean {objective} of the folds", title=title)
    )


def importance(shares: Mapping[str, Mapping[str, float]]) -> bytes | None:
    """How much of the variance between trials each setting explains; None where no study can tell."""
    told = {label: found for label, found in shares.items() if found}
    if not told:
        return None
    names = list(dict.fromkeys(name for found in told.values() for name in found))
    table = np.array([[found.get(name, np.nan) for name in names] for found in told.values()])
    figure = plots.heat_map(
        names, list(told), table, x_name="setting", y_name="study", name="importance", title="Which settings matter"
    )
    return plots.png(figure)


def landscapes(task: DetectorTask, objective: str) -> dict[str, bytes]:
    """Pictures of the objective on validation over the numbers among a detector's settings, others at their default.

    Two numbers with steps make a heat map, one makes a curve; a detector with other settings has none.
    """
    numbers = {name: s for name, s in task.space.items() if isinstance(s, Range)}
    title = f"{task.label} on validation"
    if len(numbers) == 2 and all(s.step for s in numbers.values()):
        (x, xs), (y, ys) = ((name, grid(s)) for name, s in reversed(numbers.items()))
        values = np.array([[_mean(task, {x: a, y: b}) for a in xs] for b in ys])
        figure = plots.heat_map(xs, ys, values, x_name=x, y_name=y, name=objective, title=title)
        return {f"heat_map_{task.label}.png": plots.png(figure)}
    return {}


def curves(tasks: Sequence[DetectorTask], objective: str) -> dict[str, bytes]:
    """For each detector with one number among its settings: base and FSD over it, one picture."""
    found: dict[str, bytes] = {}
    for name in dict.fromkeys(task.detector.name for task in tasks):
        same = [task for task in tasks if task.detector.name == name]
        numbers = {key: s for key, s in same[0].space.items() if isinstance(s, Range)}
        if len(numbers) != 1:
            continue
        key, search = next(iter(numbers.items()))
        xs = grid(search)
        lines = {task.state: [_mean(task, {key: x}) for x in xs] for task in same}
        figure = plots.curve(
            xs,
            lines,
            x_name=key,
            y_name=f"mean {objective} of the folds",
            title=f"{name} on validation",
            x_log=search.log,
        )
        found[f"curve_{name}.png"] = plots.png(figure)
    return found


def _mean(task: DetectorTask, settings: Mapping[str, Any]) -> float:
    values: FloatArray = task.evaluate({**task.default, **settings})
    return float(values.mean())


def log(
    run: Run, trials: Mapping[str, Sequence[TrialRecord]], figures: Mapping[str, bytes], gains: pd.DataFrame
) -> None:
    """Write tables and pictures to the root of the run."""
    table = trials_frame(trials)
    run.log_table("trials.parquet", table)
    run.log_table("trials.csv", table)
    run.log_table("tuning.csv", gains)
    for name, picture in figures.items():
        run.log_bytes(name, picture)
