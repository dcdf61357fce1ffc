"""Requests to a completions API.

The key comes from the environment and goes into one header of one request. It appears in no message, even if the
service repeats it, and follows no redirect.
"""

import json
import os
from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from fsd.errors import UsageError
from fsd.net.http import Clock, HTTPClient, Reply

if TYPE_CHECKING:
    from requests import PreparedRequest

KEY, OPENAI_KEY = "FSD_API_KEY", "OPENAI_API_KEY"
OPENAI = "api.openai.com"
BUSY = frozenset({429, 503})
"""Statuses of an address that exists on a service that is overloaded."""
REFUSALS = {
    401: "the key is missing or wrong: ",
    402: "the account has no credit: ",
    403: "the key may not use this model: ",
    404: "there is no such model or address; --base-url usually ends in /v1: ",
}


def key_for(url: str, environment: Mapping[str, str] = os.environ) -> str:
    """The key for an address: $FSD_API_KEY, or $OPENAI_API_KEY for OpenAI itself alone."""
    key = environment.get(KEY, "").strip()
    if not key and urlsplit(url).hostname == OPENAI:
        key = environment.get(OPENAI_KEY, "").strip()
    if not all("!" <= sign <= "~" for sign in key):
        raise UsageError(f"the key in {KEY} or {OPENAI_KEY} must be printable ASCII without spaces; it is not")
    return key


class Client(HTTPClient):
    """One completions API, at its address up to /v1, with at most `per_minute` requests that start in a minute."""

    name = "the API"
    attempts = 7
    backoff = 1.0
    timeout = (10.0, 600.0)  # a reply may wait in the server's queue
    largest_reply = 2**28
    longest_reply = 1800.0
    resume_hint = "the texts scored so far are saved: run the same command again to resume"

    def __init__(
        self, base_url: str, *, key: str = "", per_minute: float | None = None, clock: Clock | None = None
    ) -> None:
        try:
            parts = urlsplit(base_url)
            parts.port  # noqa: B018 - read for its error: it is parsed here
        except ValueError as error:
            raise UsageError(f"base-url must look like http://localhost:8000/v1; {error}") from error
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment:
            raise UsageError("base-url must look like http://localhost:8000/v1, with nothing after the path")
        if parts.username or parts.password:
            raise UsageError(f"base-url must hold no user and no password; a key goes into the environment as {KEY}")
        if per_minute is not None and not per_minute > 0:
            raise UsageError(f"requests-per-minute must be above 0; got {per_minute}")
        super().__init__(base_url, interval=60 / per_minute if per_minute else 0.0, clock=clock, secret=key)
        self._checked = False
        self._ask = partial(self.request, auth=self._authorise, allow_redirects=False)

    def complete(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """The JSON object that the service answers to a request for a completion."""
        url = f"{self.base_url}/completions"

        def read(reply: Reply) -> dict[str, Any]:
            words = self.server_message(reply)
            if reply.status_code != 200:
                raise UsageError(
                    f"the API must give a completion; {url} answered HTTP {reply.status_code}: "
                    f"{REFUSALS.get(reply.status_code, '')}{words}"
                )
            answer = _json(reply)
            if not isinstance(answer, dict):
                raise UsageError(f"the API must answer with a JSON object; {url} answered {words!r}")
            return answer

        return self._ask("POST", url, read, json=body)

    def check_server(self) -> None:
        """Refuse llama-cpp-python's own server, by its list of models; asks once."""
        if self._checked:
            return
        answer = self._ask("GET", f"{self.base_url}/models", _json, retried=BUSY)
        rows = answer.get("data") if isinstance(answer, dict) else None
        for row in rows if isinstance(rows, list) else ():
            if isinstance(row, dict) and row.get("owned_by") == "me" and "permissions" in row:
                raise UsageError(
                    "the API must not be llama-cpp-python's own server, which takes no token ids and, where a model "
                    "puts no start token, pairs log-probabilities with the wrong tokens: serve the model by vLLM"
                )
        self._checked = True

    def _authorise(self, request: "PreparedRequest") -> "PreparedRequest":
        # As `auth`, not as a header: else a password from ~/.netrc would go before it.
        if self._secret:
            request.headers["Authorization"] = f"Bearer {self._secret}"
        return request


def _json(reply: Reply) -> Any:
    """The JSON value of a reply; None if it is none."""
    try:
        return json.loads(reply.content)
    except (ValueError, RecursionError):
        return None
