"""A server that answers by a script, for the formats of the services, and a clock that nobody waits for."""

import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import pytest

from fsd.net.retry import Clock


@dataclass
class Reply:
    """Status, body and headers; `length` is what Content-Length claims, for replies that end early."""

    body: bytes
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    length: int | None = None


Answer = Callable[[str, dict[str, str]], Reply | bytes]


@dataclass
class FakeService:
    """What was asked so far, and the faults that come before the next answers."""

    url: str = ""
    asked: list[tuple[str, dict[str, str]]] = field(default_factory=list)
    agents: set[str] = field(default_factory=set)
    faults: list[Reply] = field(default_factory=list)


@dataclass
class FakeTime:
    """Time that passes only by waiting."""

    now: float = 1_790_000_000.0  # 21 September 2026
    waits: list[float] = field(default_factory=list)

    def sleep(self, seconds: float) -> None:
        self.waits.append(seconds)
        self.now += seconds

    @property
    def clock(self) -> Clock:
        return Clock(monotonic=lambda: self.now, wall=lambda: self.now, sleep=self.sleep)


@pytest.fixture
def fake_time() -> FakeTime:
    return FakeTime()


@pytest.fixture
def reply() -> type[Reply]:
    return Reply


@pytest.fixture
def service() -> Iterator[Callable[[Answer], FakeService]]:
    """Starts a server that answers path and query by a function, faults first."""
    servers = []

    def start(answer: Answer) -> FakeService:
        fake = FakeService()

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                url = urlsplit(self.path)
                query = dict(parse_qsl(url.query))
                fake.asked.append((url.path, query))
                fake.agents.add(self.headers["User-Agent"])
                found = fake.faults.pop(0) if fake.faults else answer(url.path, query)
                sent = Reply(found) if isinstance(found, bytes) else found
                self.send_response(sent.status)
                length = len(sent.body) if sent.length is None else sent.length
                for name, value in {"Content-Length": str(length), **sent.headers}.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(sent.body)
                self.close_connection = sent.length is not None

            def log_message(self, *_: Any) -> None:
                pass

        server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        servers.append(server)
        threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        fake.url = f"http://127.0.0.1:{server.server_port}"
        return fake

    yield start
    for server in servers:
        server.shutdown()
        server.server_close()
