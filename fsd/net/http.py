"""HTTP clients with a rate limit, retries and one-line errors.

The retries are urllib3's `Retry` in the adapter of a requests session: statuses in `RETRIED`, connections that cannot
be made or break off. `HTTPClient.request` adds what urllib3 cannot see, replies that end early or cannot be parsed, and
takes them from the same budget. All waits go through one `RateLimiter`, so the threads of a client pause together.
"""

import json
import logging
import math
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import date as Date  # noqa: N812 - the same name as in fsd.data.documents
from datetime import timedelta
from email.utils import parsedate_to_datetime
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

Reply = requests.Response
Result = TypeVar("Result")

# urllib3 logs every retry of a broken connection, which would tear the progress bar
logging.getLogger("urllib3.connectionpool").setLevel(logging.ERROR)


class TransientError(Exception):
    """A reply with HTTP status 200 that is broken, or says that the service is busy: worth another attempt."""


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
            read: makes the result of a reply, whose body is read from the connection then; it may raise
                `TransientError`, and UsageError for what is final.
            retried: statuses that lead to another attempt; replies of all others go to `read`.
            options: of `requests.Session.request`.

        Raises:
            UsageError: if the service cannot be reached, fails in all attempts, or demands too long a pause.
        """
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
            try:
                retry = retry.increment(method, url)
            except MaxRetryError:
                raise self._failed(url, fault) from None
            self.limiter.pause(retry.get_backoff_time())

    def server_message(self, reply: Reply) -> str:
        """The words of an error reply on one line, without the secret."""
        text = reply.content.decode("utf-8", "replace")
        try:
            error = json.loads(text)["error"]
            text = error["message"] if isinstance(error, dict) else error
        except (ValueError, KeyError, TypeError):
            pass
        return self.redact(" ".join(str(text).split()))[:300]

    def redact(self, text: str) -> str:
        """The text with the secret replaced."""
        return text.replace(self._secret, "[key]") if self._secret else text

    def _session(self) -> requests.Session:
        """The session of this thread: requests promises no thread safety."""
        if not hasattr(self._local, "session"):
            self._local.session = requests.Session()
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
