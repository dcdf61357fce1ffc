"""A study: trials drawn by Optuna, kept in its storage, shared by several processes, continued after a kill."""

import json
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from multiprocessing import get_context
from typing import Any

import numpy as np
import optuna
from optuna.trial import FrozenTrial, TrialState

from fsd.errors import UsageError
from fsd.progress import progress
from fsd.search_space import Search
from fsd.token_stats import FloatArray
from fsd.tuning.objective import Settings, Task, key_of, tidy, whole_grid
from fsd.tuning.optuna_storage import locked, open_storage
from fsd.tuning.tuning_plan import Plan, pruner, sampler, suggest

DONE = (TrialState.COMPLETE, TrialState.PRUNED)
DEAD_AFTER = timedelta(minutes=10)
"""A detector's trial takes less than a second; one that runs for longer than this was killed."""
QUEUE = 20
"""Combinations of a grid that wait in the storage at once."""
HOPELESS = 10
"""Failed trials in a row after which a study gives up."""
Report = Callable[[float, int], None]


@dataclass(frozen=True)
class Tried:
    """A finished trial.

    Attributes:
        number: in the study.
        state: complete or pruned.
        settings: that were tried.
        folds: (repeats · folds,) values; empty for a pruned one.
        value: their mean, or the last one that was reported.
        seconds: it took.
    """

    number: int
    state: str
    settings: Settings
    folds: tuple[float, ...]
    value: float
    seconds: float


def search(task: Task, name: str, setup: Mapping[str, Any], plan: Plan) -> list[Tried]:
    """Run or continue the study until it is complete; whoever else works on it counts too.

    Args:
        task: what is tuned; sent to the workers, so that it must pickle.
        name: of the study in the storage.
        setup: everything that gives a trial its meaning, as JSON values; kept with the study.
        plan: how.

    Returns:
        All finished trials, in the order of their numbers.

    Raises:
        UsageError: if the study was begun with another setup, the storage is out of reach, or no trial finished.
    """
    with _quietly():
        begin(task, name, setup, plan)
        deadline = None if plan.timeout is None else time.time() + plan.timeout
        if plan.workers == 1:
            work(task, name, plan, 0, deadline)
        else:
            with ProcessPoolExecutor(plan.workers, mp_context=get_context("spawn")) as pool:
                jobs = [pool.submit(work, task, name, plan, at, deadline) for at in range(plan.workers)]
                for job in as_completed(jobs):
                    job.result()
        study = _load(name, plan)
        tried = [_tried(task, trial) for trial in study.get_trials(deepcopy=False, states=DONE)]
        if not any(t.state == "complete" for t in tried):
            failed = study.get_trials(deepcopy=False, states=(TrialState.FAIL,))
            reason = failed[-1].user_attrs.get("error", "it was killed") if failed else "the time was up before"
            raise UsageError(f"study {name} must finish at least one trial; none did, and the last says: {reason}")
        return tried


def begin(task: Task, name: str, setup: Mapping[str, Any], plan: Plan) -> None:
    """Create the study, or check that it is the same one."""
    given = json.loads(json.dumps(setup))
    with locked(plan.storage), open_storage(plan.storage) as storage:
        study = optuna.create_study(storage=storage, study_name=name, load_if_exists=True, direction="maximize")
        stored = study.user_attrs.get("setup")
        if stored is None:
            study.set_user_attr("setup", given)
        elif stored != given:
            raise UsageError(
                f"study {name!r} must be continued with the settings it was begun with ({_difference(stored, given)}); "
                "take those, or another --study"
            )
        if not plan.patient:
            _bury(study)


def _queue(study: optuna.Study, space: Mapping[str, Search], seed: int) -> bool:
    """Queue some combinations that are not done, running or queued; whether there were any.

    Who takes a trial from the queue is alone with it. The queue is short, because Optuna reads all of it every time.
    """
    trials = study.get_trials(deepcopy=False, states=(*DONE, TrialState.RUNNING, TrialState.WAITING))
    there = {key_of(trial.system_attrs.get("fixed_params", trial.params)) for trial in trials}
    combinations = whole_grid(space)
    order = np.random.default_rng(seed).permutation(len(combinations))
    missing = [combinations[at] for at in order if key_of(combinations[at]) not in there][:QUEUE]
    for settings in missing:
        study.enqueue_trial(settings, user_attrs={"queued": True})
    return bool(missing) or any(trial.state == TrialState.WAITING for trial in trials)


def _difference(stored: Mapping[str, Any], given: Mapping[str, Any]) -> str:
    missing = "nothing"
    keys = [key for key in {**stored, **given} if stored.get(key, missing) != given.get(key, missing)]
    return ", ".join(f"{key}: begun with {stored.get(key, missing)}, got {given.get(key, missing)}" for key in keys)


def _bury(study: optuna.Study) -> None:
    """Mark trials as failed whose process was killed; those of settings that take no time need no heartbeat."""
    for trial in study.get_trials(deepcopy=False, states=(TrialState.RUNNING,)):
        if trial.datetime_start and datetime.now() - trial.datetime_start > DEAD_AFTER:
            study.tell(trial.number, state=TrialState.FAIL)


