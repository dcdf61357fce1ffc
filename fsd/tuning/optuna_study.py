"""Optuna studies that several processes can share, and that continue after an interruption."""

import json
import math
import os
import random
import signal
import time
import warnings
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import contextmanager
from multiprocessing import active_children, get_context, parent_process
from pathlib import Path
from typing import Any, cast

import numpy as np
import optuna
import pandas as pd
from optuna.exceptions import StorageInternalError
from optuna.samplers import GridSampler, RandomSampler, TPESampler
from optuna.storages import BaseStorage, JournalStorage, RDBStorage, RetryHeartbeatStaleTrialCallback
from optuna.storages.journal import JournalFileBackend
from optuna.study import MaxTrialsCallback
from optuna.trial import FrozenTrial, TrialState

from fsd.config import TuneConfig
from fsd.errors import UsageError, import_failure
from fsd.evaluation.rows import compare
from fsd.progress import progress
from fsd.statistics.bootstrap import Bootstrap
from fsd.statistics.metrics import estimates
from fsd.token_stats import Scores
from fsd.tuning.objective import Task, Winner

HEARTBEAT_SECONDS = 30
"""Interval of a long trial's heartbeat; after twice that without one, Optuna fails the trial and queues it again."""
STALE_RETRIES = 2
MAX_FAILURES = 10
"""Consecutive failed trials after which a process stops."""
FINISHED = (TrialState.COMPLETE, TrialState.PRUNED)
ENDED = (*FINISHED, TrialState.FAIL)
PRUNERS = {
    "median": optuna.pruners.MedianPruner,
    "hyperband": optuna.pruners.HyperbandPruner,
    "none": optuna.pruners.NopPruner,
}
SAMPLERS = {"tpe": TPESampler, "random": RandomSampler}
_LOCK_SECONDS = 60.0
_ATTEMPTS = 5
_SQLITE = "sqlite:///"
_JOURNAL = "journal:"


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


def check_storage(url: str) -> None:
    """Refuse a storage that cannot be opened; one that does not exist yet is not made."""
    path = _file_of(url)
    if path is None or path.exists():
        open_storage(url)
    else:
        _check_place(url, path)


def _file_of(url: str) -> Path | None:
    """The file of a storage; None of a server."""
    if not url.startswith((_SQLITE, _JOURNAL)):
        return None
    return Path(url.removeprefix(_SQLITE).removeprefix(_JOURNAL))


def _check_place(url: str, path: Path) -> None:
    """Refuse the file of the runs, and a folder that does not exist, since its name may be a mistake."""
    # Optuna's tables would overwrite those of the runs.
    if path.name == "mlflow.db":
        raise UsageError(_refusal(url, "MLflow's file has tables of the same names"))
    if not path.parent.is_dir() and path.parent != Path("mlruns"):
        raise UsageError(_refusal(url, f"there is no folder {path.parent}"))


def _refusal(url: str, reason: str) -> str:
    return (
        f"storage must be {_SQLITE}FILE, {_JOURNAL}FILE or the URL of a database that answers; got {url!r} ({reason})"
    )


def open_storage(url: str, *, heartbeat: bool = False) -> BaseStorage:
    """Open or make the storage; with `heartbeat`, trials of killed processes are retried."""
    from sqlalchemy.exc import DBAPIError, SQLAlchemyError

    path = _file_of(url)
    if path:
        _check_place(url, path)
    # A LookupError or TypeError is that of a journal that is none.
    errors = (SQLAlchemyError, StorageInternalError, ImportError, OSError, ValueError, LookupError, TypeError)
    for attempt in range(_ATTEMPTS):
        try:
            return _open(url, path, heartbeat)
        except errors as error:
            # Of processes that create the same tables at the same time, all but one fail, and succeed a moment later.
            if isinstance(error, DBAPIError | StorageInternalError) and attempt + 1 < _ATTEMPTS:
                time.sleep(random.uniform(0.05, 0.3))
                continue
            # The cause of an error of a database is that of its driver.
            cause = error.__cause__ or error
            message = import_failure(cause) if isinstance(cause, ImportError) else str(cause)
            raise UsageError(_refusal(url, " ".join(message.split())[:200])) from error
    raise AssertionError


