"""Records of tuning: a table of all trials, figures, the winners' settings, and their gains over the defaults."""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd

from fsd import tracking
from fsd.evaluation import metrics
from fsd.evaluation.metrics import Estimate
from fsd.evaluation.metrics import shortened as short
from fsd.reporting import figures
from fsd.reporting.report import Column, Report, Section, Table
from fsd.search_space import Range
from fsd.tracking import Run
from fsd.tuning.objective import DetectorTask, Settings, Trial, Winner, grid
from pipelines.tune.job import Tuned, TuningData

SETTINGS = "settings.json"
POINTS = 40
"""Points of the history at most; the number of trials is on a logarithmic scale, as early ones change the best most."""
METRICS = {
    **{f"validation_{name}": f"validation_{name}" for name in ("default", "tuned", "chosen_elsewhere")},
    **{f"test_{name}": f"test_{name}" for name in ("default", "tuned", "gain")},
    "p": "test_gain_p",
    "validation_test_gap": "gap",
}
"""Column of the table of gains → name of its metric, after `tuning/`."""


def track(run: Run, tuned: Tuned, gains: pd.DataFrame, data: TuningData) -> None:
    """Log tables, figures, settings and mean gains of a tuning job, and a nested run for each study of detectors."""
    trials = trials_frame(tuned.trials)
    files = {"trials.parquet": trials, "trials.csv": trials, "tuning.csv": gains, **tuned.figures}
    for name, content in (files | {SETTINGS: settings_json(tuned.winners, data.study)}).items():
        run.log(name, content)
    measured = gains.set_index("task")[[*METRICS]].rename(columns=METRICS)
    run.log_metrics({f"tuning/{name}": value for name, value in measured.drop(columns="test_gain_p").mean().items()})
    numbers: dict[Any, dict[Any, float]] = measured.to_dict("index")
    for winner in tuned.winners:
        if found := tuned.trials.get(winner.task):
            tags = {"study": data.name_of(winner.task), "kind": "study"}
            experiment, name = f"fsd-{tuned.job.data.domain}", f"tune {winner.task}"
            with tracking.run(experiment, name, params=winner.tuned, tags=tags, parent=run) as own:
                own.log_metrics({f"tuning/{name}": value for name, value in numbers[winner.task].items()})
                own.log_metrics({"tuning/trials": len(found)})
                own.log("trials.csv", trials_frame({winner.task: found}))


def with_gains(report: Report, gains: pd.DataFrame, objective: str) -> Report:
    """The report of the run with the tuned settings, their gains over the defaults first."""

    def interval(row: Any, name: str) -> Estimate:
        return Estimate(*(getattr(row, f"{name}{end}") for end in ("", "_low", "_high")))

    def settings(row: Any) -> str:
        pairs = json.loads(row.tuned).items()
        shown = [f"{name}={value:.4g}" if isinstance(value, float) else f"{name}={value}" for name, value in pairs]
        return "default" if row.tuned == row.default else " ".join(shown)

    def elsewhere(row: Any) -> str:
        value = row.validation_chosen_elsewhere
        return "–" if math.isnan(value) else short(value)

    columns = [
        Column("tuned", "task", words=True),
        Column("winner", settings, words=True),
        Column("validation", lambda row: f"{short(row.validation_default)} → {short(row.validation_tuned)}"),
        Column("cross-val.", elsewhere),
        Column("test [95 % CI]", lambda row: f"{interval(row, 'test_default')}\n→ {interval(row, 'test_tuned')}"),
        Column("gain", lambda row: "{:+z.3f}\n[{:+z.3f}, {:+z.3f}]".format(*interval(row, "test_gain"))),
        Column("p", lambda row: f"{row.p:.3f}"),
    ]
    title = f"Tuned for {objective} on validation; the test texts were opened once"
    table = Table(gains, columns, title=title, name="tuning", kept=(0, 5, 4, 6, 1, 2), source="tuning.csv")
    sections = [Section("Tuning", tables=[table]), *report.sections]
    gained = (bool((gains.test_gain_low > 0).any()), remarks(gains)[0])
    return replace(report, brief=table, signs=[gained, *report.signs], sections=sections)


