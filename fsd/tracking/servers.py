"""Checks of a tracking database or server, made before MLflow opens it.

MLflow tries ten times, in minutes, to open a database server that refuses the connection, and finds missing rights only
when the first run is stored.
"""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from fsd.errors import UsageError

_DATABASE = re.compile(r"(postgresql|mysql|mssql)(\+\w+)?://")
_CREATION = 0x465344
"""Key of the lock in PostgreSQL under which the tables are created."""
_OLDEST = 3
"""Major version of MLflow from which its server has logged models, in which adapters are registered."""


@contextmanager
def opened(uri: str) -> Iterator[None]:
    """Connect to a database server, check the rights in it, and let one process at a time create its tables.

    Args:
        uri: tracking URI; nothing is done for files and servers of MLflow.

    Raises:
        UsageError: if the user of the database may not write in it.
        ModuleNotFoundError: if its driver is not installed.
        sqlalchemy.exc.SQLAlchemyError: if it refuses the connection.
    """
    if not _DATABASE.match(uri):
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


def check_version(client: Any, uri: str, address: str) -> None:
    """Refuse a server of an MLflow that cannot register adapters; one that does not tell its version is accepted.

    Args:
        client: MLflow client of the server.
        uri: tracking URI; nothing is done for databases.
        address: the URI without credentials, for the message.

    Raises:
        UsageError: if the server is too old.
    """
    if not uri.startswith("http"):
        return
    from mlflow.exceptions import MlflowException
    from mlflow.utils.rest_utils import http_request

    try:
        reply = http_request(
            client._tracking_client.store.get_host_creds(), "/version", "GET", timeout=5, max_retries=0
        )
    except MlflowException:
        return
    version = reply.text.strip() if reply.status_code == 200 else ""
    if re.match(r"\d+\.\d", version) and int(version.split(".")[0]) < _OLDEST:
        raise UsageError(
            f"the tracking server must be MLflow {_OLDEST} or later; {address} is MLflow {version[:20]}: upgrade it"
        )
