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
from collections.abc import Iterator
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

from fsd.errors import UsageError, first_line, import_failure
from fsd.leftovers import replacing

LOCAL = "http://127.0.0.1:5000"
"""Where `fsd ui` serves a store that is no server itself."""
_URI = "MLFLOW_TRACKING_URI"
_SQLITE = "sqlite:///"
_LOCK_SECONDS = 60.0
_SETTINGS = {
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "MLFLOW_LOGGING_LEVEL": "WARNING",
    "MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR": "false",
    "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true",
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "2",
    "MLFLOW_HTTP_REQUEST_BACKOFF_FACTOR": "1",
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "15",
}
"""A request to a server takes at most three attempts of 15 s with waits of 0 and 2 s between them, and up to 1 s more
each; MLflow's own defaults are 8 attempts of 120 s and waits of 4 minutes in all."""
_CREATION = 0x465344
"""Key of the lock in PostgreSQL under which the tables are created."""
_UNKNOWN = "no experiment of this name"
"""A server that knows it answers anything."""
_HEADLINES = ("auc", "blind", "gain", "lead", "tpr5")
_SECTION = "fsd-headline"


def _chart(kind: str, **shown: object) -> dict[str, object]:
    """A chart of the section of the headline, in the form of MLflow's user interface."""
    uuid = f"{_SECTION}-{shown.get('metricKey', kind)}"
    base = {"uuid": uuid, "type": kind, "runsCountToCompare": 10, "metricSectionId": _SECTION}
    return {**base, "deleted": False, "isGenerated": False, **shown}


_VIEW = {
    "orderByKey": "attributes.start_time",
    "orderByAsc": False,
    "startTime": "ALL",
    "lifecycleFilter": "Active",
    "datasetsFilter": [],
    "modelVersionFilter": "All Runs",
    "searchFilter": "",
    "selectedColumns": [f"metrics.`headline/{name}`" for name in _HEADLINES],
    "compareRunSections": [
        {"uuid": _SECTION, "name": "headline", "display": True, "isReordered": True, "columns": 2, "cardHeight": 280}
    ],
    "compareRunCharts": [
        _chart("PARALLEL", selectedParams=["method", "learning_rate"], selectedMetrics=["headline/auc"]),
        *(_chart("BAR", metricKey=f"headline/{name}", displayName=name) for name in _HEADLINES),
    ],
    "isAccordionReordered": True,
    "runListHidden": True,
}
"""Columns of the table of an experiment's runs, which `address` opens, and its first charts."""
_VIEW_TAG = "mlflow.sharedViewState.fsd"

quiet = partial(warnings.catch_warnings, action="ignore")
"""Suppresses warnings that MLflow itself causes and that users cannot act on."""


def load_mlflow() -> ModuleType:
    """Import MLflow, without telemetry, log messages, progress bars and long waits unless the user chose them."""
    for name, value in _SETTINGS.items():
        os.environ.setdefault(name, value)
    import mlflow

    for name in ("alembic", "mlflow.store.db.utils"):
        logging.getLogger(name).setLevel(logging.WARNING)
    logging.getLogger("urllib3.connectionpool").setLevel(logging.ERROR)  # a line for every retry
    return mlflow  # type: ignore[no-any-return]  # mlflow's imports are skipped by mypy


def address(server: str, experiment_id: str, run_id: str = "") -> str:
    """Address of the table of an experiment's runs, or of one run, on a server."""
    page, state = (f"/{run_id}", "") if run_id else ("", "&viewStateShareKey=fsd")
    return f"{server}/#/experiments/{experiment_id}/runs{page}?workflowType=machine_learning{state}"


@dataclass(frozen=True)
class Store:
    """An open store; `root` is the folder with `mlruns/` of the default one, None for a store of the user's."""

    uri: str
    root: Path | None

    @property
    def address(self) -> str:
        """The URI without user name and password."""
        return re.sub(r"//[^/]*@", "//", self.uri)

    @property
    def file(self) -> Path | None:
        """The store's SQLite file, which is always in reach; None of any other store."""
        path = self.uri.removeprefix(_SQLITE).partition("?")[0]
        named = self.uri.startswith(_SQLITE) and path and not path.startswith((":memory:", "file:"))
        return Path(path) if named else None

    @property
    def is_server(self) -> bool:
        """Whether the store is an MLflow server, which serves its own pages."""
        return self.uri.startswith(("http://", "https://"))

    @property
    def server(self) -> str:
        """Address of the pages: of the store itself, or as `fsd ui` serves them."""
        return self.address.rstrip("/") if self.is_server else LOCAL

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
        ids = {one.name: one.experiment_id for one in self.client.search_experiments()}
        if experiment:
            if experiment not in ids:
                raise UsageError(f"the experiment must be one of {', '.join(sorted(ids))}; got {experiment}")
            return address(server, ids[experiment])
        runs = self.client.search_runs(list(ids.values()), order_by=["attributes.start_time DESC"], max_results=1)
        return address(server, runs[0].info.experiment_id) if runs else server

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
        if experiment.tags.get(_VIEW_TAG) != json.dumps(_VIEW):
            self.client.set_experiment_tag(experiment.experiment_id, _VIEW_TAG, json.dumps(_VIEW))
        return str(experiment.experiment_id)

    def _relativise(self, experiment_id: str) -> None:
        if self.root is None or self.file is None:
            return
        with closing(sqlite3.connect(self.file, timeout=_LOCK_SECONDS)) as connection, connection:
            change = "update experiments set artifact_location = ? where experiment_id = ?"
            connection.execute(change, (f"mlruns/{experiment_id}", experiment_id))


