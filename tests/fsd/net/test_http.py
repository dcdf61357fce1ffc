"""Retries and the rate limiter of HTTP clients; `tests/fsd/collection/test_service.py` has the messages."""

import socket
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from fsd.errors import UsageError
from fsd.net.http import HTTPClient, TransientError


class ImpatientClient(HTTPClient):
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


def test_a_stopped_client_ends_waits_in_other_threads(service) -> None:
    client = HTTPClient(service(lambda *_: b"").url, interval=60.0)
    content(client)
    with ThreadPoolExecutor() as pool:
        waiting = pool.submit(content, client)
        client.stop()
        with pytest.raises(UsageError, match="the job was stopped"):
            waiting.result(10)
