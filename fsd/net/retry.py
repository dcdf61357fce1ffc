"""Asking a service again: what everything that speaks HTTP has in common, whatever it asks for."""

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import date as Date  # noqa: N812 - the same name as in fsd.data.documents
from datetime import timedelta
from email.utils import parsedate_to_datetime
from typing import TypeVar

from fsd.errors import UsageError

AGAIN = frozenset({408, 429, 500, 502, 503, 504})
"""Answers that are worth asking again."""
PATIENCE = 900.0
"""Most seconds to wait when a service asks for it; beyond that the user is told to come back."""

Answer = TypeVar("Answer")


@dataclass(frozen=True)
class Clock:
    """Time as an argument: seconds that only grow, seconds since 1970, and a way to wait."""

    monotonic: Callable[[], float] = time.monotonic
    wall: Callable[[], float] = time.time
    sleep: Callable[[float], None] = time.sleep

    @property
    def today(self) -> Date:
        """The day now, in universal time."""
        return Date(1970, 1, 1) + timedelta(days=int(self.wall() // 86400))


class UnfinishedError(Exception):
    """A reply that is worth asking for again, after at least `wait` seconds."""

    def __init__(self, why: str, wait: float = 0.0) -> None:
        super().__init__(why)
        self.wait = wait


@dataclass(frozen=True)
class Patience:
    """How often a service is asked again, and what is said when that was no use.

    Attributes:
        who: the service, as in messages.
        attempts: in all.
        backoff: seconds before the second attempt; they double with each further one.
        resume: what the user can do then.
    """

    who: str
    attempts: int
    backoff: float
    resume: str

    def asked(self, once: Callable[[], Answer], pause: Callable[[float], None], where: str) -> Answer:
        """What `once` gives in the end; after each `UnfinishedError` it is asked again.

        Args:
            once: asks.
            pause: told for how many seconds nothing is to be asked.
            where: what is asked, for the message.

        Raises:
            UsageError: if no attempt succeeds, or the service wants to be asked later than anybody would wait.
        """
        why = ""
        for attempt in range(self.attempts):
            try:
                return once()
            except UnfinishedError as fault:
                why = str(fault)
                if fault.wait > PATIENCE:
                    raise UsageError(
                        f"{self.who} must be asked again in {fault.wait:.0f} s ({why}), not now; {self.resume}"
                    ) from fault
                pause(max(fault.wait, self.backoff * 2**attempt))
        raise UsageError(f"{self.who} must answer; {self.attempts} attempts at {where} failed: {why}; {self.resume}")


def retry_after(value: str, clock: Clock) -> float:
    """Seconds that a Retry-After header asks for, as a number or a date; 0 for none or nonsense."""
    try:
        seconds = float(value)
        return seconds if math.isfinite(seconds) and seconds > 0 else 0.0
    except ValueError:
        pass
    try:
        return max(0.0, parsedate_to_datetime(value.strip()).timestamp() - clock.wall())
    except ValueError:
        return 0.0
