"""Optuna studies that several processes can share, and that continue after an interruption."""

import json
import math
import os
import random
import signal
import sys
import time
import warnings
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import contextmanager, suppress
from datetime import datetime, timedelta
from multiprocessing import active_children, get_context, parent_process
from pathlib import Path
from typing import Any, cast

import numpy as np
import optuna
import pandas as pd
from optuna.distributions import BaseDistribution
from optuna.exceptions import StorageInternalError
from optuna.samplers import BaseSampler
from optuna.storages import BaseStorage, InMemoryStorage, JournalStorage, RDBStorage, RetryHeartbeatStaleTrialCallback
from optuna.storages.journal import JournalFileBackend, JournalFileSymlinkLock
from optuna.trial import FrozenTrial, TrialState

from fsd.config import TuneConfig
from fsd.errors import UsageError, import_failure
from fsd.evaluation.rows import compare
from fsd.files import check_regular
from fsd.progress import progress
from fsd.search_space import Choice, Search, Space
from fsd.statistics.bootstrap import Bootstrap
from fsd.statistics.metrics import estimates
from fsd.token_stats import Scores
from fsd.tuning.objective import Settings, Task, Trial, Winner, finite, is_whole, key_of, tidy, whole_grid

HEARTBEAT_SECONDS = 30
"""Interval of a long trial's heartbeat; after twice that without one, Optuna fails the trial and queues it again."""
STALE_RETRIES = 2
STALE_AFTER = timedelta(minutes=1)
"""Age from which a running detector trial counts as killed: those take seconds at most and send no heartbeats."""
REPEATS = "failed_trial"
"""System attribute in which Optuna keeps the number of the failed trial that a trial repeats."""
MAX_FAILURES = 10
"""Consecutive failed trials after which a process stops."""
FINISHED = (TrialState.COMPLETE, TrialState.PRUNED)
PRUNERS = {
    "median": optuna.pruners.MedianPruner,
    "hyperband": optuna.pruners.HyperbandPruner,
    "none": optuna.pruners.NopPruner,
}
_LOCK_SECONDS = 60.0
_ATTEMPTS = 5
_SQLITE = "sqlite:///"
_JOURNAL = "journal:"
# How each line of a journal begins.
_ENTRY = b'{"op_code":'
_NO_TRIALS = "{} holds no trials of Optuna's"


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


# Characters of a name that any system takes.
LONGEST_NAME = 250


def check_storage(url: str) -> None:
    """Refuse a storage that cannot be opened; one that does not exist yet is not made."""
    path = _file_of(url)
    # pathlib raises for a name that is too long, which the database refuses better.
    if path is None or os.path.exists(path) or len(path.name) > LONGEST_NAME:  # noqa: PTH110
        open_storage(url, repair=False)
    elif path.parent == Path("mlruns"):
        return
    elif not path.parent.is_dir():
        raise UsageError(_refusal(url, f"there is no folder {path.parent}"))
    elif not os.access(path.parent, os.W_OK):
        raise UsageError(_refusal(url, f"{path.parent} cannot be written"))


def _file_of(url: str) -> Path | None:
    """The file of a storage; None of a server."""
    if not url.startswith((_SQLITE, _JOURNAL)):
        return None
    return Path(url.removeprefix(_SQLITE).removeprefix(_JOURNAL))


def _refusal(url: str, reason: str) -> str:
    return (
        f"storage must be {_SQLITE}FILE, {_JOURNAL}FILE or the URL of a database that answers; got {url!r} ({reason})"
    )


