"""Optuna studies that several processes can share, and that continue after an interruption."""

import json
import os
import signal
import time
import warnings
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import contextmanager, suppress
from datetime import datetime, timedelta
from multiprocessing import active_children, get_context, parent_process
from typing import Any, cast

import numpy as np
import optuna
from optuna.distributions import BaseDistribution
from optuna.samplers import BaseSampler
from optuna.trial import FrozenTrial, TrialState

from fsd.config import TuneConfig
from fsd.errors import UsageError
from fsd.progress import progress
from fsd.search_space import Choice, Search
from fsd.tuning.objective import Settings, Task, TrialRecord, finite, key_of, tidy, whole_grid
from fsd.tuning.optuna_storage import open_storage

FINISHED = (TrialState.COMPLETE, TrialState.PRUNED)
STALE_AFTER = timedelta(minutes=1)
"""Age from which a running detector trial counts as killed: those take seconds at most and send no heartbeats."""
REPEATS = "failed_trial"
"""System attribute in which Optuna keeps the number of the failed trial that a trial repeats."""
MAX_FAILURES = 10
"""Consecutive failed trials after which a process stops."""
PRUNERS = {
    "median": optuna.pruners.MedianPruner,
    "hyperband": optuna.pruners.HyperbandPruner,
    "none": optuna.pruners.NopPruner,
}


def _is_long(config: TuneConfig) -> bool:
    """Whether a trial takes minutes."""
    return config.tune == "adapter"


def search(task: Task, name: str, setup: Mapping[str, Any], config: TuneConfig) -> list[TrialRecord]:
    """Run or continue the study until it is complete; trials of other processes count as well.

    `setup` is everything that a trial's value depends on, as JSON values; it is stored with the study. The task is sent
    to the workers. Adapter trials take minutes: they send heartbeats, and a failure does not end the study.
    """
    with _quiet_optuna():
        create_study(name, setup, config.storage)
        deadline = None if config.timeout is None else time.time() + config.timeout
        if config.workers == 1:
            run_trials(task, name, config, deadline, show_progress=True)
        else:
            with ProcessPoolExecutor(config.workers, mp_context=get_context("spawn")) as pool:
                jobs = [
                    pool.submit(run_trials, task, name, config, deadline, show_progress=worker == 0)
                    for worker in range(config.workers)
                ]
                try:
                    for job in as_completed(jobs):
                        job.result()
                except BaseException:
                    for worker in active_children():  # they offer their trials again, and end
                        os.kill(cast("int", worker.pid), signal.SIGINT)
                    raise
        study = optuna.load_study(study_name=name, storage=open_storage(config.storage))
        records = [_record(task, trial) for trial in study.get_trials(deepcopy=False, states=FINISHED)]
        if not any(record.state == "complete" for record in records):
            failed = study.get_trials(deepcopy=False, states=(TrialState.FAIL,))
            reason = (
                f"the last one failed: {failed[-1].user_attrs.get('error', 'its process was killed')}"
                if failed
                else "the time was up before"
            )
            raise UsageError(f"study {name} must finish at least one trial; none did ({reason})")
        return records


def create_study(name: str, setup: Mapping[str, Any], storage: str) -> None:
    """Create the study, or check that the existing one has the same setup."""
    wanted = json.loads(json.dumps(setup))
    with _quiet_optuna():
        study = optuna.create_study(
            storage=open_storage(storage), study_name=name, load_if_exists=True, direction="maximize"
        )
        if "setup" not in study.user_attrs:
            study.set_user_attr("setup", wanted)
        stored = study.user_attrs["setup"]
    if stored != wanted:
        raise UsageError(
            f"study {name!r} must be continued with the settings it was begun with ({_difference(stored, wanted)}); "
            "take those, or another --study"
        )


