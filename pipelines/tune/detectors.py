"""Tuning of detector settings on token statistics in memory, without a forward pass per trial."""

import json
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from detectors import Detector
from detectors import load as load_detector
from detectors import names as detector_names
from fsd.config import FSDConfig, TuneConfig
from fsd.errors import UsageError
from fsd.scoring.deviation import ViewStatistics
from fsd.tracking import Run
from fsd.tuning.objective import DetectorTask, Winner, winner
from fsd.tuning.optuna_study import create_study, importance, search
from pipelines.common import experiment
from pipelines.tune import report
from pipelines.tune.adapter import memoized
from pipelines.tune.job import Tuned, TuningData

if TYPE_CHECKING:
    from fsd.models.language_model import LanguageModel


def tunable(config: TuneConfig) -> tuple[list[Detector], list[str]]:
    """The requested detectors that have settings to search, and a remark on the others."""
    detectors = experiment.load_detectors(config.job.detection)
    fixed = [detector.name for detector in detectors if not detector.search]
    if fixed and config.job.detection.named:
        allowed = ", ".join(name for name in detector_names() if load_detector(name).search)
        raise UsageError(f"detectors to tune must have settings to search, as {allowed} do; got {fixed[0]!r}")
    remarks = [f"nothing to tune without a forward pass: {', '.join(fixed)} (recall: --shots)"] if fixed else []
    return [detector for detector in detectors if detector.search], remarks


def tune(config: TuneConfig, data: TuningData, model: "LanguageModel", run: Run | None) -> Tuned:
    """Search the settings of every detector, for base and FSD separately, and score the test texts with them."""
    detectors, remarks = tunable(config)
    scorers = memoized(model, config.job, tuned=True)
    scoring = experiment.prepare(model, data.split, detectors, config.job, scorers)
    detectors = [detector for detector in detectors if detector.name not in scoring.left_out]
    states = {detector.name: ("fsd",) if detector.paired else ("base", "fsd") for detector in detectors}
    tasks = [DetectorTask(d, state, data.validation) for d in detectors for state in states[d.name]]
    for task in tasks:  # a study with another setup is refused before the training
        create_study(*data.study_of(task), config.storage)
    if not model.adapted:
        experiment.train_adapter(model, data.split.unseen, config.job, run)
    validation, test = (
        ViewStatistics.compute([document.text for document in texts], detectors, scorers, scoring.inputs)
        for texts in (data.split.validation, data.split.test)
    )
    tasks = [replace(task, validation=replace(data.validation, statistics=validation)) for task in tasks]
    started, trials = time.monotonic(), {}
    for at, task in enumerate(tasks):
        share = config.timeout  # the time is shared equally, and what one task leaves goes to the next
        if share is not None:
            share = max(0.0, share - (time.monotonic() - started)) / (len(tasks) - at)
        trials[task.label] = search(task, *data.study_of(task), replace(config, timeout=share))
    winners = [winner(t, t.evaluate(t.default), trials[t.label], folds=config.folds) for t in tasks]
    importances = {task.label: importance(data.study_of(task)[0], config.storage) for task in tasks}
    chosen = [(t.label, t.detector.with_settings(**w.tuned), t.state) for t, w in zip(tasks, winners, strict=True)]
    return Tuned(
        job=_with_settings(config.job, winners),
        split=data.split,
        winners=winners,
        trials=trials,
        figures=report.draw(trials, importances, config.objective, tasks),
        default={task.label: test.scores(task.detector, task.state) for task in tasks},
        tuned={label: test.scores(detector, state) for label, detector, state in chosen},
        scorers=scorers,
        remarks=[*remarks, *scoring.remarks],
    )


def _with_settings(job: FSDConfig, winners: Sequence[Winner]) -> FSDConfig:
    """The configuration with the winners' settings: of the FSD, which is calibrated, and of the base score."""
    entries = [
        f"{w.task.removesuffix('.fsd')}.{name}={json.dumps(value)}" for w in winners for name, value in w.tuned.items()
    ]
    return replace(job, detection=replace(job.detection, settings=(*job.detection.settings, *entries)))
