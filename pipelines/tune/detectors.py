"""Settings of detectors, tuned on readings in memory: no trial asks a model."""

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from detectors import Detector
from detectors import load as load_detector
from detectors import names as detector_names
from fsd.config import FSDConfig, TuneConfig
from fsd.errors import UsageError
from fsd.scoring.cache import MemoizedScorer
from fsd.scoring.deviation import ViewStatistics, usable
from fsd.scoring.scorers import build_scorers, view_inputs
from fsd.token_stats import Scores
from fsd.tuning.objective import DetectorTask, TrialRecord, ValidationSet, Winner, key_of, winner
from fsd.tuning.optuna_study import Plan, importance, search
from fsd.views import ViewInputs
from pipelines.common import detection
from pipelines.tune import run_log as _tuning_record
from pipelines.tune.job import Field, Tuned, plan_of

if TYPE_CHECKING:
    from fsd.models.language_model import LanguageModel


def tunable(config: TuneConfig) -> tuple[list[Detector], list[str]]:
    """The detectors asked for that have something to tune, and a line on the others.

    Raises:
        UsageError: for a detector that was asked for by name and has nothing to tune, and as `detection.chosen`.
    """
    given = detection.load_detectors(config.job.detection)
    kept = [detector for detector in given if detector.search]
    idle = [detector.name for detector in given if not detector.search]
    if idle and config.job.detection.detectors != "all":
        allowed = ", ".join(name for name in detector_names() if load_detector(name).search)
        raise UsageError(f"detectors to tune must have settings to search, as {allowed} do; got {idle[0]!r}")
    told = [f"nothing to tune without a forward pass: {', '.join(idle)} (recall: --shots)"] if idle else []
    return kept, told


def tune(config: TuneConfig, field: Field, model: "LanguageModel") -> Tuned:
    """Search every detector's settings for base and FSD apart, then open the test texts for winners and defaults.

    Args:
        config: of the command.
        field: the texts and their folds.
        model: with its adapter.
    """
    job = config.job
    scorers = {name: MemoizedScorer(scorer) for name, scorer in build_scorers(model, job.model).items()}
    material = view_inputs(job.model, [d.text for d in field.parts.unseen], shots=job.detection.shots, seed=job.seed)
    given, told = tunable(config)
    left_out = usable(given, field.texts, scorers, material)[1]
    kept = [detector for detector in given if detector.name not in left_out]
    if left_out and (job.detection.detectors != "all" or not kept):
        name, reason = next(iter(left_out.items()))
        raise UsageError(f"detector {name} cannot be computed here: {reason}")
    validation_set = ValidationSet(
        ViewStatistics.compute(field.texts, kept, scorers, material), field.member, field.folds, config.objective
    )
    tasks = [
        DetectorTask(d, state, validation_set) for d in kept for state in (("fsd",) if d.paired else ("base", "fsd"))
    ]
    plan = plan_of(config)
    trials = _search_all(tasks, field, plan)
    winners = [winner(t, t.evaluate(t.default), trials[t.label], folds=config.folds) for t in tasks]
    figures = _figures(tasks, trials, field, plan, config.objective)
    default, tuned = _test_scores(tasks, winners, field, scorers, material)
    return Tuned(
        job=_with_settings(config, winners),
        parts=field.parts,
        winners=winners,
        trials=trials,
        figures=figures,
        default=default,
        tuned=tuned,
        scorers=scorers,
        remarks=told + [f"{name} left out: {reason}" for name, reason in left_out.items()],
    )


def _search_all(tasks: Sequence[DetectorTask], field: Field, plan: Plan) -> dict[str, list[TrialRecord]]:
    """The finished trials of every task; the time is shared out evenly, what one leaves goes to the next."""
    begun, trials = time.monotonic(), {}
    for at, task in enumerate(tasks):
        share = None
        if plan.timeout is not None:
            share = max(0.0, plan.timeout - (time.monotonic() - begun)) / (len(tasks) - at)
        trials[task.label] = search(task, *field.study(task), replace(plan, timeout=share))
    return trials


def _figures(
    tasks: Sequence[DetectorTask], trials: Mapping[str, Sequence[TrialRecord]], field: Field, plan: Plan, objective: str
) -> dict[str, bytes]:
    for task in tasks:  # what was tried need not be scored again
        complete = (trial for trial in trials[task.label] if trial.state == "complete")
        task.known.update({key_of(trial.settings): np.array(trial.folds) for trial in complete})
    found = {"history.png": _tuning_record.history(trials, objective)}
    shares = _tuning_record.importance({task.label: importance(field.study(task)[0], plan.storage) for task in tasks})
    if shares:
        found["importance.png"] = shares
    for task in tasks:
        found |= _tuning_record.landscapes(task, objective)
    return found | _tuning_record.curves(tasks, objective)


def _test_scores(
    tasks: Sequence[DetectorTask],
    winners: Sequence[Winner],
    field: Field,
    scorers: Mapping[str, MemoizedScorer],
    material: ViewInputs,
) -> tuple[Scores, Scores]:
    """Scores of the test texts by the default settings and by the winners'."""
    detectors = list({task.detector.name: task.detector for task in tasks}.values())
    readings = ViewStatistics.compute([d.text for d in field.parts.test], detectors, scorers, material)
    pairs = list(zip(tasks, winners, strict=True))
    default = {t.label: readings.scores(t.detector, t.state) for t, _ in pairs}
    return default, {t.label: readings.scores(t.detector.with_settings(**w.settings), t.state) for t, w in pairs}


def _with_settings(config: TuneConfig, winners: Sequence[Winner]) -> FSDConfig:
    """The job with the settings that are best for FSD: what is calibrated and registered."""
    job = config.job
    entries = [
        f"{w.label.removesuffix('.fsd')}.{name}={json.dumps(value)}"
        for w in winners
        if w.label.endswith(".fsd")
        for name, value in w.settings.items()
    ]
    return replace(job, detection=replace(job.detection, settings=(*job.detection.settings, *entries)))
