"""The tracking store: where runs, artifacts and registered models are kept.

An SQLite file is created under a lock and another name: one that two processes create, or that is killed, is of no use.

The default store is `mlruns/` in the working folder. MLflow writes absolute artifact locations, so that a moved folder
would lose its artifacts; those of its experiments are therefore made relative to the working folder, against which
MLflow resolves them. A store named by MLFLOW_TRACKING_URI is used unchanged.
"""

import json
import logging
import os
import re
import sqlite3
import warnings
from contextlib import AbstractContextManager, closing, nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

from fsd.errors import UsageError, first_line, import_failure
from fsd.leftovers import replacing

# Where `fsd ui` serves a store that is no server itself.
LOCAL = "http://127.0.0.1:5000"
_URI = "MLFLOW_TRACKING_URI"
_SQLITE = "sqlite:///"
_LOCK_SECONDS = 60.0
# A request to a server takes at most three attempts of 15 s with waits of 0 and 2 s between them, and up to 1 s more
# each; MLflow's own defaults are 8 attempts of 120 s and waits of 4 minutes in all.
_SETTINGS = {
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "MLFLOW_LOGGING_LEVEL": "WARNING",
    "MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR": "false",
    "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true",
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "2",
    "MLFLOW_HTTP_REQUEST_BACKOFF_FACTOR": "1",
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "15",
}
# Columns of the table of an experiment's runs, which `address` opens, and its first charts: what MLflow's pages read.
_VIEW = Path(__file__).with_name("view.json")
_VIEW_TAG = "mlflow.sharedViewState.fsd"

# Suppresses warnings that MLflow itself causes and that users cannot act on.
quiet = partial(warnings.catch_warnings, action="ignore")


def load_mlflow() -> ModuleType:
    """Import MLflow, without telemetry, log messages, progress bars and long waits unless the user chose them."""
    for name, value in _SETTINGS.items():
        os.environ.setdefault(name, value)
    import mlflow

    # They tell of each migration of a new database.
    logging.getLogger("alembic").setLevel(logging.WARNING)
    # It also prints, with a traceback, each error that it raises.
    logging.getLogger("mlflow.store.db.utils").setLevel(logging.CRITICAL)
    # It warns of every retry.
    logging.getLogger("urllib3.connectionpool").setLevel(logging.ERROR)
    return mlflow  # type: ignore[no-any-return]  # mlflow's imports are skipped by mypy


def address(server: str, experiment_id: str, run_id: str = "") -> str:
    """Address of the table of an experiment's runs, or of one run, on a server."""
    runs = f"{server}/#/experiments/{experiment_id}/runs"
    # MLflow 3 has other pages for other workflows.
    kind = "workflowType=machine_learning"
    if run_id:
        return f"{runs}/{run_id}?{kind}"
    return f"{runs}?{kind}&viewStateShareKey=fsd"


@dataclass(frozen=True)
class Store:
    """An open store; `root` is the folder with `mlruns/` of the default one, None for a store of the user's."""

    uri: str
    root: Path | None = None

    @property
    def address(self) -> str:
        """The URI without user name and password."""
        return re.sub(r"//[^/]*@", "//", self.uri)

    @property
    def file(self) -> Path | None:
        """The store's SQLite file; None of any other store."""
        if self.uri.startswith(_SQLITE):
            return Path(self.uri.removeprefix(_SQLITE))
        return None

    @property
    def is_server(self) -> bool:
        """Whether the store is an MLflow server, which serves its own pages."""
        return self.uri.startswith(("http://", "https://"))

    @property
    def server(self) -> str:
        """Address of the pages: of the store itself, or as `fsd ui` serves them."""
        if self.is_server:
            return self.address.rstrip("/")
        return LOCAL

    @property
    def client(self) -> Any:
        """An MLflow client of this store."""
        return load_mlflow().MlflowClient(tracking_uri=self.uri)

    def lock(self) -> AbstractContextManager[object]:
        """Lock a file against other processes; databases and servers have their own locks."""
        if self.file is None:
            return nullcontext()
        import filelock

        return filelock.FileLock(self.file.with_name(f".{self.file.name}.lock"))

    def newest_page(self, server: str, experiment: str = "") -> str:
        """Address on a server of the table of an experiment's runs, by default the one with the newest run."""
        client = self.client
        ids = {entry.name: entry.experiment_id for entry in client.search_experiments()}
        if experiment:
            if experiment not in ids:
                raise UsageError(f"the experiment must be one of {', '.join(sorted(ids))}; got {experiment}")
            return address(server, ids[experiment])
        runs = client.search_runs(list(ids.values()), order_by=["attributes.start_time DESC"], max_results=1)
        if runs:
            return address(server, runs[0].info.experiment_id)
        return server

    def experiment_id(self, name: str) -> str:
        """Id of the experiment of that name, which is created if it does not exist, and must not be deleted."""
        client = self.client
        # Its location is changed behind MLflow's back; two commands may begin in a new folder at once.
        with self.lock():
            experiment = client.get_experiment_by_name(name)
            if experiment is None:
                self._relativise(client.create_experiment(name))
                experiment = client.get_experiment_by_name(name)
        if experiment.lifecycle_stage != "active":
            raise UsageError(
                f"experiment must not be deleted; {name!r} is: "
                f"`mlflow experiments restore --experiment-id {experiment.experiment_id}` brings it back"
            )
        view = json.dumps(json.loads(_VIEW.read_text(encoding="utf-8")))
        if experiment.tags.get(_VIEW_TAG) != view:
            client.set_experiment_tag(experiment.experiment_id, _VIEW_TAG, view)
        return str(experiment.experiment_id)

    def _relativise(self, experiment_id: str) -> None:
        if self.root is None or self.file is None:
            return
        # MLflow has no way to change a location. `closing` closes the connection, which itself only commits.
        with closing(sqlite3.connect(self.file, timeout=_LOCK_SECONDS)) as connection, connection:
            connection.execute(
                "update experiments set artifact_location = ? where experiment_id = ?",
                (f"mlruns/{experiment_id}", experiment_id),
            )


