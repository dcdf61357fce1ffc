"""Tuning of detector settings on token statistics in memory, without a forward pass per trial."""

import json
import time
from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from optuna.trial import FrozenTrial

from detectors import Detector
from fsd.config import FSDConfig, TuneConfig
from fsd.errors import UsageError
from fsd.scoring.deviation import ViewStatistics
from fsd.scoring.model import Model
from fsd.tracking import Run
from fsd.tuning.objective import MOST_FALLBACKS, DetectorTask, Winner, winner
from fsd.tuning.optuna_study import create_study, search
from pipelines.experiment import detector_settings
from pipelines.experiment.experiment import Experiment
from pipelines.tune.adapter import memoized
from pipelines.tune.job import Tuned, TuningData


def tunable(config: TuneConfig) -> tuple[list[Detector], list[str]]:
    """The requested detectors that have settings to search, and a remark on the others."""
    detectors = []
    fixed = []
    for detector in detector_settings.load_detectors(config.base_run.detection):
        if detector.search:
            detectors.append(detector)
        else:
            fixed.append(detector.name)
    if not fixed:
        return detectors, []
    if config.base_run.detection.named:
        raise UsageError(
            f"detectors to tune must have settings to search, such as min_k (all: docs/detectors.md); got {fixed[0]!r}"
        )
    return detectors, [f"nothing to tune without a forward pass: {', '.join(fixed)} (recall: --shots)"]


def tune(config: TuneConfig, data: TuningData, model: Model, run: Run | None) -> Tuned:
    """Search the settings of every detector, for base and FSD separately, and score the test texts with them."""
    detectors, remarks = tunable(config)
    model = memoized(model, tuned=True)
    experiment = Experiment(config.base_run, detectors, split=data.split)
    plan = experiment.prepare(model)
    detectors = plan.detectors
    tasks = []
    for detector in detectors:
        # A paired detector reads both models, so that it has no base score.
        states = ("fsd",) if detector.paired else ("base", "fsd")
        for state in states:
            task = DetectorTask(detector, state, data.validation)
            # A study with another setup is refused before the training.
            create_study(*data.study_of(task), config.storage)
            tasks.append(task)
    # With --adapter, the settings are tuned for that one.
    experiment._replace(detectors=detectors).train(model, run)
    read = partial(ViewStatistics.compute, detectors=detectors, scorers=model.scorers, inputs=plan.inputs)
    validation = replace(data.validation, statistics=read(model.prompts(data.split.validation.prompts)))
    # From here on, trials only compute scores: all that they need is in memory.
    for task in tasks:
        task.validation = validation
    trials = _search(tasks, data, config)
    # The test texts are read after the choice; the trials have seen nothing of them.
    test = read(model.prompts(data.split.test.prompts))
    winners = []
    default = {}
    tuned = {}
    for task in tasks:
        label = task.label
        may_win = task.fallback_share(task.default) <= MOST_FALLBACKS
        best = winner(task, task.evaluate(task.default), trials[label], folds=config.folds, default_may_win=may_win)
        winners.append(best._replace(fallback=task.fallback_share(best.tuned)))
        default[label] = task.scores(test, best.default)
        tuned[label] = task.scores(test, best.tuned)
    return Tuned(
        _with_settings(config.base_run, winners),
        data.split,
        winners,
        trials,
        default,
        tuned,
        model,
        remarks + plan.remarks,
        tasks,
    )


def _search(tasks: Sequence[DetectorTask], data: TuningData, config: TuneConfig) -> dict[str, list[FrozenTrial]]:
    """Search the studies of all tasks; the time is shared equally, and what one task leaves goes to the next."""
    trials = {}
    started = time.monotonic()
    for index, task in enumerate(tasks):
        share = config.timeout
        if share is not None:
            left = share - (time.monotonic() - started)
            share = max(0.0, left) / (len(tasks) - index)
        name, setup = data.study_of(task)
        trials[task.label] = search(task, name, setup, replace(config, timeout=share))
    return trials


def _with_settings(base_run: FSDConfig, winners: Sequence[Winner]) -> FSDConfig:
    """The configuration with the winners' settings: of the FSD, which is calibrated, and of the base score."""
    settings = list(base_run.detection.settings)
    for best in winners:
        # Settings without a state are those of the FSD.
        detector = best.task.removesuffix(".fsd")
        for name, value in best.tuned.items():
            settings.append(f"{detector}.{name}={json.dumps(value)}")
    return replace(base_run, detection=replace(base_run.detection, settings=tuple(settings)))