def open_storage(url: str, *, heartbeat: bool = False, repair: bool = True) -> BaseStorage:
    """Open or make the storage; with `heartbeat`, trials of killed processes are retried.

    With `repair`, half an entry at the end of a journal is cut off; without, such a journal is only looked at.
    """
    from sqlalchemy.exc import DBAPIError, SQLAlchemyError

    for attempt in range(_ATTEMPTS):
        try:
            return _open(url, heartbeat, repair)
        except (SQLAlchemyError, StorageInternalError, ImportError, OSError, RuntimeError, ValueError) as error:
            # Of processes that create the same tables at the same time, all but one fail, and succeed a moment later.
            if isinstance(error, DBAPIError | StorageInternalError) and attempt + 1 < _ATTEMPTS:
                time.sleep(random.uniform(0.05, 0.3))
                continue
            # Ours says itself what is wrong; an error of a database is that of its driver.
            cause: BaseException = error
            if not isinstance(error, ValueError):
                cause = error.__cause__ or error
            message = import_failure(cause) if isinstance(cause, ImportError) else str(cause)
            reason = " ".join(message.split())[:200]
            raise UsageError(_refusal(url, reason)) from error
    raise AssertionError


def _open(url: str, heartbeat: bool, repair: bool) -> BaseStorage:
    options = {}
    if heartbeat:
        options["heartbeat_interval"] = HEARTBEAT_SECONDS
        options["heartbeat_stale_trial_callback"] = RetryHeartbeatStaleTrialCallback(max_retry=STALE_RETRIES)
    path = _file_of(url)
    if path is None:
        return RDBStorage(url, **options)
    # Optuna's tables would overwrite those of the runs.
    if path.name == "mlflow.db":
        raise ValueError("MLflow's file has tables of the same names")
    if path.parent == Path("mlruns"):
        path.parent.mkdir(exist_ok=True)
    # Any other folder must exist, since its name may be a mistake.
    if not path.parent.is_dir():
        raise ValueError(f"there is no folder {path.parent}")
    # A pipe would never answer. pathlib raises for a name that is too long, which the database refuses better.
    if os.path.exists(path) and not os.path.isdir(path):  # noqa: PTH110, PTH112
        check_regular(path, f"{path} must be a file", largest=sys.maxsize)
    if url.startswith(_JOURNAL):
        return _journal(path, repair)
    storage = RDBStorage(url, engine_kwargs={"connect_args": {"timeout": _LOCK_SECONDS}}, **options)
    # With a write-ahead log, a property of the file, readers and the writer need not wait for each other.
    with storage.engine.connect() as connection:
        connection.exec_driver_sql("pragma journal_mode=wal")
    return storage


def _journal(path: Path, repair: bool) -> BaseStorage:
    """A journal of Optuna's; half an entry at its end, which a full disk or a kill has left, is cut off."""
    # Optuna's lock is a link to the path as it is given, which leads nowhere if that is relative to another folder.
    path = path.absolute()
    lock = JournalFileSymlinkLock(str(path))
    _check_lock(path, Path(f"{path}.lock"))
    content = b""
    if path.exists():
        content = path.read_bytes()
    if not content.startswith(_ENTRY[: len(content)]):
        raise ValueError(_NO_TRIALS.format(path))
    if not content.endswith(b"\n") and content:
        # A dry run writes nothing, and Optuna does not read half an entry.
        if not repair:
            return InMemoryStorage()
        _cut_half_entry(path, lock)
    try:
        return JournalStorage(JournalFileBackend(str(path), lock))
    except (LookupError, TypeError, AttributeError) as error:
        raise ValueError(_NO_TRIALS.format(path)) from error


def _cut_half_entry(path: Path, lock: JournalFileSymlinkLock) -> None:
    lock.acquire()
    try:
        # Another process may have finished it before it gave the lock away.
        os.truncate(path, path.read_bytes().rfind(b"\n") + 1)
    finally:
        lock.release()


def _check_lock(path: Path, lock: Path) -> None:
    """Refuse a lock that Optuna would wait for without end."""
    # One system call, since another process may take and release the lock at any moment.
    try:
        target = path.parent / lock.readlink()
    except FileNotFoundError:
        return
    except OSError as error:
        raise ValueError(f"its lock {lock} must be a link of Optuna's: move it away") from error
    if not target.exists():
        raise ValueError(f"its lock {lock} leads nowhere: remove it, unless another process tunes")


