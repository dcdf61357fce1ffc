"""Retries and the rate limiter of HTTP clients; `tests/fsd/collection/test_service.py` has the messages."""

import contextlib
import gzip
import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from fsd.errors import UsageError
from fsd.net.http import HTTPClient, TransientError


class ImpatientClient(HTTPClient):
    largest_reply = 2**18
    longest_reply = 0.6
    resume_hint = "run the same command again to resume"


@pytest.fixture
def client(fake_time) -> Callable[[str], HTTPClient]:
    return lambda url: ImpatientClient(url, clock=fake_time.clock)


def content(client: HTTPClient) -> bytes:
    return client.request("GET", client.base_url, lambda reply: reply.content)


def test_a_demanded_pause_counts_if_it_is_a_time_to_come(service, reply, client, fake_time) -> None:
    fake = service(lambda *_: b"")
    for header in ("7", "-3", "inf", "soon", "", "Tue, 14 Nov 2023 22:13:50 GMT"):
        fake.faults = [reply(b"", 503, {"Retry-After": header})]
        content(client(fake.url))
    assert fake_time.waits == [7.0, *[2.0] * 5]


def test_broken_replies_contents_and_failing_statuses_share_one_budget(service, reply, client, fake_time) -> None:
    whole = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nConnection: close\r\n\r\nwhole"
    replies = [b"", b"", whole[:-2], whole]  # the first connection only asks whether there is a server

    def answer(server: socket.socket) -> None:
        while replies:
            connection, _ = server.accept()
            with connection:
                if connection.recv(4096):
                    connection.sendall(replies.pop(0))

    with socket.create_server(("127.0.0.1", 0)) as server:
        threading.Thread(target=answer, args=(server,), daemon=True).start()
        assert content(client(f"http://127.0.0.1:{server.getsockname()[1]}")) == b"whole"
    assert fake_time.waits == [2.0, 4.0, 8.0]

    def read(reply):
        raise TransientError("nothing in it")

    fake = service(lambda *_: b"")
    fake.faults = [reply(b"", 503)] * 3
    with pytest.raises(UsageError, match=r"the service must answer; 6 attempts at .* failed: nothing in it; "):
        client(fake.url).request("GET", fake.url, read)
    assert len(fake.requests) == 6
    assert fake_time.waits[3:] == [2.0, 4.0, 8.0, 16.0, 32.0]


OK = b"HTTP/1.1 200 OK\r\n"
BOMB = gzip.compress(bytes(2**24))
ENDLESS = {
    "body": (OK + b"\r\n", b"x" * 2**14, 0.0),
    "chunks": (OK + b"Transfer-Encoding: chunked\r\n\r\n", b"4000\r\n" + b"x" * 2**14 + b"\r\n", 0.0),
    "slow body": (OK + b"\r\n", b"x", 0.05),
    "slow body with a length": (OK + b"Content-Length: 9999\r\n\r\n", b"x", 0.05),
    "slow chunk": (OK + b"Transfer-Encoding: chunked\r\n\r\nffff\r\n", b"x", 0.05),
    "slow header": (OK + b"X: ", b"x", 0.05),
    "slow status": (b"HTTP/1.1 200 ", b"O", 0.05),
    "slow error": (b"HTTP/1.1 404 No\r\n\r\n", b"x", 0.05),
    "slow redirect": (b"HTTP/1.1 302 There\r\nLocation: /there\r\n\r\n", b"x", 0.05),
}


@pytest.fixture
def pouring() -> Iterator[Callable[[bytes, bytes, float], str]]:
    """Starts a server that sends a head and then the same bytes again and again, with a pause in seconds between."""
    servers: list[socket.socket] = []

    def pour(server: socket.socket, head: bytes, part: bytes, pause: float) -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = server.accept()
                with connection, contextlib.suppress(OSError):
                    if connection.recv(4096):
                        connection.sendall(head)
                        while part:
                            connection.sendall(part)
                            time.sleep(pause)

    def start(head: bytes, part: bytes, pause: float) -> str:
        servers.append(socket.create_server(("127.0.0.1", 0)))
        threading.Thread(target=pour, args=(servers[-1], head, part, pause), daemon=True).start()
        return f"http://127.0.0.1:{servers[-1].getsockname()[1]}"

    yield start
    for server in servers:
        server.close()


@pytest.mark.parametrize("kind", [*ENDLESS, "through a proxy"])
def test_a_reply_without_end_is_refused_in_time(pouring, client, fake_time, monkeypatch, kind: str) -> None:
    head, part, pause = ENDLESS.get(kind, ENDLESS["slow header"])
    url = pouring(head, part, pause)
    if kind not in ENDLESS:
        monkeypatch.setenv("http_proxy", url)
        url = "http://example.org"
    begun = time.monotonic()
    expected = r"within 1 s; the reply was not complete" if pause else r"with at most 262,144 bytes; there are more"
    with pytest.raises(UsageError, match=rf"the service must answer {expected}.*; run the same command again"):
        content(client(url))
    assert time.monotonic() - begun < 5
    assert not fake_time.waits


def test_a_compressed_bomb_is_refused(service, reply, client) -> None:
    for status, expected in ((404, bytes(2**16)), (302, b"whole")):
        headers = {"Content-Encoding": "gzip", "Location": "/there"}
        fake = service(lambda path, _: b"whole" if path == "/there" else reply(BOMB, status, headers))  # noqa: B023
        assert content(client(fake.url)) == expected
    fake = service(lambda *_: reply(BOMB, 200, {"Content-Encoding": "gzip"}))
    with pytest.raises(UsageError, match="must answer with at most 262,144 bytes; there are more"):
        content(client(fake.url))


def test_what_has_no_end_is_cut_off_and_tried_again(pouring, client) -> None:
    for head, part, fault in (
        (b"HTTP/1.1 503 Busy\r\n\r\n", b"x" * 2**14, "HTTP 503: x+;"),
        (OK + b"X: ", b"x" * 2**14, r"no whole reply \("),
        (OK, b"X: x\r\n" * 2**11, r"no whole reply \("),
        (OK + b"Transfer-Encoding: chunked\r\n\r\n", b"1" * 2**14, r"no whole reply \("),
    ):
        with pytest.raises(UsageError, match=f"6 attempts at .* failed: {fault}"):
            content(client(pouring(head, part, 0.0)))


def test_a_stopped_client_ends_waits_in_other_threads(service) -> None:
    client = HTTPClient(service(lambda *_: b"").url, interval=60.0)
    content(client)
    with ThreadPoolExecutor() as pool:
        waiting = pool.submit(content, client)
        client.stop()
        with pytest.raises(UsageError, match="the job was stopped"):
            waiting.result(10)
