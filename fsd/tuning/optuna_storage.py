"""Optuna storages by URL: SQLite files, database servers and journal files."""

import random
import time
from pathlib import Path
from typing import Any

from optuna.exceptions import StorageInternalError
from optuna.storages import BaseStorage, JournalStorage, RDBStorage, RetryHeartbeatStaleTrialCallback
from optuna.storages.journal import JournalFileBackend

from fsd.errors import UsageError, import_failure

HEARTBEAT_SECONDS = 30
"""Interval of a long trial's heartbeat; after twice that without one, Optuna fails the trial and queues it again."""
STALE_RETRIES = 2
_LOCK_SECONDS = 60.0
_ATTEMPTS = 5
_SQLITE, _JOURNAL = "sqlite:///", "journal:"


def open_storage(url: str, *, heartbeat: bool = False) -> BaseStorage:
    """Open the storage `sqlite:///FILE`, `journal:FILE`, or another database URL of SQLAlchemy's, or make a new one.

    With `heartbeat`, running trials in databases send heartbeats, so that those of killed processes are retried.
    """
    from sqlalchemy.exc import DBAPIError, SQLAlchemyError

    for attempt in range(_ATTEMPTS):
        try:
            return _open(url, heartbeat)
        except (SQLAlchemyError, StorageInternalError, ImportError, OSError, RuntimeError, ValueError) as error:
            # of processes that create the same tables at the same time, all but one fail
            if isinstance(error, DBAPIError | StorageInternalError) and attempt + 1 < _ATTEMPTS:
                time.sleep(random.uniform(0.05, 0.3))
                continue
            cause = error.__cause__ or error
            message = import_failure(cause) if isinstance(cause, ImportError) else str(cause)
            reason = " ".join(message.split())[:200]
            raise UsageError(
                f"storage must be {_SQLITE}FILE, {_JOURNAL}FILE or the URL of a database that answers; "
                f"got {url!r} ({reason})"
            ) from error
    raise AssertionError


def _open(url: str, heartbeat: bool) -> BaseStorage:
    options: dict[str, Any] = {}
    if heartbeat:
        retry = RetryHeartbeatStaleTrialCallback(max_retry=STALE_RETRIES)
        options = {"heartbeat_interval": HEARTBEAT_SECONDS, "heartbeat_stale_trial_callback": retry}
    if not url.startswith((_SQLITE, _JOURNAL)):
        return RDBStorage(url, **options)
    path = Path(url.removeprefix(_SQLITE).removeprefix(_JOURNAL))
    if path.name == "mlflow.db":
        raise UsageError(f"storage must not be MLflow's file, whose tables have the same names; got {url!r}")
    if path.parent == Path("mlruns"):
        path.parent.mkdir(exist_ok=True)
    if not path.parent.is_dir():  # any other folder must exist, since its name may be a mistake
        raise ValueError(f"there is no folder {path.parent}")
    if url.startswith(_JOURNAL):
        return JournalStorage(JournalFileBackend(str(path)))
    storage = RDBStorage(url, engine_kwargs={"connect_args": {"timeout": _LOCK_SECONDS}}, **options)
    with storage.engine.connect() as connection:  # a property of the file: readers and the writer need not wait
        connection.exec_driver_sql("pragma journal_mode=wal")
    return storage