def compare_on_test(
    winners: Sequence[Winner],
    labels: Sequence[bool],
    groups: Sequence[int],
    default: Scores,
    tuned: Scores,
    *,
    objective: str = "auc",
    seed: int = 0,
) -> pd.DataFrame:
    """The table of gains on the N test texts of the winners' settings over the default ones, one row per task."""
    bootstrap = Bootstrap.draw(labels, groups, seed=seed)
    comparisons = compare(bootstrap, default, tuned, metric=objective)
    rows = []
    for winner in winners:
        default_value = estimates(bootstrap, default[winner.task])[objective]
        tuned_value = estimates(bootstrap, tuned[winner.task])[objective]
        comparison = comparisons[winner.task]
        # The interval is that of the paired comparison; the gain is the difference of the numbers beside it.
        gain = comparison.estimate._replace(value=tuned_value.value - default_value.value)
        row = winner._asdict()
        row["default"] = json.dumps(winner.default)
        row["tuned"] = json.dumps(winner.tuned)
        for name, estimate in (("test_default", default_value), ("test_tuned", tuned_value), ("test_gain", gain)):
            row[name], row[f"{name}_low"], row[f"{name}_high"] = estimate
        row["p"] = comparison.p
        row["p_holm"] = comparison.p_holm
        row["validation_test_gap"] = winner.validation_tuned - tuned_value.value
        rows.append(row)
    return pd.DataFrame(rows)


@_quiet_optuna()
def search(task: Task, name: str, setup: Mapping[str, Any], config: TuneConfig) -> list[Trial]:
    """Run or continue the study until it is complete; `setup` is everything that a trial's value depends on."""
    study = create_study(name, setup, config.storage)
    deadline = None if config.timeout is None else time.time() + config.timeout
    if config.workers == 1:
        run_trials(task, name, config, deadline, show_progress=True)
    else:
        _share_trials(task, name, config, deadline)
    trials = [_record(task, trial) for trial in study.get_trials(deepcopy=False, states=FINISHED)]
    if not any(trial.state == "complete" for trial in trials):
        failed = study.get_trials(deepcopy=False, states=(TrialState.FAIL,))
        reason = "the time was up before"
        if failed:
            reason = f"the last one failed: {failed[-1].user_attrs.get('error', 'its process was killed')}"
        raise UsageError(f"study {name} must finish at least one trial; none did ({reason})")
    return trials


def _share_trials(task: Task, name: str, config: TuneConfig, deadline: float | None) -> None:
    """Run trials in several processes, of which one shows the progress."""
    # A forked process could not use the card, and might wait for a lock of a thread that it does not have.
    with ProcessPoolExecutor(config.workers, mp_context=get_context("spawn")) as pool:
        jobs = []
        for worker in range(config.workers):
            job = pool.submit(run_trials, task, name, config, deadline, show_progress=worker == 0)
            jobs.append(job)
        try:
            for job in as_completed(jobs):
                job.result()
        except BaseException:
            # Interrupted workers offer their trials again, and end; without this, the pool would wait for them.
            for process in active_children():
                os.kill(cast("int", process.pid), signal.SIGINT)
            raise


@_quiet_optuna()
def create_study(name: str, setup: Mapping[str, Any], storage: str) -> optuna.Study:
    """The study, which is created, or checked to have the same setup if it exists."""
    # As the storage gives it back, where a tuple has become a list.
    wanted = json.loads(json.dumps(setup))
    study = optuna.create_study(
        storage=open_storage(storage), study_name=name, load_if_exists=True, direction="maximize"
    )
    if "setup" not in study.user_attrs:
        study.set_user_attr("setup", wanted)
        study.set_metric_names([wanted.get("objective", "value")])
    stored = study.user_attrs["setup"]
    if stored != wanted:
        different = []
        for key in stored | wanted:
            old = stored.get(key, "nothing")
            new = wanted.get(key, "nothing")
            if old != new:
                different.append(f"{key}: begun with {old}, got {new}")
        raise UsageError(
            f"study {name!r} must be continued with the settings it was begun with ({', '.join(different)}); "
            "take those, or another --study"
        )
    return study