def _difference(stored: Mapping[str, Any], wanted: Mapping[str, Any]) -> str:
    missing = "nothing"
    keys = [key for key in {**stored, **wanted} if stored.get(key, missing) != wanted.get(key, missing)]
    return ", ".join(f"{key}: begun with {stored.get(key, missing)}, got {wanted.get(key, missing)}" for key in keys)


def run_trials(task: Task, name: str, config: TuneConfig, deadline: float | None, *, show_progress: bool) -> None:
    """Run trials in this process until the study is complete or the deadline has passed."""
    cells = _cells(task.space, config)
    kind = optuna.samplers.TPESampler if config.sampler == "tpe" else optuna.samplers.RandomSampler
    with _quiet_optuna():
        study = optuna.load_study(
            study_name=name,
            storage=open_storage(config.storage, heartbeat=_is_long(config)),
            sampler=_ByNumber(cells, kind, config.job.seed),
            pruner=PRUNERS[config.pruner if _is_long(config) else "none"](),
        )
        known: dict[str, Sequence[float]] = {
            key_of(record.settings): record.folds
            for record in (_record(task, trial) for trial in study.get_trials(states=(TrialState.COMPLETE,)))
        }
        failures = 0

        def after_trial(study: optuna.Study, trial: FrozenTrial) -> None:
            nonlocal failures
            failures = failures + 1 if trial.state == TrialState.FAIL else 0
            parent = parent_process()
            orphaned = parent is not None and not parent.is_alive()  # the command of this worker was killed
            if failures >= MAX_FAILURES or not _missing(study, cells, config) or orphaned:
                study.stop()
            bar.update(1)

        left = None if deadline is None else deadline - time.time()
        missing = _missing(study, cells, config)
        if not missing or (left is not None and left <= 0):
            return
        with progress(missing, name, "trial", shown=show_progress) as bar:
            study.optimize(
                lambda trial: _run_trial(task, trial, known),
                timeout=left,
                catch=(Exception,) if _is_long(config) else (_NoCellError,),
                callbacks=[after_trial],
            )


class _NoCellError(Exception):
    """Another process has taken the last cell of the grid."""


def _cells(space: Mapping[str, Search], config: TuneConfig) -> list[Settings]:
    """The grid's cells in the order of the trials that evaluate them; none if settings are sampled."""
    cells = whole_grid(dict(sorted(space.items())))
    if config.sampler != "grid" and not (finite(space) and len(cells) <= config.trials):
        return []
    order = np.random.RandomState(config.job.seed).permutation(len(cells))  # a part is spread over the space
    return [cells[at] for at in order]


def _missing(study: optuna.Study, cells: Sequence[Settings], config: TuneConfig) -> int:
    """Number of trials to begin: of a grid those that no process has begun, or that are to be repeated."""
    if cells and not _is_long(config):
        _queue_stale(study)
    trials = study.get_trials(deepcopy=False)
    if cells:
        begun = len([trial for trial in trials if REPEATS not in trial.system_attrs])
        return max(0, len(cells) - begun) + len([trial for trial in trials if trial.state == TrialState.WAITING])
    return max(0, config.trials - len([trial for trial in trials if trial.state in FINISHED]))


def _queue_stale(study: optuna.Study) -> None:
    """Fail the trials of killed processes, and queue them again."""
    for trial in study.get_trials(deepcopy=False, states=(TrialState.RUNNING,)):
        if trial.datetime_start <= datetime.now() - STALE_AFTER:
            with suppress(ValueError, RuntimeError):  # another process does so at the same time
                study.tell(trial.number, state=TrialState.FAIL)
                optuna.storages.RetryHeartbeatStaleTrialCallback()(study, trial)


