"""Where trials are kept: a database by its URL, or a journal file."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import optuna
from optuna.storages import JournalStorage, RDBStorage, RetryHeartbeatStaleTrialCallback
from optuna.storages.journal import JournalFileBackend

from fsd.errors import UsageError

HEARTBEAT = 30
"""Seconds between the signs of life of a long trial; after twice that it counts as killed and is tried again."""
RETRIES = 2
_LOCK_SECONDS = 60.0
_SQLITE, _JOURNAL = "sqlite:///", "journal:"


@contextmanager
def open_storage(url: str, *, heartbeat: bool = False) -> Iterator[optuna.storages.BaseStorage]:
    """The storage at `url`, whose tables are made if need be.

    Args:
        url: `sqlite:///FILE`, `journal:FILE`, or another database as SQLAlchemy writes it.
        heartbeat: whether trials give signs of life, so that killed ones are found; databases only.

    Raises:
        UsageError: if it cannot be reached or is no storage, from here or from what is done inside the block.
    """
    from sqlalchemy.exc import SQLAlchemyError

    try:
        yield _journal(url) if url.startswith(_JOURNAL) else _database(url, heartbeat)
    except (SQLAlchemyError, ImportError, OSError, optuna.exceptions.StorageInternalError, RuntimeError) as error:
        reason = " ".join(str(error.__cause__ or error).split())[:200]
        raise UsageError(
            f"storage must be {_SQLITE}FILE, {_JOURNAL}FILE or the URL of a database that answers; "
            f"got {url!r} ({reason})"
        ) from error


def _journal(url: str) -> Any:
    path = Path(url.removeprefix(_JOURNAL))
    if not path.name or not path.absolute().parent.is_dir():
        raise UsageError(f"storage must be a file in a folder that exists; got {url!r}")
    return JournalStorage(JournalFileBackend(str(path)))


def _database(url: str, heartbeat: bool) -> Any:
    signs: dict[str, Any] = {}
    if heartbeat:
        again = RetryHeartbeatStaleTrialCallback(max_retry=RETRIES)
        signs = {"heartbeat_interval": HEARTBEAT, "heartbeat_stale_trial_callback": again}
    if not url.startswith(_SQLITE):
        return RDBStorage(url, **signs)
    path = Path(url.removeprefix(_SQLITE))
    if path.name == "mlflow.db":
        raise UsageError(f"storage must be another file than MLflow's, whose tables have the same names; got {url!r}")
    path.parent.mkdir(parents=True, exist_ok=True)
    return _brisk(RDBStorage(url, engine_kwargs={"connect_args": {"timeout": _LOCK_SECONDS}}, **signs))


@contextmanager
def locked(url: str) -> Iterator[None]:
    """Hold a storage that is a file against other processes, which would make its tables at the same time."""
    import filelock

    name = url.removeprefix(_SQLITE).removeprefix(_JOURNAL)
    if name == url or not Path(name).name:
        yield
        return
    path = Path(name)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        lock = filelock.FileLock(path.with_name(f".{path.name}.lock"), timeout=_LOCK_SECONDS)
        lock.acquire()
    except (OSError, filelock.Timeout) as error:
        raise UsageError(f"storage must be a file that can be written; {path} cannot ({error})") from error
    try:
        yield
    finally:
        lock.release()


def _brisk(storage: RDBStorage) -> RDBStorage:
    """A write-ahead log, which waits for the disk at checkpoints only, and one process at a time in a transaction.

    A finished trial survives the death of its process; several times as many trials are written a second. SQLite has
    no lock on rows: by default two processes could both read that a trial waits and both take it.
    """
    from sqlalchemy import event

    def set_up(connection: Any, _: Any) -> None:
        connection.isolation_level = None  # leaves transactions to `begin`
        connection.execute("pragma journal_mode=wal")
        connection.execute("pragma synchronous=normal")

    def begin(connection: Any) -> None:
        connection.exec_driver_sql("begin immediate")

    event.listen(storage.engine, "connect", set_up)
    event.listen(storage.engine, "begin", begin)
    storage.engine.dispose()
    return storage
