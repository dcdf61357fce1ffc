"""The store: where runs, artifacts and registered models live, made once and movable.

MLflow writes absolute artifact locations into its database, so that a moved or copied folder loses its
artifacts; and two processes that create the same database at once ruin it. Our own store, `mlruns/` in the
working folder, is created under a file lock, and its locations are rewritten relative to the working folder.
A store that the user names by MLFLOW_TRACKING_URI is used as it is.
"""

import logging
import os
import sqlite3
import tempfile
import warnings
from collections.abc import Iterator
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from fsd.errors import UsageError

_URI = "MLFLOW_TRACKING_URI"
_SQLITE = "sqlite:///"
_RETRIES = "MLFLOW_HTTP_REQUEST_MAX_RETRIES"
_LOCK_SECONDS = 60.0
_QUIET = {
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "MLFLOW_LOGGING_LEVEL": "WARNING",
    "MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR": "false",
    "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true",
}
_LOCATIONS = (
    ("experiments", "artifact_location"),
    ("runs", "artifact_uri"),
    ("logged_models", "artifact_location"),
    ("model_versions", "storage_location"),
    ("model_versions", "source"),
)


def load_mlflow() -> ModuleType:
    """MLflow, imported on first use, without telemetry, log chatter and progress bars unless the user set them."""
    for name, value in _QUIET.items():
        os.environ.setdefault(name, value)
    import mlflow

    for chatty in ("alembic", "mlflow.store.db.utils"):
        logging.getLogger(chatty).setLevel(logging.WARNING)
    return mlflow  # type: ignore[no-any-return]  # mlflow's imports are skipped by mypy


@contextmanager
def quiet() -> Iterator[None]:
    """Hold back the warnings that MLflow causes by itself and that no user can do anything about."""
    with warnings.catch_warnings():
        # MLflow's own queries use an option that SQLAlchemy will drop one day
        warnings.filterwarnings("ignore", "The ``noload`` loader strategy is deprecated")
        # MLflow asks for type hints on `predict`; our models carry an explicit signature instead
        warnings.filterwarnings("ignore", r".*Add type hints to the `predict` method")
        # an example would be scored when the model is logged, and loading a model for that is not wanted
        warnings.filterwarnings("ignore", ".*An input example was not provided when logging the model")
        # MLflow's own classes, when it imports its models
        warnings.filterwarnings("ignore", ".*Any type hint is inferred as AnyType")
        yield


@dataclass(frozen=True)
class Store:
    """An open store.

    Attributes:
        uri: its MLflow tracking URI.
        root: the folder that holds `mlruns/` where the store is our own, None where it is the user's.
    """

    uri: str
    root: Path | None

    @property
    def client(self) -> Any:
        """An MLflow client of this store."""
        return load_mlflow().MlflowClient(tracking_uri=self.uri)

    def lock(self) -> AbstractContextManager[object]:
        """Hold our own store against other processes; another's store guards itself."""
        return nullcontext() if self.root is None else _lock(self.root / "mlruns")

    def experiment_id(self, name: str) -> str:
        """The experiment of that name, created if need be.

        Raises:
            UsageError: if it was deleted.
        """
        found = self.client.get_experiment_by_name(name)
        if found is None:
            with self.lock():
                found = self._create_experiment(name)
            self.relativise()
        if found.lifecycle_stage != "active":
            raise UsageError(
                f"experiment must not be deleted; {name!r} is: "
                f"`mlflow experiments restore --experiment-id {found.experiment_id}` brings it back"
            )
        return str(found.experiment_id)

    def _create_experiment(self, name: str) -> Any:
        from mlflow.exceptions import MlflowException

        found = self.client.get_experiment_by_name(name)
        if found is None:
            try:
                return self.client.get_experiment(self.client.create_experiment(name))
            except MlflowException as error:
                # on a server, where we have no lock, another process may have been faster
                if error.error_code != "RESOURCE_ALREADY_EXISTS":
                    raise
                found = self.client.get_experiment_by_name(name)
        return found

    def relativise(self) -> None:
        """Rewrite the artifact locations below the working folder relative to it, so that the folder may move.

        MLflow resolves a relative location against the working folder, and derives the location of a run or
        a model from its experiment's. So once an experiment is relative, all that is created in it is too.
        """
        if self.root is None:
            return
        prefixes = (f"{self.root}/", f"{self.root.as_uri()}/")
        database = self.root / "mlruns" / "mlflow.db"
        with closing(sqlite3.connect(database, timeout=_LOCK_SECONDS)) as connection, connection:
            for table, column in _LOCATIONS:
                for prefix in prefixes:
                    connection.execute(
                        f"update {table} set {column} = substr({column}, ?) where substr({column}, 1, ?) = ?",
                        (len(prefix) + 1, len(prefix), prefix),
                    )