def _run_trial(task: Task, trial: optuna.Trial, known: dict[str, Sequence[float]]) -> float:
    settings = {name: _suggest(trial, name, space) for name, space in task.space.items()}
    key = key_of(settings)
    if key not in known:

        def report(value: float, step: int) -> None:
            trial.report(value, step)
            if trial.should_prune():
                raise optuna.TrialPruned

        try:
            known[key] = task.evaluate(settings, report).tolist()
        except optuna.TrialPruned:
            raise
        except BaseException as error:  # a failure is repeated once, an interrupted trial at any rate
            if not isinstance(error, UsageError):
                retry = optuna.storages.RetryHeartbeatStaleTrialCallback(1 if isinstance(error, Exception) else None)
                retry(trial.study, trial.study.get_trials(deepcopy=False)[trial.number])
            trial.set_user_attr("error", str(error))
            raise
    trial.set_user_attr("folds", known[key])
    return float(np.mean(known[key]))


def _suggest(trial: optuna.Trial, name: str, space: Search) -> Any:
    if isinstance(space, Choice):
        return trial.suggest_categorical(name, list(space.values))
    if isinstance(space.low, int) and isinstance(space.high, int):
        return trial.suggest_int(name, space.low, space.high, step=int(space.step or 1), log=space.log)
    return tidy(space, trial.suggest_float(name, space.low, space.high, step=space.step, log=space.log))


class _ByNumber(BaseSampler):  # type: ignore[misc]  # mypy does not follow Optuna's types
    """Gives each trial the settings that follow from its number: a cell of the grid, or those of a seeded sampler.

    Numbers are unique among all processes of a study, and do not depend on how often it was interrupted. A generator
    for each process would start at the same point in every process that joins, which would then draw the same trials.
    """

    def __init__(
        self,
        cells: Sequence[Settings],
        kind: type[optuna.samplers.TPESampler | optuna.samplers.RandomSampler],
        seed: int,
    ) -> None:
        self.cells, self.kind, self.seed = cells, kind, seed

    def infer_relative_search_space(self, study: optuna.Study, trial: FrozenTrial) -> dict[str, BaseDistribution]:
        """Start the trial's own sampler."""
        seed = np.random.SeedSequence([self.seed, trial.number]).generate_state(1)[0]
        self.sampler = self.kind(seed=int(seed))
        return {} if self.cells else dict(self.sampler.infer_relative_search_space(study, trial))

    def sample_relative(
        self, study: optuna.Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        """Settings that are sampled together."""
        return {} if self.cells else dict(self.sampler.sample_relative(study, trial, search_space))

    def sample_independent(
        self, study: optuna.Study, trial: FrozenTrial, param_name: str, param_distribution: BaseDistribution
    ) -> Any:
        """A setting that is sampled by itself."""
        if self.cells:
            number = trial.system_attrs.get(REPEATS, trial.number)
            place = sum(REPEATS not in t.system_attrs for t in study.get_trials(deepcopy=False)[:number])
            if place >= len(self.cells):
                raise _NoCellError
            return self.cells[place][param_name]
        return self.sampler.sample_independent(study, trial, param_name, param_distribution)


def _record(task: Task, trial: FrozenTrial) -> TrialRecord:
    settings = {name: tidy(space, trial.params[name]) for name, space in task.space.items()}
    seconds = trial.duration.total_seconds() if trial.duration else 0.0
    value = float("nan") if trial.value is None else float(trial.value)
    return TrialRecord(
        trial.number, trial.state.name.lower(), settings, tuple(trial.user_attrs.get("folds", ())), value, seconds
    )


def importance(name: str, storage: str) -> dict[str, float]:
    """Setting → share of the variance between trials that it explains; empty where that cannot be estimated."""
    with _quiet_optuna():
        study = optuna.load_study(study_name=name, storage=open_storage(storage))
        warnings.simplefilter("error", UserWarning)  # Optuna warns of too few trials, or too similar ones
        try:
            return dict(optuna.importance.get_param_importances(study))
        except (RuntimeError, ValueError, UserWarning):  # or of a single setting
            return {}


@contextmanager
def _quiet_optuna() -> Iterator[None]:
    """Suppress Optuna's line for each trial, and its warnings about experimental features."""
    verbosity = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.CRITICAL)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        try:
            yield
        finally:
            optuna.logging.set_verbosity(verbosity)
