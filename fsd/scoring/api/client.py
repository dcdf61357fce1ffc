"""Requests to a completions API: spaced, retried with patience, given up at once where patience is no use.

- Requests begin at least 60 / per_minute seconds apart, however many threads ask.
- 408, 429 and 5xx, a broken connection and a reply that ends early are asked for again, after 1, 2, 4, ... seconds or
  what the service says in Retry-After, whichever is longer; all threads wait together.
- Anything else that is no success is final: a key that is refused is not tried a thousand times.
- The key comes from the environment and goes into one header of one request. It is in no message, whatever the
  service answers, and it follows no redirect.
"""

import json
import os
import threading
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import urlsplit

import requests

from fsd.errors import UsageError
from fsd.net.hub import reachable
from fsd.net.retry import AGAIN, Clock, Patience, UnfinishedError, retry_after

KEY, OPENAI_KEY = "FSD_API_KEY", "OPENAI_API_KEY"
OPENAI = "api.openai.com"
ATTEMPTS = 7
BACKOFF = 1.0
TIMEOUT = (10.0, 600.0)
"""Seconds for the connection, and for an answer that may stand in the server's queue."""
BUSY = frozenset({429, 503})
"""What a service answers that has an address, but no time for it."""
RESUME = "what was scored is kept: run the same command again to go on from there"
REFUSALS = {
    401: "the key is missing or wrong",
    402: "the account has no credit",
    403: "the key may not use this model",
    404: "there is no such model or address; --base-url usually ends in /v1",
}


def key_for(url: str, environment: Mapping[str, str] = os.environ) -> str:
    """The key to send to an address: $FSD_API_KEY, or $OPENAI_API_KEY to OpenAI itself and to nobody else.

    Raises:
        UsageError: for a key that no header can hold, without showing it.
    """
    named = environment.get(KEY, "").strip()
    if not named and urlsplit(url).hostname == OPENAI:
        named = environment.get(OPENAI_KEY, "").strip()
    if not all("!" <= sign <= "~" for sign in named):
        raise UsageError(f"the key in {KEY} or {OPENAI_KEY} must be printable ASCII without spaces; it is not")
    return named


