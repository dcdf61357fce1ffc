"""Public services that domains collect from, and checks of the records in their replies."""

import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from importlib import metadata
from typing import Any, TypeVar

from pydantic import TypeAdapter, ValidationError

from fsd.collection.source import Journal
from fsd.errors import UsageError, first_line
from fsd.files import JSON, reason_of
from fsd.net.http import Clock, HTTPClient, Reply, TransientError

Parsed = TypeVar("Parsed")
Record = TypeVar("Record")
FORBIDDEN = 403
# Number of records on a page from which the format seems to have changed if all of them are malformed.
MALFORMED = 10


class RefusedError(UsageError):
    """A reply with a final HTTP status."""

    def __init__(self, message: str, status: int) -> None:
        super().__init__(message)
        self.status = status


class FormatError(UsageError):
    """A record without a required field, or with a field of another type."""


class Service(HTTPClient):
    """A public service that is queried by GET, one request at a time.

    FSD_<NAME>_URL is the environment variable for another address, which `mirror` outranks; the contact in FSD_CONTACT
    is in the User-Agent header, as some services require.
    """

    resume_hint = "the texts collected so far are saved: run the same command again to resume"

    def __init__(self, name: str, url: str, *, interval: float, clock: Clock, mirror: str = "") -> None:
        variable = f"FSD_{name.upper()}_URL"
        self.contact = os.environ.get("FSD_CONTACT", "").strip()
        # Each entry is like "Source, https://...".
        links = metadata.metadata("fsd").get_all("Project-URL") or [""]
        page = links[0].partition(",")[2].strip()
        # Services block clients that do not say who they are and how to reach their user.
        purpose = "; ".join(filter(None, ("collects dated texts for research", page, self.contact)))
        user_agent = f"fsd/{metadata.version('fsd')} ({purpose})"
        super().__init__(
            mirror or os.environ.get(variable) or url, interval=interval, clock=clock, user_agent=user_agent
        )
        self.name = name
        self.offline_hint = f": go online, or name a mirror by {variable}"

    def get(
        self,
        path: str,
        parse: Callable[[bytes], Parsed],
        params: Mapping[str, Any] | None = None,
        *,
        throttled: Callable[[bytes], float] = lambda body: 0.0,
    ) -> Parsed:
        """Request a path and parse the body, again if that fails; `throttled`: seconds that an error demands."""

        def read(reply: Reply) -> Parsed:
            if not reply.ok:
                if pause := throttled(reply.content):
                    raise TransientError(f"HTTP {reply.status_code}: {self.server_message(reply)}", pause)
                raise self._refusal(reply)
            try:
                return parse(reply.content)
            except UsageError:
                # A format that has changed is final, although it is a ValueError too.
                raise
            except (ValueError, SyntaxError, RecursionError) as error:
                # JSON and XML that are cut off or nested without end, or an HTML page in their place.
                raise TransientError(f"a reply that cannot be read ({first_line(error)[:200]})") from error

        return self.request("GET", f"{self.base_url}{path}", read, params=params)

    def _refusal(self, reply: Reply) -> RefusedError:
        status = reply.status_code
        message = f"{self.name} must give {reply.url}; it answered HTTP {status}: {self.server_message(reply)}"
        if status == FORBIDDEN:
            if not self.contact:
                message += "; set FSD_CONTACT to an e-mail address or page, which services may require"
            message += f"; {self.resume_hint}"
        return RefusedError(message, status)


def record(kind: type[Parsed], value: object, service: str) -> Parsed:
    """What a service gives as a value of a type that pydantic knows; FormatError for what has another form."""
    try:
        return TypeAdapter(kind).validate_python(value)
    except ValidationError as error:
        reason = reason_of(error.errors())
        raise FormatError(f"{service} must give what it gave before; {reason}: its format may have changed") from error


def json_object(body: bytes) -> JSON:
    """The JSON object in a body; ValueError if there is none."""
    value = json.loads(body)
    if not isinstance(value, dict):
        raise ValueError("no JSON object")
    return value


def well_formed(
    records: Iterable[Record], parse: Callable[[Record], Parsed | None], journal: Journal
) -> Iterator[Parsed]:
    """The results of the records of a page but None; those for which `parse` raises FormatError are counted.

    FormatError at the end of a page, the first or with `MALFORMED` malformed records, without a well-formed one.
    """
    errors = []
    readable = False
    for record in records:
        try:
            parsed = parse(record)
        except FormatError as error:
            errors.append(error)
            continue
        if parsed is not None:
            readable = True
            yield parsed
    # A few odd records are the service's mistake and may not end a long collection; a page of them is a new format.
    if errors and not readable and (journal.cursor is None or len(errors) >= MALFORMED):
        raise errors[0]
    for _ in errors:
        journal.drop("malformed record")
