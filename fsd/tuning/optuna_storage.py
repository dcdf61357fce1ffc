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
    """Open the storage; a new one gets its file or tables.

    Processes that open a new database at the same time create the same tables; all but one of them fail, and succeed
    when they try again.

    Args:
        url: `sqlite:///FILE`, `journal:FILE`, or any other database URL that SQLAlchemy takes.
        heartbeat: whether running trials send heartbeats, so that those of killed processes are retried; for databases.

    Raises:
        UsageError: if the storage cannot be reached, or is not one of Optuna's.
    """
    from sqlalchemy.exc import DBAPIError, SQLAlchemyError

    attempt = 0
    while True:
        attempt += 1
        try:
            return _journal(url) if url.startswith(_JOURNAL) else _database(url, heartbeat)
        except (SQLAlchemyError, StorageInternalError, ImportError, OSError, RuntimeError, ValueError) as error:
            if isinstance(error, DBAPIError | StorageInternalError) and attempt < _ATTEMPTS:
                time.sleep(random.uniform(0.05, 0.3))
                continue
            cause = error.__cause__ or error
            message = import_failure(cause) if isinstance(cause, ImportError) else str(cause)
            reason = " ".join(message.split())[:200]
            raise UsageError(
                f"storage must be {_SQLITE}FILE, {_JOURNAL}FILE or the URL of a database that answers; "
                f"got {url!r} ({reason})"
            ) from error


def _journal(url: str) -> JournalStorage:
    path = Path(url.removeprefix(_JOURNAL))
    _check_folder(path.parent)
    return JournalStorage(JournalFileBackend(str(path)))


def _check_folder(folder: Path) -> None:
    """Create the default folder; any other must exist, since its name may be a mistake."""
    if folder == Path("mlruns"):
        folder.mkdir(exist_ok=True)
    if not folder.is_dir():
        raise ValueError(f"there is no folder {folder}")


def _database(url: str, heartbeat: bool) -> RDBStorage:
    options: dict[str, Any] = {}
    if heartbeat:
        retry = RetryHeartbeatStaleTrialCallback(max_retry=STALE_RETRIES)
        options = {"heartbeat_interval": HEARTBEAT_SECONDS, "heartbeat_stale_trial_callback": retry}
    if not url.startswith(_SQLITE):
        return RDBStorage(url, **options)
    path = Path(url.removeprefix(_SQLITE))
    if path.name == "mlflow.db":
        raise UsageError(f"storage must not be MLflow's file, whose tables have the same names; got {url!r}")
    _check_folder(path.parent)
    storage = RDBStorage(url, engine_kwargs={"connect_args": {"timeout": _LOCK_SECONDS}}, **options)
    with storage.engine.connect() as connection:  # a property of the file: readers and the writer need not wait
        connection.exec_driver_sql("pragma journal_mode=wal")
    return storage