class Client:
    """One completions API, asked from any number of threads.

    Args:
        base_url: its address up to /v1, without the name of the endpoint.
        key: sent as a bearer token; "" sends none.
        per_minute: requests that may begin in a minute; None is no limit.
        clock: for waiting.

    Raises:
        UsageError: for an address that is none or holds a password, or a rate that is not above 0.
    """

    def __init__(
        self, base_url: str, *, key: str = "", per_minute: float | None = None, clock: Clock | None = None
    ) -> None:
        parts = urlsplit(base_url)
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment:
            raise UsageError("base-url must look like http://localhost:8000/v1, with nothing after the path")
        if parts.username or parts.password:
            raise UsageError(f"base-url must hold no user and no password; a key goes into the environment as {KEY}")
        if per_minute is not None and not per_minute > 0:
            raise UsageError(f"requests-per-minute must be above 0; got {per_minute}")
        self.base_url = base_url.rstrip("/")
        self.root = self.base_url.removesuffix("/v1")
        self.url = f"{self.base_url}/completions"
        self._key = key
        self._interval = 60 / per_minute if per_minute else 0.0
        self._clock = clock or Clock()
        self._lock = threading.Lock()
        self._local = threading.local()
        self._free = float("-inf")
        self._stopped = threading.Event()
        self._reached = False

    def stop(self) -> None:
        """Let threads that wait for their turn give up: the job has failed or was interrupted."""
        self._stopped.set()

    def post(self, body: Mapping[str, Any], url: str = "") -> dict[str, Any]:
        """Ask for a completion, or another address of the service, and give the JSON object that is answered.

        Raises:
            UsageError: if the service refuses, answers no JSON, or fails in `ATTEMPTS` attempts.
        """
        url = url or self.url
        return self._patiently(lambda: self._answer(self._send("POST", url, body), url), url)

    def look(self, url: str) -> dict[str, Any]:
        """The JSON object at an address that a service need not have; {} where it has none.

        Raises:
            UsageError: if the service is out of reach, or too busy in `ATTEMPTS` attempts.
        """

        def once() -> dict[str, Any]:
            reply = self._send("GET", url)
            if reply.status_code in BUSY:
                raise UnfinishedError(f"HTTP {reply.status_code}: {self._said(reply)}", self._wait_of(reply))
            return (_json(reply) or {}) if reply.status_code == 200 else {}

        return self._patiently(once, url)

    def _patiently(self, ask: Callable[[], dict[str, Any]], url: str) -> dict[str, Any]:
        return Patience("the API", ATTEMPTS, BACKOFF, RESUME).asked(ask, self._pause, url)

    def _pause(self, seconds: float) -> None:
        with self._lock:
            self._free = max(self._free, self._clock.monotonic() + seconds)

    def _wait_for_turn(self) -> None:
        while not self._stopped.is_set():
            with self._lock:
                wait = self._free - self._clock.monotonic()
                if wait <= 0:
                    self._free = self._clock.monotonic() + self._interval
                    return
            self._clock.sleep(min(wait, 1.0))  # a pause may be made longer, or the job stopped, meanwhile
        raise UsageError(f"the job was stopped; {RESUME}")

    def _send(self, method: str, url: str, body: Mapping[str, Any] | None = None) -> requests.Response:
        self._wait_for_turn()
        try:
            reply = self._session().request(
                method, url, json=body, auth=self._authorise, timeout=TIMEOUT, allow_redirects=False
            )
        except (requests.ConnectionError, requests.Timeout, requests.exceptions.ChunkedEncodingError) as error:
            if not self._reached and not reachable(url):
                raise UsageError(f"the API must be within reach; {self.base_url} does not answer") from None
            raise UnfinishedError(f"no whole reply ({type(error).__name__})") from None  # its text may hold the header
        except requests.RequestException as error:
            raise UsageError(f"a request to {url} must be possible; {type(error).__name__}") from None
        self._reached = True
        return reply

    def _answer(self, reply: requests.Response, url: str) -> dict[str, Any]:
        if reply.status_code in AGAIN or reply.status_code == 529:
            raise UnfinishedError(
                f"HTTP {reply.status_code}: {self._said(reply)}",
                retry_after(reply.headers.get("Retry-After", ""), self._clock),
            )
        if reply.status_code != 200:
            hint = REFUSALS.get(reply.status_code, "")
            told = f"{hint}: {self._said(reply)}" if hint else self._said(reply)
            raise UsageError(f"the API must give a completion; {url} answered HTTP {reply.status_code}: {told}")
        found = _json(reply)
        if found is None:
            raise UsageError(f"the API must answer with a JSON object; {url} answered {self._said(reply)!r}")
        return found

    def _wait_of(self, reply: requests.Response) -> float:
        return retry_after(reply.headers.get("Retry-After", ""), self._clock)

    def _session(self) -> requests.Session:
        if not hasattr(self._local, "session"):  # a session of requests belongs to one thread
            self._local.session = requests.Session()
        session: requests.Session = self._local.session
        return session

    def _authorise(self, request: requests.PreparedRequest) -> requests.PreparedRequest:
        # As `auth`, not as a header: else a password from ~/.netrc would go before it.
        if self._key:
            request.headers["Authorization"] = f"Bearer {self._key}"
        return request

    def _said(self, reply: requests.Response) -> str:
        """The service's own words in one line, without the key, even if it repeats it."""
        text = reply.content.decode("utf-8", "replace")
        try:
            error = json.loads(text)["error"]
            text = error["message"] if isinstance(error, dict) else error
        except (ValueError, KeyError, TypeError):
            pass
        line = " ".join(str(text).split())
        return (line.replace(self._key, "[key]") if self._key else line)[:300]


def _json(reply: requests.Response) -> dict[str, Any] | None:
    try:
        found = json.loads(reply.content)
    except ValueError:
        return None
    return found if isinstance(found, dict) else None
