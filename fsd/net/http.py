"""HTTP clients with a rate limit, retries and one-line errors.

The retries are urllib3's `Retry` in the adapter of a requests session: statuses in `RETRIED`, connections that cannot
be made or break off. `HTTPClient.request` adds what urllib3 cannot see, replies that end early or cannot be parsed, and
takes them from the same budget. All waits go through one `RateLimiter`, so the threads of a client pause together.

A service may be hostile. `BoundedResponse` limits the bytes and the time of every reply, from its first byte on and
also where urllib3 and requests read it (retries, redirects); the body is limited once more after decompression.
"""

import http.client
import io
import json
import logging
import math
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import date as Date  # noqa: N812 - the same name as in fsd.data.documents
from datetime import timedelta
from email.utils import parsedate_to_datetime
from functools import partial
from typing import Any, Self, TypeVar, cast

import requests
from requests.adapters import HTTPAdapter
from urllib3.exceptions import MaxRetryError
from urllib3.response import BaseHTTPResponse
from urllib3.util import Retry

from fsd.errors import UsageError
from fsd.net.hub import first_line, reachable

RETRIED = frozenset({408, 429, 500, 502, 503, 504, 529})
"""HTTP statuses worth another attempt."""
LONGEST_WAIT = 900.0
"""Longest pause in seconds that a Retry-After header may demand; beyond it the request fails."""
ERROR_BYTES = 2**16
"""Bytes of the body of an error or a redirect beyond which the rest is not read."""
READ_BYTES = 2**16
"""Bytes of a body that are decompressed at a time."""

Reply = requests.Response
Result = TypeVar("Result")

# urllib3 logs every retry of a broken connection, which would tear the progress bar
logging.getLogger("urllib3.connectionpool").setLevel(logging.ERROR)


class TransientError(Exception):
    """A reply with HTTP status 200 that is broken, or says that the service is busy: worth another attempt."""


class ReplyLimitError(Exception):
    """A reply that exceeds a limit, as what must hold and what came."""


class _BoundedReader(io.RawIOBase):
    """Reads a socket up to a number of bytes and a point in time.

    Args:
        raw: the socket as a file.
        connection: the socket.
        size: largest number of bytes.
        seconds: from now.
    """

    def __init__(self, raw: io.RawIOBase, connection: Any, size: int, seconds: float) -> None:
        self._raw = raw
        self._connection = connection
        self._size, self._left = size, size
        self._seconds, self._end = seconds, time.monotonic() + seconds
        self._pause = connection.gettimeout()

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any, /) -> int | None:
        remaining = self._end - time.monotonic()
        if self._pause is None or remaining < self._pause:
            self._connection.settimeout(max(remaining, 1e-3))
        try:
            count = cast("int | None", self._raw.readinto(buffer))
        except TimeoutError:
            if time.monotonic() < self._end:
                raise
            count = None
        if count is None or time.monotonic() >= self._end:
            raise ReplyLimitError(f"within {self._seconds:.0f} s; the reply was not complete by then")
        self._left -= count
        if self._left < 0:
            raise ReplyLimitError(f"with at most {self._size:,} bytes; there are more")
        return count

    def close(self) -> None:
        self._raw.close()
        super().close()


class BoundedResponse(http.client.HTTPResponse):
    """The reply of a connection, limited in bytes and time.

    Args:
        connection: the socket.
        options: of `http.client.HTTPResponse`.
        size: largest number of bytes, compressed and with headers.
        seconds: longest time to the last byte.
    """

    def __init__(self, connection: Any, *options: Any, size: int, seconds: float, **named: Any) -> None:
        super().__init__(connection, *options, **named)
        self.fp.close()
        self.fp = io.BufferedReader(
            _BoundedReader(connection.makefile("rb", buffering=0), connection, size, seconds), READ_BYTES
        )


class BoundedAdapter(HTTPAdapter):
    """Connections whose replies are limited.

    Args:
        size: largest number of bytes of a reply.
        seconds: longest time of a reply.
    """

    def __init__(self, size: int, seconds: float) -> None:
        self._response = partial(BoundedResponse, size=size, seconds=seconds)
        super().__init__()

    def init_poolmanager(self, *args: Any, **options: Any) -> None:
        """The connections to servers."""
        super().init_poolmanager(*args, **options)
        self._bound(self.poolmanager)

    def proxy_manager_for(self, *args: Any, **options: Any) -> Any:
        """The connections through a proxy."""
        return self._bound(super().proxy_manager_for(*args, **options))

    def _bound(self, manager: Any) -> Any:
        manager.pool_classes_by_scheme = {
            scheme: type("BoundedPool", (pool,), {"ConnectionCls": self._bounded(pool.ConnectionCls)})
            for scheme, pool in manager.pool_classes_by_scheme.items()
        }
        return manager

    def _bounded(self, connection: type) -> type:
        return type("BoundedConnection", (connection,), {"response_class": self._response})