@_quiet_optuna()
def run_trials(task: Task, name: str, config: TuneConfig, deadline: float | None, *, show_progress: bool) -> None:
    """Run trials in this process until the study is complete or the deadline has passed."""
    cells = _cells(task.space, config)
    # Trials of minutes send heartbeats and may be pruned; for those of milliseconds, both would take the time.
    long = config.tune == "adapter"
    sampler = optuna.samplers.TPESampler if config.sampler == "tpe" else optuna.samplers.RandomSampler
    pruner = PRUNERS[config.pruner if long else "none"]
    storage = open_storage(config.storage, heartbeat=long)
    study = optuna.load_study(
        study_name=name, storage=storage, sampler=_ByNumber(cells, sampler, config.base_run.seed), pruner=pruner()
    )
    evaluated: dict[str, Sequence[float]] = {}
    for complete in study.get_trials(states=(TrialState.COMPLETE,)):
        trial = _record(task, complete)
        evaluated[key_of(trial.settings)] = trial.folds
    failures = 0

    def after_trial(study: optuna.Study, trial: FrozenTrial) -> None:
        """Advance the bar; stop when the study is complete, trials keep failing, or the command is gone."""
        nonlocal failures
        failures = failures + 1 if trial.state == TrialState.FAIL else 0
        parent = parent_process()
        # A worker whose command was killed would go on unseen.
        orphaned = parent is not None and not parent.is_alive()
        if failures >= MAX_FAILURES or not _missing(study, cells, config) or orphaned:
            study.stop()
        bar.update(1)

    remaining = None if deadline is None else deadline - time.time()
    missing = _missing(study, cells, config)
    if not missing or (remaining is not None and remaining <= 0):
        return
    with progress(missing, name, "trial", shown=show_progress) as bar:
        study.optimize(
            lambda trial: _run_trial(task, trial, evaluated),
            timeout=remaining,
            # A training may fail for its settings alone; an error of a detector is one of the program.
            catch=Exception if long else _NoCellError,
            callbacks=[after_trial],
        )


class _NoCellError(Exception):
    """Another process has taken the last cell of the grid."""


def _cells(space: Space, config: TuneConfig) -> list[Settings]:
    """The grid's cells in the order of the trials that evaluate them; none if settings are sampled."""
    # Sorted by name, so that the order does not depend on that of a detector's parameters.
    cells = whole_grid(dict(sorted(space.items())))
    if config.sampler != "grid" and not (finite(space) and len(cells) <= config.trials):
        return []
    # Optuna's GridSampler draws cells by chance, so that processes at the same time may take the same one; here the
    # number of a trial decides. They are shuffled, so that the part of an interrupted study is spread over the space.
    order = np.random.RandomState(config.base_run.seed).permutation(len(cells))
    return [cells[index] for index in order]


def _missing(study: optuna.Study, cells: Sequence[Settings], config: TuneConfig) -> int:
    """Number of trials to begin: of a grid those that no process has begun, or that are to be repeated."""
    # Adapter trials send heartbeats, from which Optuna itself knows the killed ones.
    if cells and config.tune != "adapter":
        _queue_stale(study)
    trials = study.get_trials(deepcopy=False)
    if not cells:
        finished = [trial for trial in trials if trial.state in FINISHED]
        return max(0, config.trials - len(finished))
    waiting = [trial for trial in trials if trial.state == TrialState.WAITING]
    return max(0, len(cells) - _begun(trials)) + len(waiting)


def _begun(trials: Sequence[FrozenTrial]) -> int:
    """Number of cells that the trials have begun; one that repeats a failed trial begins none."""
    return sum(REPEATS not in trial.system_attrs for trial in trials)


def _queue_stale(study: optuna.Study) -> None:
    """Fail the trials of killed processes, and queue them again."""
    for trial in study.get_trials(deepcopy=False, states=(TrialState.RUNNING,)):
        if trial.datetime_start <= datetime.now() - STALE_AFTER:
            # Another process may do so at the same time.
            with suppress(ValueError, RuntimeError):
                study.tell(trial.number, state=TrialState.FAIL)
                RetryHeartbeatStaleTrialCallback()(study, trial)


