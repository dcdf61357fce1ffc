"""The tracking store: where runs, artifacts and registered models are kept.

The default store is `mlruns/` in the working folder. MLflow writes absolute artifact locations into its database, so
that a moved folder would lose its artifacts, and a database that two processes create at the same time is corrupted.
The default store is therefore created under a file lock, and the locations of its experiments, from which MLflow
derives those of runs and models, are rewritten relative to the working folder, against which it resolves them. A store
named by MLFLOW_TRACKING_URI is used unchanged.
"""

import logging
import os
import re
import sqlite3
import warnings
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from fsd.errors import StorageError, UsageError, import_failure
from fsd.leftovers import temporary_folder

_URI = "MLFLOW_TRACKING_URI"
_SQLITE = "sqlite:///"
_RETRIES = "MLFLOW_HTTP_REQUEST_MAX_RETRIES"
_TIMEOUT = "MLFLOW_HTTP_REQUEST_TIMEOUT"
_LOCK_SECONDS = 60.0
_SETTINGS = {
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "MLFLOW_LOGGING_LEVEL": "WARNING",
    "MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR": "false",
    "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true",
    _RETRIES: "2",
    "MLFLOW_HTTP_REQUEST_BACKOFF_FACTOR": "2",
    _TIMEOUT: "15",
}
"""A request to a server takes at most three attempts of 15 s with waits of 0 and 4 s between them, and up to 1 s more
each; MLflow's own defaults are 8 attempts of 120 s and waits of 4 minutes in all."""
_SERVER = re.compile(r"(postgresql|mysql|mssql)(\+\w+)?://")
_CREATION = 0x465344
"""Key of the lock in PostgreSQL under which the tables are created."""
_OLDEST = 3
"""Major version of MLflow from which its server has logged models, in which adapters are registered."""


def load_mlflow() -> ModuleType:
    """Import MLflow, without telemetry, log messages, progress bars and long waits unless the user chose them."""
    for name, value in _SETTINGS.items():
        os.environ.setdefault(name, value)
    import mlflow

    for name in ("alembic", "mlflow.store.db.utils"):
        logging.getLogger(name).setLevel(logging.WARNING)
    logging.getLogger("urllib3.connectionpool").setLevel(logging.ERROR)  # a line for every retry
    return mlflow  # type: ignore[no-any-return]  # mlflow's imports are skipped by mypy


@contextmanager
def quiet() -> Iterator[None]:
    """Suppress warnings that MLflow itself causes and that users cannot act on."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


@dataclass(frozen=True)
class Store:
    """An open store; `root` is the folder with `mlruns/` of the default one, None for a store of the user's."""

    uri: str
    root: Path | None

    @property
    def is_file(self) -> bool:
        """Whether the store is an SQLite file, which is always in reach."""
        return self.uri.startswith(_SQLITE)

    @property
    def address(self) -> str:
        """The URI without user name and password, for messages."""
        return re.sub(r"//[^/]*@", "//", self.uri)

    @property
    def client(self) -> Any:
        """An MLflow client of this store."""
        return load_mlflow().MlflowClient(tracking_uri=self.uri)

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Lock the default store against other processes; stores of the user's have their own locks."""
        if self.root is None:
            yield
            return
        import filelock

        path = self.root / "mlruns" / ".lock"
        try:
            with filelock.FileLock(path, timeout=_LOCK_SECONDS):
                yield
        except filelock.Timeout as error:
            raise UsageError(
                f"the store must be free within {_LOCK_SECONDS:.0f} s; another process holds {path}: end it first"
            ) from error

    def experiment_id(self, name: str) -> str:
        """Id of the experiment of that name, which is created if it does not exist, and must not be deleted."""
        from mlflow.exceptions import MlflowException

        experiment = self.client.get_experiment_by_name(name)
        if experiment is None:
            with self.lock():
                try:
                    self._relativise(self.client.create_experiment(name))
                except MlflowException as error:  # created by another process in the meantime
                    if error.error_code != "RESOURCE_ALREADY_EXISTS":
                        raise
            experiment = self.client.get_experiment_by_name(name)
        if experiment.lifecycle_stage != "active":
            raise UsageError(
                f"experiment must not be deleted; {name!r} is: "
                f"`mlflow experiments restore --experiment-id {experiment.experiment_id}` brings it back"
            )
        return str(experiment.experiment_id)

    def _relativise(self, experiment_id: str) -> None:
        if self.root is None:
            return
        database = self.root / "mlruns" / "mlflow.db"
        with closing(sqlite3.connect(database, timeout=_LOCK_SECONDS)) as connection, connection:
            change = "update experiments set artifact_location = ? where experiment_id = ?"
            connection.execute(change, (f"mlruns/{experiment_id}", experiment_id))


def open_store() -> Store:
    """Open the store named by MLFLOW_TRACKING_URI, else `mlruns/` in the working folder, and create it if necessary.

    Cheap after the first call, and safe in concurrent processes. A StorageError says that the disk is full.
    """
    root = Path.cwd()
    default = root / "mlruns" / "mlflow.db"
    uri = os.environ.get(_URI) or f"{_SQLITE}{default}"
    database = Path(uri.removeprefix(_SQLITE)) if uri.startswith(_SQLITE) else None
    is_default = database is not None and database.resolve() == default.resolve()
    store = Store(f"{_SQLITE}{default}", root) if is_default else Store(uri, None)
    if is_default:
        _check_writable(default.parent)
    if database and database.exists():
        _check_database(database)
    try:
        if is_default:
            default.parent.mkdir(exist_ok=True)
        with store.lock():
            if is_default and not default.exists():
                _create(default)
            _connect(store)
    except (OSError, sqlite3.Error) as error:
        raise StorageError(f"the tracking store must be on a disk with free space; {store.address}: {error}") from error
    return store