def _read_body(reply: Reply, limit: int, *, cut: bool = False) -> None:
    """Read the body of a reply, so that `content` has it, up to a size after decompression.

    Args:
        reply: whose body was not read yet.
        limit: largest number of bytes.
        cut: whether the rest is left out; else there is an error.

    Raises:
        ReplyLimitError: if there are more.
    """
    body = bytearray()
    for part in reply.iter_content(READ_BYTES):
        body += part
        if len(body) > limit:
            reply.close()
            if not cut:
                raise ReplyLimitError(f"with at most {limit:,} bytes; there are more")
            break
    reply._content = bytes(body[:limit])


def _cut_redirect(reply: Reply, **_: Any) -> None:
    """Read the body of a redirect, which requests would read whole."""
    if reply.is_redirect:
        try:
            _read_body(reply, ERROR_BYTES, cut=True)
        except requests.RequestException:  # broken, but its body is of no use
            reply._content = b""


@dataclass(frozen=True)
class Clock:
    """Time as an argument.

    Attributes:
        monotonic: seconds that never go back.
        wall: seconds since 1970.
        sleep: waits for that many seconds; by default a wait that `RateLimiter.stop` ends.
    """

    monotonic: Callable[[], float] = time.monotonic
    wall: Callable[[], float] = time.time
    sleep: Callable[[float], object] | None = None

    @property
    def today(self) -> Date:
        """The current day in UTC."""
        return Date(1970, 1, 1) + timedelta(days=int(self.wall() // 86400))


class RateLimiter:
    """Spaces the starts of requests, from any number of threads.

    Args:
        interval: least number of seconds between two starts.
        clock: the time.
    """

    def __init__(self, interval: float, clock: Clock) -> None:
        self.clock = clock
        self._interval = interval
        self._next_start = float("-inf")
        self._lock = threading.Lock()
        self._stopped = threading.Event()

    def wait(self) -> None:
        """Wait until a request may start.

        Raises:
            UsageError: after `stop`.
        """
        sleep = self.clock.sleep or self._stopped.wait
        while not self._stopped.is_set():
            with self._lock:
                seconds = self._next_start - self.clock.monotonic()
                if seconds <= 0:
                    self._next_start = self.clock.monotonic() + self._interval
                    return
            sleep(seconds)
        raise UsageError("the job was stopped")

    def pause(self, seconds: float) -> None:
        """Start no request for so many seconds."""
        with self._lock:
            self._next_start = max(self._next_start, self.clock.monotonic() + seconds)

    def stop(self) -> None:
        """Make `wait` fail in all threads, also in those that wait already."""
        self._stopped.set()


class PacedRetry(Retry):
    """urllib3's `Retry` with the waits of a rate limiter.

    The n-th retry waits for backoff_factor * 2**(n - 1) seconds, or for as long as Retry-After demands if that is
    longer. A Retry-After of more than `LONGEST_WAIT` ends the retries; one that cannot be read is ignored.
    """

    def __init__(self, *args: Any, limiter: RateLimiter, **options: Any) -> None:
        super().__init__(*args, **options)
        self.limiter = limiter

    def new(self, **changes: Any) -> Self:
        """A copy with some attributes changed."""
        return super().new(limiter=self.limiter, **changes)

    def increment(self, *args: Any, **options: Any) -> Self:
        """The state after one more failure.

        Raises:
            MaxRetryError: if no retry is left, or the pause demanded is too long.
        """
        response = options.get("response")
        if response is not None and (self.get_retry_after(response) or 0.0) > LONGEST_WAIT:
            raise MaxRetryError(options["_pool"], args[1])
        return super().increment(*args, **options)

    def get_backoff_time(self) -> float:
        """Seconds before the next attempt; urllib3 itself does not wait before the first retry."""
        return float(self.backoff_factor * 2 ** (len(self.history) - 1))

    def parse_retry_after(self, retry_after: str) -> float:
        """Seconds of a Retry-After header, a number or a date; 0 for anything else."""
        try:
            seconds = float(retry_after)
        except ValueError:
            try:
                seconds = parsedate_to_datetime(retry_after.strip()).timestamp() - self.limiter.clock.wall()
            except ValueError:
                return 0.0
        return max(0.0, seconds) if math.isfinite(seconds) else 0.0

    def sleep(self, response: BaseHTTPResponse | None = None) -> None:
        """Wait before the next attempt."""
        demanded = self.get_retry_after(response) if response is not None else None
        self.limiter.pause(max(self.get_backoff_time(), demanded or 0.0))
        self.limiter.wait()


class HTTPClient:
    """A service over HTTP; usable from any number of threads.

    Args:
        base_url: address of the service.
        interval: least number of seconds between the starts of two requests.
        clock: the time.
        user_agent: User-Agent header; that of requests by default.
        secret: a key that no message may contain, even if the server repeats it.
    """

    name = "the service"
    """Subject of error messages."""
    attempts = 6
    """Requests in all before a failure is final."""
    backoff = 2.0
    """Seconds before the second attempt, doubled before each further one."""
    timeout = (10.0, 60.0)
    """Seconds for the connection, and for each part of a reply."""
    largest_reply = 2**26
    """Bytes of a reply, also after decompression."""
    longest_reply = 600.0
    """Seconds from the request to the last byte of its reply."""
    offline_hint = ""
    """What to do if the service cannot be reached."""
    resume_hint = ""
    """What to do after the last attempt."""

    def __init__(
        self,
        base_url: str,
        *,
        interval: float = 0.0,
        clock: Clock | None = None,
        user_agent: str | None = None,
        secret: str = "",
    ) -> None:
        self.base_url = base_url.rstrip("/")
        self.limiter = RateLimiter(interval, clock or Clock())
        self._user_agent = user_agent
        self._secret = secret
        self._local = threading.local()
        self._reached = False

    def request(
        self,
        method: str,
        url: str,
        read: Callable[[Reply], Result],
        *,
        retried: frozenset[int] = RETRIED,
        **options: Any,
    ) -> Result:
        """Send a request, again after transient failures, and read the reply.

        Args:
            method: of HTTP.
            url: address.
            read: makes the result of a reply; it may raise `TransientError`, and UsageError for what is final. Of an
                error reply, `content` is the beginning.
            retried: statuses that lead to another attempt; replies of all others go to `read`.
            options: of `requests.Session.request`.

        Raises:
            UsageError: if the service cannot be reached, fails in all attempts, demands too long a pause, or sends a
                reply that exceeds the limits.
        """
        try:
            return self._request(method, url, read, retried, options)
        except ReplyLimitError as error:
            hint = f"; {self.resume_hint}" if self.resume_hint else ""
            raise UsageError(f"{self.name} must answer {error} ({url}){hint}") from None

    def _request(
        self,
        method: str,
        url: str,
        read: Callable[[Reply], Result],
        retried: frozenset[int],
        options: Mapping[str, Any],
    ) -> Result:
        if not self._reached and not reachable(url):
            raise UsageError(f"{self.name} must be within reach; {self.base_url} does not answer{self.offline_hint}")
        self._reached = True
        session = self._session()
        adapter = cast(HTTPAdapter, session.get_adapter(url))
        retry = PacedRetry(
            self.attempts - 1,
            status_forcelist=retried,
            allowed_methods=None,
            backoff_factor=self.backoff,
            raise_on_status=False,
            limiter=self.limiter,
        )
        while True:
            adapter.max_retries = retry
            self.limiter.wait()
            try:
                reply = session.request(method, url, timeout=self.timeout, stream=True, **options)
            except (requests.ConnectionError, requests.Timeout) as error:
                raise self._failed(url, f"no whole reply ({_cause(error)})") from None
            except requests.RequestException as error:  # its text may hold the headers
                raise UsageError(f"a request to {url} must be possible; {type(error).__name__}") from None
            retry = cast(PacedRetry, reply.raw.retries)
            try:
                _read_body(reply, self.largest_reply if reply.ok else ERROR_BYTES, cut=not reply.ok)
                if reply.status_code not in retried:
                    return read(reply)
                message = self.server_message(reply)
                fault = f"HTTP {reply.status_code}{f': {message}' if message else ''}"
                pause = retry.get_retry_after(reply.raw) or 0.0
                if pause > LONGEST_WAIT:
                    raise UsageError(
                        f"{self.name} must accept a request within {LONGEST_WAIT:.0f} s; it demands a pause of "
                        f"{pause:.0f} s ({fault}); {self.resume_hint}"
                    )
                raise self._failed(url, fault)
            except requests.RequestException as error:  # the body ended early
                fault = f"no whole reply ({_cause(error)})"
            except TransientError as error:
                fault = first_line(error)
            demanded = min(retry.get_retry_after(reply.raw) or 0.0, LONGEST_WAIT)
            try:
                retry = retry.increment(method, url)
            except MaxRetryError:
                raise self._failed(url, fault) from None
            self.limiter.pause(max(retry.get_backoff_time(), demanded))

    def server_message(self, reply: Reply) -> str:
        """The words of an error reply on one line, without the secret."""
        text = reply.content.decode("utf-8", "replace")
        try:
            error = json.loads(text)["error"]
            text = error["message"] if isinstance(error, dict) else error
        except (ValueError, KeyError, TypeError, RecursionError):
            pass
        return self.redact(" ".join(str(text).split()))[:300]

    def redact(self, text: str) -> str:
        """The text with the secret replaced."""
        return text.replace(self._secret, "[key]") if self._secret else text

    def _session(self) -> requests.Session:
        """The session of this thread: requests promises no thread safety."""
        if not hasattr(self._local, "session"):
            session = requests.Session()
            session.hooks["response"].append(_cut_redirect)
            for scheme in ("https://", "http://"):
                session.mount(scheme, BoundedAdapter(self.largest_reply, self.longest_reply))
            self._local.session = session
            if self._user_agent is not None:
                self._local.session.headers["User-Agent"] = self._user_agent
        return cast(requests.Session, self._local.session)

    def _failed(self, url: str, fault: str) -> UsageError:
        return UsageError(
            f"{self.name} must answer; {self.attempts} attempts at {url} failed: {fault}; {self.resume_hint}"
        )


def _cause(error: requests.RequestException) -> str:
    """The kind of a failure; the texts of these errors may hold headers."""
    inner = error.args[0] if error.args else error
    return type(getattr(inner, "reason", None) or inner).__name__