def _run_trial(task: Task, trial: optuna.Trial, evaluated: dict[str, Sequence[float]]) -> float:
    """Evaluate the settings of a trial, unless an earlier one had the same, and store the values of its folds."""
    settings = {name: _suggest(trial, name, space) for name, space in task.space.items()}
    key = key_of(settings)

    def report(value: float, step: int) -> None:
        trial.report(value, step)
        if trial.should_prune():
            raise optuna.TrialPruned

    try:
        if key not in evaluated:
            evaluated[key] = task.evaluate(settings, report).tolist()
    except optuna.TrialPruned:
        raise
    except BaseException as error:
        # A failure is repeated once, an interrupted trial at any rate, settings that are refused never.
        if not isinstance(error, UsageError):
            retry = RetryHeartbeatStaleTrialCallback(1 if isinstance(error, Exception) else None)
            retry(trial.study, trial.study.get_trials(deepcopy=False)[trial.number])
        trial.set_user_attr("error", str(error))
        raise
    folds = evaluated[key]
    trial.set_user_attr("folds", folds)
    return float(np.mean(folds))


def _suggest(trial: optuna.Trial, name: str, space: Search) -> Any:
    if isinstance(space, Choice):
        return trial.suggest_categorical(name, list(space.values))
    if is_whole(space):
        return trial.suggest_int(name, space.low, space.high, step=int(space.step or 1), log=space.log)
    return tidy(space, trial.suggest_float(name, space.low, space.high, step=space.step, log=space.log))


class _ByNumber(BaseSampler):  # type: ignore[misc]  # mypy does not follow Optuna's types
    """The settings of a trial by its number, grid or seeded sampler: the same whichever process draws it."""

    def __init__(self, cells: Sequence[Settings], kind: type[BaseSampler], seed: int) -> None:
        self.cells = cells
        self.kind = kind
        self.seed = seed

    def infer_relative_search_space(self, study: optuna.Study, trial: FrozenTrial) -> dict[str, BaseDistribution]:
        if self.cells:
            return {}
        # A new sampler for each trial: the draws of one that has a state would depend on the trials of this process.
        seed = np.random.SeedSequence([self.seed, trial.number]).generate_state(1)[0]
        self.sampler = self.kind(seed=int(seed))
        return dict(self.sampler.infer_relative_search_space(study, trial))

    def sample_relative(self, *trial: Any) -> dict[str, Any]:
        return {} if self.cells else dict(self.sampler.sample_relative(*trial))

    def sample_independent(
        self, study: optuna.Study, trial: FrozenTrial, param_name: str, param_distribution: BaseDistribution
    ) -> Any:
        if not self.cells:
            return self.sampler.sample_independent(study, trial, param_name, param_distribution)
        # A repeated trial takes the cell of the one that failed.
        number = trial.system_attrs.get(REPEATS, trial.number)
        place = _begun(study.get_trials(deepcopy=False)[:number])
        if place >= len(self.cells):
            raise _NoCellError
        return self.cells[place][param_name]


def _record(task: Task, trial: FrozenTrial) -> Trial:
    settings = {name: tidy(space, trial.params[name]) for name, space in task.space.items()}
    folds = tuple(trial.user_attrs.get("folds", ()))
    # A pruned trial may have no folds, and no value.
    value = math.nan if trial.value is None else float(trial.value)
    seconds = trial.duration.total_seconds() if trial.duration else 0.0
    return Trial(trial.number, trial.state.name.lower(), settings, folds, value, seconds)


@_quiet_optuna()
def importance(name: str, storage: str) -> dict[str, float]:
    """Setting → share of the variance between trials that it explains; empty where that cannot be estimated."""
    study = optuna.load_study(study_name=name, storage=open_storage(storage))
    # Optuna warns of too few trials or too similar ones, and raises for a single setting.
    warnings.simplefilter("error", UserWarning)
    try:
        return dict(optuna.importance.get_param_importances(study))
    except (RuntimeError, ValueError, UserWarning):
        return {}