def work(task: Task, name: str, plan: Plan, worker: int, deadline: float | None) -> None:
    """Try settings until the study is complete or the time is up: the life of one process."""
    with _quietly():
        study = _load(name, plan, task.space, worker)
        wanted, finished = plan.wanted(task.space), len(study.get_trials(deepcopy=False, states=DONE))
        left = None if deadline is None else deadline - time.time()
        if finished >= wanted or (left is not None and left <= 0):
            return
        known = {key_of(t.settings): t.folds for t in _finished(task, study)}
        grid = plan.drawing(task.space) == "grid"
        stop = _stop_without_queue if grid else optuna.study.MaxTrialsCallback(wanted, states=DONE)
        with progress(wanted - finished, name, "trial", shown=worker == 0) as bar:
            while not grid or _refilled(study, task.space, plan):
                study.optimize(
                    lambda trial: _attempt(task, trial, known, queued_only=grid),
                    timeout=left,
                    catch=(Exception,) if plan.patient else (_QueueEmptyError,),
                    callbacks=[stop, _Again(), lambda *_: bar.update(1)],
                )
                left = None if deadline is None else deadline - time.time()
                if not grid or (left is not None and left <= 0):
                    return


def _refilled(study: optuna.Study, space: Mapping[str, Search], plan: Plan) -> bool:
    with locked(plan.storage):
        return _queue(study, space, plan.seed)


def _stop_without_queue(study: optuna.Study, _: FrozenTrial) -> None:
    if not study.get_trials(deepcopy=False, states=(TrialState.WAITING,)):
        study.stop()


class _QueueEmptyError(Exception):
    """Another process took the last combination of a grid."""


def _attempt(task: Task, trial: optuna.Trial, known: dict[str, tuple[float, ...]], *, queued_only: bool) -> float:
    if queued_only and "queued" not in trial.user_attrs:
        trial.study.stop()
        raise _QueueEmptyError
    settings = {name: suggest(trial, name, search) for name, search in task.space.items()}
    folds = known.get(key_of(settings))
    if folds is None:
        try:
            folds = tuple(task.judge(settings, lambda value, step: _report(trial, value, step)).tolist())
        except optuna.TrialPruned:
            raise
        except Exception as error:
            trial.set_user_attr("error", f"{error}")
            trial.set_user_attr("refused", isinstance(error, UsageError))
            raise
        known[key_of(settings)] = folds
    trial.set_user_attr("folds", folds)
    return float(np.mean(folds))


def _report(trial: optuna.Trial, value: float, step: int) -> None:
    trial.report(value, step)
    if trial.should_prune():
        raise optuna.TrialPruned


class _Again:
    """Tries a failed trial once more, unless the settings themselves were refused; stops a study that only fails."""

    failures = 0

    def __call__(self, study: optuna.Study, trial: FrozenTrial) -> None:
        self.failures = self.failures + 1 if trial.state == TrialState.FAIL else 0
        if self.failures >= HOPELESS:
            study.stop()
        again = trial.state == TrialState.FAIL and not trial.user_attrs.get("refused")
        if again and "retry_of" not in trial.user_attrs:
            study.enqueue_trial(trial.params, user_attrs={"retry_of": trial.number})


def _load(name: str, plan: Plan, space: Mapping[str, Search] | None = None, worker: int = 0) -> optuna.Study:
    with open_storage(plan.storage, heartbeat=plan.patient) as storage:
        study = optuna.load_study(study_name=name, storage=storage)
        if space is not None:
            # a continued study and another worker must not draw what was drawn before
            seed = np.random.SeedSequence([plan.seed, worker, len(study.get_trials(deepcopy=False))])
            study.sampler = sampler(plan, space, int(seed.generate_state(1)[0]))
            study.pruner = pruner(plan)
        return study


def _finished(task: Task, study: optuna.Study) -> Iterator[Tried]:
    for trial in study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,)):
        yield _tried(task, trial)


def _tried(task: Task, trial: FrozenTrial) -> Tried:
    settings = {name: tidy(search, trial.params[name]) for name, search in task.space.items()}
    seconds = trial.duration.total_seconds() if trial.duration else 0.0
    value = float("nan") if trial.value is None else float(trial.value)
    folds = tuple(trial.user_attrs.get("folds", ()))
    return Tried(trial.number, trial.state.name.lower(), settings, folds, value, seconds)


def importance(name: str, plan: Plan) -> dict[str, float]:
    """Setting → its share of the variance of the value over the trials; empty where there is nothing to tell."""
    with _quietly():
        study = _load(name, plan)
        warnings.simplefilter("error", UserWarning)  # Optuna's word for trials that are too few or too much alike
        try:
            return dict(optuna.importance.get_param_importances(study))
        except (RuntimeError, ValueError, UserWarning):  # or one setting only
            return {}


def values_of(tried: Sequence[Tried]) -> list[tuple[Settings, FloatArray]]:
    """Settings and fold values of the trials that were not pruned."""
    return [(t.settings, np.array(t.folds)) for t in tried if t.state == "complete"]


@contextmanager
def _quietly() -> Iterator[None]:
    """Without Optuna's log of each trial and its notes on what is experimental in it."""
    before = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.CRITICAL)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        try:
            yield
        finally:
            optuna.logging.set_verbosity(before)