def _open(url: str, path: Path | None, heartbeat: bool) -> BaseStorage:
    options = {}
    if heartbeat:
        options["heartbeat_interval"] = HEARTBEAT_SECONDS
        options["heartbeat_stale_trial_callback"] = RetryHeartbeatStaleTrialCallback(max_retry=STALE_RETRIES)
    if path is None:
        return RDBStorage(url, **options)
    path.parent.mkdir(exist_ok=True)
    if url.startswith(_JOURNAL):
        # Optuna's lock is a link to the path as it is given, which leads nowhere if that is relative.
        return JournalStorage(JournalFileBackend(str(path.absolute())))
    storage = RDBStorage(url, engine_kwargs={"connect_args": {"timeout": _LOCK_SECONDS}}, **options)
    # With a write-ahead log, a property of the file, readers and the writer need not wait for each other.
    with storage.engine.connect() as connection:
        connection.exec_driver_sql("pragma journal_mode=wal")
    return storage


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
        gain = comparison.estimate
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
def search(task: Task, name: str, setup: Mapping[str, Any], config: TuneConfig) -> list[FrozenTrial]:
    """Run or continue the study until it is complete; `setup` is everything that a trial's value depends on."""
    study = create_study(name, setup, config.storage)
    deadline = None if config.timeout is None else time.time() + config.timeout
    if config.workers == 1:
        run_trials(task, name, config, deadline, show_progress=True)
    else:
        _share_trials(task, name, config, deadline)
    trials: list[FrozenTrial] = study.get_trials(deepcopy=False, states=FINISHED)
    # Those that were pruned are known to be no candidates.
    if not trials:
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
    # Trials of minutes send heartbeats and may be pruned; for those of milliseconds, both would take the time.
    long = config.tune == "adapter"
    cells = {setting: search.grid for setting, search in task.space.items()}
    wanted = math.prod(map(len, cells.values()))
    grid = None
    if config.sampler == "grid" or (wanted <= config.trials and all(search.finite for search in task.space.values())):
        grid = GridSampler(cells, config.base_run.seed)
    else:
        wanted = config.trials
    pruner = PRUNERS[config.pruner if long else "none"]
    storage = open_storage(config.storage, heartbeat=long)
    study = optuna.load_study(study_name=name, storage=storage, sampler=grid, pruner=pruner())
    missing = wanted - len(study.get_trials(deepcopy=False, states=FINISHED))
    remaining = None if deadline is None else deadline - time.time()
    complete = grid.is_exhausted(study) if grid else missing <= 0
    if complete or (remaining is not None and remaining <= 0):
        return
    with progress(missing, name, "trial", shown=show_progress) as bar:
        # A grid ends by itself.
        callbacks = [lambda *_: bar.update(1), _stop_if_useless]
        if grid is None:
            callbacks.append(MaxTrialsCallback(wanted, states=FINISHED))
        study.optimize(
            lambda trial: _run_trial(task, trial, None if grid else config),
            timeout=remaining,
            # A training may fail for its settings alone; an error of a detector is one of the program.
            catch=Exception if long else (),
            callbacks=callbacks,
        )


def _stop_if_useless(study: optuna.Study, _: FrozenTrial) -> None:
    """Stop trials that keep failing, and a worker whose command was killed, which would go on unseen."""
    # Those that other workers have begun say nothing yet.
    latest = study.get_trials(deepcopy=False, states=ENDED)[-MAX_FAILURES:]
    useless = [trial.state for trial in latest] == [TrialState.FAIL] * MAX_FAILURES
    parent = parent_process()
    if useless or (parent is not None and not parent.is_alive()):
        study.stop()


def _run_trial(task: Task, trial: optuna.Trial, sampled: TuneConfig | None) -> float:
    """Evaluate the settings of a trial, and store the values of its folds; those of a grid are not `sampled`."""
    if sampled:
        # Seeded by the trial: an interrupted study goes on as an uninterrupted one, and no worker repeats another.
        seed = np.random.SeedSequence([sampled.base_run.seed, trial.number]).generate_state(1)[0]
        trial.study.sampler = SAMPLERS[sampled.sampler](seed=int(seed))
    settings = {name: search.suggest(trial, name) for name, search in task.space.items()}
    trial.set_user_attr("settings", settings)

    def report(value: float, step: int) -> None:
        trial.report(value, step)
        if trial.should_prune():
            raise optuna.TrialPruned

    try:
        folds = task.evaluate(settings, report)
    except Exception as error:
        trial.set_user_attr("error", str(error))
        raise
    except KeyboardInterrupt:
        # An interrupted trial is offered again.
        RetryHeartbeatStaleTrialCallback()(trial.study, trial.study.get_trials(deepcopy=False)[trial.number])
        raise
    trial.set_user_attr("folds", folds.tolist())
    return float(folds.mean())


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