def open_store() -> Store:
    """Open, or create, the store of MLFLOW_TRACKING_URI, else `mlruns/` here; safe in concurrent processes."""
    own = Store(f"{_SQLITE}{Path.cwd() / 'mlruns' / 'mlflow.db'}", Path.cwd())
    store = Store(os.environ.get(_URI) or own.uri, None)
    if store.file and own.file and store.file.resolve() == own.file.resolve():
        store = own
        _check_writable(own.file.parent)
    if store.file:
        _check_database(store.file)
        if not _has_content(store.file):
            with store.lock():
                if not _has_content(store.file):  # nor has another process created it
                    with replacing(store.file) as draft:
                        _create(draft)
    _connect(store)
    return store


def _has_content(file: Path) -> bool:
    return file.exists() and file.stat().st_size > 0


def check_store() -> None:
    """Refuse a store that a run could not be stored in; a default store that does not exist yet is not created."""
    folder = Path.cwd() / "mlruns"
    if os.environ.get(_URI) or folder.exists():
        open_store()
    else:
        _check_writable(folder)


def _check_writable(folder: Path) -> None:
    paths = (folder, folder / "mlflow.db") if folder.exists() else (folder.parent,)
    if folder.is_file() or not all(os.access(path, os.W_OK) for path in paths if path.exists()):
        raise UsageError(
            f"mlruns must be a folder that can be written; {folder} cannot: run in another folder or set {_URI}"
        )


def _create(database: Path) -> None:
    """Create the tables, without waiting for the disk at each of 1,700 statements: the file has its name only later."""
    from sqlalchemy import event
    from sqlalchemy.engine import Engine

    def hasten(connection: Any, _: object) -> None:
        connection.execute("pragma synchronous = off")

    event.listen(Engine, "connect", hasten)
    try:
        with quiet():
            Store(f"{_SQLITE}{database}", None).client.search_experiments(max_results=1)
    finally:
        event.remove(Engine, "connect", hasten)


def _check_database(path: Path) -> None:
    """Check a file before MLflow, which would retry for minutes, or resolve locations against any working folder."""
    with suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
    if not all(os.access(place, os.W_OK) for place in (path if path.exists() else path.parent, path.parent)):
        raise UsageError(f"the tracking store must be a database that can be written; {path} or its folder cannot")
    if not path.exists():
        return
    try:
        with closing(sqlite3.connect(path, timeout=_LOCK_SECONDS)) as connection:
            tables = connection.execute("select name from sqlite_master where name = 'experiments'").fetchall()
            below = "select * from experiments where artifact_location like 'mlruns/%'"
            relative = tables and connection.execute(below).fetchall()
    except sqlite3.Error as error:
        raise UsageError(f"the tracking store must be an MLflow database; {path} is not ({error})") from error
    home = path.resolve().parent.parent
    if relative and home != Path.cwd().resolve():
        raise UsageError(
            f"a store with locations relative to its folder must be used from there; "
            f"{path} is used from {Path.cwd()}: run in {home}"
        )


def _connect(store: Store) -> None:
    """Make the store MLflow's current one, and query it, which creates the tables of a new one."""
    mlflow = load_mlflow()
    from mlflow.exceptions import MlflowException
    from sqlalchemy.exc import SQLAlchemyError

    previous = os.environ.get(_URI)
    try:
        with quiet(), _database_server(store):
            # this also sets MLFLOW_TRACKING_URI, which would take precedence over a later change of working folder
            mlflow.set_tracking_uri(store.uri)
            store.client.search_logged_models(["0"], max_results=1)  # which adapters become; MLflow 2 has none
            if store.is_server and store.client.get_experiment_by_name(_UNKNOWN):
                raise MlflowException("its replies are not those of MLflow")
    except UsageError:
        raise
    except (MlflowException, SQLAlchemyError, ImportError, ValueError) as error:  # of a driver, and of no URL
        reason = import_failure(error) if isinstance(error, ImportError) else first_line(getattr(error, "orig", error))
        raise UsageError(
            "the tracking store must be a database or server of MLflow 3 or later that answers; "
            f"{store.address} is not ({reason})"
        ) from error
    finally:
        os.environ.pop(_URI, None)
        if previous:
            os.environ[_URI] = previous


@contextmanager
def _database_server(store: Store) -> Iterator[None]:
    """Connect, check the rights, let one process create the tables: MLflow would retry for minutes, or fail later."""
    if not re.match(r"(postgresql|mysql|mssql)(\+\w+)?://", store.uri):
        yield
        return
    from sqlalchemy import create_engine, inspect, text
    from sqlalchemy.pool import NullPool

    with create_engine(store.uri, poolclass=NullPool).connect() as connection:
        if connection.dialect.name == "postgresql":
            right = "has_schema_privilege(current_schema(), 'create')"
            if inspect(connection).has_table("runs"):
                right = "has_table_privilege('runs', 'insert')"
            user, allowed = connection.execute(text(f"select current_user, {right}")).one()
            if not allowed:
                raise UsageError(
                    f"the tracking store must be a database that its user may write; {store.address} is not ({user} "
                    "has no right to create its tables or insert into them)"
                )
            connection.execute(text(f"select pg_advisory_lock({_CREATION})"))
        yield