def open_store() -> Store:
    """Open, or create, the store of MLFLOW_TRACKING_URI, else `mlruns/` here; safe in concurrent processes."""
    store = _named()
    if file := store.file:
        _check_writable(file.parent)
        # SQLite makes the file, and not its folder.
        file.parent.mkdir(parents=True, exist_ok=True)
        with store.lock():
            if not file.exists():
                with replacing(file) as draft:
                    _create(draft)
    _connect(store)
    _check_place(store)
    return store


def _named() -> Store:
    """The store of the variable or of this folder, which the variable may name too, by another path to it."""
    default = Path.cwd() / "mlruns" / "mlflow.db"
    local = Store(f"{_SQLITE}{default}", Path.cwd())
    store = Store(os.environ.get(_URI) or local.uri)
    if store.file and store.file.resolve() == default.resolve():
        return local
    return store


def check_store() -> None:
    """Refuse a store that a run could not be stored in; one that does not exist yet is not created."""
    if exists():
        open_store()
    elif file := _named().file:
        _check_writable(file.parent)


def exists() -> bool:
    """Whether there is a store; one that is no file may be."""
    file = _named().file
    return file is None or file.exists()


def _check_writable(folder: Path) -> None:
    # The folder may not exist yet.
    if not os.access(folder if folder.exists() else folder.parent, os.W_OK):
        raise UsageError(
            f"the folder of the tracking store must be one that can be written; {folder} cannot: "
            f"run in another folder or set {_URI}"
        )


def _create(database: Path) -> None:
    """Create the tables, without waiting for the disk at each of 1,700 statements: the file has its name only later."""
    from sqlalchemy import event
    from sqlalchemy.engine import Engine

    def hasten(connection: Any, _: object) -> None:
        connection.execute("pragma synchronous = off")

    # MLflow makes its own engine: only events of the class reach it.
    event.listen(Engine, "connect", hasten)
    try:
        with quiet():
            Store(f"{_SQLITE}{database}").client.search_experiments(max_results=1)
    finally:
        event.remove(Engine, "connect", hasten)


def _connect(store: Store) -> None:
    """Make the store MLflow's current one, and query it, which creates the tables of a new one."""
    mlflow = load_mlflow()
    from mlflow.exceptions import MlflowException
    from sqlalchemy.exc import SQLAlchemyError

    previous = os.environ.get(_URI)
    try:
        with quiet():
            _check_database(store)
            # This also sets MLFLOW_TRACKING_URI, which would take precedence over a later change of working folder.
            mlflow.set_tracking_uri(store.uri)
            # Logged models are what adapters become; MLflow 2 has none.
            store.client.search_logged_models(["0"], max_results=1)
    except (MlflowException, SQLAlchemyError, ImportError, ValueError) as error:
        # ImportError is that of a driver that is not installed, ValueError that of what is no URL, and `orig` the error
        # of the driver, without the statement that SQLAlchemy adds.
        reason = import_failure(error) if isinstance(error, ImportError) else first_line(getattr(error, "orig", error))
        raise UsageError(
            "the tracking store must be a database or server of MLflow 3 or later that answers; "
            f"{store.address} is not ({reason})"
        ) from error
    finally:
        os.environ.pop(_URI, None)
        if previous:
            os.environ[_URI] = previous


def _check_database(store: Store) -> None:
    """Read a database once: MLflow would retry for minutes."""
    if not re.match(r"(sqlite|postgresql|mysql|mssql)(\+\w+)?://", store.uri):
        return
    from sqlalchemy import create_engine, inspect
    from sqlalchemy.pool import NullPool

    inspect(create_engine(store.uri, poolclass=NullPool)).get_table_names()


def _check_place(store: Store) -> None:
    """Refuse a store of another working folder, whose locations MLflow would resolve against this one."""
    if store.root or store.file is None:
        return
    if any(entry.artifact_location.startswith("mlruns/") for entry in store.client.search_experiments()):
        # The database lies in `mlruns/` of the folder.
        home = store.file.resolve().parent.parent
        raise UsageError(
            f"a store with locations relative to its folder must be used from there; "
            f"{store.file} is used from {Path.cwd()}: run in {home}"
        )