def open_store() -> Store:
    """Open the store that MLFLOW_TRACKING_URI names, else `mlruns/` in the working folder; create it if need be.

    Cheap after the first time, and safe in several processes at once.

    Raises:
        UsageError: if the store cannot be written, reached, or read as an MLflow store.
    """
    root = Path.cwd()
    own = root / "mlruns" / "mlflow.db"
    uri = os.environ.get(_URI) or f"{_SQLITE}{own}"
    database = Path(uri.removeprefix(_SQLITE)) if uri.startswith(_SQLITE) else None
    if database is None or database.resolve() != own.resolve():
        store = Store(uri, None)
        if database:
            _check_database(database)
        _connect(store)
        return store
    store = Store(f"{_SQLITE}{own}", root)
    _check_writable(root / "mlruns")
    _check_database(own)
    with store.lock():
        if not own.exists():
            _create(own)
        _connect(store)
    store.relativise()
    return store


def _check_writable(folder: Path) -> None:
    reason = ""
    try:
        folder.mkdir(exist_ok=True)
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
    for path in (folder, folder / "mlflow.db"):
        if not reason and path.exists() and not os.access(path, os.W_OK):
            reason = f"no write access to {path.name}"
    if reason:
        raise UsageError(
            f"mlruns must be a folder that can be written; {folder} cannot ({reason}): "
            f"run in another folder or set {_URI}"
        )


def _create(database: Path) -> None:
    """Make the tables beside the database's place and move them there: an interrupted creation ruins nothing."""
    with tempfile.TemporaryDirectory(prefix=".new-", dir=database.parent) as folder:
        unfinished = Path(folder) / database.name
        with quiet():
            Store(f"{_SQLITE}{unfinished}", None).client.search_experiments(max_results=1)
        unfinished.replace(database)


def _check_database(path: Path) -> None:
    """Look at an existing database before MLflow does.

    MLflow tries one that it cannot open again and again, for minutes; and from another working folder it would
    look for the artifacts of a store of ours in the wrong place, and put new ones there.
    """
    if not path.exists():
        return
    try:
        with closing(sqlite3.connect(path, timeout=_LOCK_SECONDS)) as connection:
            tables = connection.execute("select name from sqlite_master where name = 'experiments'").fetchall()
            below = "select count(*) from experiments where artifact_location like 'mlruns/%'"
            relative = bool(tables) and connection.execute(below).fetchone()[0] > 0
    except sqlite3.Error as error:
        raise UsageError(f"the tracking store must be an MLflow database; {path} is not ({error})") from error
    home = path.resolve().parent.parent
    if relative and home != Path.cwd().resolve():
        raise UsageError(
            f"a store with locations relative to its folder must be used from there; "
            f"{path} is used from {Path.cwd()}: run in {home}"
        )


@contextmanager
def _lock(folder: Path) -> Iterator[None]:
    import filelock

    path = folder / ".lock"
    try:
        with filelock.FileLock(path, timeout=_LOCK_SECONDS):
            yield
    except filelock.Timeout as error:
        raise UsageError(
            f"the store must be free within {_LOCK_SECONDS:.0f} s; another process holds {path}: end it first"
        ) from error


def _connect(store: Store) -> None:
    """Touch the store, which creates the tables of a new one, and make it MLflow's current one."""
    mlflow = load_mlflow()
    from mlflow.exceptions import MlflowException
    from sqlalchemy.exc import SQLAlchemyError

    given = {name: os.environ.get(name) for name in (_URI, _RETRIES)}
    # patience with a busy server is right in mid-run, but a wrong address should show at once
    os.environ[_RETRIES] = "1"
    try:
        with quiet():
            # this also sets the variable for child processes: it would hide the working folder of a later call
            mlflow.set_tracking_uri(store.uri)
            store.client.search_experiments(max_results=1)
    except (MlflowException, SQLAlchemyError) as error:
        reason = str(error).strip().splitlines()[0]
        raise UsageError(
            f"the tracking store must be an MLflow database or server that answers; {store.uri} is not ({reason})"
        ) from error
    finally:
        for name, value in given.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