def check_store() -> None:
    """Refuse a store that a run could not be stored in; a default store that does not exist yet is not created."""
    folder = Path.cwd() / "mlruns"
    if os.environ.get(_URI) or folder.exists():
        open_store()
    else:
        _check_writable(folder)


def _check_writable(folder: Path) -> None:
    paths = (folder, folder / "mlflow.db") if folder.exists() else (folder.parent,)
    barred = [path.name for path in paths if path.exists() and not os.access(path, os.W_OK)]
    if barred or not (folder.is_dir() or not folder.exists()):
        reason = f"no write access to {barred[0]}" if barred else "file exists"
        raise UsageError(
            f"mlruns must be a folder that can be written; {folder} cannot ({reason}): "
            f"run in another folder or set {_URI}"
        )


def _create(database: Path) -> None:
    """Create the tables in a temporary folder and move them into place, so that an interruption leaves no trace."""
    with temporary_folder(database.parent, ".new-") as folder:
        unfinished = folder / database.name
        with quiet():
            Store(f"{_SQLITE}{unfinished}", None).client.search_experiments(max_results=1)
        unfinished.replace(database)


def _check_database(path: Path) -> None:
    """Check an existing database before MLflow, which retries for minutes to open a file that is none.

    MLflow would resolve relative artifact locations against whichever folder it runs in.
    """
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


def _connect(store: Store) -> None:
    """Query the store, which creates the tables of a new one, and make it MLflow's current store."""
    mlflow = load_mlflow()
    from mlflow.exceptions import MlflowException
    from sqlalchemy.exc import SQLAlchemyError

    previous = os.environ.get(_URI)
    try:
        # more retries suit a busy server in mid-run, but not a wrong address
        with quiet(), patience(retries=1), _database_server(store.uri):
            # this also sets MLFLOW_TRACKING_URI, which would take precedence over a later change of working folder
            mlflow.set_tracking_uri(store.uri)
            store.client.search_experiments(max_results=1)
            _check_version(store)
    except (MlflowException, SQLAlchemyError, ImportError) as error:  # ImportError: the database's driver
        message = import_failure(error) if isinstance(error, ImportError) else str(getattr(error, "orig", error))
        reason = message.strip().splitlines()[0]
        raise UsageError(
            f"the tracking store must be an MLflow database or server that answers; {store.address} is not ({reason})"
        ) from error
    finally:
        _set_environment({_URI: previous})


@contextmanager
def patience(*, retries: int, seconds: int | None = None) -> Iterator[None]:
    """Limit the retries of requests to a server, and the seconds of an attempt."""
    changes = {_RETRIES: str(retries)} | ({_TIMEOUT: str(seconds)} if seconds else {})
    previous = {name: os.environ.get(name) for name in changes}
    os.environ.update(changes)
    try:
        yield
    finally:
        _set_environment(previous)


def _set_environment(values: dict[str, str | None]) -> None:
    for name, value in values.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value


@contextmanager
def _database_server(uri: str) -> Iterator[None]:
    """Connect to a database server, check the rights in it, and let one process at a time create its tables.

    MLflow would try for minutes to open one that refuses the connection, and find missing rights at the first run.
    """
    if not _SERVER.match(uri):
        yield
        return
    import sqlalchemy

    engine = sqlalchemy.create_engine(uri, poolclass=sqlalchemy.pool.NullPool)
    with engine.connect() as connection:
        if engine.dialect.name == "postgresql":
            _check_rights(connection, engine.url.render_as_string())
            connection.execute(sqlalchemy.select(sqlalchemy.func.pg_advisory_lock(_CREATION)))
        yield


def _check_rights(connection: Any, address: str) -> None:
    from sqlalchemy import func, inspect, select

    if inspect(connection).has_table("runs"):
        right, allowed = "insert into its tables", func.has_table_privilege("runs", "INSERT")
    else:
        right, allowed = "create tables in it", func.has_schema_privilege(func.current_schema(), "CREATE")
    if not connection.execute(select(allowed)).scalar():
        user = connection.execute(select(func.current_user())).scalar()
        raise UsageError(
            f"the tracking store must be a database that its user may write; {address} is not "
            f"({user} has no right to {right})"
        )


def _check_version(store: Store) -> None:
    """Refuse a server of an MLflow that cannot register adapters; one that does not tell its version is accepted."""
    if not store.uri.startswith("http"):
        return
    from mlflow.exceptions import MlflowException
    from mlflow.utils.rest_utils import http_request

    host = store.client._tracking_client.store.get_host_creds()
    try:
        version = http_request(host, "/version", "GET", timeout=5, max_retries=0).text.strip()
    except MlflowException:
        return
    if re.match(r"\d+\.\d", version) and int(version.split(".")[0]) < _OLDEST:
        raise UsageError(
            f"the tracking server must be MLflow {_OLDEST} or later; "
            f"{store.address} is MLflow {version[:20]}: upgrade it"
        )
