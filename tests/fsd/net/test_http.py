"""Retries and the rate limiter of HTTP clients; `tests/fsd/collection/test_service.py` has the messages."""

import socket
import threading
from collections.abc import Iterator

import pytest

from fsd.errors import UsageError
from fsd.net.http import Clock, HTTPClient, PacedRetry, RateLimiter, TransientError


@pytest.mark.parametrize(
    ("header", "seconds"),
    [
        ("7", 7.0),
        (" 1.5 ", 1.5),
        ("Tue, 14 Nov 2023 22:13:50 GMT", 30.0),
        ("Tue, 14 Nov 2023 22:13:00 GMT", 0.0),
        ("-3", 0.0),
        ("inf", 0.0),
        ("nan", 0.0),
        ("soon", 0.0),
        ("", 0.0),
    ],
)
def test_retry_after(header: str, seconds: float) -> None:
    clock = Clock(wall=lambda: 1_700_000_000.0)  # Tue, 14 Nov 2023 22:13:20 GMT
    assert PacedRetry(3, limiter=RateLimiter(0.0, clock)).parse_retry_after(header) == seconds


@pytest.fixture
def resetting() -> Iterator[str]:
    """A server that closes two connections without a reply, then sends a truncated one, then a whole one."""
    whole = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nConnection: close\r\n\r\nwhole"
    replies = [b"", b"", whole[:-2], whole]  # the first connection only asks whether there is a server

    def answer(server: socket.socket) -> None:
        while replies:
            connection, _ = server.accept()
            with connection:
                if connection.recv(4096):
                    connection.sendall(replies.pop(0))

    with socket.create_server(("127.0.0.1", 0)) as server:
        thread = threading.Thread(target=answer, args=(server,), daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{server.getsockname()[1]}"


def test_broken_connections_and_truncated_replies_share_one_budget(resetting, fake_time) -> None:
    client = HTTPClient(resetting, clock=fake_time.clock)

    assert client.request("GET", resetting, lambda reply: reply.content) == b"whole"
    assert fake_time.waits == [2.0, 4.0, 8.0]


def test_broken_content_and_failing_statuses_share_one_budget(service, reply, fake_time) -> None:
    fake = service(lambda *_: b"")
    fake.faults = [reply(b"", 503)] * 3
    client = HTTPClient(fake.url, clock=fake_time.clock)

    def read(reply):
        raise TransientError("nothing in it")

    with pytest.raises(UsageError, match=r"the service must answer; 6 attempts at .* failed: nothing in it; "):
        client.request("GET", fake.url, read)
    assert len(fake.requests) == 6
    assert fake_time.waits == [2.0, 4.0, 8.0, 16.0, 32.0]


def test_a_stopped_limiter_ends_waits_in_other_threads() -> None:
    limiter = RateLimiter(60.0, Clock())
    limiter.wait()
    failures = []

    def wait() -> None:
        try:
            limiter.wait()
        except UsageError as error:
            failures.append(str(error))

    thread = threading.Thread(target=wait)
    thread.start()
    limiter.stop()
    thread.join(10)
    assert failures == ["the job was stopped"]
