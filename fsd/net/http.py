"""HTTP clients with a rate limit, retries, and one-line errors.

A service that the user names is trusted: a timeout is that of requests, for each part of a reply.
"""

import json
import logging
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from datetime import date as Date  # noqa: N812 - the same name as in fsd.data.documents
from typing import Any, TypeVar, cast

import requests
from urllib3 import Retry
from urllib3.exceptions import HTTPError, MaxRetryError

from fsd.errors import UsageError, first_line, without_credentials
from fsd.net.hub import direct

# HTTP statuses worth another attempt; 529 is that of an overloaded model service.
RETRIED = frozenset({408, 429, 500, 502, 503, 504, 529})
# Longest pause in seconds that a Retry-After header may demand; beyond it the request fails.
LONGEST_WAIT = 900.0
# Errors of connections that cannot be made or end early, and of bodies that cannot be decompressed.
BROKEN = (
    requests.ConnectionError,
    requests.Timeout,
    requests.exceptions.ChunkedEncodingError,
    requests.exceptions.ContentDecodingError,
)

Reply = requests.Response
Result = TypeVar("Result")

# urllib3 logs headers that it cannot parse, which would tear the progress bar.
logging.getLogger("urllib3.connectionpool").setLevel(logging.ERROR)


class TransientError(Exception):
    """A reply that is broken, or says that the service is busy: worth another attempt after `pause` seconds."""

    def __init__(self, message: str, pause: float = 0.0) -> None:
        super().__init__(message)
        self.pause = pause


@dataclass(frozen=True)
class Clock:
    """Time as an argument; by default `sleep` is a wait that `HTTPClient.stop` ends."""

    monotonic: Callable[[], float] = time.monotonic
    wall: Callable[[], float] = time.time
    sleep: Callable[[float], object] | None = None

    @property
    def today(self) -> Date:
        """The current day in UTC."""
        return datetime.fromtimestamp(self.wall(), UTC).date()


class HTTPClient:
    """A service over HTTP for many threads, its requests `interval` s apart; no message contains the `secret`."""

    name = "the service"  # subject of error messages
    attempts = 6  # requests in all before a failure is final
    backoff = 2.0  # seconds before the second attempt, doubled before each further one
    timeout = (10.0, 60.0)  # seconds for the connection, and for each part of a reply
    offline_hint = ""  # what to do if the service cannot be reached
    resume_hint = ""  # what to do after the last attempt

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
        self.clock = clock or Clock()
        self._interval = interval
        self._user_agent = user_agent
        self._secret = secret
        self._next_start = float("-inf")
        self._lock = threading.Lock()
        self._stopped = threading.Event()
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
        """Send a request with options of `requests`, again after transient failures, and read the reply.

        A retry waits for `backoff`, doubled each time, or for as long as Retry-After demands. `read` makes the result
        of a reply or error whose status is not `retried`; it may raise `TransientError`, and UsageError for what is
        final.
        """
        fault = ""
        for attempt in range(self.attempts):
            self._wait()
            demanded = 0.0
            try:
                reply = self._session().request(method, url, timeout=self.timeout, proxies=direct(url), **options)
                # From now on, a connection that fails is worth another attempt.
                self._reached = True
                demanded = _retry_after(reply)
                if reply.status_code not in retried:
                    return read(reply)
                fault = f"HTTP {reply.status_code}: {self.server_message(reply)}".removesuffix(": ")
            except TransientError as error:
                fault = first_line(error)
                demanded = max(demanded, error.pause)
            except BROKEN as error:
                # Without a network it fails at once.
                if not self._reached and isinstance(error.args[0], MaxRetryError):
                    raise UsageError(
                        f"{self.name} must be within reach; {self.base_url} does not answer{self.offline_hint}"
                    ) from None
                # The texts of these errors may hold headers, and so the key of the user.
                fault = f"no whole reply ({type(error).__name__})"
            except requests.RequestException as error:
                raise UsageError(f"a request to {url} must be possible; {type(error).__name__}") from None
            if demanded > LONGEST_WAIT:
                raise UsageError(
                    f"{self.name} must accept a request within {LONGEST_WAIT:.0f} s; it demands a pause of "
                    f"{demanded:.0f} s ({fault}); {self.resume_hint}"
                )
            self.pause(max(self.backoff * 2**attempt, demanded))
        raise UsageError(
            f"{self.name} must answer; {self.attempts} attempts at {url} failed: {fault}; {self.resume_hint}"
        )

    def pause(self, seconds: float) -> None:
        """Start no request for so many seconds."""
        with self._lock:
            self._next_start = max(self._next_start, self.clock.monotonic() + seconds)

    def stop(self) -> None:
        """Let no request start any more, nor those that wait already: UsageError in their threads."""
        self._stopped.set()

    def _wait(self) -> None:
        # Waiting for the event ends at once when the client is stopped.
        sleep = self.clock.sleep or self._stopped.wait
        while not self._stopped.is_set():
            with self._lock:
                seconds = self._next_start - self.clock.monotonic()
                if seconds <= 0:
                    # Under the lock, so that two threads cannot take the same moment.
                    self._next_start = self.clock.monotonic() + self._interval
                    return
            sleep(seconds)
        raise UsageError("the job was stopped")

    def server_message(self, reply: Reply) -> str:
        """The words of an error reply on one line, without the secret."""
        text = reply.content.decode("utf-8", "replace")
        # Services of OpenAI's form send an object or a string.
        with suppress(ValueError, KeyError, TypeError):
            error = json.loads(text)["error"]
            text = error["message"] if isinstance(error, dict) else error
        return self.redact(" ".join(str(text).split()))[:300]

    def redact(self, text: str) -> str:
        """The text without the secret."""
        return without_credentials(text, self._secret)

    def _session(self) -> requests.Session:
        """The session of this thread: requests promises no thread safety."""
        if not hasattr(self._local, "session"):
            session = self._local.session = requests.Session()
            if self._user_agent is not None:
                # As bytes: of a string, only letters of Latin-1 can be sent.
                session.headers["User-Agent"] = self._user_agent.encode()
        return cast(requests.Session, self._local.session)


def field_of(value: Any, name: str) -> Any:
    """A field of what should be a JSON object; None if it is no object or has no such field."""
    return value.get(name) if isinstance(value, dict) else None


def _retry_after(reply: Reply) -> float:
    """Seconds that the header demands, a number or a date; 0 for anything else."""
    try:
        return float(Retry().parse_retry_after(reply.headers.get("Retry-After", "")))
    except HTTPError:
        return 0.0
