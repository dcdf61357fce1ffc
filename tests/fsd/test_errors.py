"""What a message may not show: credentials, and characters that command a terminal."""

import errno
import sqlite3
import time

import pytest

from fsd.errors import UsageError, disk_failure, printable, without_credentials


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("postgresql://u:hunter2@db:5432/name", "postgresql://u:***@db:5432/name"),
        ("postgresql+psycopg://u:hun/t@r2@db/name", "postgresql+psycopg://u:***@db/name"),
        ("mysql://:hunter2@db/name", "mysql://:***@db/name"),
        ("no file postgresql:/u:hunter2@db/name", "no file postgresql:/u:***@db/name"),
        ("no file http:/hunter2@db/name", "no file http:/***@db/name"),
        ("http://u:hunter2@127.0.0.1:5000", "http://***@127.0.0.1:5000"),
        ("HTTPS://hunter2@github.com/a/b.git", "HTTPS://***@github.com/a/b.git"),
        ("got 'http://u:hunter2@a', and http://v:hunter2@b", "got 'http://***@a', and http://***@b"),
        ("https://a/b?x=1&api_key=hunter2&y=2", "https://a/b?x=1&api_key=***&y=2"),
        ("(https://a/b?token=hunter2)", "(https://a/b?token=***)"),
        (
            "https://a/b?X-Amz-Credential=hunter2&X-Amz-Signature=hunter2",
            "https://a/b?X-Amz-Credential=***&X-Amz-Signature=***",
        ),
        ("s3://hunter2:hunter2@bucket/x", "s3://hunter2:***@bucket/x"),
        ("mysql+pymysql://h/d?user=u&passwd=hunter2", "mysql+pymysql://h/d?user=u&passwd=***"),
        ("mysql+pymysql://h/d?pass=hunter2&x=1", "mysql+pymysql://h/d?pass=***&x=1"),
        ("https://a/b?auth=hunter2&code=hunter2", "https://a/b?auth=***&code=***"),
        ("https://a/b#access_token=hunter2&state=1", "https://a/b#access_token=***&state=1"),
        ("jdbc:sqlserver://h;user=u;password=hunter2", "jdbc:sqlserver://h;user=u;password=***"),
        ("mssql+pyodbc:///?odbc_connect=UID%3Du%3BPWD%3Dhunter2", "mssql+pyodbc:///?odbc_connect=UID%3Du%3BPWD%3D***"),
    ],
)
def test_credentials_in_addresses_are_replaced(text: str, expected: str) -> None:
    assert without_credentials(text) == expected
    assert str(UsageError(text)) == expected


def test_a_secret_is_replaced_in_any_case() -> None:
    secret = "sk-Secret?0123456789~xyz"
    for text in (secret, secret.upper()):
        assert without_credentials(f"got {text}!", secret) == "got [key]!"
    assert without_credentials("nothing of it", secret) == "nothing of it"


def test_everything_else_stays() -> None:
    for text in (
        "hf://datasets/owner/name@main/data.csv",
        "models:/fsd-arxiv@champion",
        "http://localhost:8000/v1/models and somebody@example.org",
        "postgresql://user@db:5432/name",
        "sqlite:////tmp/a:b@c.db",
        "key=5 and https://a/b?page=2&monkeys=3",
        "Unicode: äöü 中文 a b",
    ):
        assert str(UsageError(text)) == text


def test_a_message_is_one_line_that_commands_no_terminal() -> None:
    message = str(UsageError("a\x1b[2Jb\nc\td\u202ee\u2066f\u200bg\x9b1mh"))
    assert message == "a\ufffd[2Jb c d\ufffde\ufffdf\ufffdg\ufffd1mh"
    assert printable("non\u00a0breaking\u3000space") == "non breaking space"


def test_long_texts_take_no_time() -> None:
    begun = time.process_time()
    for part in ("a", "?", "&key", "https://", "://:", "x://a:b ", "#", ";%3bcode", "sk-", "s k - - "):
        without_credentials(part * 20_000, "sk-secret-0123456789")
    assert time.process_time() - begun < 2


def test_a_message_has_an_end_and_no_token(monkeypatch):
    monkeypatch.setenv("MLFLOW_TRACKING_TOKEN", "geheim-17")
    message = str(UsageError(f"must be short; got geheim-17 {'x' * 10**6} geheim-17"))
    assert len(message) < 2100
    assert "geheim" not in message


def test_no_half_of_a_credential_is_left_where_a_message_is_cut():
    message = str(UsageError(f"must answer; got {'x' * 150}://user:{'geheim' * 40}@host/{'y' * 300}"))
    assert "geheim" not in message


def test_a_full_disk_is_told_whichever_library_passes_it_on():
    from sqlalchemy.exc import OperationalError

    full = sqlite3.OperationalError("database or disk is full")
    assert disk_failure(OperationalError("insert", {}, full)) == "database or disk is full"
    assert disk_failure(OSError(errno.ENOSPC, "no")) == "No space left on device"
    wrapped = ValueError("cannot log")
    wrapped.__cause__ = full
    assert disk_failure(wrapped) == "database or disk is full"
    assert disk_failure(ValueError("must be full")) == ""
