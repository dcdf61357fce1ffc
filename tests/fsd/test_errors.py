"""What a message may not show: credentials, and characters that command a terminal."""

import time

import pytest

from fsd.errors import UsageError, printable, without_credentials


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("postgresql://u:hunter2@db:5432/name", "postgresql://u:***@db:5432/name"),
        ("postgresql+psycopg://u:hun/t@r2@db/name", "postgresql+psycopg://u:***@db/name"),
        ("mysql://:hunter2@db/name", "mysql://:***@db/name"),
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
    ],
)
def test_credentials_in_addresses_are_replaced(text: str, expected: str) -> None:
    assert without_credentials(text) == expected
    assert str(UsageError(text)) == expected


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
    for part in ("a", "?", "&key", "https://", "://:", "x://a:b "):
        without_credentials(part * 20_000)
    assert time.process_time() - begun < 2