def remarks(gains: pd.DataFrame) -> list[str]:
    """Conclusions about tuning itself, one line each."""
    above, below = gains.task[gains.test_gain_low > 0], gains.task[gains.test_gain_high < 0]
    optimism = (gains.validation_tuned - gains.validation_chosen_elsewhere).mean()
    lines = [
        f"gain on test texts with an interval above 0: {', '.join(above) or 'none'}"
        + (f"; below 0: {', '.join(below)}" if len(below) else ""),
        f"on average, winners have {gains.validation_test_gap.mean():+z.3f} more on validation than on the test texts",
        f"optimism of the selection: {optimism:+z.3f} compared with the cross-validated choice",
    ]
    return lines[: 2 if math.isnan(optimism) else 3]


def settings_json(winners: Sequence[Winner], study: str) -> str:
    """The winners' settings by detector and state, and the study that they were found in."""
    settings: dict[str, dict[str, Settings]] = {}
    for winner in winners:
        name, _, state = winner.task.partition(".")
        settings.setdefault(name, {})[state] = winner.tuned
    return json.dumps({"detectors": settings, "origin": {"study": study}}, indent=2) + "\n"


def trials_frame(trials: Mapping[str, Sequence[Trial]]) -> pd.DataFrame:
    """One row per trial of any study, with the settings as columns."""
    return pd.DataFrame(
        {
            "study": label,
            "number": t.number,
            "state": t.state,
            "value": t.value,
            "fold_sd": float(np.std(t.folds)) if t.folds else None,
            "seconds": t.seconds,
            **{f"setting.{name}": str(v) if isinstance(v, bool) else v for name, v in t.settings.items()},
        }
        for label, found in trials.items()
        for t in found
    )


# Figures


def draw(
    trials: Mapping[str, Sequence[Trial]],
    importances: Mapping[str, Mapping[str, float]],
    objective: str,
    tasks: Sequence[DetectorTask] = (),
) -> dict[str, bytes]:
    """File name → PNG: history and importance of the studies, and the objective over the settings of detectors."""
    longest = max(len(found) for found in trials.values())
    x = sorted({round(v) for v in np.geomspace(1, longest, min(POINTS, longest))})
    lines = {}
    for label, found in trials.items():
        best = np.fmax.accumulate([t.value if t.state == "complete" else np.nan for t in found])
        lines[label] = [float(best[min(at, len(best)) - 1]) for at in x]
    measured = f"{metrics.METRICS[objective].label} on validation"
    history = {"Best on validation so far": lines}
    drawn = {"history.png": figures.curves(x, history, x_name="finished trials", y_name=measured)}
    shares = pd.DataFrame({label: found for label, found in importances.items() if found}).T
    if len(shares):
        names: Any = {"x_name": "setting", "y_name": "study", "name": "importance", "title": "Which settings matter"}
        drawn["importance.png"] = figures.heat_map(list(shares), list(shares.index), shares.to_numpy(), **names)
    curves: dict[str, dict[str, Any]] = {}
    for task in tasks:
        name, state = task.detector.name, "base score" if task.state == "base" else "FSD"
        numbers = {setting: search for setting, search in task.space.items() if isinstance(search, Range)}
        grids = {setting: grid(search) for setting, search in numbers.items()}
        if len(numbers) == 1:
            ((setting, xs),) = grids.items()
            how = {"x_name": f"{name}.{setting}", "y_name": measured, "x_log": numbers[setting].log}
            curve = curves.setdefault(name, {"x": xs, "panels": {name: {}}, "colours": figures.STATES, **how})
            curve["panels"][name][state] = [_over_folds(task, {setting: at}) for at in xs]
        elif len(numbers) == 2 and all(search.step for search in numbers.values()):
            (y, ys), (x_name, xs) = grids.items()
            values = np.array([[_over_folds(task, {x_name: a, y: b}).value for a in xs] for b in ys])
            drawn[f"heat_map_{task.label}.png"] = figures.heat_map(
                xs,
                ys,
                values,
                x_name=f"{name}.{x_name}",
                y_name=f"{name}.{y}",
                name=measured,
                title=f"{name}, {state}",
                default=(task.default[x_name], task.default[y]),
            )
    drawn |= {f"curve_{name}.png": figures.curves(**curve) for name, curve in curves.items()}
    return {name: figures.png(figure) for name, figure in drawn.items()}


def _over_folds(task: DetectorTask, settings: Settings) -> Estimate:
    """Mean over the folds of the settings and its 95 % interval, which repeated divisions do not narrow."""
    values, validation = task.evaluate({**task.default, **settings}), task.validation
    mean, divisions = float(values.mean()), sum(map(len, validation.folds)) / validation.member.size
    half = (metrics.interval(values, 0.0)[1] - mean) * math.sqrt(divisions)
    return Estimate(mean, mean - half, mean + half)
