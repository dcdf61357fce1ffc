"""Polite requests to a public service: spaced, retried with patience, and honest about who asks.

- At least the service's own interval lies between two requests; no two are ever open at once.
- 429 and 5xx, a broken connection, and a reply that ends early or cannot be parsed are asked for again, after
  2, 4, 8, ... seconds or what the service says in Retry-After, whichever is longer.
- A service that does not accept a connection at all is given up at once, before the first request.
- FSD_CONTACT (an address or a page) is added to the user agent: some services want to know whom to write to.
"""

import json
import os
from collections.abc import Callable, Mapping
from datetime import date as Date  # noqa: N812 - the same name as in fsd.data.documents
from datetime import datetime
from importlib import metadata
from typing import Any, TypeVar

import requests

from fsd.errors import UsageError
from fsd.net.hub import reachable
from fsd.net.retry import AGAIN, Clock, Patience, UnfinishedError, retry_after

ATTEMPTS = 6
BACKOFF = 2.0
TIMEOUT = (10.0, 60.0)
"""Seconds for the connection and for each part of a reply."""
RESUME = "what was collected is kept: run the same command again to go on from there"

Parsed = TypeVar("Parsed")


class RefusedError(UsageError):
    """The service answered that it will not give this; `status` is HTTP's."""

    def __init__(self, message: str, status: int) -> None:
        super().__init__(message)
        self.status = status


def user_agent() -> str:
    """Who asks: the project, its version, and whom to write to if that is known."""
    contact = os.environ.get("FSD_CONTACT", "").strip()
    return f"fsd/{metadata.version('fsd')} (collects dated texts for research{f'; {contact}' if contact else ''})"


class Service:
    """A public service, asked one question at a time.

    Args:
        name: as in messages, and in FSD_<NAME>_URL, the environment's word for another address.
        url: its address.
        interval: seconds between the starts of two requests.
        clock: for waiting.
        mirror: another address, which outranks the environment.
    """

    def __init__(self, name: str, url: str, *, interval: float, clock: Clock, mirror: str = "") -> None:
        self.name = name
        self._variable = f"FSD_{name.upper()}_URL"
        self.url = (mirror or os.environ.get(self._variable) or url).rstrip("/")
        self._interval = interval
        self._clock = clock
        self._free = float("-inf")
        self._session: requests.Session | None = None

    def get(self, path: str, parse: Callable[[bytes], Parsed], params: Mapping[str, Any] | None = None) -> Parsed:
        """Ask, and read the answer.

        Args:
            path: after the address of the service.
            parse: makes of the body what is returned. A ValueError or SyntaxError of it means a broken reply, which
                is asked for again; a UsageError is final.
            params: of the query.

        Raises:
            RefusedError: if the service will not give this, for a reason that another attempt does not cure.
            UsageError: if it cannot be reached, or not within `ATTEMPTS`.
        """
        patience = Patience(self.name, ATTEMPTS, BACKOFF, RESUME)
        return patience.asked(
            lambda: self._parsed(parse, self._ask(path, params or {})), self.pause, f"{self.url}{path}"
        )

    def pause(self, seconds: float) -> None:
        """Ask nothing for so long."""
        self._free = max(self._free, self._clock.monotonic() + seconds)

    def _parsed(self, parse: Callable[[bytes], Parsed], body: bytes) -> Parsed:
        try:
            return parse(body)
        except UsageError:
            raise
        except (ValueError, SyntaxError) as error:
            raise UnfinishedError(f"a reply that cannot be read ({_line(error)})") from error

    def _ask(self, path: str, params: Mapping[str, Any]) -> bytes:
        session = self._open()
        wait = self._free - self._clock.monotonic()
        if wait > 0:
            self._clock.sleep(wait)
        self.pause(self._interval)
        try:
            reply = session.get(self.url + path, params=params, timeout=TIMEOUT)
        except requests.RequestException as error:
            raise UnfinishedError(f"no whole reply ({_line(error)})") from error
        if reply.status_code in AGAIN:
            wait = retry_after(reply.headers.get("Retry-After", ""), self._clock)
            raise UnfinishedError(f"HTTP {reply.status_code}", wait)
        if not reply.ok:
            said = " ".join(reply.text.split())[:200]
            raise RefusedError(
                f"{self.name} must give {reply.url}; it answered HTTP {reply.status_code}: {said}", reply.status_code
            )
        return reply.content

    def _open(self) -> requests.Session:
        if self._session is None:
            if not reachable(self.url):
                raise UsageError(
                    f"{self.name} must be within reach; {self.url} does not answer: go online, or name a mirror by "
                    f"{self._variable}"
                )
            self._session = requests.Session()
            self._session.headers["User-Agent"] = user_agent()
        return self._session


def _line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0][:200]


KINDS: dict[type, str] = {str: "a string", int: "a whole number", list: "a list", dict: "an object"}


def field(record: object, name: str, service: str, kind: type | None = None) -> Any:
    """What a record of a reply must have.

    Args:
        record: an object of the reply.
        name: of the field.
        service: whose reply it is.
        kind: what its value must be, one of `KINDS`; None for anything.

    Raises:
        UsageError: if it has not, which names the field.
    """
    if not isinstance(record, Mapping):
        raise changed(service, f"{name!r} in an object", record)
    if name not in record:
        there = ", ".join(map(str, record)) or "nothing"
        raise UsageError(f"{service} must give {name!r} here; it gives {there}: its format may have changed")
    if kind and not isinstance(record[name], kind):
        raise changed(service, f"{name!r} as {KINDS[kind]}", record[name])
    return record[name]


def iso_day(stamp: str, name: str, service: str) -> Date:
    """The day of a field that holds an ISO date or time.

    Raises:
        UsageError: if it holds something else, which names the field.
    """
    try:
        return datetime.fromisoformat(stamp.strip()).date()
    except ValueError as error:
        raise changed(service, f"{name!r} as an ISO date", stamp) from error


def changed(service: str, wanted: str, got: object) -> UsageError:
    """The error of a reply in a format that is not known."""
    shown = repr(got)
    shown = shown if len(shown) <= 60 else shown[:57] + "..."
    return UsageError(f"{service} must give {wanted} here; it gives {shown}: its format may have changed")


def json_object(body: bytes) -> dict[str, Any]:
    """A reply that must be one JSON object."""
    found = json.loads(body)
    if not isinstance(found, dict):
        raise ValueError("no JSON object")
    return found
